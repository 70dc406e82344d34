"""What `derive` says: the pairs with their reasons, the gaps with what they may be, and what cannot be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from surgery_cli import reports
from surgery_cli.matching.edits import Step
from surgery_cli.matching.families import Family, families_of
from surgery_cli.matching.fused import Fusion
from surgery_cli.matching.gaps import NO_SOURCE, OTHER_VALUES, Open, in_rows, open_values
from surgery_cli.matching.pairing import Pairing
from surgery_cli.matching.pairs import SAME, Certainty, Leaves, Pair
from surgery_cli.matching.resized import resizable
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage
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


_MOST_CROSSED: Final = 6


class Wanted(NamedTuple):
    """What the result is to be."""

    name: str
    tree: TreeSpec
    checkpoint: Checkpoint | None
    chosen: str = ""


def derivation_of(
    checkpoint: Checkpoint,
    here: Mapping[LeafPath, LeafSpec],
    wanted: Wanted,
    found: Pairing,
    steps: Sequence[Step],
    left: Sequence[Open],
    values: str,
    bytes_read: int,
    notes: list[Note],
) -> reports.Derivation:
    """What was found, as it is printed; ``steps`` are the plan, and ``left`` is what it leaves open."""
    every = [*found.pairs, *found.copies, *found.drops]
    fused = [(one, True) for one in found.splits] + [(one, False) for one in found.joins]
    shown: list[Pair | Fusion] = [pair for pair in every if _is_told(pair)]
    shown += [one for one, _ in fused]
    rows = {id(pair): n for n, pair in enumerate(shown)}
    left = [*left, *(open_values(pair.new, pair.why[-1]) for pair in found.pairs if pair.is_other)]
    left = in_rows(left)
    placed = {path for pair in every for path in pair.old.members}
    perhaps = _perhaps(found, {p: s for p, s in here.items() if p not in placed}, left, wanted.tree)
    gaps = [_gap(one, wanted.tree, perhaps) for one in left]
    edits: list[dict[str, Any]] = [step.edit for step in steps] + [one.edit for one in left]
    numbers = [[rows[id(p)] for p in step.pairs if id(p) in rows] for step in steps]
    return reports.Derivation(
        a=str(checkpoint.location.root),
        b=wanted.name,
        chosen_a=checkpoint.location.chosen,
        chosen_b=wanted.chosen,
        assumptions=assumed_steps(checkpoint, wanted.checkpoint),
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


def untold(pairs: Iterable[Pair]) -> list[Note]:
    """What names and shapes do not tell of these pairs."""
    told = list(pairs)
    found: list[Note] = []
    if any(map(_is_rotary, told)):
        found.append(Consequence(DocsPage.DERIVING, _ROTARY))
    if any(pair.form.text for pair in told):
        found.append(Consequence(DocsPage.DERIVING, _WITHIN))
    return found


def against_names(pairs: Iterable[Pair]) -> list[Note]:
    """Which pairs values make, though by its name the one is what another of the new tree is called."""
    every = list(pairs)
    called = {_said_by(pair.new) for pair in every}
    crossed = [
        f"{pair.old} → {pair.new}"
        for pair in every
        if pair.why[:1] == (SAME,) and not pair.means_one_thing and _said_by(pair.old) in called
    ]
    if not crossed:
        return []
    said = (
        f"by values, and against the names on both sides: {listed(folded(crossed), _MOST_CROSSED)}"
    )
    return [Consequence(DocsPage.DERIVING, said)]


def _said_by(family: Family) -> tuple[str, frozenset[tuple[str, int]]]:
    """What a name means, in whatever order it says it."""
    return family.meaning.role, frozenset(Counter(family.meaning.words).items())


def _is_rotary(pair: Pair) -> bool:
    """True for a projection to queries or keys that is spelled otherwise here than there."""
    is_other = pair.old.meaning.last != pair.new.meaning.last or bool(pair.form.text)
    return is_other and bool({"query", "key"}.intersection(pair.old.meaning.words))


def _is_told(pair: Pair) -> bool:
    """False for what is on both sides the same, place and type, and nothing speaks against it."""
    return pair.changes_place or bool(pair.form.text) or pair.casts or pair.is_other


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


def _perhaps(
    found: Pairing, unpaired: Leaves, left: Sequence[Open], wanted: TreeSpec
) -> dict[tuple[str, LeafPath], list[str]]:
    """What leaves without a pair may be on the other side, by their own side."""
    said: dict[tuple[str, LeafPath], list[str]] = {}
    for pair in found.guesses:
        why = ", ".join(pair.why)
        for side, own, other in (("a", pair.old, pair.new), ("b", pair.new, pair.old)):
            for path in own.members:
                said.setdefault((side, path), []).append(f"{other} ({why})")
    # what has its pair, and other values, comes from there; optimizer state comes from no param
    paired = {path for pair in found.pairs for path in pair.new.members}
    # parts of a fused leaf, too, are left over, and are no leaves of the tree
    lacking = {
        path: wanted[path]
        for one in left
        if one.side == "b" and not any(map(is_optimizer_name, one.path))
        for path in one.leaves
        if path in wanted and path not in paired
    }
    new = {path: spec for path, spec in lacking.items() if ("b", path) not in said}
    resizings = resizable(families_of(unpaired), families_of(new)).perhaps()
    return said | {("b", path): texts for path, texts in resizings.items()}


def _gap(
    one: Open, wanted: TreeSpec, perhaps: Mapping[tuple[str, LeafPath], list[str]]
) -> reports.Gap:
    texts = dict.fromkeys(text for path in one.leaves for text in perhaps.get((one.side, path), ()))
    nodes = one.nodes or (one.path,)
    only = one.leaves[0] if len(one.leaves) == len(nodes) else one.path
    return reports.Gap(
        path=one.text,
        side=one.side,
        what=one.what,
        leaves=len(one.leaves),
        nodes=len(nodes),
        type=wanted[only].type_text if only in wanted else "",
        perhaps=folded(texts),
        fix=_advice(one),
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
    return "`rename`, `copy` or `add` it" if one.what == NO_SOURCE else ""
