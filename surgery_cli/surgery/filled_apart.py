"""Where what fills leaves does not go with what is left: edits that one of them has had, slots and their counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from surgery_cli.engine.digests import digest_reading, leaf_digest
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.detect.survey import survey as survey_of_optimizer
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.record_parts import ChangedLeaf, Run
from surgery_cli.proof.surgery_json import Record
from surgery_cli.proof.undone_runs import standing
from surgery_cli.salvage.decoded_arrays import spec_of
from surgery_cli.salvage.filling import Fill
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.older_steps import path_there
from surgery_cli.salvage.survey import Survey
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN = 4
_READ_BYTES = 1 << 20


def filled_apart(
    survey: Survey, fills: Mapping[LeafPath, Fill], other: Checkpoint | None
) -> list[Consequence]:
    """Notes of what is filled such that no training had it beside the rest; ``other`` is what gives the values."""
    if not fills:
        return []
    return [*_edited_apart(survey, fills, other), *_counted_apart(survey, fills, other)]


# --- edits -----------------------------------------------------------------------------------------------------


def _edited_apart(
    survey: Survey, fills: Mapping[LeafPath, Fill], other: Checkpoint | None
) -> Iterator[Consequence]:
    """Leaves that runs on record of one side have changed, and those of the other not, or otherwise."""
    theirs = _History(None if other is None else read_record(other, of_all=True, damage=[]))
    lacked: dict[_Apart, list[LeafPath]] = {}
    brought: dict[_Apart, list[LeafPath]] = {}
    for name, leaves in survey.leaves.items():
        ours = _History(survey.records.get(name, survey.records.get("")))
        for path in (path for inner in leaves if (path := survey.path(name, inner)) in fills):
            for apart, found in zip(
                _apart(ours.of(path, name), theirs.of(path, name)), (lacked, brought), strict=True
            ):
                if apart.operations:
                    found.setdefault(apart, []).append(path)
    where = "" if other is None else f"'{other.address}'"
    for apart, paths in lacked.items() if where else ():
        yield Consequence(
            DocsPage.RESCUE_WRITES,
            f"{_by(apart)} of {_named(paths)} is on record of what is left, and {apart.how} of {where}: what fills may"
            " be as it was before; give it the same edits first, and fill from the result",
        )
    for apart, paths in brought.items():
        yield Consequence(
            DocsPage.RESCUE_WRITES,
            f"{_by(apart)} of {_named(paths)} is on record of {where}, and {apart.how} of what is left: unless that was"
            " trained on from there, what fills has had what the rest has not",
        )


def _named(paths: Sequence[LeafPath]) -> str:
    return quoted(paths, _SHOWN, word="and")


class _PastRun(NamedTuple):
    """A run that a leaf has had: what it is known by, and the operations of it."""

    mark: bytes
    operations: tuple[str, ...]


class _Apart(NamedTuple):
    """Operations that a leaf has had on one side, the first first, and how the other side has not."""

    operations: tuple[str, ...]
    how: str


def _by(apart: _Apart) -> str:
    return listed([f"`{name}`" for name in apart.operations], word="and")


def _apart(ours: Sequence[_PastRun], theirs: Sequence[_PastRun]) -> tuple[_Apart, _Apart]:
    """What each of two sides has had and the other not, or not in this order."""
    marks = [[had.mark for had in side] for side in (ours, theirs)]
    steps = SequenceMatcher(None, marks[0], marks[1], autojunk=False).get_opcodes()
    others = [step for step in steps if step[0] != "equal"]
    left = (
        [had for _, start, stop, _, _ in others for had in ours[start:stop]],
        [had for _, _, _, start, stop in others for had in theirs[start:stop]],
    )

    def said(had: Sequence[_PastRun], there: Sequence[bytes]) -> _Apart:
        is_there = any(one.mark in there for one in had)
        names = dict.fromkeys(name for one in had for name in one.operations)
        return _Apart(
            tuple(names), "not as often, or in this order," if is_there else "no such run"
        )

    return said(left[0], marks[1]), said(left[1], marks[0])


class _History:
    """The runs on record of one side, the latest first, each with the leaves that it changed by their paths.

    Without those that the next one has undone.
    """

    def __init__(self, record: Record | None) -> None:
        self._runs: list[tuple[Run, bytes, dict[str, ChangedLeaf]]] = []
        for run in standing([] if record is None else record.runs):
            mark = msgspec.json.encode([_made_by(run.plan), run.donors], order="deterministic")
            self._runs.append((run, mark, {leaf.path: leaf for leaf in run.leaves}))

    def of(self, path: LeafPath, item: str) -> list[_PastRun]:
        """The runs that have changed a leaf, the first first."""
        front = f"{LeafPath((item,))}/" if item else ""
        now, found = _spellings(str(path), front), list[_PastRun]()
        for run, mark, leaves in self._runs:
            is_about = run.edited_trees is UNSET or not item or item in run.edited_trees
            leaf = next((leaves[text] for text in now if text in leaves and is_about), None)
            if leaf is None:
                continue
            if names := _typed(run, leaf):
                found.append(_PastRun(mark, tuple(names)))
            if leaf.from_ is None:
                break
            now = _spellings(leaf.from_, front)
        return found[::-1]


def _spellings(path: str, front: str) -> set[str]:
    """How runs of one item, and of all, spell a path."""
    inner = path.removeprefix(front)
    return {inner, front + inner}


def _made_by(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What of a plan has a part in values: not what must hold of them, nor how they are laid out, nor remarks."""
    said = {key: value for key, value in plan.items() if key not in _OF_NO_VALUE}
    edits = (edit for edit in plan.get("edits", ()) if _writes(edit))
    return {
        **said,
        "edits": [{k: v for k, v in edit.items() if k not in _OF_NO_VALUE} for edit in edits],
    }


_OF_NO_VALUE: Final = frozenset({"check", "reshard", "output", "expect", "optional", "note"})
"""Fields of plans, and of edits."""


def _writes(edit: Mapping[str, Any]) -> bool:
    """False for an edit that states rules, and changes nothing."""
    kind = operations().get(str(edit["op"]))
    return kind is None or kind.writes  # of another release


def _typed(run: Run, leaf: ChangedLeaf) -> list[str]:
    """The operations of a plan by which a leaf has changed: one that follows another has effects with other names.

    A move counts: another leaf may stand under the name where there was none.
    """
    if not leaf.operations and not leaf.moved:
        return []
    typed = [str(edit["op"]) for edit in run.plan.get("edits", ()) if _writes(edit)]
    return [name for name in typed if name in leaf.operations] or typed


# --- slots and counts ------------------------------------------------------------------------------------------


def _counted_apart(
    survey: Survey, fills: Mapping[LeafPath, Fill], other: Checkpoint | None
) -> Iterator[Consequence]:
    """Slots of the optimizer beside a count that is of another state than they are, and counts beside such counts."""
    tree = TreeSpec(
        {
            path: fills[path].spec if path in fills else _spec(leaf)
            for name, leaves in survey.leaves.items()
            for inner, leaf in leaves.items()
            for path in [survey.path(name, inner)]
        }
    )
    apart: dict[tuple[LeafPath, str, str], list[LeafPath]] = {}
    found = survey_of_optimizer(tree)
    for slot in found.slots.values():
        if slot.relation in ("hole", "one") or slot.path not in tree:
            continue
        for clock in slot.clocks:
            ways = (_origin(clock, fills), _origin(slot.path, fills))
            if clock in tree and ways[0] != ways[1]:
                apart.setdefault((clock, *ways), []).append(slot.path)
    told = {clock for clock, *_ in apart}
    filled = [clock for clock in found.clocks if clock in fills and clock not in told]
    saved = [clock for clock in found.clocks if clock in tree and clock not in fills]
    is_lost = bool(filled) or any(clock in fills for clock in told)
    is_alike = dict(_counts_alike(survey, other, told.union(saved if is_lost else ())))
    is_same_step = bool(is_alike) and all(is_alike.values())  # by the counts that are left
    for (clock, of_clock, of_slots), slots in apart.items():
        if is_alike.get(clock) or (clock in fills and is_same_step):
            continue
        yield Consequence(
            DocsPage.RESCUE_WRITES,
            worded(
                "'{}' is {}, and of the slots that go by its count {} {}: the next steps there may be too large"
                " or too small; `surgery reset-optimizer` begins such a state anew",
                clock,
                of_clock,
                f"{quoted(slots, _SHOWN, word='and')} {'is' if len(slots) == 1 else 'are'}",
                of_slots,
            ),
        )

    if filled and (left := [clock for clock in saved if not is_alike.get(clock, True)]):
        yield Consequence(
            DocsPage.RESCUE_WRITES,
            worded(
                "{} {}, where {} {} at another count than here: what goes by both, a schedule or the script, may"
                " then be at two steps; `surgery set` gives a counter another value",
                _named(filled),
                f"{'is' if len(filled) == 1 else 'are'} {_origin(filled[0], fills)}",
                _named(left),
                "stands" if len(left) == 1 else "stand",
            ),
        )


def _counts_alike(
    survey: Survey, other: Checkpoint | None, counts: AbstractSet[LeafPath]
) -> Iterator[tuple[LeafPath, bool]]:
    """Those of counts that are whole, and whether they have the same value in the checkpoint that fills the rest."""
    if other is None:
        return
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            path = survey.path(name, inner)
            if path not in counts or leaf.digest is None:
                continue
            there = path_there(other, survey.place, name, inner)
            if there in other.tree:
                spec = other.tree[there]
                theirs = leaf_digest(other, there, spec, digest_reading(spec, _READ_BYTES))
                yield path, theirs == leaf.digest


def _spec(leaf: SavedLeaf) -> LeafSpec:
    if leaf.array is not None:
        return spec_of(leaf.array, LeafKind.ARRAY)
    return leaf.spec or LeafSpec(kind=LeafKind.EMPTY, empty=leaf.value or "None")


def _origin(path: LeafPath, fills: Mapping[LeafPath, Fill]) -> str:
    return f"from '{fills[path].origin}'" if path in fills else "as it was saved"
