"""What hinders the reading of a zip archive, told from what is wrong with the archive."""

from __future__ import annotations

import errno
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from surgery_cli.inputs.buckets import ServiceRefusal


@contextmanager
def refusals_told() -> Iterator[None]:
    """Let out what hindered ``zipfile``, which takes all that fails while it looks for an archive's end for damage.

    Raises:
        OSError: the disk or the service does not give it, or it was replaced or removed since it was found.
        BadZipFile: the archive is damaged.
    """
    try:
        yield
    except zipfile.BadZipFile as error:
        if isinstance(error.__context__, OSError) and is_of_reading(error.__context__):
            raise error.__context__ from None
        raise


def is_of_reading(error: OSError) -> bool:
    """False for a place before the file's beginning, to which a damaged archive leads."""
    is_told = isinstance(error, ServiceRefusal | FileNotFoundError)
    return is_told or error.errno not in (None, errno.EINVAL)
