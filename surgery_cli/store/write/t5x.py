"""What a T5X checkpoint must keep to be one, and the TensorStore specs in its msgpack file."""

from __future__ import annotations

from typing import Any

from surgery_cli.errors import PlanError
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.msgpack_writing import Stored
from surgery_cli.store.files.t5x import NEW_SPEC, ROOTS
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.words.lists import quoted


def refuse_strangers_in_t5x(plan: ItemPlan) -> None:
    """Refuse an edit of a T5X checkpoint after which T5X would not find its way in it.

    Raises:
        PlanError: something stands at its root that T5X does not know.
    """
    if not isinstance(plan.item, PytreeItem) or not plan.item.is_t5x:
        return
    known = {*ROOTS, *(path[0] for path in plan.item.tree)}
    if strangers := [str(leaf.path) for leaf in plan.leaves if leaf.path[0] not in known]:
        raise PlanError(
            f"the result would be no T5X checkpoint: {quoted(strangers, 3)}",
            why=f"at its root T5X knows {quoted(ROOTS, 3)}",
            fix="`rename` it to a place below `target`; or `export` the tree in another format",
        )


def array_spec(leaf: PlannedLeaf, source: MsgpackFile) -> Any:
    """The TensorStore spec of a stored array: as it stands, moved to another folder, or made for a new one."""
    own = getattr(leaf.origin, "aggregate", None)
    origin = (
        None if own is None or leaf.origin_path is None else own.array_specs.get(leaf.origin_path)
    )
    if leaf.way in (Way.KEEP, Way.MOVE, Way.GRAFT) and origin is not None:
        is_same = own is source and leaf.origin_path == leaf.path and origin.name == leaf.name
        return Stored(leaf.path) if is_same else origin.moved(leaf.name)
    document = leaf.document if leaf.document is not None else leaf.origin_array.document.fields
    like = next(iter(source.array_specs.values()), NEW_SPEC)
    return like.of_array(leaf.name, document, leaf.spec.dtype)
