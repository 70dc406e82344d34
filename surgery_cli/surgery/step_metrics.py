"""The metrics that a manager saved beside a step: they were measured on its values, and not on others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.operations.nonnegative import in_optimizer_state
from surgery_cli.resolution.reshard import RESHARD
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.listing import is_tree
from surgery_cli.store.locate.items import METRICS
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.same_run import counters_in, step_beside
from surgery_cli.surgery.undo_order import undoes_everything
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

_WHAT_GOES_BY_THEM: Final = "`best_step()` and `max_to_keep` of a manager with `best_fn`"


def with_metrics_or_not(target: Path, prepared: Prepared, options: Options) -> Prepared:
    """What is written at ``target``, with the step's metrics left out where they would be said of other values."""
    if not _has_metrics(prepared) or options.metrics == "keep":
        return prepared
    misleads = step_beside(target, prepared) is not None and _values_change(prepared)
    is_dropped = options.metrics == "drop" or misleads
    return replace(prepared, left_out=(METRICS,)) if is_dropped else prepared


def metrics_notes(target: Path, prepared: Prepared, asked: str) -> list[Note]:
    """What becomes of metrics, where somebody may be misled: they are left out, or come along with other values.

    ``asked`` is what `--metrics` says; where there are none, that is said, too.
    """
    own = step_beside(target, prepared)
    if METRICS in prepared.left_out:
        why = ", which were measured on other values" if _values_change(prepared) else ""
        said = (
            f"its metrics are left out{why}: {_WHAT_GOES_BY_THEM} pass over a step without them"
            " (with `keep_checkpoints_without_metrics=False` it is removed)"
        )
        more = "; `--metrics keep` takes them along" if own is not None else ""
        return [Consequence(DocsPage.ADDED_STEP, said + more)]
    if _has_metrics(prepared) and _values_change(prepared):
        step = prepared.checkpoint.location.step_directory
        said = come_along("" if step is None else step.name)
        if own is not None:
            return [Consequence(DocsPage.ADDED_STEP, said)]
        return [Remark(DocsPage.ADDED_STEP, f"{said}; `--metrics drop` leaves them out")]
    if asked != "auto" and not _has_metrics(prepared):
        return [
            Remark(
                DocsPage.ADDED_STEP, f"`--metrics {asked}` changes nothing: the step has no metrics"
            )
        ]
    return []


def come_along(step: str) -> str:
    """What is said where the metrics of a step come along with values that they were not measured on."""
    whose = f"the metrics of '{step}'" if step else "its metrics"
    return (
        f"{whose} come along, which were measured on other values: {_WHAT_GOES_BY_THEM} go by them"
    )


def _has_metrics(prepared: Prepared) -> bool:
    """True if an item of the step holds what a manager took for its metrics."""
    place = prepared.checkpoint.location.other_items.get(METRICS)
    return place is not None and not prepared.is_export and not is_tree(place)


def _values_change(prepared: Prepared) -> bool:
    """True if the result has other values than those that were measured; the number of the step is none of them.

    Another name or layout is no other value, nor is optimizer state that is left out: what was measured had no part in
    it. A plan that undoes all that is on record gives back what was measured.
    """
    draft = prepared.draft
    changed = _with_other_values(draft)
    if not any(draft.leaves[path].spec.shape for path in changed):  # numbers, if any
        changed = [path for path in changed if path not in counters_in(draft.tree)]
    if not changed and not _is_something_measured_gone(draft):
        return False
    return not undoes_everything(prepared.checkpoint, prepared.plan)


def _is_something_measured_gone(draft: Draft) -> bool:
    gone = [path for path in draft.removed if _was_measured(path, draft)]
    return bool(gone) and not counters_in(draft.source_tree).issuperset(gone)


def _was_measured(path: LeafPath, draft: Draft) -> bool:
    slot = draft.slots.get(path)
    return (slot is not None and slot.is_params_like) or not in_optimizer_state(path, draft)


def _with_other_values(draft: Draft) -> list[LeafPath]:
    """The leaves that do not hold what a leaf of the source holds, or stand where another one stood."""
    stood = {draft.standing(path) for path in draft.source_tree}
    return [
        path
        for path in draft.changed
        if not _is_only_laid_out(draft, path) and (path in stood or not _is_only_moved(draft, path))
    ]


def _is_only_moved(draft: Draft, path: LeafPath) -> bool:
    recipe = draft.leaves[path].recipe
    if not isinstance(recipe, Stored) or recipe.ref.source != SOURCE:
        return False
    there = draft.source_tree[recipe.ref.path]
    return (there.shape, there.dtype) == (recipe.spec.shape, recipe.spec.dtype)


def _is_only_laid_out(draft: Draft, path: LeafPath) -> bool:
    output = draft.leaves[path]
    home, is_edited = output.home, any(edit.name != RESHARD for edit in output.edits)
    if is_edited or not output.is_resharded or home is None or home.source != SOURCE:
        return False
    return draft.standing(home.path) == path
