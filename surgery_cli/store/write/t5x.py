"""What a T5X checkpoint must keep to be one, and the TensorStore specs in its msgpack file."""

from __future__ import annotations

from typing import Any

from surgery_cli.errors import PlanError
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.msgpack_writing import Stored
from surgery_cli.store.files.t5x import OPTIMIZER, VERSION
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.words.lists import quoted


def refuse_torn_t5x(plan: ItemPlan) -> None:
    """Refuse an edit of a T5X checkpoint after which T5X would not know it any more.

    Raises:
        PlanError: its version is gone, or arrays stand beside ``optimizer``.
    """
    if not isinstance(plan.item, PytreeItem) or not plan.item.is_t5x:
        return
    paths = [leaf.path for leaf in plan.leaves]
    if VERSION not in paths:
        raise PlanError(
            "the result would be no T5X checkpoint: `version` is gone",
            why="T5X reads nothing of a tree that does not say its version",
            fix="name `version` in `keep`, or leave it out of `delete` and `rename`; `export` writes params alone",
        )
    others = [leaf.path for leaf in plan.leaves if leaf.name and leaf.path[:1] != (OPTIMIZER,)]
    if strangers := [str(path) for path in others if path != VERSION]:
        raise PlanError(
            f"the result would be no T5X checkpoint: {quoted(strangers, 3)}",
            why=f"T5X reads what stands below `{OPTIMIZER}`: `target`, `state` and `flax_mutables`",
            fix=f"move it below `{OPTIMIZER}`: `rename`",
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
    like = next(iter(source.array_specs.values()))
    return like.of_array(leaf.name, document, leaf.spec.dtype)
