"""Edits of places that name a part of a state: params and their slots must keep one structure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.follow.moved_slots import moved_slot
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded


def refuse_torn_by_deletion(
    draft: Draft, named: Collection[LeafPath], gone: Collection[LeafPath]
) -> None:
    """Raise if slots are deleted whose params stay, while others of the same field stay as well.

    ``named`` are the leaves that the edit itself names, ``gone`` those and their twins.

    Raises:
        PlanError: the field would lack what the params have.
    """
    staying = {slot.node for slot in _own(draft) if slot.path not in gone}
    for slot in _own(draft):
        if slot.path in named and slot.param not in gone and slot.node in staying:
            raise _torn(
                slot, f"'{slot.path}' cannot go while its param '{slot.param}' stays", "delete"
            )


def refuse_torn_by_moves(
    draft: Draft, named: Mapping[LeafPath, LeafPath], moves: Mapping[LeafPath, LeafPath]
) -> None:
    """Raise if slots move to where no param stands, while others of the same field stay or go elsewhere.

    ``named`` are the moves that the edit itself names, ``moves`` those and the twins'.

    Raises:
        PlanError: the field would not mirror the params any more.
    """
    own = [slot for slot in _own(draft) if slot.path in named]
    if not own:
        return
    after = {slot.path: moved_slot(slot, moves) for slot in _own(draft)}
    nodes: dict[LeafPath, set[LeafPath]] = {}
    for slot in _own(draft):
        nodes.setdefault(slot.node, set()).add(after[slot.path].node)
    for slot in own:
        new = after[slot.path]
        if new.place_for(new.param) != new.path or len(nodes[slot.node]) > 1:
            what = f"'{slot.path}' cannot become '{new.path}': its param is '{new.param}'"
            raise _torn(slot, what, "rename")


def refuse_torn_by_copies(
    draft: Draft, named: Mapping[LeafPath, LeafPath], copies: Mapping[LeafPath, LeafPath]
) -> None:
    """Raise if slots are copied to where the field has no place for them. Arguments as for moves.

    Raises:
        PlanError: the field would hold what the params lack.
    """
    for slot in _own(draft):
        goal = named.get(slot.path)
        if goal is None or not goal.is_below(slot.node):
            continue
        param = copies.get(slot.param)
        if param is None or slot.place_for(param) != goal:
            what = f"'{goal}' would be new in '{slot.node}', and no param stands there"
            raise _torn(slot, what, "copy")


def _own(draft: Draft) -> list[Slot]:
    """The slots with values that stand in the optimizer state."""
    return [slot for slot in draft.slots.values() if slot.in_optimizer and slot.relation != "hole"]


def _torn(slot: Slot, what: str, name: str) -> PlanError:
    return PlanError(
        what,
        why=f"'{slot.node}' mirrors '{slot.root}' leaf by leaf, and the optimizer needs both alike",
        fix=f"{name} '{slot.param}', and its twins follow; or the whole '{slot.node}'; or "
        + worded("say {twins: named}"),
        path=str(slot.path),
        field="at",
    )


def double_named(draft: Draft, selected: Iterable[LeafPath]) -> list[Slot]:
    """The slots among ``selected`` whose param is among them as well."""
    named = set(selected)
    slots = (draft.slots[path] for path in selected if path in draft.slots)
    return [s for s in slots if s.in_optimizer and s.relation != "hole" and s.param in named]
