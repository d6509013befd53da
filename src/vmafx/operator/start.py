"""Entry point of `vmafx-operator`: imports the operator with the garbage collector off.

Imports take nine tenths of the CPU time of a start, and the collector would scan modules and classes that never become
garbage.
"""

import gc

GC_THRESHOLD = 10_000  # allocations between collections: the operator creates hardly any cycles


def main() -> None:
    gc.disable()
    from vmafx.operator.main import main as run  # noqa: PLC0415 - imported with the collector off

    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()
    run()
