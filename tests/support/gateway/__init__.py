"""A real gateway for tests: Envoy Gateway and Envoy as processes, and backends that stand in for model servers.

backends.py  HTTP servers that respond with the name and the track of their Pod
children.py  the Deployments, Services and HTTPRoute of an inference service, created by hand
"""
