"""Where the bytes of a file are: a file on disk can have terabytes of holes, which read as zeros and take no room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from errno import ENXIO

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.protocol import Place


def data_ranges(place: Place) -> Iterator[tuple[int, int]]:
    """The parts of a file that are no holes, as starts and stops; all of it where the system tells of none."""
    size = filesystem.size(place)
    with filesystem.reader(place) as file:
        stop = 0
        while stop < size:
            try:
                start = os.lseek(file.fileno(), stop, os.SEEK_DATA)
                end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            except OSError as error:  # a bucket has no such number: io.UnsupportedOperation
                if error.errno == ENXIO:  # a hole up to the end
                    return
                start, end = stop, size
            stop = min(end, size)
            yield start, stop
