"""What the chart has from the code and from the comments of its values, and that a difference is found."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT
from vmafx.api.restricted import POD_UID
from vmafx.generate import chart
from vmafx.generate.chart import CHART, CLUSTER_SCOPED
from vmafx.generate.chart_schema import schema
from vmafx.generate.chart_values import ChartError, leaves, read_values
from vmafx.generate.environment import SECTIONS
from vmafx.generate.files import CALLER_ROLES, CONTROLLER_ROLES, OPERATOR_ROLES
from vmafx.settings import declared

VALUES = read_values((ROOT / CHART / "values.yaml").read_text())
TEMPLATES = "".join(
    path.read_text()
    for path in sorted((ROOT / CHART / "templates").rglob("*"))
    if path.is_file() and path.name != "_generated.tpl"
)
LEAVES = list(leaves(VALUES))


def defined(name: str) -> Any:
    """The content of a template of _generated.tpl."""
    found = re.search(rf'define "{re.escape(name)}" -\}}\}}\n(.*?)\{{\{{- end', chart.templates(), re.DOTALL)
    assert found is not None, name
    return yaml.safe_load(found[1])


@pytest.mark.parametrize(
    ("changed", "to", "error"),
    [
        ("logLevel: info", "logLevel: debug", "operator.logLevel is 'debug', but VMAFX_OPERATOR_LOG_LEVEL is 'info'"),
        ("targetPort: 8080", "targetPort: 8081", "service.targetPort is '8081', but PORT is '8080'"),
        ("scratchLimit: 130Gi", "scratchLimit: 1Gi", "but VMAFX_WORKER_SCRATCH_LIMIT is '130Gi'"),
        ("@setting VMAFX_INTEL_DEVICE", "@setting VMAFX_NO_DEVICE", "no role has the variable VMAFX_NO_DEVICE"),
        (
            "# -- Replicas of the scoring server, unless",
            "# Replicas, unless",
            "deployment.replicaCount has no descript",
        ),
        (
            "# @schema {enum: [ClusterIP, NodePort, LoadBalancer]}",
            "# @schema many",
            "service.type: `# @schema ` is not",
        ),
    ],
)
def test_a_value_that_contradicts_the_code_is_an_error(tmp_path: Path, changed: str, to: str, error: str) -> None:
    for file in ("values.yaml", "README.md.in", "charts/prometheus-pushgateway/values.yaml"):
        copy = tmp_path / CHART / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / CHART / file).read_text())
    text = (tmp_path / CHART / "values.yaml").read_text()
    assert changed in text
    chart.files(tmp_path)
    (tmp_path / CHART / "values.yaml").write_text(text.replace(changed, to))
    with pytest.raises(ChartError, match=re.escape(error)):
        chart.files(tmp_path)


def test_a_tree_without_the_chart_has_no_files_of_it(tmp_path: Path) -> None:
    assert chart.files(tmp_path) == {}


def test_the_roles_are_those_of_config_rbac() -> None:
    """In the namespaced mode they are divided; together they allow what the roles allow, and nothing else."""

    def rules(path: Path, kind: str, name: str) -> list[dict[str, Any]]:
        roles = yaml.safe_load_all((ROOT / path).read_text())
        (found,) = [one["rules"] for one in roles if (one["kind"], one["metadata"]["name"]) == (kind, name)]
        return list(found)

    def ordered(found: list[dict[str, Any]]) -> list[str]:
        return sorted(str(rule) for rule in found)

    for name, path in (("operator", OPERATOR_ROLES), ("controller", CONTROLLER_ROLES)):
        both = defined(f"vmafx.rules.{name}.namespaced") + defined(f"vmafx.rules.{name}.cluster")
        assert ordered(both) == ordered(rules(path, "ClusterRole", f"vmafx-{name}"))
    election = rules(OPERATOR_ROLES, "Role", "vmafx-operator-leader-election")
    assert ordered(defined("vmafx.rules.operator.election")) == ordered(election)
    session = rules(CONTROLLER_ROLES, "Role", "vmafx-controller-session")
    assert ordered(defined("vmafx.rules.controller.session")) == ordered(session)
    for name in ("agent", "client"):
        assert defined(f"vmafx.rules.{name}") == rules(CALLER_ROLES, "ClusterRole", f"vmafx-{name}")
    for name in ("view", "edit"):
        assert defined(f"vmafx.rules.{name}") == rules(OPERATOR_ROLES, "ClusterRole", f"vmafx-{name}")


def test_what_is_not_namespaced_is_in_the_cluster_part_only() -> None:
    for name in ("operator", "controller"):
        for part in ("namespaced", "cluster"):
            rules = defined(f"vmafx.rules.{name}.{part}")
            of_cluster = {
                (rule["apiGroups"][0], resource) in CLUSTER_SCOPED for rule in rules for resource in rule["resources"]
            }
            assert of_cluster == {part == "cluster"}


def test_the_templates_set_only_variables_that_vmafx_has() -> None:
    known = {
        setting.variable for groups in SECTIONS.values() for group in groups for setting in declared(group).values()
    }
    ends = {name.removeprefix("VMAFX_SERVE") for name in known} & {name.removeprefix("VMAFX_MCP") for name in known}
    used = set(re.findall(r"\bVMAFX_[A-Z_]+\b", TEMPLATES))
    assert len(used) > 40
    assert used - known - {"VMAFX_SERVE", "VMAFX_MCP"} == set()
    # Those of the workload that serves, by its prefix.
    assert {f"_{end}" for end in re.findall(r"\{\{ \$prefix \}\}_([A-Z_]+)", TEMPLATES)} <= ends


def test_the_user_of_the_pods_is_that_of_the_code() -> None:
    defaults = {value.path: value.default for value in LEAVES}
    assert {defaults["podSecurityContext", name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {POD_UID}


def test_the_version_is_that_of_the_program() -> None:
    about = yaml.safe_load((ROOT / CHART / "Chart.yaml").read_text())
    program = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert str(about["appVersion"]) == str(about["version"]) == program


def test_no_object_of_the_schema_has_other_keys_unless_it_belongs_to_kubernetes() -> None:
    def check(part: Any, path: str) -> None:
        if isinstance(part, list):
            for one in part:
                check(one, path)
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict) and "type" in part:
                assert part.get("additionalProperties") is False, path
            for name, one in part.items():
                check(one, f"{path}/{name}")

    check(
        schema(VALUES, pushgateway=read_values((ROOT / chart.PUSHGATEWAY / "values.yaml").read_text())),
        "",
    )


def test_every_value_is_in_the_readme() -> None:
    page = (ROOT / CHART / "README.md").read_text()
    for value in LEAVES:
        assert f"| `{'.'.join(value.path)}` |" in page
