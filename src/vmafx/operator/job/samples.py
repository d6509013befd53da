"""Variables that let a worker Pod push its samples to the controller; none without a training that wants them."""

from collections.abc import Mapping

from vmafx.api.job import JobView
from vmafx.api.node import NodeView
from vmafx.api.training import TrainingView
from vmafx.jobs.attempt import SAMPLES_TOKEN_VARIABLE, SAMPLES_URL_VARIABLE
from vmafx.jobs.sample_keys import SampleKeys, matching_trainings
from vmafx.jobs.sample_token import AttemptClaims
from vmafx.operator.context import BY_NAMESPACE
from vmafx.runtime.informer import Informer


class SampleVariables:
    """`controller` is the address of the controller, with {namespace} for that of the Pod."""

    def __init__(self, trainings: Informer[TrainingView], keys: SampleKeys, controller: str) -> None:
        self._trainings, self._keys, self._controller = trainings, keys, controller

    async def of_pod(self, job: JobView, node: NodeView) -> Mapping[str, str]:
        """The variables of the Pod of a job's current attempt. A key that cannot be read does not hold up the job."""
        namespace = job.metadata.namespace
        if not matching_trainings(self._trainings.store.by(BY_NAMESPACE, namespace), node.metadata.labels):
            return {}
        claims = AttemptClaims(
            namespace,
            node.metadata.name,
            job.metadata.uid,
            job.status.controllerJobID or "",
            human_score=job.spec.humanScore,
        )
        token = await self._keys.try_sign(claims)
        if token is None:
            return {}
        address = self._controller.replace("{namespace}", namespace).rstrip("/")
        return {SAMPLES_URL_VARIABLE: f"{address}/v1/samples", SAMPLES_TOKEN_VARIABLE: token}
