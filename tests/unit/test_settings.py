"""Settings from flags and environment variables."""

from pathlib import Path
from typing import Annotated, get_type_hints

import msgspec
import pytest

from tests.support.setting_defaults import defaults
from vmafx.agent import settings as agent
from vmafx.agent.main import registration
from vmafx.agent.settings import AgentSettings
from vmafx.controller import settings as controller
from vmafx.controller.settings import ControllerSettings
from vmafx.devcluster.paths import DevSettings
from vmafx.hardware.devices import Device
from vmafx.http.address import ListenAddress
from vmafx.operator.kinds import RECONCILED_KINDS
from vmafx.operator.settings import ABOUT, PROGRAM, OperatorSettings
from vmafx.scoring.engines.ffmpeg import FfmpegSettings
from vmafx.scoring.engines.find import EngineChoice
from vmafx.scoring.media.policy import JobMediaSettings, MediaPolicy
from vmafx.settings import InvalidSetting, Setting, Settings, at_least, declared, from_environ, load, parse, parse_bool
from vmafx.worker.main import WorkerSettings

OPERATOR: tuple[type[Settings], ...] = (OperatorSettings, *(kind.settings for kind in RECONCILED_KINDS))
SCORING: tuple[type[Settings], ...] = (FfmpegSettings, EngineChoice, MediaPolicy, JobMediaSettings)
GROUPS = (AgentSettings, ControllerSettings, WorkerSettings, *SCORING, DevSettings, *OPERATOR)


class Common(Settings):
    """A setting that both groups inherit."""

    place: Annotated[str, Setting("Where.", flag="--place", variable="PLACE")]


class Left(Common):
    """One group."""

    count: Annotated[int, Setting("How many.", default="3", flag="--count", variable="COUNT", parse=at_least(1))]
    fixed: int = 7


class Right(Common):
    """Another."""

    quick: Annotated[bool, Setting("Whether.", default="false", flag="--quick", parse=parse_bool, switch=True)]
    only: Annotated[str, Setting("A variable alone.", default="x", variable="ONLY")]


def test_groups_share_one_command_line() -> None:
    given = parse([Left, Right], "program", "About it.", ["--place", "here", "--quick"], {"COUNT": "5", "ONLY": ""})
    assert given.read(Left) == Left(place="here", count=5, fixed=7)
    assert given.read(Right) == Right(place="here", quick=True, only="x")
    assert load(Left, "program", "About it.", [], {"PLACE": "there"}) == Left(place="there", count=3)


def test_the_settings_of_a_group_are_listed_by_name() -> None:
    assert list(declared(Left)) == ["place", "count"]
    assert [one.flag for one in declared(Right).values()] == ["--place", "--quick", ""]


def test_help_lists_the_flags_and_variables_of_all_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse([Left, Right], "program", "About it.", ["--help"], {})
    assert end.value.code == 0
    page = capsys.readouterr().out
    assert page.count("--place TEXT") == 2  # in the usage line and in the list
    assert "How many. [COUNT] (default 3)" in page
    assert "--quick" in page
    assert "environment variables without a flag:\n  ONLY\n" in page
    assert page.endswith("A variable alone. (default x)\n")


def test_an_invalid_value_exits_with_code_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse([Right, Left], "program", "About it.", [], {"COUNT": "none"})
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "error: COUNT: 'none' is not a whole number of at least 1; see `program --help`\n"
    )


def test_a_group_is_read_from_variables_alone() -> None:
    assert from_environ(Left, {"COUNT": "2"}) == Left(place="", count=2)
    assert from_environ(DevSettings, {"VMAFX_DEV_FETCH": "0", "KUBEBUILDER_ASSETS": "/bin"}).fetch is False
    with pytest.raises(InvalidSetting, match=r"^COUNT: '0' is not a whole number of at least 1$"):
        from_environ(Left, {"COUNT": "0"})


def test_settings_are_created_without_a_command_line() -> None:
    assert defaults(Left, place="here") == Left(place="here", count=3)
    machine, gpus = defaults(AgentSettings, controller="c:1", state=Path("/x")), Device("nvidia", 2, "two of them")
    assert registration(machine, gpus, 5.0).capability.concurrency == 2
    assert registration(msgspec.structs.replace(machine, capacity=9), gpus, 5.0).capability.concurrency == 9


@pytest.mark.parametrize("group", GROUPS)
def test_defaults_have_the_declared_type(group: type[Settings]) -> None:
    for name, one in declared(group).items():
        if name != "controller":  # has no default
            value, kind = one.parse(one.default), get_type_hints(group)[name]
            assert msgspec.convert(value, kind) == value, name


def settings(*arguments: str, **variables: str) -> OperatorSettings:
    return parse(OPERATOR, PROGRAM, ABOUT, arguments, variables).read(OperatorSettings)


def test_the_operator_has_the_usual_defaults() -> None:
    read = settings()
    assert read.metrics_address == ListenAddress(None, 8081)
    assert read.probe_address == ListenAddress(None, 8082)
    assert read.leader_elect is False
    assert read.log_level == "info"


def test_flags_override_variables() -> None:
    variables = {
        "VMAFX_OPERATOR_METRICS_ADDR": ":9001",
        "VMAFX_OPERATOR_PROBE_ADDR": "127.0.0.1:9002",
        "VMAFX_OPERATOR_LEADER_ELECT": "true",
        "VMAFX_OPERATOR_LOG_LEVEL": "debug",
    }
    read = settings(**variables)
    assert (read.metrics_address, read.probe_address) == (ListenAddress(None, 9001), ListenAddress("127.0.0.1", 9002))
    assert (read.leader_elect, read.log_level) == (True, "debug")
    overridden = settings("--metrics-bind-address", ":1", "--leader-elect=false", "--log-level=error", **variables)
    assert (overridden.metrics_address, overridden.leader_elect, overridden.log_level) == (
        ListenAddress(None, 1),
        False,
        "error",
    )


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["--leader-elect"], True), (["--leader-elect=true"], True), (["--leader-elect=false"], False), ([], False)],
)
def test_a_switch_may_have_a_value(arguments: list[str], value: bool) -> None:
    assert settings(*arguments).leader_elect is value


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", ListenAddress(None, 8081)),
        ("[::1]:80", ListenAddress("::1", 80)),
        ("localhost:0", ListenAddress("localhost", 0)),
        ("0", None),
    ],
)
def test_listen_addresses_are_parsed_in_the_form_of_go(text: str, address: ListenAddress | None) -> None:
    assert ListenAddress.parse(text) == address


@pytest.mark.parametrize("text", ["8081", "", "host", ":99999", ":x"])
def test_an_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        ListenAddress.parse(text)


def test_labels_are_given_by_a_repeated_flag_or_with_commas() -> None:
    def labels(*arguments: str, **variables: str) -> dict[str, str]:
        required = ["--controller", "c:9090", "--state-dir", "/x", *arguments]
        return load(AgentSettings, agent.PROGRAM, agent.ABOUT, required, variables).labels

    assert labels("--label", "a=1", "--label", "b=2=3") == {"a": "1", "b": "2=3"}
    assert labels(VMAFX_AGENT_LABELS="a=1,b=") == {"a": "1", "b": ""}
    assert labels("--label", "a=1", VMAFX_AGENT_LABELS="b=2") == {"a": "1"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "VMAFX_CONTROLLER_GRPC_ADDR: the address of the controller is required: use --controller HOST:PORT"),
        (["--controller", "host"], "--controller: 'host' is not an address: use HOST:PORT"),
        (["--controller", "h:1", "--label", "x"], "--label: 'x' is not a label: use KEY=VALUE"),
        (["--controller", "h:1", "--backend", "gpu"], "--backend: 'gpu' is not one of auto, cpu, cuda, hip"),
        (
            ["--controller", "h:1", "--name", "Work_7"],
            "--name: 'Work_7' is not a valid node name: use lower-case letters",
        ),
        (["--controller", "h:1", "--name", "a.b"], "--name: 'a.b' is not a valid node name"),
        (["--controller", "h:1", "--name", "x" * 64], "at most 63 characters"),
        (["--controller", "h:1", "--token-file", "nothere"], "--token-file: nothere cannot be read: No such file"),
        (["--controller", "h:1", "--token-file", "/dev/null"], "--token-file: /dev/null holds no token"),
        (["--controller", "h:1", "--capacity", "-1"], "--capacity: '-1' is not a whole number of at least 0"),
    ],
)
def test_invalid_settings_of_the_agent_are_refused(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        load(AgentSettings, agent.PROGRAM, agent.ABOUT, arguments, {})
    assert end.value.code == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "name"), [("Node_7.example.com", "node-7-example-com"), ("-x-", "x"), ("x" * 80, "x" * 63), ("...", "")]
)
def test_the_default_name_of_an_agent_is_its_host_name_as_a_dns_label(host: str, name: str) -> None:
    assert agent.host_label(host) == name


def test_the_controller_can_disable_http_but_not_grpc(capsys: pytest.CaptureFixture[str]) -> None:
    def listening(*arguments: str) -> ControllerSettings:
        return load(ControllerSettings, controller.PROGRAM, controller.ABOUT, arguments, {})

    assert listening("--http-address", "0").http_address is None
    with pytest.raises(SystemExit):
        listening("--grpc-address", "0")
    assert "--grpc-address: '0': gRPC cannot be disabled; use :9090" in capsys.readouterr().err


@pytest.mark.parametrize("groups", [*((group,) for group in GROUPS), OPERATOR])
def test_flags_and_variables_are_unique(groups: tuple[type[Settings], ...]) -> None:
    settings = dict.fromkeys(one for group in groups for one in declared(group).values())  # groups may share one
    variables, flags = [one.variable for one in settings if one.variable], [one.flag for one in settings if one.flag]
    assert len(variables) == len(set(variables))
    assert len(flags) == len(set(flags))
    assert all(one.variable or one.flag for one in settings)
