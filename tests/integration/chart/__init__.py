"""The Helm chart: rendered by Helm, accepted by a real API server."""
