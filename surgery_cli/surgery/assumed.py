"""What a run takes for granted, as documents and records name it: of a step, of a tree, of optimizer state."""

from __future__ import annotations

from collections.abc import Iterable

from surgery_cli import reports
from surgery_cli.draft.assumptions import TREE_OF_NAMES, Assumption
from surgery_cli.draft.recipe import Draft
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.tree_files import has_sidecars
from surgery_cli.store import filesystem
from surgery_cli.store.locate.items import STEP_METADATA
from surgery_cli.store.open.checkpoint import Checkpoint


def assumed_of(
    checkpoint: Checkpoint, draft: Draft, sources: Iterable[object]
) -> list[reports.Assumed]:
    """All that a run rests on without proof; ``sources`` are what it reads, among it the checkpoint."""
    opened = [one for one in (checkpoint, *sources) if isinstance(one, Checkpoint)]
    places = (one.items[name].directory for one in opened for name in trees_told_by_names(one))
    trees = [_named(place, TREE_OF_NAMES) for place in dict.fromkeys(places)]
    return [*assumed_steps(*opened), *trees, *assumed_states(draft)]


def assumed_states(draft: Draft) -> list[reports.Assumed]:
    """What twins of the draft follow by without proof, once for each state."""
    every = dict.fromkeys(taken for outcome in draft.outcomes for taken in outcome.assumed)
    return [_named(node, taken) for node, taken in every]


def trees_told_by_names(checkpoint: Checkpoint) -> list[str]:
    """The items whose trees names alone tell, beside files that Orbax writes where it writes ``_METADATA``, too."""
    location = checkpoint.location
    step = location.step_directory or location.root
    return [
        name
        for name in checkpoint.inferred_items
        if has_sidecars(checkpoint.items[name].directory)
        or filesystem.is_file(step / STEP_METADATA)
    ]


def _named(node: object, taken: Assumption) -> reports.Assumed:
    """An assumption with what it is about."""
    return reports.Assumed(
        node=str(node),
        taken_for=taken.taken_for,
        unless=list(taken.unless),
        settled_by=taken.settled_by,
        sentence=taken.sentence(node),
    )
