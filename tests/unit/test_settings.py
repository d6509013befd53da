"""Flags, variables, and which of them wins."""

from pathlib import Path
from typing import Annotated, get_type_hints

import msgspec
import pytest

from tests.support.settings import defaults
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
from vmafx.scoring.engine import EngineSettings
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.settings import InvalidSetting, Setting, Settings, at_least, declared, from_environ, load, parse, parse_bool
from vmafx.worker.main import WorkerSettings

OPERATOR: tuple[type[Settings], ...] = (OperatorSettings, *(kind.settings for kind in RECONCILED_KINDS))
GROUPS = (AgentSettings, ControllerSettings, WorkerSettings, EngineSettings, MediaPolicy, DevSettings, *OPERATOR)


class Common(Settings):
    """What both of the following have."""

    place: Annotated[str, Setting("Where.", flag="--place", variable="PLACE")]


class Left(Common):
    """One group."""

    count: Annotated[int, Setting("How many.", default="3", flag="--count", variable="COUNT", parse=at_least(1))]
    fixed: int = 7


class Right(Common):
    """Another."""

    quick: Annotated[bool, Setting("Whether.", default="false", flag="--quick", parse=parse_bool, switch=True)]
    only: Annotated[str, Setting("A variable alone.", default="x", variable="ONLY")]


def test_groups_share_a_command_line() -> None:
    given = parse([Left, Right], "program", "About it.", ["--place", "here", "--quick"], {"COUNT": "5", "ONLY": ""})
    assert given.read(Left) == Left(place="here", count=5, fixed=7)
    assert given.read(Right) == Right(place="here", quick=True, only="x")
    assert load(Left, "program", "About it.", [], {"PLACE": "there"}) == Left(place="there", count=3)


def test_a_group_knows_its_settings_by_their_names() -> None:
    assert list(declared(Left)) == ["place", "count"]
    assert [one.flag for one in declared(Right).values()] == ["--place", "--quick", ""]


def test_the_help_of_all_groups_is_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse([Left, Right], "program", "About it.", ["--help"], {})
    assert end.value.code == 0
    page = capsys.readouterr().out
    assert page.count("--place TEXT") == 2  # in the line of usage, and explained
    assert "How many. [COUNT] (default 3)" in page
    assert "--quick" in page
    assert "ONLY" not in page


def test_a_wrong_value_ends_a_process_before_any_group_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse([Right, Left], "program", "About it.", [], {"COUNT": "none"})
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "error: COUNT: 'none' is no whole number of at least 1; `program --help` lists what there is\n"
    )


def test_variables_alone() -> None:
    assert from_environ(Left, {"COUNT": "2"}) == Left(place="", count=2)
    assert from_environ(DevSettings, {"VMAFX_DEV_FETCH": "0", "KUBEBUILDER_ASSETS": "/bin"}).fetch is False
    with pytest.raises(InvalidSetting, match=r"^COUNT: '0' is no whole number of at least 1$"):
        from_environ(Left, {"COUNT": "0"})


def test_settings_are_made_without_a_command_line() -> None:
    assert defaults(Left, place="here") == Left(place="here", count=3)
    machine, gpus = defaults(AgentSettings, controller="c:1", state=Path("/x")), Device("nvidia", 2, "two of them")
    assert registration(machine, gpus, 5.0).capability.concurrency == 2
    assert registration(msgspec.structs.replace(machine, capacity=9), gpus, 5.0).capability.concurrency == 9


@pytest.mark.parametrize("group", GROUPS)
def test_defaults_are_of_the_type_that_is_declared(group: type[Settings]) -> None:
    for name, one in declared(group).items():
        if name != "controller":  # has none
            value, kind = one.parse(one.default), get_type_hints(group)[name]
            assert msgspec.convert(value, kind) == value, name


def settings(*arguments: str, **variables: str) -> OperatorSettings:
    return parse(OPERATOR, PROGRAM, ABOUT, arguments, variables).read(OperatorSettings)


def test_the_defaults_are_those_people_know() -> None:
    known = settings()
    assert known.metrics_address == ListenAddress(None, 8081)
    assert known.probe_address == ListenAddress(None, 8082)
    assert known.leader_elect is False
    assert known.log_level == "info"


def test_variables_count_and_flags_win() -> None:
    variables = {
        "VMAFX_OPERATOR_METRICS_ADDR": ":9001",
        "VMAFX_OPERATOR_PROBE_ADDR": "127.0.0.1:9002",
        "VMAFX_OPERATOR_LEADER_ELECT": "true",
        "VMAFX_OPERATOR_LOG_LEVEL": "debug",
    }
    known = settings(**variables)
    assert (known.metrics_address, known.probe_address) == (ListenAddress(None, 9001), ListenAddress("127.0.0.1", 9002))
    assert (known.leader_elect, known.log_level) == (True, "debug")
    over = settings("--metrics-bind-address", ":1", "--leader-elect=false", "--log-level=error", **variables)
    assert (over.metrics_address, over.leader_elect, over.log_level) == (ListenAddress(None, 1), False, "error")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [(["--leader-elect"], True), (["--leader-elect=true"], True), (["--leader-elect=false"], False), ([], False)],
)
def test_a_switch_is_a_flag_or_has_a_value(arguments: list[str], wanted: bool) -> None:
    assert settings(*arguments).leader_elect is wanted


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", ListenAddress(None, 8081)),
        ("[::1]:80", ListenAddress("::1", 80)),
        ("localhost:0", ListenAddress("localhost", 0)),
        ("0", None),
    ],
)
def test_addresses_in_gos_form(text: str, address: ListenAddress | None) -> None:
    assert ListenAddress.parse(text) == address


@pytest.mark.parametrize("text", ["8081", "", "host", ":99999", ":x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        ListenAddress.parse(text)


def test_a_flag_may_be_said_several_times_where_that_makes_sense() -> None:
    def labels(*arguments: str, **variables: str) -> dict[str, str]:
        needed = ["--controller", "c:9090", "--state-dir", "/x", *arguments]
        return load(AgentSettings, agent.PROGRAM, agent.ABOUT, needed, variables).labels

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
        load(AgentSettings, agent.PROGRAM, agent.ABOUT, arguments, {})
    assert end.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "name"), [("Node_7.example.com", "node-7-example-com"), ("-x-", "x"), ("x" * 80, "x" * 63), ("...", "")]
)
def test_an_agent_is_called_as_its_host(host: str, name: str) -> None:
    assert agent.host_label(host) == name


def test_a_controller_serves_grpc_somewhere(capsys: pytest.CaptureFixture[str]) -> None:
    def listening(*arguments: str) -> ControllerSettings:
        return load(ControllerSettings, controller.PROGRAM, controller.ABOUT, arguments, {})

    assert listening("--http-address", "0").http_address is None
    with pytest.raises(SystemExit):
        listening("--grpc-address", "0")
    assert "--grpc-address: '0': gRPC cannot be disabled; use :9090" in capsys.readouterr().err


@pytest.mark.parametrize("groups", [*((group,) for group in GROUPS), OPERATOR])
def test_every_flag_and_variable_has_a_name_of_its_own(groups: tuple[type[Settings], ...]) -> None:
    settings = [one for group in groups for one in declared(group).values()]
    variables, flags = [one.variable for one in settings if one.variable], [one.flag for one in settings if one.flag]
    assert len(variables) == len(set(variables))
    assert len(flags) == len(set(flags))
    assert all(one.variable or one.flag for one in settings)
