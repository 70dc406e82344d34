"""See that all processes of a run on many hosts are about to do the same, before any byte moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from surgery_cli import __version__
from surgery_cli.draft.digest import DigestPart
from surgery_cli.errors import PlanError, Problem
from surgery_cli.settings.declaration import settings_of
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.surgery.preparation import Prepared

if TYPE_CHECKING:
    from surgery_cli.hosts.membership import Membership


_VERSIONS: Final = "source's version"
"""Copies with the same metadata, and files of the same names and sizes, may hold other values all the same."""


def agree(membership: Membership, prepared: Prepared, destination: Path, options: Options) -> None:
    """Compare release, places, draft, and every option that is not of one host, with those of all others.

    Raises:
        PlanError: they differ from those of process 0, which says all of them.
    """
    own = {
        "surgery": __version__,
        "source": str(prepared.checkpoint.location.root),
        "destination": str(filesystem.absolute(destination)),
        "draft": prepared.draft.digest,
        _VERSIONS: prepared.file_versions,
        "compact": " ".join(name for name, chosen in prepared.compact.items() if chosen),
        **_told(options),
        **_told(options.probe_options),
    }
    gathered = membership.gather("agreed", msgspec.msgpack.encode(own))
    said = [msgspec.msgpack.decode(one, type=dict[str, str]) for one in gathered]
    problems = [
        _disagreement(membership, number, what, said[0].get(what, ""), other.get(what, ""))
        for number, other in enumerate(said)
        for what in own
        if other.get(what) != said[0].get(what)
        and (what != _VERSIONS or other["draft"] == said[0]["draft"])
    ]
    if problems:
        raise PlanError.of(problems)


def _told(settings: msgspec.Struct) -> dict[str, str]:
    """What goes for all processes of what a run was told, by option."""
    return {
        f"`{declared.option}`": str(getattr(settings, name))
        for name, declared in settings_of(type(settings)).items()
        if not declared.of_host
    }


def _disagreement(
    membership: Membership, number: int, what: str, first: str, other: str
) -> Problem:
    named = what
    if what == "draft" and first[DigestPart().source] != other[DigestPart().source]:
        named = "source's fingerprint, in its draft"
    where = [f"'{membership.host_of(one)}'" for one in (0, number)]
    if what == _VERSIONS:
        return Problem(
            f"process {number} on {where[1]} reads other files than process 0 on {where[0]}",
            why="of the same names and sizes, but written at other times: nothing says that they hold the same",
            fix="name a source that is one place for all hosts: on a disk that they share, or in a bucket",
        )
    return Problem(
        f"process {number} on {where[1]} is not about to do what process 0 on {where[0]} is",
        why=f"its {named} is '{other}', there '{first}'",
        fix="start the same command of the same release on every host, with paths that mean the same files there",
    )
