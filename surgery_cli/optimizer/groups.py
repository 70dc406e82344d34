"""Groups of slots: the leaves of one field of one optimizer state, and what is known of all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.factories import FACTORIES, factories_of, factories_of_both
from surgery_cli.optimizer.kinds import Field
from surgery_cli.optimizer.mirrors import Mirror, Pair
from surgery_cli.optimizer.relations import relation_in_factored
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import TreeSpec

LIKE_INIT: Final = (
    "give `--like-init FILE.py:FUNCTION`, your script's function that makes the state"
)
"""The way to settle a power that holds for every optimizer: its own code is tried out."""


class Behind(NamedTuple):
    """A state that changes what reaches those after it in the chain, and the kinds that it may be."""

    path: LeafPath
    kinds: tuple[str, ...]


class Signal:
    """The exponent with which the update follows a factor of the params at some place of a chain.

    Shared by all states that it reaches, so that it can still turn out to be unknown (None). ``behind`` is the state
    that surely stands before in the same chain and normalises, however far before.
    """

    __slots__ = ("behind", "value")

    def __init__(self, value: int | None, behind: Behind | None = None) -> None:
        self.value, self.behind = value, behind


class SlotHint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the user says of an unknown tree of slots: one entry of ``slots:`` in a plan.

    ``of`` is the printed path of the node of params that it mirrors, ``power`` its power of a factor of the params;
    ``ignore`` says that it follows no param at all. Of a field of a known state, what is not said stays as it is known.
    """

    of: str | None = None
    power: int | None = None
    even: bool | None = None
    fresh: float | None = None
    params_like: bool | None = None
    second_moment: bool | None = None
    ignore: bool = False

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
    known = {str(node) for node in tree.nodes} | set(tree.texts.values()) if slots else set()
    for text, hint in slots.items():
        named = _named_nodes(text, tree, known)
        if not named:
            close = nearest(text, known, 1)
            raise PlanError(
                f"`slots:` names '{text}', which is not in the tree",
                why="its keys are paths of trees of slots, like 'opt_state/0/mu', or patterns of such paths",
                fix=f"did you mean '{close[0]}'?" if close else "see `surgery inspect`",
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
        try:
            said = hint if isinstance(hint, SlotHint) else msgspec.convert(hint, SlotHint)
            found.update(dict.fromkeys(named, said))
        except msgspec.ValidationError as error:
            raise PlanError(
                f"`slots:` says something of '{text}' that cannot be understood",
                why=str(error),
                fix=f"its fields are {', '.join(SlotHint.__struct_fields__)}",
                field="slots",
            ) from None
    return found


def _named_nodes(text: str, tree: TreeSpec, known: Collection[str]) -> list[str]:
    """Printed paths of the nodes or leaves that a key of ``slots:`` names."""
    plain = text.strip("/")
    for exact in (plain, plain.removesuffix("/**"), plain.removesuffix("/*")):
        if exact in known:
            return [exact]
    if not any(sign in plain for sign in "*?[{"):
        return []
    pattern = PathPattern(plain.removesuffix("/**"))
    found = pattern.named({place: str(place) for place in {*tree.nodes, *tree} if place})
    return sorted(str(place) for place in found if place.parent not in found)


class Unsure(msgspec.Struct, frozen=True, kw_only=True):
    """Slots whose power is not known, and what would settle it.

    ``fixes`` are ways to say it, any of them enough. ``candidates`` are the kinds
    of state that ``owner`` may be. ``pair`` are two leaves (mu, nu) whose values tell
    which of them it is (see ``adam_variant``); None where values do not help.
    """

    path: LeafPath
    owner: LeafPath
    slots: tuple[LeafPath, ...]
    why: str
    fixes: tuple[str, ...]
    candidates: tuple[str, ...] = ()
    pair: tuple[LeafPath, LeafPath] | None = None


class Group(msgspec.Struct, kw_only=True):
    """The leaves of one field of the state at ``owner``.

    ``fields`` maps each kind that the state may be to what the field means there (None: unknown); ``forced`` is the
    signal that the user's word implies, ``hint`` what ``slots:`` says of the field.
    """

    owner: LeafPath
    name: str
    family: str
    mirror: Mirror
    fields: dict[str, Field | None]
    relation: str
    signal: Signal
    forced: int | None = None
    hint: SlotHint | None = None
    in_optimizer: bool = True
    pair: tuple[LeafPath, LeafPath] | None = None

    def slots(
        self, tree: TreeSpec, measured: Mapping[LeafPath, str], clocks: tuple[LeafPath, ...]
    ) -> tuple[list[Slot], Unsure | None]:
        """The slots, which ``clocks`` drive, and why their power is not known, if it is not."""
        fields = self.fields
        if measured.get(self.owner) in fields:
            fields = {measured[self.owner]: fields[measured[self.owner]]}
        signal = self.signal.value if self.forced is None else self.forced
        powers = {field.power(signal) if field else None for field in fields.values()}
        power = powers.pop() if len(powers) == 1 else None
        field = next(iter(fields.values()))
        unsure = None if power is not None else self._unsure(fields)
        common = Slot(
            path=self.mirror.node,
            param=self.mirror.root,
            name=self.name,
            power=power,
            is_even=field.is_even if field else False,
            is_params_like=field.is_params_like if field else False,
            in_optimizer=self.in_optimizer,
            is_second_moment=field.is_second_moment if field else False,
            fresh=self._fresh(field),
            takes_param=field.is_params_like if field else False,
            clocks=clocks,
            optimizer=self.family,
            node=self.mirror.node,
            root=self.mirror.root,
            is_told=self.hint is not None and self.hint.field is not None,
            unsure_because=unsure.why if unsure else "",
            settled_by=unsure.fixes if unsure else (),
        )
        found = [self._slot(common, pair, tree) for pair in self.mirror.pairs]
        found += [
            msgspec.structs.replace(
                common, path=leaf, param=param, relation="hole", power=0, fresh=None, clocks=(),
                is_told=False, unsure_because="", settled_by=(),
                is_params_like=False, takes_param=False, is_second_moment=False,
            )
            for param, leaf in self.mirror.holes
        ]  # fmt: skip
        return found, unsure if self.mirror.pairs else None

    def _fresh(self, field: Field | None) -> float | None:
        """The initial value: as the user says, else that of the field."""
        if self.hint is not None and self.hint.fresh is not None:
            return self.hint.fresh
        return field.fresh if field else None

    def _slot(self, common: Slot, pair: Pair, tree: TreeSpec) -> Slot:
        relation = self.relation
        if relation == "factored":
            relation = relation_in_factored(tree[pair.param].shape, tree[pair.leaf].shape)
        if relation == "one" and self.is_number:
            relation = "scalar"
        return msgspec.structs.replace(
            common,
            path=pair.leaf,
            param=pair.param,
            relation=relation,
            axis=int(pair.tail) if relation == "axis" else None,
        )

    @property
    def is_number(self) -> bool:
        """True if the field holds one number for each param, in whatever shape."""
        return any(
            field is not None and "scalar" in field.relations for field in self.fields.values()
        )

    def _unsure(self, fields: Mapping[str, Field | None]) -> Unsure:
        if None in fields.values():
            why = "it mirrors the params, but its state is not one that optax makes"
            fixes: tuple[str, ...] = (
                f"add `slots: {{{self.mirror.node}: {{power: K}}}}` to the plan, with K its power of a factor",
                LIKE_INIT,
            )
        elif self.signal.value is None and self.signal.behind is not None:
            why, fixes = self._unsure_behind(fields, self.signal.behind)
        elif self.signal.value is not None:
            why = f"{', '.join(sorted(fields))} keep states of the same names and shapes"
            fixes = _naming_the_factory(fields), LIKE_INIT
        else:
            why = "what stands before it in the chain (clipping? a trust ratio? a sign?) left no trace on disk"
            fixes = _naming_the_factory(fields), LIKE_INIT
        return Unsure(
            path=self.mirror.node,
            owner=self.owner,
            slots=tuple(pair.leaf for pair in self.mirror.pairs),
            why=why,
            fixes=fixes,
            candidates=tuple(fields),
            pair=self.pair if len(fields) > 1 and self.signal.value is not None else None,
        )

    def _unsure_behind(
        self, fields: Mapping[str, Field | None], behind: Behind
    ) -> tuple[str, tuple[str, ...]]:
        """Why a slot behind a state that normalises is not sure, and what settles it: no factory made it alone."""
        why = (
            f"'{behind.path}' before it normalises the gradients, and what stands between"
            " (a trust ratio? the scale of the params?) left no trace on disk"
        )
        common = factories_of_both(behind.kinds, fields)
        made = (
            f"`{'` or `'.join(common)}` made both: add `--optimizer-kind {common[0]}`"
            if common
            else ""
        )
        alone = (
            f"nothing but scaling, clipping or decay stands between: add"
            f" `slots: {{{self.mirror.node}: {{power: 0}}}}` to the plan (power: 1 behind a trust ratio)"
        )
        return why, (*(f"if {text}" for text in (made, alone) if text), LIKE_INIT)


def _naming_the_factory(kinds: Iterable[str]) -> str:
    """The option that settles which factory made a state of one of these kinds, with the most usual name."""
    families = tuple(kinds)
    found = factories_of(families) or [n for n in FACTORIES if n.startswith(families)]
    first, *others = found or ["NAME"]
    others_text = f", e.g. {' or '.join(f'`{name}`' for name in others[:2])}" if others else ""
    return (
        f"add `--optimizer-kind {first}` (in a plan `optimizer_kind: {first}`) if that optax factory made it,"
        f" else its name{others_text}"
    )
