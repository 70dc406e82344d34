"""Derive: the plan that makes of one tree another, as far as it can be known, and what is left open."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from surgery_cli import reports
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import PlanError, SurgeryError
from surgery_cli.matching.containers import differing
from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.edits import Step, edits_of
from surgery_cli.matching.gaps import open_between, open_containers, open_in_place
from surgery_cli.matching.pairing import paired
from surgery_cli.matching.trial import paired_by_values
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.salvage.opening import opened
from surgery_cli.script.former_paths import former_paths
from surgery_cli.script.user_code import Say
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.as_opened import as_opened
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.derive_memory import say_memory
from surgery_cli.surgery.derive_report import Wanted, against_names, derivation_of, untold
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage


@reads
def derive(
    a: str,
    b: str | None = None,
    *,
    like_init: str | None = None,
    values: bool | None = None,
    step: int | None = None,
    item: str | None = None,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Derivation:
    """The plan that makes of the tree of ``a`` that of ``b``, or what ``like_init`` returns.

    ``say`` is told, before values are read, what takes more memory than ``memory_bytes``, or more time.

    ``values``: False reads none; True reads all; None goes on where the first ones have something in common.

    Raises:
        PlanError: nothing stands there, or it is not said what is wanted.
        CheckpointError: what stands there cannot be read, or not in the memory that there is.
    """
    if (b is None) == (like_init is None):
        raise PlanError(
            "`derive` needs one tree to go to"
            if b is None
            else "B and `--like-init` both say where to go",
            why="" if b is None else "the plan makes one tree",
            fix="`surgery derive A B`, or `surgery derive A --like-init train.py:create_state`",
        )
    checkpoint = opened(a, step=step, item=item)
    wanted = _from_script(like_init, checkpoint, say) if like_init else _from_checkpoint(str(b))
    here, there = _params(checkpoint.tree), _params(wanted.tree)
    former, both = former_paths(checkpoint), None
    both_opened = [checkpoint, *([wanted.checkpoint] if wanted.checkpoint else [])]
    by_values, said = None, "not read"
    with as_opened(*both_opened):
        if wanted.checkpoint is not None and values is not False:
            say_memory(here, there, memory_bytes, say)
            both = _holdings(checkpoint, wanted.checkpoint, memory_bytes, listener)
            by_values = (paired if values else paired_by_values)(here, there, both, former)
            said = "nothing in common" if by_values is None else "compared"
        found = by_values or paired(here, there, former=former)
    steps, made, notes = _steps(checkpoint, edits_of(found, checkpoint.tree), wanted.tree, there)
    if by_values is None:
        notes += untold(found.pairs)
    notes += against_names(found.pairs)
    left = [*open_between(made, wanted.tree), *open_containers(made, wanted.tree, there)]
    if both is not None and by_values is not None:
        with as_opened(*both_opened):
            unplaced = {path: spec for path, spec in there.items() if path not in found.placed}
            left += open_in_place(here, unplaced, made, both)
    return derivation_of(
        checkpoint, here, wanted, found, steps, left, said, both.read_bytes if both else 0, notes
    )


def _holdings(
    a: Checkpoint, b: Checkpoint, memory_bytes: int, listener: Listener | None
) -> Holdings:
    meter = Meter(listener, "comparing", a.tree.bytes + b.tree.bytes)
    return Holdings((a.tree, a), (b.tree, b), bytes_to_use(memory_bytes), meter)


def _from_checkpoint(text: str) -> Wanted:
    other = opened(text)
    return Wanted(text, other.tree, other, other.location.chosen)


def _from_script(text: str, checkpoint: Checkpoint, say: Say) -> Wanted:
    from surgery_cli.script.function import read_script
    from surgery_cli.script.items import aligned
    from surgery_cli.surgery.like_init import items_of

    script = read_script(text, say=say)
    found = aligned(script.name, script.abstract, checkpoint.tree, items_of(checkpoint))
    return Wanted(text, found.wanted, None)


def _params(tree: TreeSpec) -> dict[LeafPath, LeafSpec]:
    """The leaves that are paired, and what is empty beside them: all but optimizer state, which follows its params."""
    slots = survey(tree).slots
    states = {slot.whole_state for slot in slots.values() if slot.in_optimizer}
    return {
        path: spec
        for path, spec in tree.items()
        if (spec.has_array or spec.kind is LeafKind.EMPTY)
        and path not in slots
        and not any(path.is_below(state) for state in states)
    }


def _steps(
    checkpoint: Checkpoint,
    steps: list[Step],
    wanted: TreeSpec,
    leaves: Collection[LeafPath],
) -> tuple[list[Step], TreeSpec, list[Note]]:
    """The edits, with those that make lists where ``wanted`` has them above ``leaves``, and the tree that they make."""
    made, notes = _made(checkpoint, steps)
    for operation in ("to-dict", "to-list"):  # what is below a list becomes a dict with it
        nodes = differing(made, wanted, leaves).get(operation, ())
        if nodes and not notes:
            at = [node.exact_pattern for node in nodes]
            steps = [*steps, Step({"op": operation, "at": at if len(at) > 1 else at[0]})]
            made, notes = _made(checkpoint, steps)
    return steps, made, notes


def _made(checkpoint: Checkpoint, steps: Sequence[Step]) -> tuple[TreeSpec, list[Note]]:
    """The tree that the edits make, by what makes it when they are applied."""
    if not steps:
        return checkpoint.tree, []
    document = {"edits": [step.edit for step in steps]}
    try:
        return resolve(plan_from_document(document), checkpoint, open_checkpoint).tree, []
    except SurgeryError as error:
        problem = error.problems[0]
        said = f"the plan is refused as it is: {problem.what}"
        return checkpoint.tree, [
            Remark(DocsPage.DERIVING, said + (f"; {problem.fix}" if problem.fix else ""))
        ]
