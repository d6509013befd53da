"""The commands and values of the documentation are accepted by the chart."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, helm, render
from tests.support.project import ROOT

PAGES = [
    ROOT / "docs" / "install.md",
    ROOT / "docs" / "development" / "k8s-deployment.md",
    ROOT / "docs" / "development" / "gpu-scheduling.md",
    CHART / "README.md",
]
CODE = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


def helm_commands() -> list[str]:
    """Every command that installs or upgrades from the folder of the chart."""
    found = []
    for page in PAGES:
        for block in CODE.findall(page.read_text()):
            lines = re.sub(r"\\\n\s*", "", block).splitlines()
            found += [
                line.strip() for line in lines if re.match(r"\s+helm (upgrade|install) .*deploy/helm/vmafx", line)
            ]
    return list(dict.fromkeys(found))


def yaml_blocks() -> list[dict[str, Any]]:
    return [
        yaml.safe_load(one)
        for page in PAGES
        for one in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize("command", helm_commands())
def test_a_command_is_accepted(command: str) -> None:
    words = [word for word in shlex.split(command) if word not in {"--install", "--reuse-values"}]
    release, flags = words[2], words[4:]
    done = helm("template", release, str(CHART), *flags)
    assert done.returncode == 0, done.stderr


def test_the_pages_have_commands() -> None:
    assert len(helm_commands()) > 5
    assert len(yaml_blocks()) == 2


@pytest.mark.parametrize("values", yaml_blocks(), ids=lambda values: next(iter(values)))
def test_values_are_accepted(values: dict[str, Any]) -> None:
    assert render({"operator": {"enabled": True}, **values})


def test_each_flag_of_the_pages_is_a_value_of_the_chart() -> None:
    """Also those in the text and in tables."""
    known = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    parts = {name.rpartition(".")[0] for name in known} | known
    for page in PAGES[:3]:
        named = re.findall(
            r"`((?:image|gpu|operator|controller|persistence|monitoring|auth|job|agents|nodes|networkPolicy|"
            r"pushgateway|crds|statefulSet|deployment|podSecurityContext|rbac)\.[A-Za-z.]+)",
            page.read_text(),
        )
        for name in named:
            free = name.startswith(("agents.pools.", "nodes.", "gpu.intel.com"))
            assert free or name in parts, f"{page.name}: {name}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchor in _anchors(path), f"{page.name}: {target}#{anchor}"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("workload", ["Deployment", "Job", "StatefulSet"])
def test_the_notes_have_commands_that_can_be_pasted(workload: str) -> None:
    """Kubernetes accepts the objects in them, and they name the release."""
    values = {"workload": workload, "operator": {"enabled": True}}
    done = helm("install", "video", str(CHART), "--dry-run=client", "--namespace", "team", values=values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    objects = [yaml.safe_load(one) for one in re.findall(r"echo '(.*)'", notes)]
    assert [one["kind"] for one in objects] == ["VmafxNode", "VmafxJob"]
    assert "helm test video --namespace team" in notes
    assert "<<EOF" not in notes, "an indented end would not end it"
    assert ("service/video-vmafx 8080:80" in notes) == (workload != "Job")
    assert not {"…", "CHART"} & set(notes.replace(",", " ").split()), "a placeholder"


def notes_of(values: dict[str, Any]) -> str:
    done = helm("install", "video", str(CHART), "--dry-run=client", "--namespace", "team", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


@pytest.mark.parametrize(
    ("values", "command"),
    [
        ({}, "curl -s http://localhost:8080/v1/score"),
        ({"tls": {"secretName": "t"}}, "curl -s --insecure https://localhost:8080/v1/score"),
        ({"auth": {"mode": "token"}}, 'curl -s -H "Authorization: Bearer $KEY" http://localhost:8080/v1/score'),
        ({"auth": {"mode": "keys", "keysSecret": "k"}}, "get secret k --output jsonpath='{.data.keys}' | base64 -d"),
    ],
)
def test_the_notes_call_the_server_as_it_is_set_up(values: dict[str, Any], command: str) -> None:
    assert command in notes_of(values)


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({"persistence": {"enabled": True}, "deployment": {"replicaCount": 2}}, "can mount video-vmafx-corpus, video-"),
        ({"workload": "Job", "job": {"ttlSecondsAfterFinished": 60}}, "job.ttlSecondsAfterFinished deletes"),
    ],
)
def test_the_notes_warn(values: dict[str, Any], warning: str) -> None:
    assert warning in notes_of(values)
    assert "WARNING" not in notes_of({**values, "job": {}, "deployment": {}})


@pytest.mark.parametrize(
    "values", [{"deployment": {"replicaCount": 0}}, {"workload": "StatefulSet", "statefulSet": {"replicaCount": 0}}]
)
def test_the_notes_do_not_call_a_server_without_replicas(values: dict[str, Any]) -> None:
    notes = notes_of({**values, "operator": {"enabled": True}})
    assert "server has no replicas" in notes
    assert "port-forward" not in notes
    assert "vmjob/first-job" in notes


@pytest.mark.parametrize(
    ("values", "images"),
    [
        ({}, {}),
        ({"gpu": {"vendor": "nvidia"}}, {"nvidia.com/gpu": "vmafx-operator:0.1.0-cuda"}),
        ({"gpu": {"vendor": "nvidia"}, "image": {"tag": "mine"}}, {}),
        (
            {"agents": {"pools": {"a": {"vendor": "intel"}}}, "nodes": {"b": {"gpuVendor": "amd"}}},
            {"gpu.intel.com/i915": "vmafx-operator:0.1.0-xpu", "amd.com/gpu": "vmafx-operator:0.1.0-rocm"},
        ),
        ({"nodes": {"b": {"gpuVendor": "amd", "image": "own:1"}}}, {}),
    ],
)
def test_the_notes_say_which_images_have_to_be_built(values: dict[str, Any], images: dict[str, str]) -> None:
    notes = notes_of({**values, "operator": {"enabled": True}})
    assert dict(re.findall(r"^Pods with (\S+) have the image (\S+)\. ", notes, re.MULTILINE)) == images
    assert notes.count("docker/build") == len(images)
    assert notes.count("This variant has not been tested") == len(images.keys() - {"nvidia.com/gpu"})
    assert ("Level Zero" in notes) == ("gpu.intel.com/i915" in images)
