"""What the user says of the optimizer: ``optimizer_kind:``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from surgery_cli.draft.placeholders import FACTORY, slots_line
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.groups import LIKE_INIT, Behind, Signal
from surgery_cli.optimizer.knowledge.factories import (
    FACTORIES,
    PER_LEAF,
    REFUSED,
    STATELESS,
    WITHOUT_SLOTS,
    WRAPPERS,
)
from surgery_cli.optimizer.knowledge.kinds import Kind
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import shortened


def by_node(kind: str | Mapping[str, str] | None) -> dict[str, str]:
    """What the user says of each node, the deepest first; '' is the whole tree."""
    said = {"": kind} if isinstance(kind, str) else dict(kind or {})
    named = {node.strip("/"): text for node, text in said.items()}
    return dict(sorted(named.items(), key=lambda entry: -len(entry[0])))


def is_call(text: str) -> bool:
    """True for a factory with its settings, `adamw(1e-3)`, which only optax can read: it is tried out."""
    return "(" in text


class NamedKinds:
    """The factories that the user named, for the whole tree or by node. Of calls of them nothing is known here.

    Raises:
        PlanError: a name is no factory of optax that keeps slots.
    """

    def __init__(self, kind: str | Mapping[str, str] | None) -> None:
        # the deepest node that stands above a state has the say
        self._by_node = by_node(kind)
        self._used = {node for node, text in self._by_node.items() if is_call(text)}
        for name in self._by_node.values():
            if not is_call(name):
                _check(name)

    def narrow(
        self, path: LeafPath, kinds: tuple[Kind, ...], behind: Behind | None = None
    ) -> tuple[tuple[Kind, ...], Signal | None]:
        """The kinds that the state at ``path`` can be, and the signal that reaches it, if the user said so.

        Raises:
            PlanError: a factory begins with this state, and ``behind`` stands before it.
        """
        said: tuple[tuple[Kind, ...], Signal | None] | None = None
        for node, name in self._by_node.items():
            if node and not (str(path) + "/").startswith(node + "/"):
                continue
            if is_call(name):
                said = said or (kinds, None)
                continue
            signals = FACTORIES[name]
            left = tuple(kind for kind in kinds if kind.name in signals)
            if left:
                follows = any(field.of_signal for field in left[0].fields.values())
                if said is None and behind and follows and signals[left[0].name] == -1:
                    _refuse_behind(name, path, left[0], behind)
                self._used.add(node)  # a name that a deeper one overrules fits all the same
                kind = left[0].name
                by_leaf, provided = PER_LEAF.get(name, ("", None))
                is_per_leaf = by_leaf == kind
                signal = Signal(
                    signals[kind],
                    is_per_leaf=is_per_leaf,
                    provided=provided if is_per_leaf else None,
                    factory=name,
                    said="" if node else name,
                )
                said = said or (left[:1], signal)
        return said or (kinds, None)

    def raise_if_unused(self, family: Mapping[LeafPath, str]) -> None:
        """Refuse names that fit no state of the tree.

        Raises:
            PlanError: an optimizer was named whose state is not there.
        """
        for node, name in self._by_node.items():
            if node not in self._used:
                found = sorted(set(family.values())) or ["no optimizer state"]
                raise PlanError(
                    worded(
                        "{optimizer_kind: {}} fits no state{}",
                        name,
                        f" below {node!r}" if node else "",
                    ),
                    why=f"found: {', '.join(found)}",
                    fix=worded(
                        "name the optax factory that made the state, e.g. {optimizer_kind: adamw}"
                    ),
                    field="optimizer_kind",
                )


def _check(name: str) -> None:
    """Raise PlanError unless ``name`` is a factory with slots."""
    if name in FACTORIES:
        return
    if name in REFUSED:
        why = REFUSED[name]
    elif name in STATELESS or name in WITHOUT_SLOTS:
        why = "it keeps no slots"
    elif name in WRAPPERS:
        why = "it wraps other optimizers, whose states are found by themselves"
    else:
        why = "it is no optimizer of optax or optax.contrib"
    is_known = name in {*REFUSED, *STATELESS, *WITHOUT_SLOTS, *WRAPPERS}  # no slip of the pen
    close = "" if is_known else _nearest(name, FACTORIES)
    raise PlanError(
        worded("{optimizer_kind: {}} does not say what the slots are", shortened(name)),
        why=why,
        fix=f"did you mean `{close}`?"
        if close
        else "name the factory that keeps the slots, e.g. `adamw`; docs/optimizers.md lists them",
        field="optimizer_kind",
    )


def _refuse_behind(name: str, path: LeafPath, kind: Kind, behind: Behind) -> None:
    """Raise PlanError: the factory would feed gradients to a state that gets normalised updates."""
    field = next(iter(kind.fields), "")
    raise PlanError(
        worded("{optimizer_kind: {}} does not fit '{}'", name, path),
        why=f"'{behind.path}' stands before it and normalises; `{name}` says that gradients reach it",
        fix=worded(
            "name the factory of the other state alone, by node ({optimizer_kind: {{{}: {}}}}), and add"
            " {} with its power (0; 1 behind a trust ratio); or {}",
            behind.path,
            FACTORY,
            slots_line(f"{path}/{field}", power="K"),
            LIKE_INIT,
        ),
        field="optimizer_kind",
    )


def _nearest(name: str, names: Iterable[str]) -> str:
    return (nearest(name, names, 1) or [""])[0]
