"""Clips and models by absolute path, as old clients and old agents name them. Pure.

A job has only URIs. A path in a submission becomes a file URI, and an annotation of the job lists the fields that were
paths, so that clients get back what they submitted.
"""

from typing import Any, NamedTuple
from urllib.parse import quote

from vmafx.api.fields import MAX_URI
from vmafx.api.meta import GROUP
from vmafx.http.errors import StatusError
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.uri import locate

SUBMITTED_PATHS = f"{GROUP}/submitted-paths"  # the annotation: names of fields, separated by commas
PATH_FIELDS = ("reference", "distorted", "model")


class SubmittedSpec(NamedTuple):
    """The spec of a VmafxJob as it is stored, and the annotations that go with it."""

    spec: dict[str, Any]
    annotations: dict[str, str]


def with_uris(spec: dict[str, Any]) -> SubmittedSpec:
    """The spec with a URI in place of each path."""
    uris = {}
    for name in PATH_FIELDS:
        value = spec.get(name)
        if isinstance(value, str) and value.startswith("/"):
            uris[name] = uri_of(value)
            if len(uris[name]) > MAX_URI:
                raise StatusError(
                    "INVALID_ARGUMENT",
                    f"{name}: as a URI, the path has {len(uris[name]):,} characters, and at most {MAX_URI:,} are "
                    "accepted; characters other than ASCII take six or more of them each",
                )
            try:
                locate(uris[name], "reference")  # as the worker will
            except BadInput as error:
                raise StatusError("INVALID_ARGUMENT", f"{name}: {error.why}") from error
    return SubmittedSpec({**spec, **uris}, {SUBMITTED_PATHS: ",".join(uris)} if uris else {})


def submitted_paths(annotations: dict[str, str]) -> frozenset[str]:
    """The fields of a job that were paths when it was submitted."""
    return frozenset(annotations.get(SUBMITTED_PATHS, "").split(","))


def uri_of(path: str) -> str:
    return f"file://{quote(path)}"


def path_of(uri: str) -> str:
    """The path of a file URI; anything else as it is, and so is a path that a protobuf string cannot hold."""
    try:
        location = locate(uri, "reference")
        location.target.encode()
    except (BadInput, UnicodeEncodeError):
        return uri
    return location.target if location.scheme == "file" else uri
