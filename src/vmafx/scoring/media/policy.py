"""What may be opened and written: schemes, folders, addresses and sizes, with the variables that configure them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Self

import msgspec

from vmafx import settings
from vmafx.api.restricted import SCRATCH_LIMIT_VARIABLE
from vmafx.api.units import parse_bytes
from vmafx.scoring.errors import BadInput, InputPart, NodeFault
from vmafx.scoring.media.retry import RetryPolicy
from vmafx.scoring.media.uri import SCHEMES
from vmafx.scratch import ScratchQuota
from vmafx.settings import Setting, Settings, at_least, parse_bool

MODEL_DIR = "VMAFX_MODEL_DIR"
INSECURE_REGISTRIES = "VMAFX_INSECURE_REGISTRIES"
OUTPUT_DIR, OUTPUT_REPLACE = "VMAFX_OUTPUT_DIR", "VMAFX_OUTPUT_REPLACE"
CLOUD_IDENTITY = "VMAFX_MEDIA_CLOUD_IDENTITY"
FETCH_SECONDS = "VMAFX_MEDIA_FETCH_SECONDS"
DOCKER_CONFIG = Path("~/.docker")
NO_QUOTA = ScratchQuota()
_UNITS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _parse_schemes(text: str) -> frozenset[str]:
    schemes = frozenset(name.strip().lower() for name in text.split(","))
    if unknown := sorted(schemes - set(SCHEMES)):
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(SCHEMES)}")
    return schemes


def _parse_roots(text: str) -> tuple[Path, ...]:
    """Rejects a value without any folder, which would allow all folders."""
    roots = tuple(Path(folder) for folder in text.split(":") if folder)
    if text and not roots:
        raise ValueError(f"{text!r} names no folder")
    for root in roots:
        if not root.is_absolute():
            raise ValueError(f"{str(root)!r} is not an absolute path")
    return roots


def _parse_folder(text: str) -> Path | None:
    """An absolute path, since each worker of an agent has its own working directory."""
    if text and not Path(text).is_absolute():
        raise ValueError(f"{text!r} is not an absolute path")
    return Path(text) if text else None


def parse_registries(text: str) -> frozenset[str]:
    """HOST or HOST:PORT, separated by commas."""
    registries = frozenset(name.strip() for name in text.split(",") if name.strip())
    for name in sorted(registries):
        if not re.fullmatch(r"[A-Za-z0-9.\-\[\]:]+", name):
            raise ValueError(f"{name!r} is not a HOST or HOST:PORT")
    return registries


def _parse_quota(text: str) -> ScratchQuota:
    return NO_QUOTA if text == "0" else ScratchQuota(parse_bytes(text))


class JobMediaSettings(Settings):
    """What only the owner of a node can allow jobs to do."""

    # fmt: off
    outputs: Annotated[tuple[Path, ...], Setting(
        "Folders that jobs may write reports into, separated by colons (default: none).",
        variable=OUTPUT_DIR, parse=_parse_roots,
    )]
    replace_outputs: Annotated[bool, Setting(
        "Allow the report of a job to replace any file in those folders, and not only earlier reports of the same job.",
        default="false", variable=OUTPUT_REPLACE, parse=parse_bool,
    )]
    cloud_identity: Annotated[bool, Setting(
        "Allow jobs to use s3 and gs with the cloud identity of the Pod or machine (its metadata service, a role for"
        " its containers, a web identity), and not only with credentials that are given.", default="false",
        variable=CLOUD_IDENTITY, parse=parse_bool,
    )]
    # fmt: on


class MediaPolicy(Settings):
    """What may be opened, its maximum size, and the timeouts of transfers."""

    # fmt: off
    schemes: Annotated[frozenset[str], Setting(
        "Allowed URI schemes of clips, models and reports, separated by commas; `file` includes plain paths.",
        default=",".join(SCHEMES),
        variable="VMAFX_MEDIA_SCHEMES", parse=_parse_schemes,
    )] = frozenset(SCHEMES)
    roots: Annotated[tuple[Path, ...], Setting(
        "Folders that local clips and models must be in, separated by colons (default: any folder).",
        variable="VMAFX_MEDIA_ROOTS", parse=_parse_roots,
    )] = ()
    private: Annotated[bool, Setting(
        "Allow http, https and oci URLs, and S3 endpoints named by jobs, that lead to private, loopback or link-local"
        " addresses.", default="false",
        variable="VMAFX_MEDIA_ALLOW_PRIVATE", parse=parse_bool,
    )] = False
    max_bytes: Annotated[int, Setting(
        "Maximum size of a clip, such as `10Gi`, `500Mi` or a number of bytes.", default="64Gi",
        variable="VMAFX_MEDIA_MAX_BYTES", parse=parse_bytes,
    )] = 64 << 30
    quota: Annotated[ScratchQuota, Setting(
        "Maximum size of all downloads of a job, or of one `vmafx score`, at the same time; 0 for none. In a worker"
        " Pod, the operator sets it to the limit of /scratch.", default="0",
        variable=SCRATCH_LIMIT_VARIABLE, parse=_parse_quota,
    )] = NO_QUOTA
    fetch_seconds: Annotated[float, Setting(
        "Maximum time for one clip, model or report to be transferred, in seconds, including retries.", default="21600",
        variable=FETCH_SECONDS, parse=at_least(1),
    )] = 21600
    model_dir: Annotated[Path | None, Setting(
        "Folder of models that can be given by name: `--model mine` is mine.json in it. If VMAFX_MEDIA_ROOTS is set, it"
        " must be in one of those folders.",
        variable=MODEL_DIR, parse=_parse_folder,
    )] = None
    insecure_registries: Annotated[frozenset[str], Setting(
        "OCI registries that are reached without TLS, as HOST or HOST:PORT, separated by commas; those on this machine"
        " always are.",
        variable=INSECURE_REGISTRIES, parse=parse_registries,
    )] = frozenset()
    docker_config: Annotated[Path, Setting(
        "Folder of the config.json with the credentials of OCI registries.", default=str(DOCKER_CONFIG),
        variable="DOCKER_CONFIG", parse=lambda text: Path(text) if text else DOCKER_CONFIG,
    )] = DOCKER_CONFIG
    # fmt: on
    cloud_identity: bool = True  # of this machine or Pod may be used
    endpoint_of_job: bool = False  # the Secret of a job names the S3 endpoint, so its addresses are checked like URLs
    outputs: tuple[Path, ...] = ()  # folders for reports
    replace_outputs: bool = False
    job: str = ""  # uid of the job; its reports may replace its own earlier ones
    reserve: int = 256 << 20  # bytes of the disk that downloads leave free
    connect_seconds: float = 10.0
    stall_seconds: float = 30.0  # without a byte
    block_seconds: float = 300.0  # for one block
    retry: RetryPolicy = RetryPolicy()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        try:
            return settings.from_environ(cls, environ)
        except settings.InvalidSetting as error:
            raise BadInput("options", str(error)) from error

    @classmethod
    def for_jobs(cls, environ: Mapping[str, str], job: str = "", *, endpoint_of_job: bool = False) -> Self:
        """For work that others send to this machine: without what JobMediaSettings has to allow. `job` is its uid."""
        policy = cls.from_environ(environ)
        try:
            allowed = settings.from_environ(JobMediaSettings, environ)
        except settings.InvalidSetting as error:
            raise BadInput("options", str(error)) from error
        return msgspec.structs.replace(
            policy, job=job, endpoint_of_job=endpoint_of_job, **msgspec.structs.asdict(allowed)
        )

    def check_scheme(self, scheme: str, part: InputPart) -> None:
        if scheme not in SCHEMES:
            raise BadInput(part, f"{scheme}:// is not supported; use a path, or a URI with {_listed(SCHEMES)}")
        if scheme not in self.schemes:
            allowed = _listed(sorted(self.schemes)) or "nothing"
            raise BadInput(part, f"{scheme}:// is not allowed: VMAFX_MEDIA_SCHEMES allows only {allowed}")

    def check_size(self, size: int, name: str, part: InputPart) -> None:
        if size > self.max_bytes:
            # The variable does not apply to models.
            remedy = "" if part == "model" else "; use a smaller one, or raise VMAFX_MEDIA_MAX_BYTES"
            raise BadInput(part, f"{name} is larger than the {format_size(self.max_bytes)} allowed{remedy}")

    def quota_exceeded(self, name: str) -> NodeFault:
        used = f", of which {format_size(self.quota.used)} are in use" if self.quota.used else ""
        return NodeFault(
            f"{name} does not fit: downloads may take {format_size(self.quota.limit)} in all on this node{used}; use"
            f" smaller clips, or raise the limit of its /scratch, or {SCRATCH_LIMIT_VARIABLE} of its agent"
        )


def format_size(size: int) -> str:
    """A size in bytes with a binary unit, such as `1.5 GiB`."""
    for unit, shift in reversed(_UNITS.items()):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}B"
    return f"{size} bytes"


def _listed(schemes: Iterable[str]) -> str:
    return ", ".join(f"{scheme}://" for scheme in schemes)
