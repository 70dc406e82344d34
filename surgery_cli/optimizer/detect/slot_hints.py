"""What the user says of trees of slots: ``slots:`` of a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from surgery_cli.draft.slots import Slot
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.knowledge.kinds import Field
from surgery_cli.tree.nearness import suggested
from surgery_cli.tree.paths import PathPattern
from surgery_cli.tree.specs import TreeSpec


class SlotHint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the user says of an unknown tree of slots: one entry of ``slots:`` in a plan.

    ``of`` is the printed path of the node of params that it mirrors, ``power`` its power of a factor of the params;
    ``fresh`` is its initial value, ``start`` what is left of that in it now, which follows no factor. ``ignore`` says
    that it follows no param at all, ``copy`` that it is a copy of the params beside the optimizer state, which goes
    where they go and keeps its values. Of a field of a known state, what is not said stays as it is known.
    """

    of: str | None = None
    power: int | None = None
    even: bool | None = None
    fresh: float | None = None
    start: float | None = None
    params_like: bool | None = None
    second_moment: bool | None = None
    copy: bool = False
    ignore: bool = False

    @property
    def says_what(self) -> bool:
        """True if it says what the slots are, beyond whose they are and where they start."""
        return self.copy or self.field is not None

    @property
    def leaves_sign_open(self) -> bool:
        """True if it says an even power, and not whether signs follow that of a factor: both are to be found."""
        return self.power is not None and self.power % 2 == 0 and self.even is None

    @property
    def field(self) -> Field | None:
        """The same as a field of a state; None if the power is not said."""
        return self.instead_of(Field(fresh=None))

    def instead_of(self, known: Field) -> Field | None:
        """A field of a known state with what is said in its place; None if the power is not said."""
        if self.power is None and not self.params_like:
            return None
        said = {
            "is_even": self.even,
            "fresh": self.fresh,
            "is_params_like": self.params_like,
            "is_second_moment": self.second_moment,
        }
        return msgspec.structs.replace(
            known,
            of_signal=0,
            fixed=1 if self.power is None else self.power,
            is_per_leaf=self.power == 1 and not self.params_like,  # behind a trust ratio
            provided=None,
            **{name: value for name, value in said.items() if value is not None},
        )


def hints_from(
    slots: Mapping[str, Mapping[str, object] | SlotHint], tree: TreeSpec
) -> dict[str, SlotHint]:
    """The user's ``slots:`` by printed path; a pattern stands for the topmost nodes that it names.

    Raises:
        PlanError: an entry names no node of the tree, or one that another names, or has a field that does not exist.
    """
    found: dict[str, SlotHint] = {}
    places = {*tree.nodes, *tree} if slots else set()
    known = {place.text: str(place) for place in places} | {str(p): str(p) for p in places}
    for text, hint in slots.items():
        named = _named_nodes(text, tree, known)
        if not named:
            raise PlanError(
                f"`slots:` names '{text}', which is not in the tree",
                why="its keys are paths of trees of slots, like 'opt_state/0/mu', or patterns of such paths",
                fix=suggested(text, known.values()) or "see `surgery inspect`",
                field="slots",
            )
        twice = next((node for node in named if node in found), None)
        if twice is not None:
            raise PlanError(
                f"`slots:` names '{twice}' twice",
                why=f"'{text}' names it, and so does an entry before",
                fix="keep one of them",
                field="slots",
            )
        said = hint if isinstance(hint, SlotHint) else _understood(text, hint)
        _refuse_copy_and_more(text, said)
        found.update(dict.fromkeys(named, said))
    return found


_YES_OR_NO: Final = "`true` or `false`"

_MUST_BE: Final = {
    "of": "the path of a node of params",
    "power": "a whole number, as -1 and -2 are",
    "even": _YES_OR_NO,
    "fresh": "a number",
    "start": "a number",
    "params_like": _YES_OR_NO,
    "second_moment": _YES_OR_NO,
    "copy": _YES_OR_NO,
    "ignore": _YES_OR_NO,
}
"""What each field of an entry holds."""


def _understood(text: str, hint: Any) -> SlotHint:
    try:
        return msgspec.convert(hint, SlotHint)
    except msgspec.ValidationError:
        raise PlanError(
            f"`slots:` says something of '{text}' that cannot be understood",
            why=_why_not(hint),
            fix=f"its fields are {', '.join(_MUST_BE)}",
            field="slots",
        ) from None


def _why_not(hint: Any) -> str:
    if not isinstance(hint, Mapping):
        return f"it is {hint!r}, and no fields with what they say"
    for name, value in hint.items():
        if name not in _MUST_BE:
            return f"it has no field {name!r}"
        try:
            msgspec.convert({name: value}, SlotHint)
        except msgspec.ValidationError:
            return f"`{name}` is {value!r}, and must be {_MUST_BE[name]}"
    raise AssertionError(hint)


def _refuse_copy_and_more(text: str, said: SlotHint) -> None:
    """Raise PlanError if an entry says of a tree that it is a copy of the params, and something else as well."""
    if said.copy and said != SlotHint(copy=True, of=said.of):
        raise PlanError(
            f"`slots:` says of '{text}' that it is a copy of the params, and more",
            why="a copy beside the optimizer state has no power and no start of its own, and goes where the params go",
            fix="leave out `copy`, or everything but `copy` and `of`",
            field="slots",
        )


def refuse_unobeyed(
    hints: Mapping[str, SlotHint], slots: Iterable[Slot], questions: Collection[str]
) -> None:
    """See that ``slots`` are what the user says; ``questions``: the paths of which something is asked anyway.

    Raises:
        PlanError: an entry says what a node is, or that it is no twin, and its leaves were found to be something else.
    """
    said = {node for node, hint in hints.items() if hint.ignore or hint.says_what}
    said = {node for node in said if not any(_is_one_in_other(node, other) for other in questions)}
    if not said:
        return
    found = [slot for slot in slots if slot.relation != "hole"]
    told = {str(node) for node in {slot.node for slot in found if slot.is_told}}
    for node in said - told if found else ():
        around = next((str(s.node) for s in found if _is_one_in_other(node, str(s.path))), None)
        if around is not None or not hints[node].ignore:
            raise PlanError(
                f"`slots:` says something of '{node}' that cannot be followed",
                why=f"its leaves are slots of '{around}'"
                if around is not None
                else "no leaf of it is known to be a twin of a param",
                fix=f"say it of '{around}' as a whole"
                if around not in (None, node)
                else "see `surgery inspect --optimizer` for what each slot is of, and leave that entry out",
                field="slots",
            )


def _is_one_in_other(one: str, other: str) -> bool:
    return f"{other}/".startswith(f"{one}/") or f"{one}/".startswith(f"{other}/")


def _named_nodes(text: str, tree: TreeSpec, known: Mapping[str, str]) -> list[str]:
    """Printed paths of the nodes or leaves that a key of ``slots:`` names."""
    plain = text.strip("/")
    for exact in (plain, plain.removesuffix("/**"), plain.removesuffix("/*")):
        if exact in known:
            return [known[exact]]
    if not any(sign in plain for sign in "*?[{"):
        return []
    pattern = PathPattern(plain.removesuffix("/**"))
    found = pattern.named({place: place.text for place in {*tree.nodes, *tree} if place})
    return sorted(str(place) for place in found if place.parent not in found)
