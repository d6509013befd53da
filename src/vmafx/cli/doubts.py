"""What of a job is accepted, and may not be what was meant: the cluster may know better."""

import re
from collections.abc import Iterable, Iterator, Mapping

from vmafx.api.scoring import RawFormat
from vmafx.cli.tables import cell
from vmafx.fleet.handing import scheme_of
from vmafx.scoring.media.schemes import SCHEMES
from vmafx.scoring.media.uri import shown
from vmafx.scoring.models import BUILT_IN

CONTAINERS = (".mp4", ".mkv", ".webm", ".mov")


def of_files(files: Iterable[str]) -> Iterator[str]:
    """Clips, models and reports, as they were given."""
    for text in files:
        scheme = scheme_of(text)
        if text.startswith("/"):
            yield f"{cell(text)} must exist at this path on the workers too"
        elif re.match(r"[^/]*://[^/?#]*@", text):
            yield "the password in a URI can be read by everyone who may read jobs"
        if scheme and scheme not in SCHEMES:
            yield f"workers of vmafx know no {scheme}://, only {', '.join(f'{one}://' for one in SCHEMES)}"


def of_model(name: str) -> Iterator[str]:
    if name and name not in BUILT_IN and not scheme_of(name):
        yield f"the workers of vmafx know no model {cell(name)}, only {', '.join(BUILT_IN)} and URIs of JSON models"


def of_formats(clips: Mapping[str, RawFormat | None]) -> Iterator[str]:
    """A size is for raw clips, and for all if no name says that its clip is one."""
    for uri, form in clips.items():
        if form is not None and re.split(r"[?#]", uri, maxsplit=1)[0].lower().endswith(CONTAINERS):
            yield f"{cell(shown(uri))} is read as raw video because of --size; omit that if the clip is not raw"
