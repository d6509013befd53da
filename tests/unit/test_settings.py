"""Flags, variables, and which of them wins."""

from typing import Any

import pytest

from vmafx.agent import options as agent
from vmafx.http.address import Address
from vmafx.operator.options import ABOUT, PROGRAM, SETTINGS
from vmafx.settings import load


def settings(*arguments: str, **variables: str) -> dict[str, Any]:
    return load(SETTINGS, PROGRAM, ABOUT, arguments, variables)


def test_the_defaults_are_those_people_know() -> None:
    known = settings()
    assert known["metrics_address"] == Address(None, 8081)
    assert known["probe_address"] == Address(None, 8082)
    assert known["leader_elect"] is False
    assert known["log_level"] == "info"


def test_variables_count_and_flags_win() -> None:
    variables = {
        "VMAFX_OPERATOR_METRICS_ADDR": ":9001",
        "VMAFX_OPERATOR_PROBE_ADDR": "127.0.0.1:9002",
        "VMAFX_OPERATOR_LEADER_ELECT": "true",
        "VMAFX_OPERATOR_LOG_LEVEL": "debug",
    }
    known = settings(**variables)
    assert (known["metrics_address"], known["probe_address"]) == (Address(None, 9001), Address("127.0.0.1", 9002))
    assert (known["leader_elect"], known["log_level"]) == (True, "debug")
    over = settings("--metrics-bind-address", ":1", "--leader-elect=false", "--log-level=error", **variables)
    assert (over["metrics_address"], over["leader_elect"], over["log_level"]) == (Address(None, 1), False, "error")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [(["--leader-elect"], True), (["--leader-elect=true"], True), (["--leader-elect=false"], False), ([], False)],
)
def test_a_switch_is_a_flag_or_has_a_value(arguments: list[str], wanted: bool) -> None:
    assert settings(*arguments)["leader_elect"] is wanted


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", Address(None, 8081)),
        ("[::1]:80", Address("::1", 80)),
        ("localhost:0", Address("localhost", 0)),
        ("0", None),
    ],
)
def test_addresses_in_gos_form(text: str, address: Address | None) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["8081", "", "host", ":99999", ":x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Address.parse(text)


def test_a_flag_may_be_said_several_times_where_that_makes_sense() -> None:
    def labels(*arguments: str, **variables: str) -> dict[str, str]:
        needed = ["--controller", "c:9090", "--state-dir", "/x", *arguments]
        loaded: dict[str, str] = load(agent.SETTINGS, agent.PROGRAM, agent.ABOUT, needed, variables)["labels"]
        return loaded

    assert labels("--label", "a=1", "--label", "b=2=3") == {"a": "1", "b": "2=3"}
    assert labels(VMAFX_AGENT_LABELS="a=1,b=") == {"a": "1", "b": ""}
    assert labels("--label", "a=1", VMAFX_AGENT_LABELS="b=2") == {"a": "1"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "VMAFX_CONTROLLER_GRPC_ADDR: say where the controller is: --controller HOST:PORT"),
        (["--controller", "host"], "--controller: 'host' is no address: use HOST:PORT"),
        (["--controller", "h:1", "--label", "x"], "--label: 'x' is no label: use KEY=VALUE"),
        (["--controller", "h:1", "--backend", "gpu"], "--backend: 'gpu' is none of cpu, cuda, hip, sycl, metal"),
        (["--controller", "h:1", "--name", "Work_7"], "--name: 'Work_7' is no name for a node: use lower-case letters"),
        (["--controller", "h:1", "--name", "a.b"], "--name: 'a.b' is no name"),
        (["--controller", "h:1", "--name", "x" * 64], "at most 63 of them"),
        (["--controller", "h:1", "--token-file", "nothere"], "--token-file: nothere cannot be read: No such file"),
        (["--controller", "h:1", "--token-file", "/dev/null"], "--token-file: /dev/null holds no token"),
        (["--controller", "h:1", "--capacity", "-1"], "--capacity: '-1' is no whole number of at least 0"),
    ],
)
def test_what_an_agent_cannot_be_told(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load(agent.SETTINGS, agent.PROGRAM, agent.ABOUT, arguments, {})
    assert end.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "name"), [("Node_7.example.com", "node-7-example-com"), ("-x-", "x"), ("x" * 80, "x" * 63), ("...", "")]
)
def test_an_agent_is_called_as_its_host(host: str, name: str) -> None:
    assert agent.host_label(host) == name


def test_every_variable_has_a_name_of_its_own() -> None:
    variables = [one.variable for one in SETTINGS if one.variable]
    assert len(variables) == len(set(variables))
