"""The gRPC services: messages and stubs that `make proto` generates from proto/, and a client of the controller.

Importing a module of this package loads protobuf, and client.py grpc too: roles import it only when they need it.

    client.py  calls to a controller, with TLS, tokens and typed errors
"""
