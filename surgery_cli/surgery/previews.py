"""What a plan would do, as the preview says it: edits, changed leaves, and bytes estimated from metadata."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli import reports
from surgery_cli.draft.effect import keeps_start, name_of
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.inputs.buckets import path_at
from surgery_cli.optimizer.follow.renamed_params import renamed_params
from surgery_cli.planning import Plan
from surgery_cli.settings.run import Options
from surgery_cli.store.write.item_plan import Way
from surgery_cli.store.write.strategy import reason_at
from surgery_cli.surgery.assumed import assumed_of, trees_told_by_names
from surgery_cli.surgery.axis_order import history, permutes_within_an_axis
from surgery_cli.surgery.exporting import beside_notes, export_document, export_reason
from surgery_cli.surgery.judged_checks import judged_checks, warnings_said
from surgery_cli.surgery.layout import reshard_document
from surgery_cli.surgery.leaf_names import Names, document_names, spellings
from surgery_cli.surgery.memory import bytes_to_use, memory_notes
from surgery_cli.surgery.notes import (
    conversion_notes,
    dead_notes,
    dropped_item_notes,
    leftover_notes,
    link_notes,
    opened_notes,
    parent_notes,
    remains_notes,
    unchosen_notes,
    unread_notes,
)
from surgery_cli.surgery.placement_notes import placement_notes
from surgery_cli.surgery.planned_memory import decoding_notes, judged_again_notes
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.put_into import put_into_notes
from surgery_cli.surgery.rearranged_kernels import rearranged_kernels
from surgery_cli.surgery.record_notes import foreign_record_notes, lost_item_notes
from surgery_cli.surgery.repeated_draws import repeated_draws
from surgery_cli.surgery.repeated_loras import repeated_loras, unmerged_notes
from surgery_cli.surgery.replaced import replaced_notes
from surgery_cli.surgery.rounded_before import rounded_before
from surgery_cli.surgery.same_run import same_run_notes
from surgery_cli.surgery.step_metrics import metrics_notes
from surgery_cli.surgery.traffic import Traffic
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence, Note


def previewed(
    prepared: Prepared,
    plan: Plan,
    destination: str | None,
    estimate: Traffic,
    notes: Sequence[Note],
) -> reports.Preview:
    """The document of what a run will do; ``estimate`` are the ``costs``."""
    draft = prepared.draft
    names, sources = document_names(draft.texts), document_names(draft.source_tree.texts)
    items = prepared.plans.values()
    rearranged = [leaf for item in items for leaf in item.rearranged]
    chunks = {leaf.draft_path: sum(len(one.to) for one in leaf.taken) for leaf in rearranged}
    root = prepared.checkpoint.location.root
    target = None if destination is None else path_at(destination)
    strategy, reason = (
        "compact" if any(prepared.compact.values()) else "copy-on-write",
        reason_at(prepared.reason, root, target),
    )
    export: reports.Exported | UnsetType = UNSET
    if prepared.output is not None:
        export = export_document(prepared.checkpoint, prepared.plans, prepared.output, target)
        strategy, reason = "export", export_reason(export)
    called = [(path, names[path]) for path in draft.changed]
    called += [(path, sources[path]) for path in draft.removed]
    return reports.Preview(
        source=str(root),
        destination=destination,
        draft=draft.digest,
        strategy=strategy,
        strategy_reason=reason,
        edits=edit_lines(draft, plan),
        leaves=[
            changed_leaf(prepared, path, names, sources, chunks.get(path, 0))
            for path in in_listed_order(draft.changed)
        ],
        removed=[sources[path] for path in in_listed_order(draft.removed)],
        by_reference=sum(
            len(item.of(Way.KEEP, Way.MOVE, Way.GRAFT, Way.ARRANGE)) for item in items
        ),
        rearranged=sum(len(item.of(Way.ARRANGE)) for item in items) or UNSET,
        partly_by_reference=sum(leaf.way is Way.ENCODE for leaf in rearranged) or UNSET,
        notes=list(notes),
        consequences=[note for note in notes if isinstance(note, Consequence)],
        assumptions=assumed_of(prepared.checkpoint, draft, prepared.sources.values()),
        checks=judged_checks(draft) or UNSET,
        reshard=UNSET if plan.reshard is None else reshard_document(prepared.checkpoint, draft),
        exported=export,
        chosen=prepared.checkpoint.location.chosen,
        spellings=spellings(dict(called)),
        **msgspec.structs.asdict(estimate),
    )


def preview_notes(prepared: Prepared, destination: str | None, options: Options) -> list[Note]:
    """What a preview says beside the edits."""
    checkpoint, draft, plans = prepared.checkpoint, prepared.draft, prepared.plans
    notes: list[Note] = [
        # of trees that names tell it is an assumption
        *opened_notes(checkpoint, but=trees_told_by_names(checkpoint)),
        *lost_item_notes(checkpoint),
        *foreign_record_notes(checkpoint),
        *_notes_beside_leaves(prepared, destination),
        *(look.note for look in prepared.looked if look.note is not None),
        *draft.notes,
        *warnings_said(draft.checks),
        *repeated_draws(checkpoint, draft),
        *repeated_loras(prepared.loras),
        *unmerged_notes(prepared.loras),
        *rearranged_kernels(checkpoint, draft),
        *rounded_before(checkpoint, draft),
        *renamed_params(draft),
        *(placement_notes(draft, plans) if prepared.output is None else ()),
        *unread_notes(plans),
        *dead_notes(prepared.references, prepared.compact),
        *memory_notes(prepared.needs, options.memory_bytes),
        *decoding_notes(plans, bytes_to_use(options.memory_bytes)),
        *judged_again_notes(draft.checks, bytes_to_use(options.memory_bytes)),
        *conversion_notes(plans),
        *remains_notes(draft, plans, prepared.compact),
    ]
    if destination is not None:
        target = path_at(destination)
        notes += parent_notes(target)
        notes += put_into_notes(target, prepared, is_sealed=options.seal)
        notes += replaced_notes(target, _kind_of_result(prepared), force=options.force)
        notes += same_run_notes(target, prepared)
        notes += metrics_notes(target, prepared, options.metrics)
        notes += leftover_notes(target, force=options.force, resume=options.resume)
    return notes


def _kind_of_result(prepared: Prepared) -> str:
    """What a result is that comes in the place of a run, in a phrase."""
    if prepared.output is not None:
        return f"an export ({prepared.output.format}), without steps"
    match prepared.checkpoint.location.shape:
        case "root":
            return "a run of one step"
        case "step":
            return "one step by itself"
        case "file":
            return "one file, without steps"
    return "one tree, without steps"


def _notes_beside_leaves(prepared: Prepared, destination: str | None) -> list[Note]:
    """What becomes of items and files beside the leaves that edits can touch."""
    checkpoint = prepared.checkpoint
    if prepared.output is not None:
        target = None if destination is None else path_at(destination)
        return beside_notes(checkpoint, prepared.draft, prepared.output, target)
    return [
        *unchosen_notes(checkpoint),
        *link_notes(checkpoint, prepared.boundary),
        *dropped_item_notes(checkpoint, prepared.draft),
    ]


def edit_lines(draft: Draft, plan: Plan) -> list[reports.EditLine]:
    """One line per edit: how many leaves it names, and what becomes of their twins."""
    lines = []
    for number, edit in enumerate(plan.edits):
        outcome = draft.outcomes[number]
        lines.append(
            reports.EditLine(
                operation=edit.name,
                summary=edit.summary,
                leaves=outcome.leaves,
                twins=outcome.twins,
                bytes=outcome.bytes,
                effect="" if edit.effect is None else name_of(edit.effect),
                taken_for=list(dict.fromkeys(taken.taken_for for _, taken in outcome.assumed)),
            )
        )
    return lines


def changed_leaf(
    prepared: Prepared, path: LeafPath, names: Names, sources: Names, chunks: int
) -> reports.ChangedLeaf:
    """An output leaf with what it is made of; ``names`` and ``sources``: how the document names leaves.

    ``chunks``: how many of its chunks are taken by reference, of a leaf whose elements move.
    """
    draft, loras = prepared.draft, prepared.loras.get(path)
    recipe = draft.leaves[path]
    origin = recipe.home
    before = None
    where = None
    if origin is not None:
        is_own = origin.source == SOURCE
        where = sources[origin.path] if is_own else f"{origin.source}:{origin.path}"
    was = origin.path if origin is not None and origin.source == SOURCE else path
    if was in draft.source_tree:
        before = draft.source_tree[was].type_text
    slot = draft.slots.get(path)
    return reports.ChangedLeaf(
        path=names[path],
        from_=where,
        operations=[edit.name for edit in recipe.edits],
        before=before,
        after=recipe.spec.type_text,
        policy=recipe.policy or None,
        twin_of=names.get(slot.param, str(slot.param)) if slot else None,
        moved=origin is not None and (origin.source != SOURCE or origin.path != path),
        keeps_start=slot is not None
        and bool(recipe.edits)
        and all(keeps_start(edit.effect, slot.start or 0.0) for edit in recipe.edits),
        chunks_by_reference=chunks,
        reordered=permutes_within_an_axis(history(recipe.recipe)[0]),
        loras=UNSET if loras is None else [*loras.after.values()],
    )
