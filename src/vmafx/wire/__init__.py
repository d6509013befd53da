"""The controller's calls: messages and service generated from proto/ by `make proto`, and client.py, which makes calls.

To import a module of this package is to import protobuf, and the client grpc: a role does so when it first needs it.
"""
