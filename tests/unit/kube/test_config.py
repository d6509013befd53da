"""Loading the configuration: the search order, and the error for each kind of mistake."""

import base64
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vmafx.devcluster import pki
from vmafx.devcluster.pki import Authority
from vmafx.kube import load_config
from vmafx.kube.errors import ConfigError

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1/", insecure-skip-tls-verify: true}}
users:
- {name: u, user: {token: secret-token}}
contexts:
- {name: one, context: {cluster: c, user: u, namespace: n1}}
- {name: no-cluster, context: {cluster: missing, user: u}}
- {name: no-user, context: {cluster: c, user: missing}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return path


async def test_a_kubeconfig_gives_server_namespace_and_token(file: Path) -> None:
    config = load_config(file)
    assert (config.server, config.namespace) == ("https://127.0.0.1:1", "n1")
    assert await config.credentials.header() == "Bearer secret-token"
    assert "secret-token" not in repr(config)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("current-context: one", "", "has no current-context; available contexts: no-cluster, no-user, one"),
        (
            "current-context: one",
            "current-context: two",
            "has no context 'two'; available contexts: no-cluster, no-user, one",
        ),
        ("current-context: one", "current-context: no-cluster", "refers to cluster 'missing', which does not exist"),
        ("current-context: one", "current-context: no-user", "refers to user 'missing', which does not exist"),
        ("server: ", "sever: ", r"is not a valid kubeconfig: Object missing required field `server` - at"),
        ("https://127.0.0.1:1/", "127.0.0.1:1", "server must be a URL such as https://host:6443"),
        ("https://127.0.0.1:1/", "https://host:abc", "server must be a URL such as https://host:6443"),
        ("insecure-skip-tls-verify: true", "proxy-url: 'nonsense'", "proxy-url must be a URL"),
        ("kind: Config", "kind: [Config", "is not a valid kubeconfig: "),
        (
            "token: secret-token",
            "token: [1]",
            r"Expected `str \| null`, got `array` - at `\$\.users\[0\]\.user\.token`",
        ),
        (
            "insecure-skip-tls-verify: true",
            "certificate-authority-data: '!'",
            "certificate-authority-data is not base64",
        ),
        ("insecure-skip-tls-verify: true", "certificate-authority-data: aGVsbG8=", "is not a PEM certificate"),
        (
            "insecure-skip-tls-verify: true",
            "certificate-authority: ca.crt",
            r"cannot read certificate-authority .*ca\.crt",
        ),
        (
            "token: secret-token",
            "client-certificate-data: aGVsbG8=",
            "client-certificate and client-key must be set together",
        ),
        ("token: secret-token", "client-certificate-data: YQ==, client-key-data: YQ==", "do not match"),
        ("token: secret-token", "as: other-user", "impersonation .* is not supported"),
        ("token: secret-token", "auth-provider: {name: gcp}", "auth-provider 'gcp' is not supported; use exec or oidc"),
    ],
)
def test_an_invalid_kubeconfig_is_explained_in_one_line(file: Path, before: str, after: str, error: str) -> None:
    assert before in KUBECONFIG
    file.write_text(KUBECONFIG.replace(before, after))
    with pytest.raises(ConfigError, match=error) as raised:
        load_config(file)
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)


def test_an_unknown_context_is_named_in_the_error(file: Path) -> None:
    with pytest.raises(ConfigError, match="'elsewhere'"):
        load_config(file, "elsewhere")


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the kubeconfig .*none: No such file"):
        load_config(tmp_path / "none")


def test_without_a_configuration_the_error_names_all_searched_places(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--kubeconfig and \$KUBECONFIG are not set, this is not a Pod.*`vmafx dev up`"
    ):
        load_config(environ={"HOME": str(tmp_path)})


async def test_the_environment_variable_precedes_the_home_directory(tmp_path: Path, file: Path) -> None:
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text(KUBECONFIG.replace("n1", "from-home"))
    assert load_config(environ={"HOME": str(home)}).namespace == "from-home"
    assert load_config(environ={"HOME": str(home), "KUBECONFIG": str(file)}).namespace == "n1"


def test_several_files_are_merged_and_the_first_value_wins(tmp_path: Path, file: Path) -> None:
    first = tmp_path / "first"
    first.write_text("current-context: mine\ncontexts: [{name: mine, context: {cluster: c, user: u, namespace: n9}}]\n")
    listed = os.pathsep.join([str(tmp_path / "absent"), str(first), str(file)])
    assert load_config(environ={"KUBECONFIG": listed}).namespace == "n9"
    with pytest.raises(ConfigError, match="none of the kubeconfig files exists"):
        load_config(environ={"KUBECONFIG": os.pathsep.join(["/nowhere/a", "/nowhere/b"])})


async def test_a_token_file_is_relative_to_the_kubeconfig_and_reread_after_a_rejection(
    tmp_path: Path, file: Path
) -> None:
    file.write_text(KUBECONFIG.replace("token: secret-token", "tokenFile: token"))
    (tmp_path / "token").write_text("one\n")
    credentials = load_config(file).credentials
    assert await credentials.header() == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert await credentials.header() == "Bearer one"
    assert await credentials.header("Bearer one") == "Bearer two"
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match="cannot read the token file"):
        await credentials.header("Bearer one")


async def test_a_username_and_password_become_basic_authentication(file: Path) -> None:
    file.write_text(KUBECONFIG.replace("token: secret-token", "username: a, password: b"))
    assert await load_config(file).credentials.header() == "Basic " + base64.b64encode(b"a:b").decode()


async def test_whitespace_around_a_token_is_removed(file: Path) -> None:
    file.write_text(KUBECONFIG.replace("token: secret-token", 'token: "secret-token\\n"'))
    assert await load_config(file).credentials.header() == "Bearer secret-token"


@pytest.mark.parametrize("namespace", ["''", "null"])
def test_the_namespace_is_default_if_the_context_has_none(file: Path, namespace: str) -> None:
    file.write_text(KUBECONFIG.replace("namespace: n1", f"namespace: {namespace}"))
    assert load_config(file).namespace == "default"


async def test_the_password_of_a_proxy_is_not_printed(file: Path) -> None:
    file.write_text(KUBECONFIG.replace("insecure", "proxy-url: 'http://me:hunter2@proxy:3128', insecure"))
    config = load_config(file)
    assert config.proxy == "http://proxy:3128"
    secret = base64.b64encode(b"me:hunter2").decode()
    assert await config.proxy_credentials.header() == f"Basic {secret}"
    assert "hunter2" not in repr(config)
    assert secret not in repr(config)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_comments_between_certificates_may_be_non_ascii(file: Path) -> None:
    bundle = "# Zertifikat für den Betrieb\n".encode() + Authority().certificate
    data = f"certificate-authority-data: {encoded(bundle)}"
    file.write_text(KUBECONFIG.replace("insecure-skip-tls-verify: true", data))
    tls = load_config(file).tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1


def test_an_encrypted_key_is_rejected_without_a_password_prompt(file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    certificate, _ = Authority().client("user")
    user = f"client-certificate-data: {encoded(certificate)}, client-key-data: {encoded(encrypted)}"
    file.write_text(KUBECONFIG.replace("token: secret-token", user))
    with pytest.raises(ConfigError, match="client-key is encrypted"):
        load_config(file)


def test_the_kubeconfig_of_a_dev_cluster_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    pki.write_credentials(folder, "https://127.0.0.1:6443")
    config = load_config(folder / "kubeconfig")
    assert config.tls is not None
    assert len(config.tls.get_ca_certs()) == 1
