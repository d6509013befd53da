"""Helpers that several test packages use: servers, processes, fixtures' contents, invariants. No tests."""
