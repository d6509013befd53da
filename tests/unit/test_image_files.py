"""docker/Dockerfile.operator and what goes with it: their names agree, and every builder understands them."""

import re
import tomllib
from importlib.metadata import packages_distributions

import grimp
import pytest
import yaml
from tools.hashes import canonical, parse, requirement_sets

from tests.support.project import ROOT

DOCKERFILE = (ROOT / "docker" / "Dockerfile.operator").read_text()
OPERATOR = parse((ROOT / "hashes" / "operator.txt").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "image.yaml").read_text())
PAGE = (ROOT / "docs" / "install.md").read_text()


def copied() -> set[str]:
    """What the Dockerfile copies from the checkout."""
    found: set[str] = set()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        found |= set(sources.split())
    return found


def variants() -> set[str]:
    (listed,) = re.findall(r"must be ([a-z, ]+)\"", DOCKERFILE)
    return set(re.findall(r"[a-z]{3,}", listed))


def test_what_is_copied_reaches_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert {path for path in copied() if not (ROOT / path).exists()} == set()
    assert {path if path in allowed else path.split("/")[0] for path in copied()} == allowed


def test_the_requirements_that_are_installed_exist_and_are_copied() -> None:
    sets = {name for line in re.findall(r'sets="([a-z0-9 ]+)"', DOCKERFILE) for name in line.split()}
    assert sets <= requirement_sets(ROOT).keys()
    assert {f"hashes/{name}.txt" for name in sets | {"build", "sbom"}} == {
        path for path in copied() if "hashes" in path
    }


def test_packages_are_verified_before_vmafx_is_installed_without_any() -> None:
    pip = [line for line in re.findall(r"^.*\binstall .*$", DOCKERFILE, re.MULTILINE) if "apt-get" not in line]
    unverified = [line.strip() for line in pip if "--require-hashes" not in line and "--no-deps" not in line]
    assert unverified == [
        'install() { pip --python /opt/vmafx/bin/python install --no-cache-dir --no-compile "$@"; }; \\',
        'install -c constraints.txt --index-url "${TORCH_INDEX}" torch ;; \\',
    ]


@pytest.mark.parametrize("syntax", ["--mount", "<<", "# syntax=", "--link", "--chmod", "--exclude"])
def test_it_needs_no_particular_builder(syntax: str) -> None:
    assert syntax not in DOCKERFILE


def test_the_variants_are_documented() -> None:
    documented = re.findall(r"^\| (`.+`) \| .* \| .* \|$", PAGE.partition("## The image")[2], re.MULTILINE)
    named = {name for line in documented for name in re.findall(r"`(\w+)`", line)}
    assert variants() <= named
    assert set(WORKFLOW["jobs"]["image"]["strategy"]["matrix"]["variant"]) < variants()


def test_the_release_pins_the_base_by_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    (pin,) = [step["run"] for step in WORKFLOW["jobs"]["base"]["steps"]]
    assert f"BASE={base}@$digest" in pin
    builds = [step["run"] for step in WORKFLOW["jobs"]["image"]["steps"] if "buildx build" in step.get("run", "")]
    assert len(builds) == 3
    assert all(run.count('--build-arg "BASE=$BASE"') == run.count("buildx build") for run in builds)


def test_the_image_of_the_operator_has_the_packages_that_the_operator_imports() -> None:
    """Imports in functions included: the operator imports some packages only when it needs them."""
    graph = grimp.build_graph("vmafx", include_external_packages=True, cache_dir=None)
    imported = {name for name in graph.find_upstream_modules("vmafx.operator", as_package=True) if "." not in name}
    providers = packages_distributions()
    needed = {name: {canonical(one) for one in providers[name]} for name in imported if name in providers}
    assert {"grpc", "msgspec", "uvloop"} <= needed.keys()
    assert {name for name, distributions in needed.items() if not distributions & OPERATOR.keys()} == set()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["operator"]
    used = {distribution for distributions in needed.values() for distribution in distributions}
    assert {canonical(name) for name in declared} - used == {"pyyaml"}  # which msgspec.yaml imports
