"""The controller's service on a gRPC server."""

from contextlib import AbstractAsyncContextManager

import grpc

from vmafx.auth.access import AccessControl
from vmafx.controller.errors import kube_status_error
from vmafx.controller.routes import SERVICE, Servicer
from vmafx.http.address import ListenAddress
from vmafx.kube.errors import KubeError
from vmafx.rpc import server
from vmafx.rpc.service import RpcLimits, RpcService
from vmafx.runtime.metrics import Metrics

CONTROLLER = RpcService(
    descriptor=SERVICE,
    name="controller",
    metrics_prefix="vmafx_controller",
    translate=lambda error: kube_status_error(error) if isinstance(error, KubeError) else None,
    limits=RpcLimits(connections=30_000),  # one for each agent, and some for clients
)


def serve_grpc(
    address: ListenAddress,
    credentials: grpc.ServerCredentials | None,
    servicer: Servicer,
    access: AccessControl,
    metrics: Metrics,
    grace: float,
) -> AbstractAsyncContextManager[int]:
    """Serve until the context ends; yields the port. Unfinished calls then have `grace` seconds to finish."""
    return server.serve_grpc(address, credentials, CONTROLLER, servicer, access, metrics.registry, grace)
