"""Small files that are read whole: not those that only claim to be small."""

from __future__ import annotations

from surgery_cli.inputs.limits import METADATA, Limit, check_values
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.protocol import Place


def read_small(place: Place, limit: Limit = METADATA) -> bytes:
    """The bytes of a file of which ``limit`` says how many it may have.

    Raises:
        CheckpointError: it has more, and nothing of it was read; or, as JSON, more values than there is memory for.
    """
    limit.check(filesystem.size(place), f"'{place}'")
    content = filesystem.read(place)
    check_values(content, f"'{place}'")
    return content
