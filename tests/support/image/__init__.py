"""Builds docker/Dockerfile.operator where there is no Docker, looks into the image and runs its commands.

Nothing of vmafx is imported here but its cache folder; tests/e2e/image.py is what other tests use.
"""
