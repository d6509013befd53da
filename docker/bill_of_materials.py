"""Adds the packages of Debian to a bill of materials of the Python packages (CycloneDX, JSON), both in one image.

    bill_of_materials.py PYTHON.cdx.json /var/lib/dpkg/status IMAGE.cdx.json

Runs while the image is built, with Python's standard library alone.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

_FIELD = re.compile(r"^(Package|Version|Architecture|Status|Source): (.+)$", re.MULTILINE)


def debian_packages(status: str, release: str) -> list[dict[str, Any]]:
    """A component for each installed package."""
    components = []
    for paragraph in status.split("\n\n"):
        fields = dict(_FIELD.findall(paragraph))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            place = f"arch={fields['Architecture']}&distro=debian-{release}"
            purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?{place}"
            components.append({"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl})
    return components


def main(python: Path, status: Path, output: Path) -> None:
    bill = json.loads(python.read_text())
    (release,) = re.findall(r"^(\d+)", Path("/etc/debian_version").read_text())
    debian = debian_packages(status.read_text(), release)
    bill["components"] = [*bill["components"], *sorted(debian, key=lambda component: component["name"])]
    bill["dependencies"] = [*bill["dependencies"], *({"ref": component["bom-ref"]} for component in debian)]
    output.write_text(json.dumps(bill, indent=2) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
