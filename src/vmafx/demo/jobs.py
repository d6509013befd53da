"""A VmafxJob for each encode, as a file for kubectl."""

import subprocess
from pathlib import Path

import msgspec

from vmafx.api.meta import API_VERSION
from vmafx.demo.clips import ENCODES, REFERENCE
from vmafx.demo.errors import DemoError


def write(file: Path, clips: Path) -> None:
    """All jobs in one file, as a person would write them."""
    documents = [
        {
            "apiVersion": API_VERSION,
            "kind": "VmafxJob",
            "metadata": {"name": encode.name, "labels": {"codec": encode.codec}},
            "spec": {"reference": (clips / REFERENCE).as_uri(), "distorted": (clips / encode.file).as_uri()},
        }
        for encode in ENCODES
    ]
    file.write_bytes(b"---\n".join(msgspec.yaml.encode(document) for document in documents))


def apply(kubectl: Path, kubeconfig: Path, file: Path) -> None:
    command = [str(kubectl), "--kubeconfig", str(kubeconfig), "apply", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise DemoError(f"kubectl apply -f {file} failed: {done.stderr.strip()}")
