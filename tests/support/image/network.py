"""How a build reaches PyPI: as pip does on this machine, with the same index, proxy and certificates.

pip in the build reads it from the home folder of root, which is mounted while the image is built: neither the
Dockerfile nor the image has any of it.
"""

import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

HOME = "/root"
SETTINGS = {"index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries"}
_LINE = re.compile(r"^[^=]*?\.(?P<name>[a-z-]+)='(?P<value>.*)'$")


def write_home(folder: Path) -> None:
    """Write a home folder with pip's configuration of this machine."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=True
    )
    lines = sorted(shown.stdout.splitlines(), key=lambda line: line.startswith(":env:"))  # variables win over files
    found = {line["name"]: line["value"] for line in map(_LINE.match, lines) if line}
    kept = {name: value for name, value in found.items() if name in SETTINGS}
    paths = ssl.get_default_verify_paths()
    certificates = found.get("cert") or paths.cafile or paths.openssl_cafile
    if Path(certificates).is_file():
        shutil.copy(certificates, folder / "certificates.pem")
        kept["cert"] = f"{HOME}/certificates.pem"
    (folder / ".config/pip").mkdir(parents=True)
    written = "".join(f"{name} = {value}\n" for name, value in sorted(kept.items()))
    (folder / ".config/pip/pip.conf").write_text(f"[global]\n{written}")
