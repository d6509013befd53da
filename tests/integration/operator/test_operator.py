"""The operator as a process, against a real API server: probes, logs, settings, node health, leader election."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.conftest import Kubectl
from tests.support.fleet import allow_pods, phase, reaches, submit
from tests.support.kubelet import Kubelet
from tests.support.operator_process import LEASE, OPERATOR, Controller, operator
from tests.support.waiting import eventually, until
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.core import EVENTS, LEASES
from vmafx.kube.resources import UntypedObject

CACHES = [
    "deployments", "horizontalpodautoscalers", "httproutes", "persistentvolumeclaims", "poddisruptionbudgets", "pods",
    "serviceaccounts", "services", "vmafxjobs", "vmafxjobs", "vmafxmodeltrainings", "vmafxnodes",
    "zerfooinferenceservices",
]  # fmt: skip


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    controller = Controller()
    await controller.start()
    yield controller
    await controller.runner.cleanup()


async def create_node(client: Client, namespace: str, name: str, heartbeat: str | None = None) -> ObjectKey:
    body: UntypedObject = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxNode", "metadata": {"name": name}}
    await client.create(NODES.decoded_as(dict), {**body, "spec": {"gpuVendor": "cpu"}}, namespace)
    key = ObjectKey(namespace, name)
    if heartbeat:
        await client.patch_status(NODES, key, {"lastHeartbeat": heartbeat})
    return key


async def status_of(client: Client, key: ObjectKey) -> UntypedObject:
    status: UntypedObject = (await client.get(NODES.decoded_as(dict), key)).get("status", {})
    return status


async def test_a_node_is_healthy_while_its_controller_answers_and_its_agent_sends_heartbeats(
    cluster: DevCluster, client: Client, namespace: str, controller: Controller, tmp_path: Path
) -> None:
    # Seven digits, as another client may write: the operator must not rewrite it.
    old = (datetime.now(UTC) - timedelta(seconds=61)).strftime("%Y-%m-%dT%H:%M:%S.1234567Z")
    silent = await create_node(client, namespace, "silent", old)
    agentless = await create_node(client, namespace, "agentless")
    controller.status = 503
    variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address}
    with operator(cluster, namespace, tmp_path, **variables) as running:

        async def is_healthy(key: ObjectKey, wanted: bool) -> bool:
            return (await status_of(client, key)).get("healthy") is wanted

        await eventually(lambda: is_healthy(agentless, False), "no node is healthy without a controller")
        await eventually(lambda: is_healthy(silent, False), "nor one with a silent agent")
        # The controller answers: nodes with a silent agent stay unhealthy.
        controller.status = 204
        await eventually(lambda: is_healthy(agentless, True), "a node without an agent is healthy")
        status = await status_of(client, silent)
        assert (status["healthy"], status["lastHeartbeat"]) == (False, old)
        (ready,) = status["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "HeartbeatStale")
        assert "is the agent running?" in ready["message"]
        # The agent sends a heartbeat again.
        await client.patch_status(NODES, silent, {"lastHeartbeat": datetime.now(UTC).isoformat()})
        await eventually(lambda: is_healthy(silent, True), "it is healthy again")

        async def reported() -> bool:
            events = (await client.list(EVENTS, namespace)).items
            reasons = {event["regarding"]["name"]: event["reason"] for event in events}
            return reasons == {"silent": "Healthy", "agentless": "Healthy"}

        await eventually(reported, "events report the changes")
        # Only changes are written.
        writes = running.metric(
            f'rest_client_requests_total{{code="200",host="{client.config.server[8:]}",method="PATCH"}}'
        )
        assert writes is not None
        assert writes <= 4


async def test_the_operator_is_ready_once_its_caches_are_synced(
    cluster: DevCluster, client: Client, namespace: str, tmp_path: Path
) -> None:
    await create_node(client, namespace, "n")
    state = cluster.state()
    assert state is not None
    apiserver = next(one for one in state.processes if one.name == "kube-apiserver")
    os.kill(apiserver.pid, signal.SIGSTOP)
    try:
        with operator(cluster, namespace, tmp_path) as running:
            until(lambda: running.probe("/healthz") == (200, "ok\n"), "it is alive")
            until(lambda: running.probe("/readyz")[0] == 503, "it is not ready")
            why, _, caches = running.probe("/readyz")[1].partition(": ")
            assert (why, sorted(caches.strip().split(", "))) == (
                "caches not synced",
                CACHES,
            )
            os.kill(apiserver.pid, signal.SIGCONT)
            until(running.ready, "the caches are synced")
    finally:
        os.kill(apiserver.pid, signal.SIGCONT)


async def test_the_log_has_the_placements_and_outcomes_of_jobs(
    cluster: DevCluster, client: Client, namespace: str, controller: Controller, clips: Path, tmp_path: Path
) -> None:
    await allow_pods(client, namespace)
    await create_node(client, namespace, "pool")
    variables = {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address}
    flags = leader_flags(namespace)
    async with Kubelet(client, namespace, tmp_path) as kubelet:
        kubelet.answers |= {"flaky-0": (1, ""), "broken-0": (1, "")}
        with operator(cluster, namespace, tmp_path, *flags, **variables) as running:
            good = await submit(client, namespace, "good", clips)
            await reaches(client, good, phase("Succeeded"), "it is scored")
            flaky = await submit(client, namespace, "flaky", clips)
            await reaches(client, flaky, phase("Succeeded"), "it is scored by the second attempt")
            broken = await submit(client, namespace, "broken", clips, retryLimit=0)
            await reaches(client, broken, phase("Failed"), "it fails")
            kubelet.hold.clear()
            late = await submit(client, namespace, "late", clips, activeDeadlineSeconds=1)
            await reaches(client, late, phase("Failed"), "its deadline is exceeded")
            stopped = await submit(client, namespace, "stopped", clips, suspend=True)
            await client.merge_patch(JOBS, stopped, {"spec": {"cancel": True}})
            await reaches(client, stopped, phase("Failed"), "it is cancelled")
            running.process.terminate()
            assert running.process.wait(60) == 0

    def logged(key: ObjectKey) -> list[tuple[object, object, object]]:
        lines = [one for one in running.log() if one.get("job") == str(key)]
        assert {one["level"] for one in lines} == {"info"}
        return [(one["msg"], one.get("node"), one.get("attempt")) for one in lines]

    placed = ("job placed", "pool", 0)
    assert logged(good) == [placed, ("job succeeded", "pool", 0)]
    assert logged(flaky) == [
        placed,
        ("attempt failed, will retry", "pool", 0),
        ("job placed", "pool", 1),
        ("job succeeded", "pool", 1),
    ]
    assert logged(broken) == [placed, ("job failed", "pool", 0)]
    assert logged(late) == [placed, ("deadline exceeded", "pool", 0)]
    assert logged(stopped) == [("job cancelled", None, None)]
    messages = [one["msg"] for one in running.log() if "job" not in one]
    assert messages == [
        "starting", "caches are synced", "waiting to become leader", "became leader", "released the lease", "stopped",
    ]  # fmt: skip


def test_the_operator_logs_by_level_and_stops_on_sigterm(cluster: DevCluster, namespace: str, tmp_path: Path) -> None:
    with operator(cluster, namespace, tmp_path, "--log-level", "warn") as running:
        until(running.ready, "it is ready")
        assert running.log() == []
        memory = running.metric("process_resident_memory_bytes")
        assert memory is not None
        assert memory < 50 * 2**20
        running.process.send_signal(signal.SIGUSR1)  # log everything from now on
        running.process.terminate()
        assert running.process.wait(60) == 0
        assert running.log()[-1]["msg"] == "stopped"


@pytest.mark.parametrize(
    ("flags", "variables", "error"),
    [
        (["--log-level", "loud"], {}, "--log-level: 'loud' is not one of debug, info, warn, error"),
        (["--metrics-bind-address", "here"], {}, "'here' is not an address: use :8081"),
        (
            [],
            {"VMAFX_OPERATOR_LEADER_ELECT": "maybe"},
            "VMAFX_OPERATOR_LEADER_ELECT: 'maybe' is not true or false",
        ),
        (["--max-concurrent-reconciles", "0"], {}, "'0' is not a whole number of at least 1"),
        (["--nonsense"], {}, "unrecognized arguments: --nonsense"),
        (["--kubeconfig", "/nowhere/config"], {}, "cannot read the kubeconfig /nowhere/config"),
    ],
)
def test_an_invalid_setting_is_named(flags: list[str], variables: dict[str, str], error: str) -> None:
    done = subprocess.run(
        [OPERATOR, *flags], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in {1, 2}
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_ends_the_operator_with_an_error(cluster: DevCluster, namespace: str, tmp_path: Path) -> None:
    with operator(cluster, namespace, tmp_path) as first:
        until(first.ready, "the first is ready")
        with operator(cluster, namespace, tmp_path, "--metrics-bind-address", f"127.0.0.1:{first._metrics}") as second:
            assert second.process.wait(60) == 1
            assert "address already in use" in str(second.log()[-1]["error"])


def leader_flags(namespace: str) -> list[str]:
    return ["--leader-elect", "--leader-election-namespace", namespace]


async def test_a_killed_leader_is_replaced_when_its_lease_expires(
    cluster: DevCluster, client: Client, namespace: str, tmp_path: Path
) -> None:
    flags, lease = leader_flags(namespace), ObjectKey(namespace, LEASE)
    with operator(cluster, namespace, tmp_path, *flags) as first:
        await eventually(first.leads, "the first leads")
        with operator(cluster, namespace, tmp_path, *flags) as second:
            await eventually(second.ready, "the second is ready")
            assert not second.leads()
            first.process.kill()
            first.process.wait(60)
            held = (await client.get(LEASES, lease)).spec
            assert (held.leaseDurationSeconds, held.leaseTransitions) == (15, 0)
            assert held.holderIdentity  # not released, so it must expire
            await client.merge_patch(LEASES, lease, {"spec": {"leaseDurationSeconds": 1}})
            await eventually(second.leads, "the second leads")
            assert (await client.get(LEASES, lease)).spec.leaseTransitions == 1


async def test_a_suspended_leader_that_lost_its_lease_exits_when_it_resumes(
    cluster: DevCluster, client: Client, namespace: str, controller: Controller, tmp_path: Path
) -> None:
    node = await create_node(client, namespace, "n")
    flags, variables = leader_flags(namespace), {"VMAFX_CONTROLLER_HTTP_ADDR": controller.address}

    async def healthy() -> bool:
        return (await status_of(client, node)).get("healthy") is True

    with operator(cluster, namespace, tmp_path, *flags, **variables) as first:
        await eventually(first.leads, "the first leads")
        with operator(cluster, namespace, tmp_path, *flags, **variables) as second:
            await eventually(second.ready, "the second is ready")
            await eventually(healthy, "the first has written the health of the node")
            first.process.send_signal(signal.SIGSTOP)
            await eventually(second.leads, "the second leads")  # the lease has expired
            before = await client.get(NODES.decoded_as(dict), node)
            first.process.send_signal(signal.SIGCONT)
            await eventually(lambda: first.process.poll() is not None, "the first ends")
            assert first.process.returncode == 1
            assert "lost the lease" in str(first.log()[-1]["error"])
            assert [one["msg"] for one in first.log()].count("lost leadership") == 1
            holder = (await client.get(LEASES, ObjectKey(namespace, LEASE))).spec.holderIdentity
            assert second.leads()
            assert holder
            assert (await client.get(NODES.decoded_as(dict), node))["status"] == before["status"]


def test_a_leader_that_stops_releases_its_lease(
    cluster: DevCluster, namespace: str, tmp_path: Path, kubectl: Kubectl
) -> None:
    flags = leader_flags(namespace)

    def holder() -> str:
        return kubectl("get", "lease", LEASE, "-o", "jsonpath={.spec.holderIdentity}").stdout

    with operator(cluster, namespace, tmp_path, *flags) as first:
        until(first.leads, "the first leads")
        held = holder()
        with operator(cluster, namespace, tmp_path, *flags) as second:
            until(second.ready, "the second is ready")
            first.process.terminate()
            assert first.process.wait(60) == 0
            assert holder() != held  # it does not have to expire
            until(second.leads, "the second leads")
            assert "leaseTransitions: 1" in kubectl("get", "lease", LEASE, "-o", "yaml").stdout
