"""What of a job is accepted, and may not be what was meant: the cluster may know better."""

import re
from collections.abc import Iterable, Iterator

from vmafx.cli.tables import cell
from vmafx.fleet.handing import scheme_of
from vmafx.scoring.media.policy import MODEL_DIR
from vmafx.scoring.media.schemes import SCHEMES
from vmafx.scoring.models import BUILT_IN


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
        yield (
            f"the workers of vmafx know no model {cell(name)}, only {', '.join(BUILT_IN)} and URIs of JSON models,"
            f" unless {MODEL_DIR} is set for them and {cell(name)}.json is in that folder"
        )
