"""LoRAs of kernels whose elements changed their order within an axis: one from before is in the former order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from surgery_cli.draft.expression import Made, Recipe, Stored, parts
from surgery_cli.draft.kernels.low_rank import AddProduct
from surgery_cli.draft.kernels.truncated_svd import TruncatedSvd
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.record_parts import Run, entries_of
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.axis_order import history, permutes_within_an_axis
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_SHOWN: Final = 3


def rearranged_kernels(checkpoint: Checkpoint, draft: Draft) -> list[Consequence]:
    """A note for kernels that meet a LoRA, or are taken apart to one, in another order than they once had."""
    found: dict[str, list[LeafPath]] = defaultdict(list)
    stored: dict[LeafPath, str] = {}
    for path, kernel in _kernels(draft).items():
        steps, origin = history(kernel)
        if permutes_within_an_axis(steps):
            found[f"{_named(by.name for by, _ in steps)} of this plan"].append(path)
        elif isinstance(origin, Stored) and origin.ref.source == SOURCE:
            stored[path] = str(origin.ref.path)
    record = read_record(checkpoint) if stored else None
    runs = runs_of(checkpoint, record) if record is not None else ()
    before = _on_record(runs, stored.values())
    for path, origin_text in stored.items():
        if by := before.get(origin_text):
            found[f"{by} of an earlier run"].append(path)
    return [_note(paths, by) for by, paths in found.items()]


def _kernels(draft: Draft) -> dict[LeafPath, Recipe]:
    """Every kernel to which a product is added, or of whose difference A and B are made, by where it stands."""
    found: dict[LeafPath, Recipe] = {}
    seen: set[int] = set()

    def is_new(part: Made) -> bool:
        """A part may be a part of all leaves."""
        return id(part) not in seen

    for output in draft.leaves.values():
        for part in parts(output.recipe, is_new):
            seen.add(id(part))
            if isinstance(part, Made) and isinstance(part.kernel, AddProduct):
                found.setdefault(part.path, part.inputs[0])
            elif isinstance(part, Made) and isinstance(part.kernel, TruncatedSvd):
                found.setdefault(part.path, part.inputs[1])
    return found


def _on_record(runs: Sequence[Run], leaves: Iterable[str]) -> dict[str, str]:
    """Of leaves that an earlier run put into another order, by printed path, the edits that did; latest runs first."""
    found: dict[str, str] = {}
    for leaf, entry in entries_of(runs, leaves):
        if entry.reordered:
            found.setdefault(leaf, _named(entry.operations))
    return found


def _named(edits: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in edits)


def _note(paths: Sequence[LeafPath], by: str) -> Consequence:
    return Consequence(
        DocsPage.LAYOUTS,
        f"the order within an axis of {quoted(folded(map(str, paths)), _SHOWN)} was changed by {by}: shapes do not show"
        " it, and a LoRA for the former order is wrong here. Merge it before the conversion, extract it after the way"
        " back",
    )
