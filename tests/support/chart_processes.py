"""The containers of a release as processes on this machine: their commands and variables, with their accounts' tokens.

There is no kubelet: folders of volumes are in a temporary folder, ports are free ones, names of Services are addresses.
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.support.chart import Manifest, environment, find, helm
from tests.support.waiting import until
from vmafx.devcluster import DevCluster
from vmafx.devcluster.cluster import free_port

PROGRAMS = Path(sys.executable).parent
LISTENING = ("_LISTEN", "_OPERATOR_METRICS_ADDR", "_OPERATOR_PROBE_ADDR")  # ends of variables with an own address
VOLUMES = ("/scratch", "/var/lib/vmafx", "/etc/vmafx/keys", "/corpus", "/output", "/models")


class Release:
    """An installed release, whose containers can be run."""

    def __init__(self, cluster: DevCluster, namespace: str, kubectl: Path, folder: Path, name: str = "vmafx") -> None:
        self.name, self.namespace, self.folder = name, namespace, folder
        self._cluster, self._kubectl = cluster, kubectl
        self._processes = ExitStack()
        self.addresses: dict[str, str] = {}  # by what the chart calls them, HOST:PORT

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> "subprocess.CompletedProcess[str]":
        done = helm(*arguments, "--namespace", self.namespace, values=values, kubeconfig=self._cluster.kubeconfig)
        assert done.returncode == 0, done.stderr
        return done

    def try_kubectl(self, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [str(self._kubectl), "--kubeconfig", str(self._cluster.kubeconfig), "--namespace", self.namespace]
        return subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )

    def kubectl(self, *arguments: str) -> str:
        done = self.try_kubectl(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manifests(self) -> list[Manifest]:
        """Those of the release, without hooks."""
        return [one for one in yaml.safe_load_all(self.helm("get", "manifest", self.name).stdout) if one]

    def hooks(self) -> list[Manifest]:
        return [one for one in yaml.safe_load_all(self.helm("get", "hooks", self.name).stdout) if one]

    def checks(self) -> list[Manifest]:
        """The Pods of `helm test`."""
        return [one for one in self.hooks() if one["metadata"]["annotations"]["helm.sh/hook"] == "test"]

    def start(self, kind: str, name: str, listening: str = "", **variables: str) -> Path:
        """Run the container of a Deployment or the like until the release is closed; returns its log.

        `listening` is the flag with the address to listen on, of a program that has no variable for it.
        """
        template = find(self.manifests(), kind, name)["spec"]["template"]
        (container,) = template["spec"]["containers"]
        log = self.folder / f"{name}.log"
        given = self._environment(template["spec"], container, name) | variables
        for number, argument in enumerate(container.get("args", ())):
            if listening and argument.startswith(listening):
                self.addresses[f"{name}{argument.removeprefix(listening)}"] = here = f"127.0.0.1:{free_port()}"
                container["args"][number] = f"{listening}{here}"
        self._name_services(container)
        self._processes.enter_context(_running(self._command(container), given, self.folder, log))
        return log

    def _name_services(self, container: Manifest) -> None:
        """Services have other ports than their Pods."""
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        for service in (one for one in self.manifests() if one["kind"] == "Service"):
            name = service["metadata"]["name"]
            for port in service["spec"]["ports"]:
                if here := self.addresses.get(f"{name}:{ports.get(port['targetPort'])}"):
                    self.addresses[f"{name}:{port['port']}"] = here

    def run_check(self, pod: Manifest) -> "subprocess.CompletedProcess[str]":
        """Run a Pod of `helm test`, with the addresses of the processes."""
        (container,) = pod["spec"]["containers"]
        command = [self._located(part) for part in self._command(container)]
        given = self._environment(pod["spec"], container, pod["metadata"]["name"])
        return subprocess.run(
            command, env=given, cwd=self.folder, capture_output=True, text=True, timeout=150, check=False
        )

    def metrics(self, name: str, port: int) -> str:
        """What a running container serves at /metrics."""
        with urllib.request.urlopen(f"http://{self.addresses[f'{name}:{port}']}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def token(self, account: str, audience: str = "") -> str:
        wanted = [f"--audience={audience}"] if audience else []
        return self.kubectl("create", "token", account, *wanted).strip()

    def close(self) -> None:
        self._processes.close()

    def _command(self, container: Manifest) -> list[str]:
        words: list[str] = container["command"] + container.get("args", [])
        program, *rest = words
        return [program if program.startswith("/") else str(PROGRAMS / program), *rest]

    def _environment(self, pod: Manifest, container: Manifest, name: str) -> dict[str, str]:
        found = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        for variable, value in environment(container).items():
            if variable.endswith(LISTENING):
                self.addresses[f"{name}:{value.removeprefix(':')}"] = here = f"127.0.0.1:{free_port()}"
                found[variable] = here
            else:
                found[variable] = self._located(value)
        for volume in VOLUMES:
            Path(self._located(volume)).mkdir(parents=True, exist_ok=True)
        if pod["automountServiceAccountToken"]:
            found["KUBECONFIG"] = str(self._kubeconfig(pod["serviceAccountName"]))
        for projected in (volume["projected"] for volume in pod.get("volumes", ()) if "projected" in volume):
            (source,) = projected["sources"]
            file = self.folder / f"{name}.token"
            file.write_text(self.token(pod["serviceAccountName"], source["serviceAccountToken"]["audience"]))
            found["VMAFX_AGENT_TOKEN_FILE"] = str(file)
        return found

    def _located(self, value: str) -> str:
        """A value with the folders and addresses of this machine."""
        for volume in VOLUMES:
            if value == volume or value.startswith(f"{volume}/"):
                return f"{self.folder}{value}"
        for called, here in self.addresses.items():
            service, _, port = called.rpartition(":")
            for host in (f"{service}.{self.namespace}.svc.cluster.local", service):
                value = value.replace(f"{host}:{port}", here)
        return value

    def _kubeconfig(self, account: str) -> Path:
        """A kubeconfig with the token of an account and nothing else."""
        config = yaml.safe_load(self._cluster.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": self.token(account)}
        for context in config["contexts"]:
            context["context"]["namespace"] = self.namespace
        file = self.folder / f"{account}.kubeconfig"
        file.write_bytes(msgspec.json.encode(config))
        return file


@contextmanager
def _running(command: list[str], environ: dict[str, str], folder: Path, log: Path) -> Iterator[None]:
    with log.open("wb") as out, subprocess.Popen(command, env=environ, cwd=folder, stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def says(log: Path, text: str) -> None:
    """Wait for a text in a log."""
    until(lambda: text in log.read_text(), f"{text!r} in {log.name}: {log.read_text()[-2000:]}", within=60)
