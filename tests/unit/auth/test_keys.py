"""KeyAccess: callers by API keys in a file."""

from pathlib import Path

import pytest

from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.keys import CHECK_INTERVAL, MAX_FAILURES, InvalidKeys, KeyAccess
from vmafx.http.errors import StatusError

ANN, BOB = "ann-0123456789abcdef", "bob/0123456789abcdef=="


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def access(path: Path, text: str = f"# keys\n\nann {ANN}\n  bob\t{BOB}  \n") -> tuple[KeyAccess, Clock]:
    path.write_text(text)
    clock = Clock()
    return KeyAccess(path, clock), clock


def sent(token: str, peer: str = "10.0.0.1") -> CallerCredentials:
    return CallerCredentials(token, peer=peer)


async def test_a_caller_is_known_by_its_key(tmp_path: Path) -> None:
    keys, _ = access(tmp_path / "keys")
    assert (await keys.authenticate(sent(ANN))).user == "ann"
    assert (await keys.authorize(sent(BOB), "create", "vmafxjobs", "")).user == "bob"
    assert (keys.known_user(sent(ANN)), keys.known_user(sent("")), keys.known_user(sent("x"))) == ("ann", "", "")
    for token in ("", "x", ANN + "x", "ann", "\udcff"):
        with pytest.raises(StatusError) as raised:
            await keys.authenticate(sent(token))
        assert raised.value.code == "UNAUTHENTICATED"
        assert not token or token not in raised.value.message


async def test_wrong_keys_are_limited_by_address_until_time_has_passed(tmp_path: Path) -> None:
    keys, clock = access(tmp_path / "keys")
    codes = []
    for number in range(MAX_FAILURES + 5):
        with pytest.raises(StatusError) as raised:
            await keys.authenticate(sent(f"wrong-{number}"))
        codes.append(raised.value.code)
    assert codes == ["UNAUTHENTICATED"] * MAX_FAILURES + ["RESOURCE_EXHAUSTED"] * 5
    assert (await keys.authenticate(sent(ANN))).user == "ann"
    with pytest.raises(StatusError, match="not valid"):
        await keys.authenticate(sent("wrong", "10.0.0.2"))
    clock.now += 1.5
    with pytest.raises(StatusError, match="not valid"):
        await keys.authenticate(sent("wrong"))


async def test_a_request_without_a_key_does_not_count_as_a_guess(tmp_path: Path) -> None:
    keys, _ = access(tmp_path / "keys")
    for _ in range(2 * MAX_FAILURES):
        with pytest.raises(StatusError, match="an API key is required"):
            await keys.authenticate(sent(""))


async def test_the_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys, clock = access(path)
    await keys.authenticate(sent(ANN))
    path.write_text(f"eve {ANN}\n")
    assert (await keys.authenticate(sent(ANN))).user == "ann"  # not looked at yet
    clock.now += CHECK_INTERVAL
    assert (await keys.authenticate(sent(ANN))).user == "eve"
    for broken in ("", "eve", "eve short", "two names " + ANN):
        path.write_text(broken)
        clock.now += CHECK_INTERVAL
        assert (await keys.authenticate(sent(ANN))).user == "eve"
    path.unlink()
    clock.now += CHECK_INTERVAL
    assert (await keys.authenticate(sent(ANN))).user == "eve"
    path.write_text(f"bob {BOB}\n")
    clock.now += CHECK_INTERVAL
    with pytest.raises(StatusError, match="not valid"):
        await keys.authenticate(sent(ANN))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# none\n",
        "ann",
        f"ann {'x' * 15}",
        f"{'n' * 101} {ANN}",
        f"a b {ANN}",
        "ann key;with;semicolons",
        "ann k\u00e9y" * 9,
    ],
)
def test_a_malformed_file_is_rejected_without_its_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidKeys) as raised:
        KeyAccess(path, Clock())
    assert ANN not in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_file_that_is_missing_or_not_utf8_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidKeys, match="No such file"):
        KeyAccess(tmp_path / "none", Clock())
    (tmp_path / "keys").write_bytes(b"ann \xff\xff")
    with pytest.raises(InvalidKeys, match="not UTF-8"):
        KeyAccess(tmp_path / "keys", Clock())
