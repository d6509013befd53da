"""The controller's messages and calls, generated from proto/ by `make proto`; nothing else lives here.

To import a module of this package is to import grpc: a role does so when it first needs it.
"""
