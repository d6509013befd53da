"""The front door for clients and agents: gRPC on 9090, HTTP on 8080.

Stateless: the Kubernetes API is the queue and the database. Replicas are free, and a restart loses nothing.
"""
