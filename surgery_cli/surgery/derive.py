"""Derive: the plan that makes of one tree another, as far as it can be known, and what is left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from surgery_cli import reports
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import PlanError, SurgeryError
from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.edits import Step, edits_of
from surgery_cli.matching.fused import Fusion
from surgery_cli.matching.gaps import OTHER_VALUES, Open, open_between, open_values
from surgery_cli.matching.pairing import Pairing, paired
from surgery_cli.matching.pairs import Certainty, Pair
from surgery_cli.matching.resized import resizings
from surgery_cli.matching.trial import paired_by_values
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.salvage.glance import opened
from surgery_cli.script.user_code import Say
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.checkpoint import Checkpoint, as_opened, open_checkpoint
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.series import folded

_OPTIMIZER: Final = (
    "optimizer state follows its params, and no more: `delete` what B has not; docs/changing-the-optimizer.md says how"
    " state is made"
)


_ROTARY: Final = (
    "values alone tell whether the halves of query and key heads stand in one order on both sides: rotary embeddings"
    " turn halves in Hugging Face's models, neighbours in others"
)

_WITHIN: Final = (
    "values alone tell in which order elements stand within an axis: behind an image that is flattened, and in filters"
    " of transposed convolutions, it is another in PyTorch than in Flax"
)


class _Wanted(NamedTuple):
    """What the result is to be."""

    name: str
    tree: TreeSpec
    checkpoint: Checkpoint | None
    chosen: str = ""


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

    ``values``: False reads none; True reads all; None goes on where the first ones have something in common.

    Raises:
        PlanError: nothing stands there, or it is not said what is wanted.
        CheckpointError: what stands there cannot be read.
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
    holdings = None
    said = "not read"
    both_opened = [checkpoint, *([wanted.checkpoint] if wanted.checkpoint else [])]
    with as_opened(*both_opened):
        if wanted.checkpoint is not None and values is not False:
            limit = bytes_to_use(memory_bytes)
            total = checkpoint.tree.bytes + wanted.tree.bytes
            both = Holdings(
                (checkpoint.tree, checkpoint),
                (wanted.tree, wanted.checkpoint),
                limit,
                Meter(listener, "comparing", total),
            )
            by_values = (paired if values else paired_by_values)(here, there, both)
            said = "nothing in common" if by_values is None else "compared"
            holdings = None if by_values is None else both
            read = both
        else:
            by_values = read = None
        found = by_values or paired(here, there)
    steps = edits_of(found, checkpoint.tree)
    made, notes = _made(checkpoint, steps)
    if holdings is None:
        notes += _untold(found.pairs)
    left = open_between(made, wanted.tree)
    return _report(
        checkpoint, here, wanted, found, steps, left, said, read.read_bytes if read else 0, notes
    )


def _from_checkpoint(text: str) -> _Wanted:
    other = opened(text)
    return _Wanted(text, other.tree, other, other.location.chosen)


def _from_script(text: str, checkpoint: Checkpoint, say: Say) -> _Wanted:
    from surgery_cli.script.function import read_script
    from surgery_cli.script.items import aligned
    from surgery_cli.surgery.like_init import items_of

    script = read_script(text, say=say)
    found = aligned(script.name, script.abstract, checkpoint.tree, items_of(checkpoint))
    return _Wanted(text, found.wanted, None)


def _params(tree: TreeSpec) -> dict[LeafPath, LeafSpec]:
    """The leaves that are paired: all but optimizer state, which follows its params."""
    slots = survey(tree).slots
    states = {slot.whole_state for slot in slots.values() if slot.in_optimizer}
    return {
        path: spec
        for path, spec in tree.items()
        if spec.has_array
        and spec.kind is not LeafKind.NO_TARGET
        and path not in slots
        and not any(path.is_below(state) for state in states)
    }


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
        return checkpoint.tree, [Remark(said + (f"; {problem.fix}" if problem.fix else ""))]


# --- what is said ------------------------------------------------------------------------------------------------


def _report(
    checkpoint: Checkpoint,
    here: Mapping[LeafPath, LeafSpec],
    wanted: _Wanted,
    found: Pairing,
    steps: Sequence[Step],
    left: Sequence[Open],
    values: str,
    bytes_read: int,
    notes: list[Note],
) -> reports.Derivation:
    every = [*found.pairs, *found.copies, *found.drops]
    fused = [(one, True) for one in found.splits] + [(one, False) for one in found.joins]
    shown: list[Pair | Fusion] = [pair for pair in every if _is_told(pair)]
    shown += [one for one, _ in fused]
    rows = {id(pair): n for n, pair in enumerate(shown)}
    left = [*left, *(open_values(pair.new, pair.why[-1]) for pair in found.pairs if pair.is_other)]
    placed = {path for pair in every for path in pair.old.members}
    unpaired = {path: spec for path, spec in here.items() if path not in placed}
    gaps = [_gap(one, wanted.tree, found, unpaired) for one in left]
    edits: list[dict[str, Any]] = [step.edit for step in steps] + [one.edit for one in left]
    numbers = [[rows[id(p)] for p in step.pairs if id(p) in rows] for step in steps]
    return reports.Derivation(
        a=str(checkpoint.location.root),
        b=wanted.name,
        chosen_a=checkpoint.location.chosen,
        chosen_b=wanted.chosen,
        pairs=[_row(pair) for pair in every if _is_told(pair)]
        + [_fused_row(one, is_split=is_split) for one, is_split in fused],
        guesses=[_row(pair) for pair in found.guesses],
        gaps=gaps,
        same=sum(len(pair.new.members) for pair in every if not _is_told(pair)),
        plan={"edits": edits},
        steps=numbers + [[] for _ in left],
        values=values,
        bytes_read=bytes_read,
        notes=notes,
    )


def _untold(pairs: Iterable[Pair]) -> list[Note]:
    """What names and shapes do not tell of these pairs."""
    told = list(pairs)
    found: list[Note] = []
    if any(map(_is_rotary, told)):
        found.append(Consequence(_ROTARY))
    if any(pair.form.text for pair in told):
        found.append(Consequence(_WITHIN))
    return found


def _is_rotary(pair: Pair) -> bool:
    """True for a projection to queries or keys that is spelled otherwise here than there."""
    is_other = pair.old.meaning.last != pair.new.meaning.last or bool(pair.form.text)
    return is_other and bool({"query", "key"}.intersection(pair.old.meaning.words))


def _is_told(pair: Pair) -> bool:
    """False for what is on both sides the same, place and type, and nothing speaks against it."""
    return (
        pair.old.members != pair.new.members or bool(pair.form.text) or pair.casts or pair.is_other
    )


def _row(pair: Pair) -> reports.PairRow:
    operations = [text for text in (pair.form.text,) if text]
    if pair.casts:
        operations.append(f"cast to {pair.new.spec.dtype}")
    return reports.PairRow(
        from_=str(pair.old),
        to=str(pair.new),
        leaves=len(pair.new.members),
        operations=operations,
        certainty=pair.certainty.value,
        why=list(pair.why),
    )


def _fused_row(one: Fusion, *, is_split: bool) -> reports.PairRow:
    parts, whole = ", ".join(map(str, one.parts)), str(one.whole)
    why = "its parts have the values of what they are" if one.is_sure else "by its name and size"
    return reports.PairRow(
        from_=whole if is_split else parts,
        to=parts if is_split else whole,
        leaves=0,
        operations=[f"{'split' if is_split else 'concat'} axis {one.axis}"],
        certainty=(Certainty.SURE if one.is_sure else Certainty.LIKELY).value,
        why=[why],
    )


def _gap(
    one: Open, wanted: TreeSpec, found: Pairing, unpaired: Mapping[LeafPath, LeafSpec]
) -> reports.Gap:
    ours = set(one.leaves)
    advice = _advice(one)
    perhaps = [
        f"{pair.old if one.side == 'b' else pair.new} ({', '.join(pair.why)})"
        for pair in found.guesses
        if ours.intersection(pair.new.members if one.side == "b" else pair.old.members)
    ]
    if one.side == "b" and len(ours) == 1 and not perhaps:
        perhaps = resizings(one.leaves[0], wanted, unpaired)
    return reports.Gap(
        path=one.text,
        side=one.side,
        what=one.what,
        leaves=len(one.leaves),
        type=wanted[one.path].type_text if one.path in wanted else "",
        perhaps=folded(perhaps),
        fix=advice,
    )


def _advice(one: Open) -> str:
    """What a person can do about a gap."""
    if any(is_optimizer_name(key) for key in one.path):
        return _OPTIMIZER
    if one.side == "a":
        return "`delete` it, or `rename` it to what it is in B"
    if one.what.startswith(OTHER_VALUES):
        return (
            "what was trained since, or must be computed (an offset, an order within an axis)? take the `assert` out if"
            " the pair is right"
        )
    return "`rename`, `copy` or `add` it" if one.edit.get("exists") else ""
