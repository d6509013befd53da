"""The parameters of a path that lists or streams objects: `limit`, `continue` and `watch`, and the Accept header."""

import re
from typing import NamedTuple

from vmafx.http.errors import StatusError
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JSON, NDJSON

LIST_PARAMETERS = ("limit", "continue", "watch")
DEFAULT_LIMIT, MAX_LIMIT = 100, 500  # objects on a page
MAX_TOKEN = 2048  # characters
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_QVALUE = re.compile(r"[01](\.[0-9]{0,3})?")


class ListQuery(NamedTuple):
    """One page of a list, or a stream (`watch`) of all objects and their changes."""

    watch: bool
    limit: int = DEFAULT_LIMIT
    token: str = ""  # of the page, from `continue` of the page before; empty: the first page


def list_query(request: HttpRequest, *, streams: bool) -> ListQuery:
    """The query decides, then the Accept header; `streams` is what a caller gets that asks for neither."""
    values = {name: single_parameter(request, name) for name in LIST_PARAMETERS}
    limit, token, watch = (values[name] for name in LIST_PARAMETERS)
    if watch is not None and watch.lower() not in BOOLEANS:
        raise StatusError("INVALID_ARGUMENT", f"watch must be true or false, not {watch[:40]!r}")
    asks_for_page = limit is not None or token is not None
    if watch is not None and BOOLEANS[watch.lower()]:
        if asks_for_page:
            raise StatusError("INVALID_ARGUMENT", "limit and continue are for lists; leave them out with watch=true")
        return ListQuery(watch=True)
    if watch is None and not asks_for_page:
        offered = (NDJSON, JSON) if streams else (JSON, NDJSON)
        if preferred(",".join(request.headers.getall("Accept", [])), offered) == NDJSON:
            return ListQuery(watch=True)
    if len(token or "") > MAX_TOKEN:
        raise StatusError("INVALID_ARGUMENT", "continue is not a token of this server; start again without it")
    return ListQuery(False, _limit(limit), token or "")


def preferred(accept: str, offered: tuple[str, ...]) -> str:
    """The media type to send: of those that the Accept header ranks highest, or if it names none, the first offered."""
    weights = dict(_weight(item) for item in accept.split(",") if item.strip())
    if not weights:
        return offered[0]

    def rank(media_type: str) -> float:
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next((weights[one] for one in ranges if one in weights), 0.0)

    return max(offered, key=rank)


def _weight(item: str) -> tuple[str, float]:
    """A media range of an Accept header and its weight; 0 if that is not a number."""
    media_range, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = next((value for name, _, value in (part.partition("=") for part in parameters) if name == "q"), "1")
    return media_range, float(weight) if _QVALUE.fullmatch(weight) else 0.0


def _limit(text: str | None) -> int:
    """A limit above MAX_LIMIT is lowered to it: a page may always be shorter than its limit."""
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise StatusError("INVALID_ARGUMENT", f"limit must be a number from 1 to {MAX_LIMIT}, not {text[:40]!r}")
    return min(int(text), MAX_LIMIT)


def single_parameter(request: HttpRequest, name: str) -> str | None:
    """A parameter of the query; None if it is absent. Raises StatusError if it is given twice."""
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise StatusError("INVALID_ARGUMENT", f"the parameter {name} is given {len(values)} times; give it once")
    return values[0] if values else None
