"""What is asked of a service where the result is in a format of other programs: files, and arrays with folders."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

from surgery_cli.reports import Exported
from surgery_cli.store import filesystem
from surgery_cli.store.export.companions import companions
from surgery_cli.store.export.table import FORMATS
from surgery_cli.store.filesystem.names import RECORD
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.replacing_requests import ITSELF, BuiltNames
from surgery_cli.surgery.request_tally import Tally, parts
from surgery_cli.surgery.step_requests import LOCK_BYTES
from surgery_cli.surgery.value_requests import add_arrays_written, compression_of

_NAMED_BYTES: Final = 110
"""What a file that tells of arrays beside it says of each, beside its name."""


def add_export(
    tally: Tally, prepared: Prepared, export: Exported, destination: Path | None
) -> BuiltNames:
    """Files that are written, and read back from their headers on; what comes along. Gives their names."""
    assert prepared.output is not None
    (plan,) = prepared.plans.values()
    apart = [leaf for leaf in plan.computed if leaf.document is not None]
    arrays = {leaf.name for leaf in apart}
    add_arrays_written(tally, apart, compression_of(prepared.checkpoint.items.values()))
    tally.read_back(len(apart))
    tally.know(len(apart), 0)
    along = companions(prepared.checkpoint, prepared.output, destination).carried
    for file in along:
        tally.carry(file, filesystem.size(file))
    others = arrays | {file.name for file in along}
    told_of = sum(_NAMED_BYTES + 2 * len(name) for name in arrays)
    for made in export.files:
        if made.name not in others:
            size = made.bytes + told_of
            tally.write_file(size)
            tally.read_back(parts(size) + 1, size)
            if parts(size) == 1:  # what is read in one piece is kept
                tally.know(1, size)
    if FORMATS[prepared.output.format].is_marked:
        tally.copy(1, LOCK_BYTES)
    tally.read_back(1)
    names = {made.name for made in export.files} - arrays
    is_file = destination is not None and names == {destination.name}
    files = {ITSELF} if is_file else {RECORD, *names}
    return BuiltNames(frozenset(files), arrays=frozenset(map(PurePosixPath, arrays)))
