"""What a preview says beside the edits, and of those sentences the ones that nobody should miss."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from surgery_cli.draft.expression import stored_in
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.metadata_files import faults_beside, side_items
from surgery_cli.proof.sharding_file import fault_notes
from surgery_cli.proof.step_metadata_file import (
    NOT_THERE,
    lacks_step_metadata,
    missing_notes,
    unmarked_notes,
)
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.boundary import Boundary
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.locate.items import STEP_METADATA, step_metadata
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, SHARDING
from surgery_cli.store.write.dead_in_buckets import leftovers_at
from surgery_cli.store.write.files import CONVERTED_LAYOUT
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.store.write.item_plan import ItemPlan, Way, is_converted
from surgery_cli.store.write.leftovers import Left
from surgery_cli.store.write.resumable_staging import amount_of, what_is_kept
from surgery_cli.store.write.strategy import WORTHWHILE_DEAD_BYTES, Costs
from surgery_cli.surgery.lone_shards import lone_shard_notes
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text, counted

SHOWN_LINKS = 3


def opened_notes(checkpoint: Checkpoint, *, but: Collection[str] = ()) -> list[Note]:
    """About what was opened: what was inferred of it, what is damaged, and whether it is a part of something.

    ``but``: the items of which it is said elsewhere that they are inferred.
    """
    inferred, damaged = inference_notes(checkpoint, but), damage_notes(checkpoint)
    return [*inferred, *damaged, *lone_shard_notes(checkpoint)]


def inference_notes(checkpoint: Checkpoint, but: Collection[str] = ()) -> list[Consequence]:
    """A note for every item of which only the arrays' names tell the tree."""
    return [
        Consequence(
            DocsPage.RESCUE_LOOK,
            (f"item '{name}': " if name and len(checkpoint.items) > 1 else "")
            + "there is no `_METADATA`: the tree is inferred from names;"
            " None leaves and lists cannot be known",
        )
        for name in checkpoint.inferred_items
        if name not in but
    ]


def damage_notes(checkpoint: Checkpoint) -> list[Note]:
    """A note for every small file that cannot be understood, though every leaf can be read without it."""
    notes: list[Note] = []
    for name, item in checkpoint.items.items():
        if isinstance(item, PytreeItem):
            about = f"item '{name}': " if name and len(checkpoint.items) > 1 else ""
            for file, why in item.sidecars.damaged.items():
                lost = _LOST[SHARDING if file == SHARDING else ARRAY_METADATAS]
                notes.append(
                    Consequence(
                        DocsPage.CHECKED_BY_VERIFY, f"{about}`{file}` is damaged ({why}): {lost}"
                    )
                )
    notes += fault_notes(checkpoint)
    step = checkpoint.location.step_directory
    if step is not None and filesystem.is_file(step / STEP_METADATA):
        _, why = step_metadata(step)
        if why:
            lost = "what each item is was told from what stands in it, as Orbax does"
            notes.append(
                Consequence(
                    DocsPage.CHECKED_BY_VERIFY, f"`{STEP_METADATA}` is damaged ({why}): {lost}"
                )
            )
    if step is not None and lacks_step_metadata(step):
        said = f"`{STEP_METADATA}`: {NOT_THERE}, and the result as well"
        notes.append(Consequence(DocsPage.CHECKED_BY_VERIFY, said))
    return [*notes, *missing_notes(checkpoint), *unmarked_notes(checkpoint)]


def unchosen_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """A note for every item of the step that was not chosen, or is no tree, and cannot be read."""
    unread = [
        f"the item '{name}' cannot be read, and comes along byte for byte: {found.problems[0].what}"
        for name, found in checkpoint.unchosen.items()
        if isinstance(found, CheckpointError)
    ]
    unread += [
        f"`{file}` is damaged ({why}): it comes along byte for byte"
        for file, why in faults_beside(checkpoint, side_items(checkpoint))
    ]
    return [Consequence(DocsPage.VERIFIED, sentence) for sentence in unread]


_LOST: Final = {
    SHARDING: "Orbax restores only to shardings that it is given",
    ARRAY_METADATAS: "Orbax cannot restore until it is mended or moved away, and typed PRNG keys are taken for uint32",
}


def link_notes(checkpoint: Checkpoint, boundary: Boundary | None = None) -> list[Note]:
    """A note for every item whose data files are symbolic links, as in hub caches.

    With a ``boundary``, one more for files outside of it: they are copied.
    """
    notes: list[Note] = []
    for name, item in checkpoint.items.items():
        store = item.store if isinstance(item, PytreeItem) else None
        if store is None:
            continue
        about = f"item '{name}': " if name and len(checkpoint.items) > 1 else ""
        links, outside = store.symbolic_links, []
        if boundary is not None:
            outside = boundary.outside(store.directory, store.data_files, links)
        inside = sorted(set(links).difference(outside))
        if inside:
            said = "symbolic links, read as the files they lead to"
            notes.append(
                Remark(
                    DocsPage.HOW_IT_WRITES,
                    f"{about}{_files(inside)} {said}: {quoted(inside, SHOWN_LINKS)}",
                )
            )
        if outside:
            said = "reached by symbolic links that lead out of the checkpoint, and copied"
            notes.append(
                Consequence(
                    DocsPage.HOW_IT_WRITES,
                    f"{about}{_files(outside)} {said}: {quoted(outside, SHOWN_LINKS)}",
                )
            )
    return notes


def _files(files: Sequence[str]) -> str:
    return counted(len(files), "data file is", "data files are")


def dropped_item_notes(checkpoint: Checkpoint, draft: Draft) -> list[Consequence]:
    """Which items of a step lose all their leaves and go, and where paths begin in what is left."""
    if not checkpoint.location.prefix_items:
        return []
    left = {str(path[0]) for path in draft.leaves}
    dropped = [name for name in checkpoint.items if name not in left]
    notes = [
        Consequence(
            DocsPage.DELETE,
            f"the item '{name}' loses all its leaves, and is left out of the result",
        )
        for name in dropped
    ]
    if dropped and len(left) == 1:
        (only,) = left
        said = f"one item is left: paths of the result begin inside '{only}'"
        notes.append(Consequence(DocsPage.EXTRACT_ITEM, said))
    return notes


def unread_notes(plans: Mapping[str, ItemPlan]) -> list[Remark]:
    """A note for leaves that come from elsewhere without being read: nobody looks whether their values are finite."""
    unread = [
        leaf
        for plan in plans.values()
        for leaf in plan.of(Way.GRAFT, Way.RAW, Way.ARRANGE)
        if any(part.ref.source != SOURCE for part in stored_in(leaf.output.recipe))
    ]
    if not unread:
        return []
    what = counted(len(unread), "leaf comes", "leaves come")
    seen = "`surgery inspect --stats` looks"
    said = f"{what} from elsewhere as stored, unread: NaN in there would come along ({seen})"
    return [Remark(DocsPage.VERIFIED, said)]


def dead_notes(references: Mapping[str, Costs], compact: Mapping[str, bool]) -> list[Remark]:
    """A note for donors' files of which the larger part is not needed: they stay as long as the result does."""
    linked = sum(cost.linked_bytes for name, cost in references.items() if not compact[name])
    dead = sum(cost.donor_dead_bytes for name, cost in references.items() if not compact[name])
    if dead <= max(linked / 4, WORTHWHILE_DEAD_BYTES):
        return []
    without = "`--compact always` leaves them out"
    return [
        Remark(
            DocsPage.COMPACT,
            f"{byte_text(dead)} of the linked files are other leaves of a donor ({without})",
        )
    ]


def parent_notes(destination: Path) -> list[Consequence]:
    """Which directories above the destination are made: a slip in its path would make them, too."""
    parent = filesystem.absolute(destination).parent
    if isinstance(parent, BucketPath) or filesystem.exists(parent):
        return []
    return [Consequence(DocsPage.HOW_IT_WRITES, f"there is no directory '{parent}': it is made")]


def leftover_notes(destination: Path, *, force: bool, resume: bool) -> list[Note]:
    """What other runs to the same destination have beside it: those that were killed, and those that still go."""
    return [
        _leftover_note(left, destination, force=force, resume=resume)
        for left in leftovers_at(destination)
    ]


def _leftover_note(left: Left, destination: Path, *, force: bool, resume: bool) -> Note:
    target, journal = quote(str(destination)), left.journal
    is_over = left.state in (State.DEAD, State.WHOLE)
    if journal is not None and journal.head is not None and is_over:
        if not resume:
            command, may_go = journal.head.command, left.state is State.DEAD
            said = what_is_kept(left.path, destination, journal, command, may_go=may_go)
            return Consequence(DocsPage.RESUME, said)
        return Remark(
            DocsPage.RESUME, f"goes on from '{left.path}', which keeps {amount_of(journal)}"
        )
    state = left.state
    mixture = half_replaced(destination) if state in (State.WHOLE, State.LOST) else None
    match state:
        case State.WHOLE | State.LOST if mixture is not None:
            return Consequence(DocsPage.FORCE, f"{mixture.what}: {mixture.fix}")
        case State.LIVING:
            number = left.owner.pid if left.owner else ""
            return Consequence(
                DocsPage.HOW_IT_WRITES,
                f"another run (process {number}) is writing to '{target}' now, in '{left.path}'",
            )
        case State.DEAD if force or resume:
            by = "--force" if force else "--resume"
            return Consequence(
                DocsPage.HOW_IT_WRITES,
                f"a run that was killed has left '{left.path}'; `{by}` removes it",
            )
        case State.DEAD:
            return Remark(
                DocsPage.HOW_IT_WRITES,
                f"a run that was killed has left '{left.path}'; `surgery clean {target}` removes it",
            )
    of = f" of '{left.owner.host}'" if left.owner and left.owner.host else ""
    return Consequence(
        DocsPage.HOW_IT_WRITES,  # it may be writing, too
        f"a run{of} that cannot be looked at from here has '{left.path}'; if it is over,"
        f" `surgery clean {target} --stale` removes that",
    )


def conversion_notes(plans: Mapping[str, ItemPlan]) -> list[Consequence]:
    """A note for every item of a format that is only read."""
    return [
        Consequence(
            DocsPage.OTHER_FORMATS,
            f"'{item.directory.name}': {item.layout} is only read; the result is an Orbax directory"
            f" ({CONVERTED_LAYOUT}, as `PyTreeCheckpointer` writes it)",
        )
        for item in (plan.item for plan in plans.values())
        if is_converted(item)
    ]


def remains_notes(
    draft: Draft, plans: Mapping[str, ItemPlan], compact: Mapping[str, bool]
) -> list[Consequence]:
    """That a removed leaf is gone from the tree, and not from the files that the result shares with the source."""
    shares_files = any(plan.item.layout.startswith("ocdbt") for plan in plans.values())
    has_values = any(draft.source_tree[path].has_array for path in draft.removed)
    if not has_values or not shares_files or any(compact.values()):
        return []
    without = "`--compact always` leaves them out"
    return [
        Consequence(DocsPage.COMPACT, f"removed values may remain in linked data files; {without}")
    ]
