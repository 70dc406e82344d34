"""The sharding on record of every array of a result: as it was, as far as its shape can still be split so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.sidecars import SHARDING, sharding_key
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.tree.devices import are_in_one_grid
from surgery_cli.tree.sharding import NamedSharding, trimmed
from surgery_cli.tree.specs import LeafKind, LeafSpec


def device_arrays(leaves: Iterable[PlannedLeaf]) -> list[PlannedLeaf]:
    """Leaves that have entries in `_sharding` and `array_metadatas`: jax arrays that are stored."""
    return [
        leaf
        for leaf in leaves
        if leaf.way is not Way.NONE and leaf.spec.kind in (LeafKind.ARRAY, LeafKind.KEY)
    ]


def shardings(plan: ItemPlan) -> Iterator[tuple[str, bytes]]:
    """The file that says them, if there is any."""
    item = plan.item
    assert isinstance(item, PytreeItem)
    if item.sidecars.sharding is None and not (item.sidecars.values and device_arrays(plan.leaves)):
        return
    document: dict[str, str] = {}
    for leaf in device_arrays(plan.leaves):
        text = sharding_of(plan, leaf)
        if text is not None:
            document[sharding_key(leaf.name)] = text
    if not document and not item.sidecars.sharding:
        return
    yield SHARDING, msgspec.json.encode(document)


def sharding_of(plan: ItemPlan, leaf: PlannedLeaf) -> str | None:
    """The leaf's sharding: its own, or its origin's; where its shape cannot be split so, a replicated one.

    What comes new from another checkpoint, or had none, is on the devices of most others: JAX computes nothing with
    arrays on several.
    """
    item, home, own = plan.item, leaf.output.home, leaf.spec.sharding
    assert isinstance(item, PytreeItem)
    if leaf.output.is_resharded and own is not None:
        return own
    there = item.sidecars.sharding_of(leaf.name)
    if home is not None and home.source and own is not None and not are_in_one_grid(own, there):
        usual = usual_of(plan)
        own = own if usual is None else _over_mesh_of(usual, own)
    is_there = leaf.origin is item and leaf.origin_path == leaf.path
    texts = [text for text in (own, there if is_there else None) if text is not None]
    fitting = next((text for text in texts if _fits(text, leaf.spec)), None)
    if fitting is not None:
        return fitting
    model = texts[0] if texts else usual_of(plan)
    return None if model is None else _replicated(model)


def usual_of(plan: ItemPlan) -> str | None:
    """What most arrays are on that an item keeps; of a new one, or where none says it, most of the step."""
    return usual_left(plan) or plan.step.usual_sharding


def usual_left(plan: ItemPlan) -> str | None:
    """What most arrays are on that an item keeps; None where it keeps none, or is new."""
    left = (leaf.spec for leaf in plan.leaves if leaf.origin is plan.item)
    return None if plan.is_new else plan.step.usual_left(plan.item, left)


def keeps_sharding(plan: ItemPlan, leaf: PlannedLeaf) -> bool:
    """True if what is on record of the leaf's sharding, where that is anything, stays true."""
    assert isinstance(plan.item, PytreeItem)
    old = plan.item.sidecars.sharding_of(leaf.name)
    new = None if old is None else sharding_of(plan, leaf)
    if old == new:
        return True
    known = NamedSharding.of_text(old)
    return known is not None and known == NamedSharding.of_text(new)


@lru_cache(maxsize=512)
def _over_mesh_of(usual: str, own: str) -> str:
    """A sharding of elsewhere as it can be here: its own in the same grid, else over axes of the same names."""
    here, elsewhere = map(NamedSharding.of_text, (usual, own))
    if here is None:
        return usual
    if elsewhere is None:
        return _replicated(usual)
    if are_in_one_grid(usual, own):
        return own
    names = {*here.mesh.names}
    partition = (tuple(filter(names.__contains__, axes)) for axes in elsewhere.partition)
    return NamedSharding(here.mesh, trimmed(partition)).text


def _fits(text: str, spec: LeafSpec) -> bool:
    """True if a stored NamedSharding can hold an array of this shape; other kinds always can.

    Raises:
        CheckpointError: the stored text has another form.
    """
    sharding = NamedSharding.of_text(text)
    if sharding is not None:
        return sharding.divides(spec.shape)
    fields = _sharding_fields(text)
    if fields.get("sharding_type") != "NamedSharding":
        return True
    try:
        return _divides(fields, spec)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise _unknown_sharding(text, f"{type(error).__name__}: {error}") from None


def _divides(fields: dict[str, Any], spec: LeafSpec) -> bool:
    sizes = dict(zip(fields["axis_names"], fields["shape"], strict=False))
    partitions = fields["partition_spec"]
    if len(partitions) > len(spec.shape):
        return False
    for axes, length in zip(partitions, spec.shape, strict=False):
        count = 1
        for axis in axes if isinstance(axes, list) else [axes]:
            count *= sizes.get(axis, 1) if axis is not None else 1
        if length % count:
            return False
    return True


def _sharding_fields(sharding: str) -> dict[str, Any]:
    try:
        fields = decode_json(sharding)
    except (msgspec.DecodeError, TypeError) as error:
        raise _unknown_sharding(sharding, str(error)) from None
    if not isinstance(fields, dict):
        raise _unknown_sharding(sharding, "not a JSON object")
    return fields


def _unknown_sharding(sharding: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"an entry of `{SHARDING}` cannot be understood: {str(sharding)[:80]!r}",
        why=why,
        fix="it is damaged; copy the checkpoint again from where it was whole",
    )


@lru_cache(maxsize=512)
def _replicated(sharding: str) -> str:
    fields = _sharding_fields(sharding)
    if fields.get("sharding_type") == "NamedSharding":
        fields["partition_spec"] = []
    return json.dumps(fields)
