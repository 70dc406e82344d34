"""LoRAs of kernels whose elements changed their order within an axis: one from before is in the former order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from surgery_cli.draft.expression import Made, Recipe, Stored, parts
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.low_rank import AddProduct
from surgery_cli.draft.kernels.reshape import Reshape
from surgery_cli.draft.kernels.take import Take
from surgery_cli.draft.kernels.truncated_svd import TruncatedSvd
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.operations.table import operations
from surgery_cli.operations.transpose import Permutation
from surgery_cli.proof.records import read_record
from surgery_cli.proof.surgery_json import ChangedLeaf, Run
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

Step: TypeAlias = tuple[Kernel, tuple[int, ...]]
"""A map, and the shape that it takes."""

_SHOWN: Final = 3
_MAY_PERMUTE: Final = re.compile(r"\bpermute\b|\breshape\b.*\btranspose\b.*\breshape\b")
"""Names of edits, in order, of which some change the order within an axis."""


def rearranged_kernels(checkpoint: Checkpoint, draft: Draft) -> list[Consequence]:
    """A note for kernels that meet a LoRA, or are taken apart to one, in another order than they once had."""
    found: dict[str, list[LeafPath]] = defaultdict(list)
    stored: dict[LeafPath, str] = {}
    told: set[LeafPath] = set()
    for path, kernel in (
        one for output in draft.leaves.values() for one in _kernels(output.recipe)
    ):
        if path not in told:
            told.add(path)
            steps, origin = _history(kernel)
            if permutes_within_an_axis(steps):
                found[f"{_named(by.name for by, _ in steps)} of this plan"].append(path)
            elif origin is not None:
                stored[path] = str(origin)
    record = read_record(checkpoint) if stored else None
    before = _on_record(record.runs if record is not None else (), {*stored.values()})
    for path, origin_text in stored.items():
        if by := before.get(origin_text):
            found[f"{by} of an earlier run"].append(path)
    return [_note(paths, by) for by, paths in found.items()]


def _kernels(recipe: Recipe) -> Iterator[tuple[LeafPath, Recipe]]:
    """Every kernel to which a product is added, or of whose difference A and B are made, and where it stands."""
    if isinstance(recipe, Stored):
        return
    for part in parts(recipe):
        if isinstance(part, Made) and isinstance(part.kernel, AddProduct):
            yield part.path, part.inputs[0]
        elif isinstance(part, Made) and isinstance(part.kernel, TruncatedSvd):
            yield part.path, part.inputs[1]


def _history(recipe: Recipe) -> tuple[list[Step], LeafPath | None]:
    """What was done to a leaf, first to last, and where it stands in the checkpoint that is edited."""
    steps: list[Step] = []
    while isinstance(recipe, Made) and recipe.inputs:
        steps.append((recipe.kernel, recipe.inputs[0].spec.shape))
        recipe = recipe.inputs[0]
    origin = recipe.ref if isinstance(recipe, Stored) else None
    return steps[::-1], origin.path if origin is not None and origin.source == SOURCE else None


def permutes_within_an_axis(steps: Sequence[Step]) -> bool:
    """True if elements of one axis stand in another order afterwards, by whatever axes they are counted then.

    Axes that change their places, are split, or are joined to others keep theirs.

    >>> permutes_within_an_axis([(Reshape((4, 2, 3)), (4, 6)), (Permutation((1, 2, 0)), (4, 2, 3))])
    False
    >>> permutes_within_an_axis([(Reshape((4, 2, 3)), (4, 6)), (Permutation((0, 2, 1)), (4, 2, 3))])
    True
    """
    axes: list[list[_Part]] | None = None
    for by, shape in steps:
        if axes is None:
            axes = [[((n,), size)] for n, size in enumerate(shape)]
        match by:
            case Take(index=index) if list(index) != sorted(index):
                return True
            case Permutation(axes=order):
                axes = [axes[n] for n in order]
            case Reshape(shape=new):
                axes = _regrouped([part for axis in axes for part in axis], new)
            case _ if not by.keeps_places:
                if _is_permuted(axes):
                    return True
                axes = None
    return axes is not None and _is_permuted(axes)


_Part: TypeAlias = tuple[tuple[int, ...], int]
"""A part of an axis, by its number and those of the parts that it is of, outer before inner; and its size."""


def _regrouped(rest: list[_Part], shape: Sequence[int]) -> list[list[_Part]] | None:
    """The axes of another shape, by the parts that follow each other in it; None if one is cut across."""
    axes: list[list[_Part]] = []
    rest = [part for part in rest if part[1] != 1]
    for size in shape:
        axes.append([])
        left = size
        while left > 1:
            name, count = rest.pop(0)
            if count > left and count % left == 0:
                rest.insert(0, ((*name, 1), count // left))
                name, count = (*name, 0), left
            if not count or left % count:
                return None
            axes[-1].append((name, count))
            left //= count
    return axes


def _is_permuted(axes: Sequence[Sequence[_Part]]) -> bool:
    order: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for name, size in (part for axis in axes for part in axis):
        if size > 1:
            order[name[0]].append(name)
    return any(names != sorted(names) for names in order.values())


def _on_record(runs: Sequence[Run], leaves: set[str]) -> dict[str, str]:
    """By printed path the edits of earlier runs that changed the order within an axis of a leaf, or may have."""
    found: dict[str, str] = {}
    for run in runs:
        edits = _rearranging(run.plan) if run.leaves else []
        for leaf in run.leaves:
            if leaf.path not in leaves or not _MAY_PERMUTE.search(" ".join(leaf.operations)):
                continue
            if _replayed(leaf, edits) is not False:
                found[leaf.path] = _named(leaf.operations)
    return found


def _rearranging(plan: dict[str, Any]) -> list[Rearranging]:
    """The edits of a plan that only move elements."""
    known = {name: kind for name, kind in operations().items() if issubclass(kind, Rearranging)}
    said = (edit for edit in plan.get("edits", ()) if edit.get("op") in known)
    return [msgspec.convert(edit, known[edit["op"]]) for edit in said]


def _replayed(leaf: ChangedLeaf, edits: Sequence[Rearranging]) -> bool | None:
    """Whether the edits of a leaf on record permute; None if it is not clear which they were."""
    places = {LeafPath(tuple(text.split("/"))): text for text in (leaf.path, leaf.from_) if text}
    own = [edit for edit in edits if any(PathPattern(at).named(places) for at in _listed(edit.at))]
    size = re.search(r"\[([\d,]*)\]", leaf.before or "")
    if size is None or [edit.name for edit in own] != leaf.operations:
        return None
    spec = LeafSpec(
        kind=LeafKind.ARRAY, shape=tuple(map(int, filter(None, size[1].split(",")))), dtype="int8"
    )
    steps: list[Step] = []
    try:
        for edit in own:
            by = edit.map(spec)
            steps.append((by, spec.shape))
            spec = by.output(spec)
    except SurgeryError:  # other leaves than these
        return None
    return permutes_within_an_axis(steps)


def _listed(at: str | tuple[str, ...]) -> tuple[str, ...]:
    return (at,) if isinstance(at, str) else at


def _named(edits: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in edits)


def _note(paths: Sequence[LeafPath], by: str) -> Consequence:
    return Consequence(
        DocsPage.LAYOUTS,
        f"the order within an axis of {quoted(folded(map(str, paths)), _SHOWN)} was changed by {by}: shapes do not show"
        " it, and a LoRA for the former order is wrong here. Merge it before the conversion, extract it after the way"
        " back",
    )
