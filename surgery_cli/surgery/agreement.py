"""See that all processes of a run on many hosts are about to do the same, before any byte moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from surgery_cli import __version__
from surgery_cli.draft.digest import DigestPart
from surgery_cli.draft.recipe import SOURCE
from surgery_cli.errors import PlanError, Problem
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.planning import Plan
from surgery_cli.settings.declaration import settings_of
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.surgery.file_versions import file_versions
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.unlike_plans import first_unlike
from surgery_cli.words.lists import listed, quoted

if TYPE_CHECKING:
    from surgery_cli.hosts.membership import Membership


_VERSIONS: Final = "sources' versions"
"""Copies with the same metadata, and files of the same names and sizes, may hold other values all the same."""


_PLAN: Final = "plan"
_MANIFESTS: Final = "manifests"
"""What rules hold leaves against stands in files of its own, of which the plan has the names."""

_OF_ONE_DRAFT: Final = (_VERSIONS, _PLAN, _MANIFESTS)
"""Asked where the drafts are the same: else that is said, which is made of the plan."""


def agree(
    membership: Membership, prepared: Prepared, plan: Plan, destination: Path, options: Options
) -> None:
    """Compare release, places, draft, and every option that is not of one host, with those of all others.

    Raises:
        PlanError: they differ from those of process 0, which says all of them.
    """
    own = {
        "surgery": _said(__version__),
        "source": _said(prepared.checkpoint.location.root),
        "destination": _said(filesystem.absolute(destination)),
        "draft": prepared.draft.digest,
        _PLAN: msgspec.json.encode(plan.document()).decode(),
        _MANIFESTS: msgspec.json.encode(prepared.manifests.marks).decode(),
        _VERSIONS: msgspec.json.encode(file_versions(prepared.sources)).decode(),
        "compact": _said(" ".join(name for name, chosen in prepared.compact.items() if chosen)),
        **_told(options),
        **_told(options.probe_options),
    }
    gathered = membership.gather("agreed", msgspec.msgpack.encode(own))
    said = [msgspec.msgpack.decode(one, type=dict[str, str]) for one in gathered]
    problems = [
        _disagreement(membership, number, what, said[0], other)
        for number, other in enumerate(said)
        for what in own
        if other.get(what) != said[0].get(what)
        and (what not in _OF_ONE_DRAFT or other["draft"] == said[0]["draft"])
        and (what != _MANIFESTS or other[_PLAN] == said[0][_PLAN])
    ]
    if problems:
        raise PlanError.of(problems)


def _told(settings: msgspec.Struct) -> dict[str, str]:
    """What goes for all processes of what a run was told, by option."""
    return {
        f"`{declared.option}`": _said(getattr(settings, name))
        for name, declared in settings_of(type(settings)).items()
        if not declared.of_host
    }


def _said(value: object) -> str:
    """A setting as who typed the command would say it."""
    if value is None or isinstance(value, bool):
        return "given" if value else "not given"
    return f"'{value}'"


def _disagreement(
    membership: Membership,
    number: int,
    what: str,
    first: Mapping[str, str],
    other: Mapping[str, str],
) -> Problem:
    here, there = other.get(what, ""), first.get(what, "")
    said = f"its {what} is {here}, there {there}"
    if what == "draft" and here[DigestPart().source] != there[DigestPart().source]:
        said = f"its source's fingerprint, in its draft is '{here}', there '{there}'"
    elif what in ("draft", _PLAN) and (
        unlike := first_unlike(other.get(_PLAN, "{}"), first.get(_PLAN, "{}"))
    ):
        said = f"its {unlike.what} is {unlike.one}, there {unlike.other}"
    elif what == _MANIFESTS:
        said = f"{quoted(_other_names(there, here), 3, word='and')} says otherwise what the digests of leaves are"
    where = [f"'{membership.host_of(one)}'" for one in (0, number)]
    if what == _VERSIONS:
        read = _of_other_versions(first, other)
        return Problem(
            f"process {number} on {where[1]} reads other files of {read} than process 0 on {where[0]}",
            why="of the same names and sizes, but written at other times: nothing says that they hold the same",
            fix="name what is one place for all hosts: on a disk that they share, or in a bucket",
        )
    return Problem(
        f"process {number} on {where[1]} is not about to do what process 0 on {where[0]} is",
        why=said,
        fix="start the same command of the same release on every host, with paths that mean the same files there",
    )


def _of_other_versions(first: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Which of the sources, by name, have other files; that of the run by where it stands."""
    names = _other_names(first[_VERSIONS], other[_VERSIONS])
    told = [other["source"] if name == SOURCE else _said(name) for name in names]
    return listed(told, word="and")


def _other_names(first: str, other: str) -> list[str]:
    """Whose marks, by name, are not the same on two hosts; both as JSON."""
    here, there = (decode_json(told, dict[str, str]) for told in (other, first))
    return [name for name, mark in here.items() if there.get(name) != mark]
