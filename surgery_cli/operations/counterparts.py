"""The like of a leaf in other checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli.draft.expression import LeafRef, Recipe, Stored
from surgery_cli.draft.source_leaves import find_leaf
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.members import Member
from surgery_cli.operations.numeric import as_floats, is_integers
from surgery_cli.operations.stacked_shapes import before_else, stacking_advice
from surgery_cli.tree.dtypes import is_complex, is_floating
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


def check_like(
    path: LeafPath, spec: LeafSpec, text: str, other: LeafSpec, how: str = "averaged"
) -> None:
    """See that the leaf of a member is of the source's shape and field.

    Raises:
        PlanError: it is not.
    """
    is_same_field = (is_floating(spec.dtype), is_complex(spec.dtype)) == (
        is_floating(other.dtype),
        is_complex(other.dtype),
    )
    if other.shape != spec.shape or not is_same_field:
        raise PlanError(
            f"'{path}' of '{text}' cannot be {how} with the source's",
            why=f"it is {other.type_text}, the source's {spec.type_text}",
            fix=worded(
                "members must agree in shape and be floating; {}leave the leaf out with {except}",
                before_else(stacking_advice(spec, other)),
            ),
            field="with",
        )


def meet_all(path: LeafPath, others: Sequence[Member]) -> None:
    """See that every member has the like of a leaf.

    Raises:
        PlanError: one has none.
    """
    for member in others:
        _theirs(path, member)


def _theirs(path: LeafPath, member: Member) -> LeafPath:
    """Where the like of a leaf stands in a member: it may have one that prints alike.

    Raises:
        PlanError: it has none.
    """
    if path in member.tree:
        return path
    return find_leaf(member.text, member.source, str(path), field="with")


def counterparts(
    path: LeafPath,
    spec: LeafSpec,
    others: Sequence[Member],
    *,
    integers: bool,
    how: str = "averaged",
) -> tuple[Recipe, ...]:
    """The like of a leaf in other members.

    Raises:
        PlanError: there is none, or it does not fit; of all members at once.
    """
    gathering = Gathering()
    found: list[Recipe] = []
    for member in others:
        with gathering.catching(path=str(path)):
            other = _theirs(path, member)
            theirs: Recipe = Stored(LeafRef(member.name, other), member.tree[other])
            if integers and is_integers(theirs.spec):
                theirs = as_floats(theirs, other)
            check_like(path, spec, member.text, theirs.spec, how)
            found.append(theirs)
    gathering.raise_if_any()
    return tuple(found)
