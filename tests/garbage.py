"""Garbage that speaks: what Orbax leaves behind where a restore fails, told in the test that it is of."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def told_here() -> Iterator[None]:
    """After the block, what it left behind is collected: reads that were abandoned complain then.

    What was there before is no longer looked at, here or later: with a million objects that takes a second each time.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
