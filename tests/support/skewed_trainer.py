"""`vmafx trainer` with a wrong clock: off by the hours in the file that VMAFX_TEST_SKEW names."""

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

from vmafx import clock

right_time = clock.utc_now
SKEW = timedelta(hours=float(Path(os.environ["VMAFX_TEST_SKEW"]).read_text()))


def wrong_time() -> datetime:
    return right_time() + SKEW


if __name__ == "__main__":
    clock.utc_now = wrong_time  # before the modules that use it are imported
    from vmafx.trainer.main import main

    main(sys.argv[2:])
