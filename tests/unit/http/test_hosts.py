"""The names that a server answers to, and the web pages that may use it."""

import socket

import pytest

from vmafx.http.errors import StatusError
from vmafx.http.hosts import HostPolicy, check_origin

POLICY = HostPolicy(["scores.example.com", "*.lab.example.com", "Upper.Example.org."], setting="--hosts")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3:8080",
        "[::1]",
        "[fe80::1]:8080",
        "[::ffff:127.0.0.1]:80",
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
        "gpu-box",
        "vmafx_serve:8080",
        "vmafx-serve.video.svc",
        "vmafx-serve.video.svc.cluster.local:8080",
        "scores.example.com",
        "SCORES.Example.com:443",
        "scores.example.com.",
        "a.lab.example.com",
        "a.b.lab.example.com",
        "upper.example.org",
        "scores.example.com:",
    ],
)
def test_a_server_answers_to_addresses_local_names_and_configured_ones(host: str) -> None:
    POLICY.check([host])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "example.com",
        "x.scores.example.com",
        "scores.example.com.evil.example",
        "lab.example.com",
        "evillab.example.com",
        "127.0.0.1.evil.example",
        "127.1",  # browsers write it as 127.0.0.1
        "0x7f.0.0.1",
        "localhost.evil.example",
        "a.svc.evil.example",  # anyone can register a name below evil.example
        "a.cluster.local.evil.example",
        "cluster.local",
        "1.2.3.4.5",
    ],
)
def test_other_names_are_misdirected(host: str) -> None:
    with pytest.raises(StatusError, match="add the name to --hosts") as error:
        POLICY.check([host])
    assert (error.value.status, error.value.code) == (421, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["localhost", "localhost"],
        ["localhost", "evil.example"],
        ["localhost,evil.example"],
        ["localhost evil.example"],
        ["user@localhost"],
        ["localhost/evil"],
        ["localhost:port"],
        ["localhost:123456"],
        ["[::1"],
        ["::1"],
        ["[evil]"],
        ["[::1]evil"],
        ["[1.2.3.4.5]"],
        [".localhost"],
        ["a..svc"],
        ["."],
        ["\u0130stanbul.svc"],
        ["x" * 254],
    ],
)
def test_a_missing_repeated_or_malformed_host_is_an_error(hosts: list[str]) -> None:
    with pytest.raises(StatusError, match="one Host header") as error:
        POLICY.check(hosts)
    assert error.value.status == 400


def test_a_server_answers_to_the_name_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "GPU.lan.example")
    HostPolicy().check(["gpu.lan.example:8080"])
    with pytest.raises(StatusError):
        POLICY.check(["gpu.lan.example:8080"])


@pytest.mark.parametrize("name", ["", "*", "*.", "a b", "https://a.example", "a.example:80", "a..example", "*.*.a"])
def test_a_configured_name_must_be_one(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a host"):
        HostPolicy([name])


@pytest.mark.parametrize(
    ("headers", "tls"),
    [
        ({"Host": "a.example"}, False),
        ({"Host": "a.example", "Origin": "http://a.example"}, False),
        ({"Host": "a.example", "Origin": "https://A.example"}, False),  # a proxy removed TLS
        ({"Host": "a.example", "Origin": "https://a.example"}, True),
        ({"Host": "a.example:443", "Origin": "https://a.example"}, True),
        ({"Host": "a.example:8080", "Origin": "http://a.example:8080"}, False),
        ({"Host": "[::1]:8080", "Origin": "http://[::1]:8080"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "none"}, False),
        ({"Host": "upstream:8080", "Origin": "https://a.example", "Sec-Fetch-Site": "same-origin"}, False),
    ],
)
def test_requests_of_own_pages_and_of_other_clients_are_allowed(headers: dict[str, str], tls: bool) -> None:
    check_origin(headers, tls=tls)


@pytest.mark.parametrize(
    ("headers", "tls"),
    [
        ({"Host": "a.example", "Origin": "http://b.example"}, False),
        ({"Host": "a.example", "Origin": "http://a.example:8080"}, False),
        ({"Host": "a.example:8080", "Origin": "http://a.example"}, False),
        ({"Host": "a.example", "Origin": "http://a.example"}, True),
        ({"Host": "a.example", "Origin": "http://a.example.evil.example"}, False),
        ({"Host": "a.example", "Origin": "http://evil.example/http://a.example"}, False),
        ({"Host": "a.example", "Origin": "http://a.example@evil.example"}, False),
        ({"Host": "a.example", "Origin": "null"}, False),
        ({"Host": "a.example", "Origin": ""}, False),
        ({"Host": "a.example", "Origin": "file://"}, False),
        ({"Host": "a.example", "Origin": "chrome-extension://a.example"}, False),
        ({"Host": "", "Origin": "http://"}, False),
        ({"Origin": "http://a.example"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "same-site", "Origin": "http://a.example"}, False),
        ({"Host": "a.example", "Sec-Fetch-Site": "odd", "Origin": "http://b.example"}, False),
    ],
)
def test_requests_of_pages_of_other_sites_are_rejected(headers: dict[str, str], tls: bool) -> None:
    with pytest.raises(StatusError) as error:
        check_origin(headers, tls=tls)
    assert error.value.code == "PERMISSION_DENIED"


LINK = {"Host": "a", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def test_a_link_on_another_site_may_lead_to_a_linkable_page() -> None:
    check_origin(LINK, tls=True, linkable=True)
    for headers, linkable in (
        (LINK, False),
        (LINK | {"Sec-Fetch-Dest": "iframe"}, True),
        (LINK | {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, True),
    ):
        with pytest.raises(StatusError):
            check_origin(headers, tls=True, linkable=linkable)
