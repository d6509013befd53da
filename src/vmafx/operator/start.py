"""`vmafx-operator`, started lean: nine tenths of the CPU time of a start is imports, and a quarter of that is waste.

Two wastes are kept out while everything is imported: the garbage collector, which looks through modules and classes
that are never garbage, and the system's CA bundle, which aiohttp parses for a default that nothing here uses, since
every connection brings a TLS context of its own.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

BUNDLE = "SSL_CERT_FILE"  # where OpenSSL looks for it
YOUNG = 10_000  # objects between two looks for garbage: hardly any is cyclic here


def main() -> None:
    gc.disable()
    with _no_ca_bundle():
        from vmafx.operator.main import main as run  # noqa: PLC0415 - this import is what the module is about
    gc.freeze()
    gc.set_threshold(YOUNG)
    gc.enable()
    run()


@contextmanager
def _no_ca_bundle() -> Iterator[None]:
    before = os.environ.get(BUNDLE)
    os.environ[BUNDLE] = os.devnull
    try:
        yield
    finally:
        del os.environ[BUNDLE]
        if before is not None:
            os.environ[BUNDLE] = before
