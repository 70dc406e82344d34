"""What a service refuses while a zip archive is read, told from what is wrong with the archive."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from surgery_cli.inputs.buckets import ServiceRefusal


@contextmanager
def refusals_told() -> Iterator[None]:
    """Let out what hindered ``zipfile``, which takes all that fails while it looks for an archive's end for damage.

    Raises:
        OSError: the service does not give the file, or it was replaced or removed since it was found.
        BadZipFile: the archive is damaged.
    """
    try:
        yield
    except zipfile.BadZipFile as error:
        if isinstance(error.__context__, ServiceRefusal | FileNotFoundError):
            raise error.__context__ from None
        raise
