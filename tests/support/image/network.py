"""How a build reaches PyPI and Debian: as pip and apt do on this machine, with the same index, mirror and certificates.

pip and apt in the build read it from files that are mounted while the image is built: neither the Dockerfile nor the
image has any of it.
"""

import ast
import platform
import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HOME = "/root"
SETTINGS = {"index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries"}
_LINE = re.compile(r"^[^=]*?\.(?P<name>[a-z-]+)=(?P<value>['\"].*)$")
SUITE = "trixie"
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
ARCHIVE_KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Mirrors(NamedTuple):
    main: str
    security: str


def public_mirrors() -> Mirrors:
    """The mirrors of Debian that debootstrap uses unless told otherwise."""
    program = shutil.which("debootstrap") or "/usr/sbin/debootstrap"
    found = re.search(r'^DEF_MIRROR="([^"]+)"$', Path(program).read_text(), re.MULTILINE)
    assert found, f"{program} has no default mirror"
    return Mirrors(found[1], f"{found[1]}-security")


def write_home(folder: Path) -> None:
    """Write a home folder with pip's configuration of this machine."""
    found = pip_settings()
    kept = {name: value for name, value in found.items() if name in SETTINGS}
    paths = ssl.get_default_verify_paths()
    certificates = found.get("cert") or paths.cafile or paths.openssl_cafile
    if Path(certificates).is_file():
        shutil.copy(certificates, folder / "certificates.pem")
        kept["cert"] = f"{HOME}/certificates.pem"
    (folder / ".config/pip").mkdir(parents=True)
    written = "".join(f"{name} = {value}\n" for name, value in sorted(kept.items()))
    (folder / ".config/pip/pip.conf").write_text(f"[global]\n{written}")


def pip_settings() -> dict[str, str]:
    """pip's configuration of this machine, from files and variables."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=True
    )
    lines = sorted(shown.stdout.splitlines(), key=lambda line: line.startswith(":env:"))  # variables win over files
    matches = [found for line in lines if (found := _LINE.match(line))]
    return {one["name"]: " ".join(ast.literal_eval(one["value"]).split()) for one in matches}


def debian_mirrors() -> Mirrors:
    """The mirrors of Debian that apt uses on this machine; the public ones elsewhere than on Debian.

    One with https is left out: the base has no certificates with which apt could verify it.
    """
    system, public = platform.freedesktop_os_release(), public_mirrors()
    if system.get("ID") != "debian":
        return public
    suite = system.get("VERSION_CODENAME", "")
    found: dict[str, str] = {}
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    for line in shown.stdout.splitlines():
        release, _, uri = line.partition(" ")
        if uri.startswith("http://"):
            found.setdefault(release, uri.rstrip("/"))
    return Mirrors(found.get(suite, public.main), found.get(f"{suite}-security", public.security))


def sources(mirrors: Mirrors) -> str:
    """What apt in the image reads, from the file SOURCES."""
    return f"""\
Types: deb
URIs: {mirrors.main}
Suites: {SUITE} {SUITE}-updates
Components: main
Signed-By: {ARCHIVE_KEY}

Types: deb
URIs: {mirrors.security}
Suites: {SUITE}-security
Components: main
Signed-By: {ARCHIVE_KEY}
"""
