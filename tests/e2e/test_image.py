"""The image, built as `make image` builds it: its commands run as in a Pod, its files, its layers."""

import ipaddress
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import grimp
import pytest
from tools.hashes import canonical

from tests.e2e.image import IMAGE, REVISION, SOURCE, bill_of_materials, build, built_image, image_storage
from tests.support.commands import VMAFX
from tests.support.image.archive import ImageArchive
from tests.support.image.buildah import BuildFailed, missing_requirement
from tests.support.image.container import DATA, USER, Container
from tests.support.image.network import SETTINGS, debian_mirrors, pip_settings, public_mirrors, write_home
from tests.support.project import ROOT
from tests.support.video import lossless, scene
from vmafx.cli.main import COMMANDS
from vmafx.devcluster import paths
from vmafx.devcluster.progress import PlainProgress
from vmafx.operator.job.pod import COMMAND as WORKER

pytestmark = [pytest.mark.image, pytest.mark.timeout(2400)]  # each variant is built first; one test builds it again

ROLES = sorted(name for name, module in COMMANDS.items() if module == "roles")
PACKAGES = "opt/vmafx/lib/python3.13/site-packages"
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
LOAD_LIBRARIES = """
import ctypes, os, pathlib, vmafx
loaded = 0
for path in sorted(pathlib.Path(vmafx.__file__).parents[1].rglob("*.so*")):
    ctypes.PyDLL(str(path))
    loaded += 1
print(loaded, flush=True)
os._exit(0)  # some of these libraries crash at exit if not initialized
"""


class BuiltImage(NamedTuple):
    path: Path
    archive: ImageArchive
    container: Container

    @property
    def root(self) -> Path:
        return self.container.root


def unpacked(variant: str) -> Iterator[BuiltImage]:
    path = built_image(variant)
    archive = ImageArchive(path)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # of the root of the image, which its user has to read
        archive.unpack(Path(folder))
        yield BuiltImage(path, archive, Container(Path(folder), archive.config))


@pytest.fixture(scope="module", autouse=True)
def _can_build() -> None:
    if reason := missing_requirement():
        pytest.fail(f"this machine cannot build the image: {reason}")


@pytest.fixture(scope="module")
def image() -> Iterator[BuiltImage]:
    yield from unpacked("cpu")


@pytest.fixture(scope="module")
def operator_image() -> Iterator[BuiltImage]:
    yield from unpacked("operator")


@pytest.fixture(scope="module", params=["cpu", "operator"])
def each(request: pytest.FixtureRequest) -> BuiltImage:
    found: BuiltImage = request.getfixturevalue("image" if request.param == "cpu" else "operator_image")
    return found


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """A folder that the user of the image can read."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("role", ROLES)
def test_every_role_starts(image: BuiltImage, role: str) -> None:
    done = image.container.run("vmafx", role, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: " in done.stdout.lower()


@pytest.mark.parametrize("command", ["vmafx", "vmaf-tune"])
def test_the_commands_start(image: BuiltImage, command: str) -> None:
    done = image.container.run(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_starts_as_in_the_pods_of_the_operator(image: BuiltImage) -> None:
    done = image.container.run(*WORKER)
    assert "VMAFX_WORK is invalid" in done.stderr


def test_the_command_is_the_operator(each: BuiltImage) -> None:
    assert (each.archive.config["Cmd"], each.archive.config.get("Entrypoint")) == (["vmafx-operator"], None)
    assert "usage: vmafx-operator" in each.container.run("vmafx-operator", "--help").stdout
    refused = each.container.run(*each.archive.config["Cmd"])
    assert "no Kubernetes configuration found" in refused.stderr


def test_it_runs_as_a_user_without_rights_on_a_root_that_it_cannot_write(each: BuiltImage) -> None:
    assert each.archive.config["User"] == f"{USER}:{USER}"
    shown = each.container.run("sh", "-c", "id -un; id -u; id -g; touch ~/file; echo $HOME; touch /file")
    assert shown.stdout.split() == ["vmafx", USER, USER, "/tmp"]  # noqa: S108 - in the container
    assert shown.stderr == "touch: cannot touch '/file': Read-only file system\n"


def test_scores_are_those_outside(image: BuiltImage, clips: Path) -> None:
    lossless(scene(), clips / "reference.mkv")
    lossless(scene(seed=8), clips / "distorted.mkv")
    paths = [f"{DATA}/reference.mkv", f"{DATA}/distorted.mkv"]
    inside = image.container.run("vmafx", "score", *paths, "--json", "--no-cache", data=clips)
    assert inside.returncode == 0, inside.stderr
    command = [VMAFX, "score", *(path.replace(DATA, str(clips)) for path in paths), "--json", "--no-cache"]
    outside = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
    results = [json.loads(shown) for shown in (inside.stdout, outside)]
    assert results[0]["score"] == results[1]["score"] > 0
    assert results[0]["features"] == results[1]["features"]


def test_the_machine_can_score_and_reads_s3_and_gs(image: BuiltImage) -> None:
    done = image.container.run("vmafx", "doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert {"s3", "gs"} <= set(json.loads(done.stdout)["schemes"])


def test_a_report_is_drawn_without_fonts_of_the_system(image: BuiltImage, clips: Path) -> None:
    lossless(scene(), clips / "clip.mkv")
    clip = f"{DATA}/clip.mkv"
    done = image.container.run("vmafx", "score", clip, clip, "--report", "/tmp/report.html", data=clips)  # noqa: S108
    assert (done.returncode, done.stderr) == (0, "wrote /tmp/report.html\n")


def test_s3_and_its_credentials_are_described(image: BuiltImage) -> None:
    code = """
import botocore.session
session = botocore.session.get_session()
for service in ("s3", "sts", "sso", "sso-oidc"):
    client = session.create_client(service, "eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    print(client.meta.endpoint_url)
"""
    done = image.container.run("python3", "-c", code)
    assert done.returncode == 0, done.stderr
    assert [line.split(".")[0] for line in done.stdout.split()] == [
        "https://s3", "https://sts", "https://portal", "https://oidc",
    ]  # fmt: skip


def test_all_libraries_load(each: BuiltImage) -> None:
    done = each.container.run("python3", "-c", LOAD_LIBRARIES)
    assert done.returncode == 0, done.stderr
    there = [path for path in (each.root / PACKAGES).rglob("*.so*") if path.is_file()]
    assert int(done.stdout) == len(there) > 10


def test_nothing_is_compiled_at_a_start(each: BuiltImage) -> None:
    done = each.container.run("python3", "-v", "-c", "import vmafx.operator.main, vmafx.controller.settings")
    loaded = re.findall(r"^# code object from '?(\S+?)'?$", done.stderr, re.MULTILINE)
    assert len(loaded) > 100
    assert [path for path in loaded if not path.endswith(".pyc")] == []


def test_the_image_of_the_operator_has_all_that_the_operator_imports(operator_image: BuiltImage) -> None:
    graph = grimp.build_graph("vmafx", cache_dir=None)
    needed = graph.find_upstream_modules("vmafx.operator", as_package=True) | graph.find_descendants("vmafx.operator")
    lines = [f"import {module}" for module in sorted({*needed, "grpc", "cryptography", "yaml"})]
    done = operator_image.container.run("python3", "-W", "error", "-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert "vmafx.operator.job.external.client" in needed


def test_the_image_of_the_operator_cannot_read_clips(operator_image: BuiltImage) -> None:
    files = {path.name for path in operator_image.root.rglob("*") if path.is_file()}
    assert [name for name in files if name.startswith(("ffmpeg-", "libav", "libx26", "libSvt"))] == []
    packages = {path.name for path in (operator_image.root / PACKAGES).iterdir()}
    assert {"av", "imageio_ffmpeg", "numpy", "matplotlib", "aiohttp", "typer"} & packages == set()
    assert {path.name for path in (operator_image.root / "opt/vmafx/bin").iterdir()} == {
        "python", "python3", "python3.13", "vmafx-operator",
    }  # fmt: skip


def test_nothing_of_the_build_is_in_it(each: BuiltImage) -> None:
    files = [path for path in each.root.rglob("*") if path.is_file() and not path.is_symlink()]
    names = {path.name for path in files}
    assert names & {"pip", "pip3", "pip.conf", ".netrc", ".bash_history", ".python_history", "gcc", "strip"} == set()
    assert not list(each.root.glob("usr/lib/python3*/dist-packages/pip*"))
    for folder in ("root", "tmp", "home", "var/lib/apt/lists", "var/cache/apt", "var/log/apt"):
        assert [path for path in (each.root / folder).rglob("*") if path.name not in {".bashrc", ".profile"}] == []
    kinds = {".pyi", ".pyx", ".pxd", ".a", ".c"}
    packages = [path for path in (each.root / PACKAGES).iterdir() if path.name != "vmafx"]
    assert [path for package in packages for path in package.rglob("*") if path.suffix in kinds] == []


def test_it_trusts_the_certificates_of_debian_alone(each: BuiltImage) -> None:
    bundle = set(CERTIFICATE.findall((each.root / "etc/ssl/certs/ca-certificates.crt").read_bytes()))
    packaged = (each.root / "usr/share/ca-certificates").rglob("*.crt")
    debian = {found for path in packaged for found in CERTIFICATE.findall(path.read_bytes())}
    assert bundle == debian
    assert len(bundle) > 100


def test_it_names_no_index_or_proxy_of_the_machine_that_built_it(each: BuiltImage, tmp_path: Path) -> None:
    write_home(tmp_path)
    private = {text.encode() for text in private_names()}
    if (certificates := tmp_path / "certificates.pem").exists():
        packaged = Path("/usr/share/ca-certificates").rglob("*.crt")
        public = {key(one) for path in packaged for one in CERTIFICATE.findall(path.read_bytes())}
        private |= {key(one) for one in CERTIFICATE.findall(certificates.read_bytes())} - public
    for path in each.root.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
            content = path.read_bytes()
            assert [one for one in private if one in content] == [], path
    assert [one for one in private if one in json.dumps(each.archive.document).encode()] == []


def private_names() -> set[str]:
    """Hosts and passwords of the indexes, mirrors and proxies that this machine uses, if they are not public."""
    configured = [value for name, value in pip_settings().items() if name in SETTINGS]
    proxies = [
        value for name, value in os.environ.items() if name.lower() in {"http_proxy", "https_proxy", "all_proxy"}
    ]
    found: set[str] = set()
    for text in (*configured, *proxies, *debian_mirrors()):
        for one in text.split():
            url = urlsplit(one if "://" in one else f"//{one}")
            if url.hostname and "." in url.hostname and not is_public(url.hostname):
                found.add(url.hostname)
            if url.password:
                found |= {url.password, unquote(url.password)}
    return found


def is_public(host: str) -> bool:
    """Whether the host says nothing of this machine's network: packages name it themselves, or debootstrap does."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _named_by_packages() or host == urlsplit(public_mirrors().main).hostname


@cache
def _named_by_packages() -> set[str]:
    """The hosts in the descriptions of the packages that are installed here."""
    texts = (one.read_text("METADATA") or "" for one in distributions())
    return {host for text in texts for host in re.findall(r"https?://([\w.-]+)", text)}


def test_private_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:p%40ss@index.corp.example:8443/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://one.corp.example/ https://github.com/simple")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.corp.example:3128")
    expected = {"index.corp.example", "p%40ss", "p@ss", "one.corp.example", "proxy.corp.example"}
    assert expected <= private_names()
    assert {"github.com", "127.0.0.1", "me"} & private_names() == set()


def key(certificate: bytes) -> bytes:
    """A line that no other certificate has: the end of its signature."""
    return certificate.splitlines()[-3]


def test_no_file_gives_rights_but_those_of_debian(each: BuiltImage) -> None:
    """Nothing that a user could write, and no set-user-ID programs beside the system's."""
    for path in (each.root / "opt").rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISLNK(mode) or not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH | stat.S_IWGRP), path
        assert (path.lstat().st_uid, path.lstat().st_gid) == (0, 0), path


def test_its_labels(each: BuiltImage) -> None:
    labels = each.archive.config["Labels"]
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    expected = {
        "title": "vmafx", "licenses": "Apache-2.0", "version": version, "revision": REVISION, "source": SOURCE,
        "base.name": "debian:trixie-slim",
    }  # fmt: skip
    assert {name: labels.get(f"org.opencontainers.image.{name}") for name in expected} == expected
    assert each.archive.names[0].startswith(IMAGE)


def test_the_bill_of_materials_lists_all_packages(each: BuiltImage) -> None:
    bill = json.loads(bill_of_materials(each.path).read_text())
    purls = [component.get("purl", "") for component in bill["components"]]
    listed = {re.split("[@?]", purl)[0] for purl in purls}
    python = {one.metadata["Name"] for one in distributions(path=[str(each.root / PACKAGES)])} - {"vmafx"}
    status = (each.root / "var/lib/dpkg/status").read_text()
    debian = [text.split("\n")[0] for text in status.split("Package: ") if "\nStatus: install ok installed\n" in text]
    assert {f"pkg:pypi/{canonical(name)}" for name in python} | {f"pkg:deb/debian/{name}" for name in debian} == listed
    assert len(python) > 10
    assert len(debian) > 50
    assert bill["metadata"]["component"]["name"] == "vmafx"


def test_the_page_states_the_sizes(each: BuiltImage) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    variant = each.archive.names[0].removeprefix(IMAGE).lstrip("-") or "cpu"
    (stated,) = re.findall(rf"^\| `{variant}` \|.*\| (\d+) MB \|", page, re.MULTILINE)
    size = sum(layer.size for layer in each.archive.layers()) / 1e6
    assert size == pytest.approx(int(stated), rel=0.05)


@contextmanager
def built_from_nothing(name: str) -> Iterator[Path]:
    """The image in a folder of this name, every layer of it built now."""
    folder = paths.cache() / "image"
    archive = folder / name / "image.tar"
    storage = image_storage(PlainProgress())
    try:
        with paths.folder_lock(folder):
            before = storage.images()
            try:
                build("cpu", archive, PlainProgress(), "--no-cache")
            finally:
                storage.remove(storage.images() - before)
        yield archive
    finally:
        shutil.rmtree(archive.parent, ignore_errors=True)


def debian_packages(archive: Path) -> set[str]:
    bill = json.loads(bill_of_materials(archive).read_text())
    return {one["purl"] for one in bill["components"] if "pkg:deb/" in one.get("purl", "")}


def test_two_builds_have_the_same_layers(image: BuiltImage) -> None:
    with ExitStack() as stack:
        first, second = image.path, stack.enter_context(built_from_nothing("again"))
        if debian_packages(first) != debian_packages(second):  # Debian has updates since the image was built
            first = stack.enter_context(built_from_nothing("once-more"))
        assert ImageArchive(second).layers() == ImageArchive(first).layers()
        assert ImageArchive(second).config == ImageArchive(first).config
        assert bill_of_materials(second).read_bytes() == bill_of_materials(first).read_bytes()


def test_an_unknown_variant_is_refused_in_a_sentence() -> None:
    folder = paths.cache() / "image"
    with paths.folder_lock(folder), pytest.raises(BuildFailed) as refused:
        build("voodoo", folder / "voodoo" / "image.tar", PlainProgress())
    (folder / "voodoo").rmdir()
    assert "error: VARIANT is voodoo; it must be cpu, cuda, rocm, xpu or operator" in str(refused.value)
