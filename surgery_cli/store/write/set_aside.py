"""What `--force` replaces: removed as far as it is known; what came to it since is set aside, beside its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import Final

import msgspec

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import (
    put_durably,
    rename,
    rename_if_free,
    sync_directory,
)
from surgery_cli.store.filesystem.local_disk import own_status
from surgery_cli.store.filesystem.names import (
    RECORD,
    SET_ASIDE_SUFFIX,
    destination_of,
    name_of_record,
)
from surgery_cli.store.filesystem.owners import OWNER_FILE
from surgery_cli.store.write.aftermath import set_aside
from surgery_cli.store.write.built_files import Stood, told, what_stands
from surgery_cli.store.write.destination import real_path

REPLACING_FILE: Final = ".surgery-replacing"
"""In a staging directory from which something is about to be replaced."""
OLD_RECORD: Final = f"{OWNER_FILE}.record"
"""In a staging directory: the record of what is replaced, if that is a single file."""
_BESIDE: Final = f".{RECORD}"


class _Replacing(msgspec.Struct):
    """What was to be replaced, and what was built to come there; a name on a disk may be no text."""

    stood: dict[bytes, tuple[int, ...]]
    built: dict[bytes, tuple[int, ...]]


def what_may_go(destination: Path) -> Stood:
    """What stands at a destination, to be replaced; on a disk with the record beside it, which goes as well."""
    named = filesystem.absolute(destination)  # `.` has no name
    record = named.with_name(name_of_record(named.name))
    beside = what_stands(record) if filesystem.renames(destination) else {}
    return {**what_stands(destination), **{_BESIDE + name: what for name, what in beside.items()}}


def with_record(stood: Stood) -> tuple[Stood, Stood]:
    """What stood at the destination, and what as the record beside it."""
    at = {name: what for name, what in stood.items() if not name.startswith(_BESIDE)}
    return at, {name.removeprefix(_BESIDE): stood[name] for name in stood.keys() - at.keys()}


def write_replacing(staging: Path, stood: Stood, new: Path) -> Stood:
    """From now on whoever removes ``staging`` knows what of it may go, even if this run is killed.

    Returns what ``new`` is by now.
    """
    built = what_stands(new)
    replacing = _Replacing(_as_bytes(stood), _as_bytes(built))
    put_durably(staging / REPLACING_FILE, msgspec.msgpack.encode(replacing))
    sync_directory(staging)
    return built


def remove_replaced(staging: Path) -> None:
    """Remove what was replaced from there, or built; what else came to it is set aside.

    Raises:
        OSError: some of it cannot be removed, or set aside.
    """
    try:
        replacing = msgspec.msgpack.decode(
            filesystem.read(staging / REPLACING_FILE), type=_Replacing
        )
    except (FileNotFoundError, NotADirectoryError):  # or the draft of a record
        return
    except msgspec.MsgspecError:  # cut short as it was written: nothing had been exchanged
        return
    destination = destination_of(staging)
    new, record = staging / destination.name, staging / OLD_RECORD
    (stood, recorded), built = with_record(_as_text(replacing.stood)), _as_text(replacing.built)
    with suppress(FileNotFoundError):
        if told(own_status(new))[0] == built[""][0]:  # not exchanged, or exchanged back
            stood = built
    _remove(new, stood, destination)
    _remove(record, recorded, destination.with_name(name_of_record(destination.name)))


def _remove(place: Path, known: Stood, destination: Path) -> None:
    if not remove_known(place, known):
        put_aside(place, destination)


def remove_known(place: Path, known: Stood) -> bool:
    """Remove from a place what is ``known`` of it; False if something else stays there.

    Raises:
        OSError: nothing else does, and some of it cannot be removed.
    """
    failed: OSError | None = None
    for name in sorted(known, reverse=True):  # what is in a folder before it
        path = f"{place}{name}"
        try:
            status = own_status(path)
            if told(status) == known[name]:
                (filesystem.delete_folder if S_ISDIR(status.st_mode) else filesystem.delete)(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            failed = error
    if not what_stands(place).items() <= known.items():
        return False
    if failed is not None and filesystem.is_taken(place):
        raise failed
    return True


def put_aside(place: Path, destination: Path) -> None:
    """Keep what something else has written to a destination, under the name of what is set aside there."""
    aside = aside_of(destination)
    rename_if_free(place, aside)
    set_aside.append(aside)


def aside_of(destination: Path) -> Path:
    """``DST.surgery-old``."""
    return destination.with_name(destination.name + SET_ASIDE_SUFFIX)


def set_aside_of(destination: Path) -> Path | None:
    """``DST.surgery-old``, if an interrupted exchange left it."""
    if isinstance(destination, BucketPath):  # nothing is renamed there
        return None
    old = aside_of(real_path(destination))
    return old if filesystem.is_taken(old) else None


def recover_old(destination: Path) -> Path | None:
    """Restore ``DST.surgery-old`` that an interrupted exchange left; returns what was restored.

    Where something else stands at the destination by now, both are left as they are: whose it is cannot be told.
    """
    real, old = real_path(destination), set_aside_of(destination)
    if old is None or filesystem.is_taken(real):
        return None
    rename(old, real)
    sync_directory(real.parent)
    return real


def _as_bytes(stood: Stood) -> dict[bytes, tuple[int, ...]]:
    return {os.fsencode(name): what for name, what in stood.items()}


def _as_text(stood: Mapping[bytes, tuple[int, ...]]) -> Stood:
    return {os.fsdecode(name): what for name, what in stood.items()}
