"""LoRAs that are merged into kernels that hold them already: by one plan, or as the record says, by an earlier run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored, parts
from surgery_cli.draft.kernels.low_rank import AddProduct
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.operations.lora import WithLora
from surgery_cli.operations.table import operations
from surgery_cli.proof.records import read_record
from surgery_cli.proof.surgery_json import Run
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_SHOWN: Final = 3


def repeated_loras(checkpoint: Checkpoint, draft: Draft) -> list[Consequence]:
    """A note for kernels to which a LoRA is added that is in them already."""
    twice: dict[str, list[LeafPath]] = defaultdict(list)
    once: dict[str, list[LeafPath]] = defaultdict(list)
    signs = _signs()
    for path, output in draft.leaves.items():
        if signs.keys().isdisjoint(edit.name for edit in output.edits):
            continue
        counts: Counter[LeafRef] = Counter()
        for factor, sign in _factors(output.recipe):
            counts[factor] += sign
        for factor, count in counts.items():
            if count > 0:
                (twice if count > 1 else once)[factor.source].append(path)
    record = read_record(checkpoint) if once else None
    found = [*_notes(twice, "twice in this plan")]
    for source, paths in once.items():
        mark = draft.fingerprints[source] if source != SOURCE else ""
        runs = record.runs if record is not None else []
        before = _merged(runs, mark, signs)
        known = [path for path in paths if before[_home(path, draft)] > 0]
        found += _notes({source: known}, "by an earlier run, too, as the record says")
    return found


def _factors(recipe: Recipe) -> Iterator[tuple[LeafRef, int]]:
    """The A of every LoRA that is added, and 1, or -1 if it is subtracted."""
    for part in parts(recipe):
        if isinstance(part, Made) and isinstance(part.kernel, AddProduct):
            stored = (one for one in parts(part.inputs[1]) if isinstance(one, Stored))
            for one in stored:
                yield one.ref, 1 if part.kernel.by > 0 else -1


def _home(path: LeafPath, draft: Draft) -> str:
    """Where a leaf stood in the checkpoint."""
    home = draft.leaves[path].home
    return str(home.path if home is not None else path)


def _signs() -> dict[str, int]:
    """The operations that add a LoRA, or subtract it, and which of these."""
    return {name: kind.sign for name, kind in operations().items() if issubclass(kind, WithLora)}


def _merged(runs: list[Run], mark: str, signs: dict[str, int]) -> Counter[str]:
    """How many times, by printed path, runs on record merged the LoRA of that fingerprint, or took it out again.

    No mark: one that stood in the checkpoint itself.
    """
    counts: Counter[str] = Counter()
    for run in runs:
        edits = [edit for edit in run.plan.get("edits", ()) if _donor(edit, run) == mark]
        own = signs.keys() & {edit.get("op") for edit in edits}
        for leaf in run.leaves:
            counts[leaf.path] += sum(signs[name] for name in own.intersection(leaf.operations))
    return counts


def _donor(edit: dict[str, object], run: Run) -> str | None:
    """The fingerprint of the LoRA that an edit took; '' if it stood in the checkpoint itself."""
    name = str(edit.get("with", ""))
    return run.donors.get(name) if name else ""


def _notes(leaves: dict[str, list[LeafPath]], when: str) -> Iterator[Consequence]:
    for source, paths in leaves.items():
        if paths:
            whose = "of this checkpoint" if source == SOURCE else f"of '{source}'"
            shown = quoted(folded(map(str, paths)), _SHOWN)
            yield Consequence(
                DocsPage.MERGE_LORA, f"the LoRA {whose} is merged into {shown} {when}"
            )
