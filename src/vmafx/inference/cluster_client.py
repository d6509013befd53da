"""KubeClient over a real API server."""

from typing import Any

import msgspec

from vmafx.api.inference import PORT_VARIABLE
from vmafx.api.validation import InvalidSpec
from vmafx.inference import manifests
from vmafx.inference.children import HPA, SERVICE_LABEL, Deployment, Service, ServiceRef
from vmafx.inference.gpu import PREFERRED, REQUIRED
from vmafx.inference.live import env_value, live_deployment, server_of
from vmafx.inference.manifests import Manifest, ServingOptions
from vmafx.kube import Client, ObjectKey, Resource
from vmafx.kube.core import DEPLOYMENTS, HPAS, SERVICES
from vmafx.kube.errors import AlreadyExists
from vmafx.kube.resources import UntypedObject

DEPLOYMENT_ANNOTATION = "vmafx.dev/deployment"  # the Deployment as it was written: a manifest does not tell all of it


class ClusterKubeClient:
    """Implements KubeClient and DeletingKubeClient. Objects are plain: no owner, so call `Reconciler.delete`.

    Replicas are written only where they differ from the live number, so that an autoscaler keeps its decision. Raises
    InvalidSpec if neither the service nor the options have an image.
    """

    def __init__(self, client: Client, options: ServingOptions | None = None) -> None:
        self._client, self._options = client, options or ServingOptions()

    async def get_deployment(self, namespace: str, name: str) -> Deployment:
        found = await self._get(DEPLOYMENTS, namespace, name)
        meta, spec = found["metadata"], found["spec"]
        live = live_deployment(meta["generation"], spec, found.get("status"))
        written = meta.get("annotations", {}).get(DEPLOYMENT_ANNOTATION)
        base = msgspec.json.decode(written, type=Deployment) if written else Deployment(name, namespace, 1, "")
        server = server_of(spec)
        return msgspec.structs.replace(
            base,
            replicas=live.replicas,
            modelRef=live.modelRef,
            port=int(env_value(spec, PORT_VARIABLE) or base.port),
            image=base.image if self._is_current(server, base.image) else server.get("image", ""),
            readyReplicas=live.ready,
            currentReplicas=live.current,
            updatedReplicas=live.updated if live.settled else 0,  # else the status is about an older version
            problem=live.problem,
        )

    async def create_deployment(self, deployment: Deployment) -> None:
        await self._client.create(DEPLOYMENTS, self._deployment(deployment), deployment.namespace)

    async def update_deployment(self, deployment: Deployment) -> None:
        key = ObjectKey(deployment.namespace, deployment.name)
        manifest = self._deployment(deployment)
        live = await self._client.get(DEPLOYMENTS, key)
        if live["spec"]["replicas"] == deployment.replicas:
            del manifest["spec"]["replicas"]
        # A merge patch keeps what it does not name.
        pod = manifest["spec"]["template"]["spec"]
        pod.setdefault("tolerations", None)
        if "affinity" in pod:
            pod["affinity"]["nodeAffinity"] = {REQUIRED: None, PREFERRED: None, **pod["affinity"]["nodeAffinity"]}
        else:
            pod["affinity"] = None
        await self._client.merge_patch(DEPLOYMENTS, key, manifest)

    async def delete_deployment(self, namespace: str, name: str) -> None:
        await self._client.delete(DEPLOYMENTS, ObjectKey(namespace, name))

    async def get_service(self, namespace: str, name: str) -> Service:
        found = await self._get(SERVICES, namespace, name)
        weights = found["metadata"].get("annotations", {}).get(manifests.WEIGHTS_ANNOTATION, "")
        return Service(name, namespace, found["spec"].get("selector", {}), manifests.parse_weights(weights))

    async def create_service(self, service: Service) -> None:
        manifest = manifests.service_manifest(service, _ref_of_service(service))
        await self._client.create(SERVICES, manifest, service.namespace)

    async def update_service(self, service: Service) -> None:
        manifest = manifests.service_manifest(service, _ref_of_service(service))
        manifest["metadata"].setdefault("annotations", {manifests.WEIGHTS_ANNOTATION: None})
        # A merge patch keeps what it does not name; a selector is replaced as a whole.
        live = await self._client.get(SERVICES, ObjectKey(service.namespace, service.name))
        dropped = {name: None for name in live["spec"].get("selector", {}) if name not in service.selector}
        manifest["spec"]["selector"] = {**service.selector, **dropped}
        await self._client.merge_patch(SERVICES, ObjectKey(service.namespace, service.name), manifest)

    async def delete_service(self, namespace: str, name: str) -> None:
        await self._client.delete(SERVICES, ObjectKey(namespace, name))

    async def get_hpa(self, namespace: str, name: str) -> HPA:
        spec: dict[str, Any] = (await self._get(HPAS, namespace, name))["spec"]
        return HPA(name, namespace, spec["scaleTargetRef"]["name"], spec.get("minReplicas", 1), spec["maxReplicas"])

    async def create_hpa(self, hpa: HPA) -> None:
        await self._client.create(
            HPAS, manifests.hpa_manifest(hpa, _ref_of_deployment(hpa.namespace, hpa.targetRef)), hpa.namespace
        )

    async def update_hpa(self, hpa: HPA) -> None:
        manifest = manifests.hpa_manifest(hpa, _ref_of_deployment(hpa.namespace, hpa.targetRef))
        await self._client.merge_patch(HPAS, ObjectKey(hpa.namespace, hpa.name), manifest)

    async def delete_hpa(self, namespace: str, name: str) -> None:
        await self._client.delete(HPAS, ObjectKey(namespace, name))

    async def _get(self, resource: Resource[UntypedObject], namespace: str, name: str) -> UntypedObject:
        """Raises AlreadyExists for an object that is not a child of a service: it is neither changed nor deleted."""
        found = await self._client.get(resource, ObjectKey(namespace, name))
        if SERVICE_LABEL not in found["metadata"].get("labels", {}):
            raise AlreadyExists(f"{resource.kind} {name} already exists and does not belong to an inference service")
        return found

    def _is_current(self, server: Manifest, image: str | None) -> bool:
        """Whether a container runs what the options say for a service with this image.

        The same image can be vmafx's own in one version of the options, and one with its own entrypoint in another.
        """
        runs_vmafx = server.get("command") == list(manifests.SCORING_SERVER)
        options = self._options
        return server.get("image") == options.image_of(image) and runs_vmafx == options.runs_vmafx(image)

    def _deployment(self, deployment: Deployment) -> Manifest:
        if not self._options.image_of(deployment.image):
            raise InvalidSpec(("spec.image: must be set, because no default image is configured",))
        ref = _ref_of_deployment(deployment.namespace, deployment.name)
        manifest = manifests.deployment_manifest(deployment, ref, self._options, with_replicas=True)
        written = msgspec.json.encode(deployment.wanted).decode()
        manifest["metadata"]["annotations"] = {DEPLOYMENT_ANNOTATION: written}
        return manifest


def _ref_of_deployment(namespace: str, name: str) -> ServiceRef:
    return ServiceRef(namespace, name.rpartition("-")[0])


def _ref_of_service(service: Service) -> ServiceRef:
    return ServiceRef(service.namespace, service.selector[SERVICE_LABEL])
