"""Random values that were drawn for a leaf before: they depend on seed and path alone, so a second draw is no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from surgery_cli.draft.expression import Made, Stored, is_computed, parts
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.operations.initializing import Draw
from surgery_cli.operations.table import operations
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.record_parts import Run
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN = 2


def repeated_draws(checkpoint: Checkpoint, draft: Draft) -> list[Consequence]:
    """A note for leaves to which random values are added that are in them already, by this plan or an earlier run."""
    twice: dict[LeafPath, int] = {}
    once: dict[LeafPath, int] = {}
    for path, output in draft.leaves.items():
        if isinstance(output.recipe, Stored) or path in draft.slots:
            continue
        inside = parts(output.recipe, beyond=is_computed)
        draws = [
            (part.kernel.seed, part.path)
            for part in inside
            if isinstance(part, Made) and isinstance(part.kernel, Draw)
        ]
        again = next((seed for (seed, _), count in Counter(draws).items() if count > 1), None)
        if again is not None:
            twice[path] = again
        elif draws and any(isinstance(p, Stored) and p.ref.source == SOURCE for p in inside):
            once[path] = draws[0][0]
    record = read_record(checkpoint) if once else None
    before = set(_drawn(runs_of(checkpoint, record))) if record is not None else set()
    earlier = {
        path: seed for path, seed in once.items() if {(str(path), seed), (path.text, seed)} & before
    }
    return [
        *_notes(twice, "twice in this plan"),
        *_notes(earlier, "by an earlier run, too"),
    ]


def _drawn(runs: list[Run]) -> Iterator[tuple[str, int]]:
    """The printed paths for which runs on record drew random values, with the seeds of these runs, the latest first.

    What has been made anew since has none of them.
    """
    anew: set[str] = set()
    for run in runs:
        edits = [edit for edit in run.plan.get("edits", ()) if _is_random(edit.get("op"))]
        seeds = {edit.get("seed", run.plan.get("seed") or 0) for edit in edits}
        for leaf in (leaf for leaf in run.leaves if leaf.path not in anew):
            if any(map(_is_random, leaf.operations)):
                yield from ((leaf.path, seed) for seed in seeds)
        anew |= {leaf.path for leaf in run.leaves if leaf.from_ is None}


def _is_random(name: object) -> bool:
    kind = operations().get(str(name))
    return kind is not None and "seed" in kind.__struct_fields__


def _notes(leaves: dict[LeafPath, int], when: str) -> list[Consequence]:
    by_seed: dict[int, list[LeafPath]] = {}
    for path, seed in leaves.items():
        by_seed.setdefault(seed, []).append(path)
    return [
        Consequence(
            DocsPage.REINIT,
            worded(
                "random values of {}, seed {}, are drawn {}: the same ones, and no further ones; say another {seed}",
                quoted(paths, _SHOWN),
                seed,
                when,
            ),
        )
        for seed, paths in by_seed.items()
    ]
