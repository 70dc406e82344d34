"""Where what fills leaves does not go with what is left: edits that one of them has had, slots and their counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import UNSET

from surgery_cli.engine.digests import digest_reading, leaf_digest
from surgery_cli.optimizer.detect.survey import survey as survey_of_optimizer
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.record_parts import ChangedLeaf, Run
from surgery_cli.proof.surgery_json import Record
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
_LITTLE = 1 << 20


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
    """Leaves that runs on record of one side have changed, of which there is nothing on record of the other."""
    theirs = _History(None if other is None else read_record(other, of_all=True, damage=[]))
    lacked: dict[tuple[str, ...], list[LeafPath]] = {}
    brought: dict[tuple[str, ...], list[LeafPath]] = {}
    for name, leaves in survey.leaves.items():
        ours = _History(survey.records.get(name, survey.records.get("")))
        for path in (path for inner in leaves if (path := survey.path(name, inner)) in fills):
            for one, another, found in ((ours, theirs, lacked), (theirs, ours, brought)):
                if edits := one.edits(path, name, apart_from=another):
                    found.setdefault(edits, []).append(path)
    where = "" if other is None else f"'{other.address}'"
    for edits, paths in lacked.items() if where else ():
        yield Consequence(
            DocsPage.RESCUE_WRITES,
            f"{_by(edits)} of {_named(paths)} is on record of what is left, and no such run of {where}: what fills may"
            " be as it was before; give it the same edits first, and fill from the result",
        )
    for edits, paths in brought.items():
        yield Consequence(
            DocsPage.RESCUE_WRITES,
            f"{_by(edits)} of {_named(paths)} is on record of {where}, and no such run of what is left: unless that was"
            " trained on from there, what fills has had what the rest has not",
        )


def _named(paths: Sequence[LeafPath]) -> str:
    return quoted(paths, _SHOWN, word="and")


def _by(edits: Sequence[str]) -> str:
    return listed([f"`{name}`" for name in edits], word="and")


class _History:
    """The runs on record of one side, the latest first, each with the leaves that it changed by their paths."""

    def __init__(self, record: Record | None) -> None:
        runs = [] if record is None else record.runs
        self._runs = [(run, {leaf.path: leaf for leaf in run.leaves}) for run in runs]

    def edits(self, path: LeafPath, item: str, *, apart_from: _History) -> tuple[str, ...]:
        """The operations that have changed a leaf, the first first, but for those of runs that the other side had."""
        had = [(run.plan, run.donors) for run, _ in apart_from._runs if run.plan]
        front = f"{LeafPath((item,))}/" if item else ""
        now, found = _spellings(str(path), front), list[str]()
        for run, leaves in self._runs:
            is_about = run.edited_trees is UNSET or not item or item in run.edited_trees
            leaf = next((leaves[text] for text in now if text in leaves and is_about), None)
            if leaf is None:
                continue
            if (run.plan, run.donors) not in had:
                found = [*_typed(run, leaf), *found]
            if leaf.from_ is None:
                break
            now = _spellings(leaf.from_, front)
        return tuple(dict.fromkeys(found))


def _spellings(path: str, front: str) -> set[str]:
    """How runs of one item, and of all, spell a path."""
    inner = path.removeprefix(front)
    return {inner, front + inner}


def _typed(run: Run, leaf: ChangedLeaf) -> list[str]:
    """The operations of a plan by which a leaf has changed: one that follows another has effects with other names.

    A move counts: another leaf may stand under the name where there was none.
    """
    if not leaf.operations and not leaf.moved:
        return []
    typed = [str(edit["op"]) for edit in run.plan.get("edits", ())]
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
    is_alike = dict(_counts_alike(survey, other, told.union(saved if filled else ())))
    for (clock, of_clock, of_slots), slots in apart.items():
        if is_alike.get(clock):
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
                "{} {}, where {} {} at another count than here: what goes by both, a schedule or the script, is then"
                " at two steps; `surgery set` gives a counter another value",
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
                theirs = leaf_digest(other, there, spec, digest_reading(spec, _LITTLE))
                yield path, theirs == leaf.digest


def _spec(leaf: SavedLeaf) -> LeafSpec:
    if leaf.array is not None:
        return spec_of(leaf.array, LeafKind.ARRAY)
    return leaf.spec or LeafSpec(kind=LeafKind.EMPTY, empty=leaf.value or "None")


def _origin(path: LeafPath, fills: Mapping[LeafPath, Fill]) -> str:
    return f"from '{fills[path].origin}'" if path in fills else "as it was saved"
