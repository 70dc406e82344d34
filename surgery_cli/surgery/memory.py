"""Whether a plan can be carried out in the memory that it may use, told from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.compute.host import HostKit
from surgery_cli.engine.execution import bytes_in_flight
from surgery_cli.errors import CheckpointError
from surgery_cli.operations.base import Cut
from surgery_cli.store.claims import available_bytes
from surgery_cli.store.item_plan import ItemPlan, PlannedLeaf, Way


def check_memory(plans: Mapping[str, ItemPlan], memory_bytes: int, device: str) -> None:
    """Refuse what this machine has no memory for, before any of it is asked for.

    Raises:
        CheckpointError: a leaf, or a stored chunk of one, is declared larger than the memory that is free.
    """
    needed, leaf = _most_at_once(plans, device)
    if leaf is None or needed <= memory_bytes:
        return
    available = available_bytes()
    if needed > available:
        raise CheckpointError(
            f"'{leaf.draft_path}' does not fit into memory",
            why=f"{leaf.spec.type_text} needs {needed:,} bytes at once, {available:,} are free:"
            f" {_why_at_once(leaf)}",
            fix="run where there is more memory; if that size is not meant, the metadata is damaged",
        )


def memory_notes(plans: Mapping[str, ItemPlan], memory_bytes: int, device: str) -> list[str]:
    """Where the budget cannot be kept: which leaf needs how much, and why."""
    needed, leaf = _most_at_once(plans, device)
    if leaf is None or needed <= memory_bytes:
        return []
    sentence = f"'{leaf.draft_path}' needs {needed:,} bytes at once, more than `--memory` allows"
    return [f"{sentence}: {_why_at_once(leaf)}"]


def _most_at_once(plans: Mapping[str, ItemPlan], device: str) -> tuple[int, PlannedLeaf | None]:
    """The most bytes that a single leaf needs at once, and the leaf."""
    tile = HostKit.tile_elements if device == "host" else None
    most: tuple[int, PlannedLeaf | None] = (0, None)
    for plan in plans.values():
        for leaf in plan.of(Way.ENCODE):
            needed = bytes_in_flight(leaf, tile)
            if needed > most[0]:
                most = needed, leaf
    return most


def _why_at_once(leaf: PlannedLeaf) -> str:
    whole = [step.operation.name for step in leaf.recipe.steps if step.operation.cut is Cut.WHOLE]
    return f"`{whole[0]}` looks at the whole leaf" if whole else "that is one block of it"
