"""Inference services on a real control plane."""
