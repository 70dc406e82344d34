"""Who builds in a staging directory: it says so from its first moment, so that what a killed run left can go."""

from __future__ import annotations

import platform
import re
import secrets
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import make_private_folder, rename
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.processes import Owner, this_machine

OWNER_FILE: Final = ".surgery-owner.json"
"""In a staging directory, beside what is built: never a part of it."""

_STAGING: Final = re.compile(
    rf"\..+{re.escape(STAGING_MARK)}[0-9a-f]{{8}}"
    r"(?:-(?P<pid>[0-9]+)-(?P<started>[0-9]*)-(?P<machine>[0-9a-f]{8}))?",
    re.DOTALL,
)


def take_over(directory: Path) -> Path:
    """Make this process the owner of what another has left; where it stands now.

    One rename decides who gets it, and nobody finds it under its old name any more: neither who came second, nor who
    looked before and is about to remove it.

    Raises:
        FileNotFoundError: it is not there any more.
    """
    owner = Owner.here()
    begin = directory.name[: directory.name.rindex(STAGING_MARK) + len(STAGING_MARK)]
    taken = directory.with_name(f"{begin}{secrets.token_hex(4)}")
    born = name_before(taken, owner)
    rename(directory, born)
    filesystem.write(born / OWNER_FILE, msgspec.json.encode(owner))
    rename(born, taken)
    return taken


def make_owned(directory: Path) -> None:
    """Make a staging directory that holds its owner's file as soon as it has its name; nobody else may enter.

    Until then its name tells the owner.
    """
    owner = Owner.here()
    born = name_before(directory, owner)
    make_private_folder(born)
    filesystem.write(born / OWNER_FILE, msgspec.json.encode(owner))
    rename(born, directory)


def name_before(directory: Path, owner: Owner) -> Path:
    """What a staging directory is called until its owner's file is written."""
    return directory.with_name(f"{directory.name}-{owner.pid}-{owner.started}-{owner.machine}")


def is_staging(name: str) -> bool:
    """True for the name of a staging directory."""
    return _STAGING.fullmatch(name) is not None


def owner_of(directory: Path) -> Owner | None:
    """Whose staging directory it is; None if that cannot be told (an earlier release, a damaged file)."""
    named = _STAGING.fullmatch(directory.name)
    if named is None or named["pid"] is None:
        try:
            return decode_json(filesystem.read(directory / OWNER_FILE), type=Owner)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
    # being made, or taken over: the file is not there yet, or names who had it before
    host = platform.node() if named["machine"] == this_machine() else ""
    return Owner(host, named["machine"], int(named["pid"]), named["started"])
