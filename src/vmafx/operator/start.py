"""`vmafx-operator`, started lean: nine tenths of the CPU time of a start is imports.

The garbage collector stays out of it: it would look through modules and classes again and again that are never garbage.
"""

import gc

YOUNG = 10_000  # objects between two looks for garbage: hardly any is cyclic here


def main() -> None:
    gc.disable()
    from vmafx.operator.main import main as run  # noqa: PLC0415 - this import is what the module is about

    gc.freeze()
    gc.set_threshold(YOUNG)
    gc.enable()
    run()
