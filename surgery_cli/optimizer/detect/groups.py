"""Groups of slots: the leaves of one field of one optimizer state, and what is known of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from surgery_cli.draft.assumptions import (
    NO_EPSILON,
    PLAIN_GRADIENTS,
    Assumption,
    together,
)
from surgery_cli.draft.placeholders import FACTORY, KIND, slots_line
from surgery_cli.draft.slots import SAID, Slot
from surgery_cli.optimizer.detect.factoring import factoring_of
from surgery_cli.optimizer.detect.mirrors import Mirror, Pair
from surgery_cli.optimizer.detect.shapes import relation_in_factored
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.detect.starts import begin, left_of
from surgery_cli.optimizer.knowledge.factories import FACTORIES, factories_of, factories_of_both
from surgery_cli.optimizer.knowledge.kinds import Field
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.advice import Aside, FieldName, InPlan, Text, worded
from surgery_cli.words.lists import listed

LIKE_INIT: Final = (
    "give `--like-init FILE.py:FUNCTION`, your script's function that makes the state"
)
"""The way to settle a power that holds for every optimizer: its own code is tried out."""


class Behind(NamedTuple):
    """A state that changes what reaches those after it in the chain, and the kinds that it may be."""

    path: LeafPath
    kinds: tuple[str, ...]


class Signal(msgspec.Struct, eq=False):
    """The exponent with which the update follows a factor of the params at some place of a chain.

    Shared by all states that it reaches, so that it can still turn out to be unknown (None). ``behind`` is the state
    that surely stands before in the same chain and normalises, however far before. ``is_per_leaf``: the exponent holds
    for factors of whole leaves only. ``provided`` is what else must hold for it. ``factory`` is the one whose name
    implies it, ``said`` the same if it was given for the whole tree.
    """

    value: int | None
    behind: Behind | None = None
    is_per_leaf: bool = False
    provided: Assumption | None = None
    factory: str = ""
    said: str = ""


class Unsure(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of which it is not known how they follow a factor, and what would settle it.

    ``fixes`` are ways to say it, any of them enough. ``candidates`` are the kinds of state that ``owner`` may be;
    ``by_values``: the values of its slots may rule out some of them (see ``evidence``), and ``adam_power`` is the
    power if Adam is left.
    """

    path: LeafPath
    owner: LeafPath
    slots: tuple[LeafPath, ...]
    why: str
    fixes: tuple[str, ...]
    candidates: tuple[str, ...] = ()
    by_values: bool = False
    adam_power: int | None = None


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
    forced: Signal | None = None
    hint: SlotHint | None = None
    in_optimizer: bool = True

    def slots(
        self, tree: TreeSpec, clocks: tuple[LeafPath, ...]
    ) -> tuple[list[Slot], Unsure | None]:
        """The slots, which ``clocks`` drive, and why it is not known how they follow, if it is not."""
        fields = self.fields
        signal = self.signal if self.forced is None else self.forced
        powers = {field.power(signal.value) if field else None for field in fields.values()}
        power = powers.pop() if len(powers) == 1 else None
        field = next(iter(fields.values()))
        begun = begin(list(fields.values()), self.hint, is_named=self.forced is not None)
        is_settled = power is not None and begun.left is not None
        unsure = None if is_settled else self._unsure(fields, power)
        said = self.hint or SlotHint()
        is_begun = is_settled and not said.fresh is said.start is None
        is_said = self.forced is not None or said.says_what or is_begun
        common = Slot(
            path=self.mirror.node,
            param=self.mirror.root,
            name=self.name,
            power=power,
            is_even=field.is_even if field else False,
            is_sign_open=self.family == SAID and said.leaves_sign_open,
            is_params_like=field.is_params_like if field else False,
            in_optimizer=self.in_optimizer,
            is_second_moment=field.is_second_moment if field else False,
            fresh=begun.fresh,
            start=begun.left,
            keeps_start=begun.stays,
            is_per_leaf=_is_per_leaf(field, signal),
            takes_param=field.is_params_like if field else False,
            clocks=clocks,
            optimizer=self.family,
            node=self.mirror.node,
            root=self.mirror.root,
            factoring=factoring_of(field, self.mirror.pairs, tree),
            is_told=said.says_what,
            unsure_because=unsure.why if unsure else "",
            settled_by=unsure.fixes if unsure else (),
            known_by="word" if is_said else "disk",
            kinds=tuple(fields),
            factory=self.forced.factory if self.forced is not None else "",
            said=self.forced.said if self.forced is not None else "",
            assumed=together((begun.assumed, *self._provisos(field))),
            fresh_assumed=begun.fresh_assumed,
        )
        found = [self._slot(common, pair, tree) for pair in self.mirror.pairs]
        hole = common.settled(
            relation="hole", power=0, fresh=None, start=0.0, clocks=(), is_told=False,
            is_params_like=False, takes_param=False, is_second_moment=False, assumed=None,
            fresh_assumed=None,
        )  # fmt: skip
        found += [
            msgspec.structs.replace(hole, path=leaf, param=param)
            for param, leaf in self.mirror.holes
        ]
        return found, unsure if self.mirror.pairs else None

    def _provisos(self, field: Field | None) -> list[Assumption | None]:
        """What the power rests on beside the kind of the state."""
        if field is None or (self.hint is not None and self.hint.field is not None):
            return []
        found = [field.provided]
        if field.of_signal:
            signal = self.signal if self.forced is None else self.forced
            is_behind = signal.value in (0, 1) and (self.forced or signal.behind)
            found.append(NO_EPSILON if is_behind else None)
            is_forced = self.forced is not None and self.signal.value is None
            found += [signal.provided, PLAIN_GRADIENTS if is_forced else None]
        return found

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

    def _unsure(self, fields: Mapping[str, Field | None], power: int | None) -> Unsure:
        node = self.mirror.node
        if None in fields.values():
            why = "it mirrors the params, but its state is not one that optax makes"
            fixes: tuple[str, ...] = (
                worded("add {}, with K its power of a factor", InPlan(slots_line(node, power="K"))),
                LIKE_INIT,
            )
        elif power is not None:
            why, fixes = self._unsure_start(next(iter(fields.values())))
        elif self.signal.value is None and self.signal.behind is not None:
            why, fixes = self._unsure_behind(fields, self.signal.behind)
        elif self.signal.value is not None:
            names = ", ".join(sorted(fields)).replace("_", " ")
            why = f"{names} keep states of the same names and shapes"
            fixes = _naming_the_factory(fields), LIKE_INIT
        else:
            why = (
                "what stands before it in the chain (clipping? a trust ratio? a sign? noise?)"
                " left no trace on disk"
            )
            fixes = _naming_the_factory(fields), LIKE_INIT
        adam = fields.get("adam")
        return Unsure(
            path=node,
            owner=self.owner,
            slots=tuple(pair.leaf for pair in self.mirror.pairs),
            why=why,
            fixes=fixes,
            candidates=tuple(fields),
            by_values=len(fields) > 1 and adam is not None and self.signal.value is not None,
            adam_power=adam.power(self.signal.value) if adam is not None else None,
        )

    def _unsure_start(self, field: Field | None) -> tuple[str, tuple[str, ...]]:
        """Why it is not known what is left of the start of a slot whose power is known, and what settles it."""
        if field is None or field.start is None:
            return (
                "its start is not 0, and does not follow a factor of the params",
                (
                    f"add {slots_line(self.mirror.node, power='K', start='S')}, with what is left of it",
                ),
            )
        setting, line = field.start.setting, slots_line(self.mirror.node, start="S")
        left = (
            "its value" if field.start.stays else "what is left of it by now, 0 if long forgotten"
        )
        why = f"it starts at a setting (`{setting}`, optax's default {field.fresh:g}), which does not follow a factor"
        settles = left_of(field.fresh, stays=field.start.stays) is not None
        named = f"add {KIND} with the optax factory, if the script leaves that setting alone"
        return why, (
            worded("add {}, with S {}", InPlan(line), left),
            *((named,) if settles and self.forced is None else ()),
            LIKE_INIT,
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
            f"one factory made both (`{'`, `'.join(common)}`?): add {KIND} with its name"
            if common
            else ""
        )
        alone = worded(
            "it was chained: add {}, with K = 0 if nothing but scaling, clipping or decay stands between,"
            " 1 behind a trust ratio",
            InPlan(slots_line(self.mirror.node, power="K")),
        )
        return why, (*(Text("if ", text) for text in (made, alone) if text), LIKE_INIT)


def _is_per_leaf(field: Field | None, signal: Signal) -> bool:
    """True if the power of a field holds for factors of whole leaves only."""
    if field is None:
        return False
    return field.is_per_leaf or (field.of_signal != 0 and signal.is_per_leaf)


def _naming_the_factory(kinds: Iterable[str]) -> str:
    """The option that settles which factory made a state of one of these kinds, with some names that fit."""
    families = tuple(kinds)
    found = factories_of(families) or [n for n in FACTORIES if n.startswith(families)]
    examples = f", e.g. {listed(found[:3], word='or', mark='`')}" if found else ""
    return worded(
        "add {}{} with the optax factory that made it{}",
        KIND,
        Aside(FieldName("optimizer_kind", FACTORY)),
        examples,
    )
