"""What else stands in an adapter, beside the A and B that an edit takes: what is merged is merged as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.source_leaves import Leaves
from surgery_cli.draft.taking import Taking
from surgery_cli.errors import Problem
from surgery_cli.inputs.peft_names import TENSOR
from surgery_cli.operations.base import Scene
from surgery_cli.operations.lora_pairs import Donor, Pair
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import LeafKind
from surgery_cli.tree.targets import REFERENCE
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.pages import DocsPage

_FIX: Final = worded(
    "name its kernel in {at}, too, or in another edit; leave that out with {except}, or all that is left with"
    " {rest: leave}"
)


def left_over(
    places: Sequence[str], leaves: Leaves, taken: Collection[LeafPath], text: str
) -> Iterator[tuple[LeafPath, Problem]]:
    """Leaves that stand where ``places`` say and belong to no kernel that is named, with what is wrong about each."""
    texts = {
        path: path.text for path, spec in leaves.tree.items() if spec.kind is not LeafKind.EMPTY
    }
    for field, place in zip("ab", places, strict=False):
        for path in PathPattern(_any(place)).named(texts):
            if path not in taken:
                why = worded("it stands where {} says", FieldName(field))
                yield path, _problem(path, text, why, field)


def _offered(
    places: Sequence[str], pairs: Collection[Pair], donor: Donor, scene: Scene
) -> Iterator[tuple[LeafPath, Problem]]:
    """Every other A or B of an adapter, by all that tells one, with what is wrong if nothing takes it.

    It stands where the edit says that they stand; or, in another checkpoint than the one that is edited, where what
    this one does not merge goes on acting, it is called as those of the edit are, or as PEFT calls them.
    """
    taken = {leaf for pair in pairs for leaf in pair.leaves()}
    known = dict(left_over(places, donor.leaves, taken | donor.slots, donor.text))
    if donor.name:
        for path, field, why in _called_alike(pairs, donor.leaves):
            if path not in taken:
                known.setdefault(path, _problem(path, donor.text, why, field))
        slots = scene.survey_of(donor.name).slots if known else ()
        known = {path: problem for path, problem in known.items() if path not in slots}
    yield from known.items()


def taking(
    operation: str,
    places: Sequence[str],
    pairs: Collection[Pair],
    donor: Donor,
    draft: Draft,
    scene: Scene,
) -> Taking:
    """What an edit takes of a LoRA, ``pairs``, and what is there for others to take."""
    parts = {leaf for pair in pairs for leaf in pair.leaves()}
    others = _offered(places, pairs, donor, scene)
    return Taking(
        edit=len(draft.outcomes),
        operation=operation,
        text=donor.text,
        source=donor.name,
        offered={_stored(path, donor, draft): problem for path, problem in others},
        taken=frozenset(_stored(path, donor, draft) for path in parts),
        may_leave=False,
        page=DocsPage.MERGE_LORA,
    )


def _called_alike(pairs: Iterable[Pair], leaves: Leaves) -> Iterator[tuple[LeafPath, str, str]]:
    """Leaves whose last keys are those of an A or B, and tensors of PEFT's; with the field that they are like."""
    ends: dict[tuple[object, ...], str] = {}
    for pair in pairs:
        length = _distinct(pair)
        ends |= {tuple(pair.a[-length:]): "a", tuple(pair.b[-length:]): "b"} if length else {}
    lengths = {len(end) for end in ends}
    for path, spec in leaves.tree.items():
        if spec.kind is LeafKind.EMPTY:
            continue
        if len(path) == 1 and (name := TENSOR.fullmatch(path.text)):
            yield path, name[2].lower(), "PEFT calls an A or a B so"
        for length in lengths:
            if field := ends.get(tuple(path[-length:])):
                yield path, field, worded("it is called like what {} says", FieldName(field))


def _distinct(pair: Pair) -> int:
    """How many of the last keys of an A tell it from its B, unless that is all of them."""
    for length, (a, b) in enumerate(zip(reversed(pair.a), reversed(pair.b), strict=False), 1):
        if a != b:
            return length if length < min(len(pair.a), len(pair.b)) else 0
    return 0


def _stored(path: LeafPath, donor: Donor, draft: Draft) -> LeafPath:
    """How a part of a LoRA was called where it was stored, wherever an edit has put it since."""
    home = None if donor.name else draft.leaves[path].home
    return home.path if home is not None and home.source == SOURCE else path


def _problem(path: LeafPath, text: str, why: str, field: str) -> Problem:
    return Problem(
        f"'{path}' of '{text}' belongs to no kernel that is named",
        why=why,
        fix=_FIX,
        path=str(path),
        field=field,
    )


def _any(place: str) -> str:
    """The pattern of all that a place with references may be."""
    keys = []
    for key in place.strip("/").split("/"):
        if REFERENCE.fullmatch(key):
            keys.append("**")
            continue
        parts = REFERENCE.split(key)[:: REFERENCE.groups + 1]
        keys.append(
            "*".join("".join(f"[{c}]" if c in "*?[{}" else c for c in part) for part in parts)
        )
    return "/".join(keys)
