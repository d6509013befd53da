"""Serves a model with a canary from a program of your own: the inference library, without the operator.

    python examples/embed_inference.py --image registry.example.com/vmafx:1

The image is one of vmafx: its scoring server answers requests to score clips with the model (docs/inference.md). The
program uses the cluster of the current kubeconfig: it starts a model with a canary that gets a quarter of the requests,
raises that to a half, promotes the canary, and deletes everything again.
"""

import argparse
import asyncio
import sys

import msgspec

from vmafx.inference import (
    CanarySpec,
    ClusterKubeClient,
    InvalidSpec,
    ObjectMeta,
    Reconciler,
    ServingOptions,
    ZerfooInferenceService,
    ZerfooInferenceServiceSpec,
)
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError

POLL = 1.0  # seconds
FIRST, SECOND = "vmaf_v0.6.1", "vmaf_v0.6.1neg"  # built-in models


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve a model with a canary, promote the canary, clean up.")
    parser.add_argument("--namespace", default="default", help="namespace of the service (default: %(default)s)")
    parser.add_argument("--image", required=True, help="image of vmafx, which the replicas run")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each step (default: %(default)s)")
    return parser.parse_args()


async def until_ready(reconciler: Reconciler, service: ZerfooInferenceService, within: float) -> None:
    """Reconcile until the service is ready, and print what it waits for."""
    printed = None
    try:
        async with asyncio.timeout(within):
            while not (status := await reconciler.reconcile(service)).ready:
                if status.message != printed:
                    print(f"  {status.message}", flush=True)
                printed = status.message
                await asyncio.sleep(POLL)
    except TimeoutError:
        raise TimeoutError(f"not ready within {within:g} s: {printed}") from None
    canary = f", {status.canaryReplicas} of them canary with {status.canaryWeight} %" if status.canaryReplicas else ""
    print(f"  ready at {status.url}: {status.replicas} replicas{canary}", flush=True)


async def run(options: argparse.Namespace) -> None:
    async with Client(load_config()) as client:
        # Any object with the ten calls of vmafx.inference.KubeClient will do; this one talks to the API server.
        reconciler = Reconciler(ClusterKubeClient(client, ServingOptions(vmafx_image=options.image)))

        spec = ZerfooInferenceServiceSpec(FIRST, replicas=3, canary=CanarySpec(SECOND, weight=25))
        service = ZerfooInferenceService(metadata=ObjectMeta(name="demo", namespace=options.namespace), spec=spec)
        try:
            print(f"serving {FIRST}, with {SECOND} as a canary", flush=True)
            await until_ready(reconciler, service, options.timeout)

            print("raising the weight of the canary to 50 %", flush=True)
            service = with_spec(service, msgspec.structs.replace(spec, canary=CanarySpec(SECOND, weight=50)))
            await until_ready(reconciler, service, options.timeout)

            # The canary keeps its requests until every replica of the primary has its model.
            print("promoting the canary", flush=True)
            service = with_spec(service, msgspec.structs.replace(spec, modelRef=SECOND, canary=None))
            await until_ready(reconciler, service, options.timeout)
        finally:
            # Children have no owner in the cluster: nobody else removes them.
            print("deleting the service", flush=True)
            await reconciler.delete(service)


def with_spec(service: ZerfooInferenceService, spec: ZerfooInferenceServiceSpec) -> ZerfooInferenceService:
    return msgspec.structs.replace(service, spec=spec)


def main() -> None:
    try:
        asyncio.run(run(arguments()))
    except (KubeError, InvalidSpec, TimeoutError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
