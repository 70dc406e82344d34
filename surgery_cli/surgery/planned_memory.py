"""The memory that a plan takes, told from metadata alone: what each leaf needs at once, and chunks decoded again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.check import Check, CheckedLeaf
from surgery_cli.draft.expression import Made, Recipe, parts, stored_in
from surgery_cli.engine.bands import bands_of, least_bytes
from surgery_cli.engine.bounded_reads import chunk_bytes
from surgery_cli.engine.decoding import MOST_DECODED, decoded_too_often, needed_bytes
from surgery_cli.engine.judged_reads import enough_bytes, held_at_once
from surgery_cli.engine.sights import Sight, Sights, parts_within
from surgery_cli.store.filesystem.memory_limits import room
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.raw_copies import copying_bytes
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.surgery.memory import (
    MOST_NAMED,
    Need,
    Stored,
    bytes_to_use,
    decoded_again,
    memory_option,
    why_chunks,
)
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage


def planned_needs(
    plans: Mapping[str, ItemPlan],
    compact: Mapping[str, bool],
    checks: Sequence[Check],
    device: str,
    memory_bytes: int,
) -> list[Need]:
    """What leaves take that take more at once than may be used, or can be had; the largest first.

    ``compact`` says which items are written anew; ``checks`` are judged by values.
    """
    tile = HostKit.tile_elements if device == "host" else None
    bound = min(memory_bytes, room().bytes)
    needs = list(_judging(checks, tile, bytes_to_use(memory_bytes)))
    for name, plan in plans.items():
        taken = [(least_bytes(leaf, bound, tile), leaf) for leaf in plan.computed]
        taken += [
            (copying_bytes(leaf), leaf) for leaf in copied_leaves(plan, compact=compact[name])
        ]
        needs += [
            Need(count, str(leaf.draft_path), leaf.spec.type_text, partial(_why_written, leaf))
            for count, leaf in taken
            if count > bound
        ]
    return sorted(needs, key=lambda need: -need.bytes)


def decoding_notes(plans: Mapping[str, ItemPlan], memory_bytes: int) -> list[Remark]:
    """A note where stored chunks are decoded again and again, as their elements go to places far apart."""
    found = {
        leaf.draft_path: (times, needed_bytes(leaf))
        for plan in plans.values()
        for leaf in plan.computed
        if (times := _times_decoded(leaf, memory_bytes)) and needed_bytes(leaf) > memory_bytes
    }
    if not found:
        return []
    paths = quoted(list(map(str, found)), MOST_NAMED)
    times, needed = map(max, zip(*found.values(), strict=True))
    return [
        Remark(
            DocsPage.MEMORY,
            f"the stored chunks of {paths} are decoded up to {times:,} times, as their elements go to places far"
            f" apart: with {memory_option(needed)} they are read once",
        )
    ]


def _times_decoded(leaf: PlannedLeaf, memory_bytes: int) -> int:
    """How often a stored chunk of a leaf is decoded, if that is often; else 0."""
    bands = bands_of(leaf, memory_bytes, HostKit.tile_elements)
    if bands is None:
        return decoded_too_often(leaf)
    return bands.times if bands.times > MOST_DECODED else 0


def _judging(checks: Sequence[Check], tile: int | None, bound: int) -> Iterator[Need]:
    """What takes more than a bound to see whether something holds of it, and what it is compared with."""
    sights = Sights(checks, bound)
    seen: dict[Sight, tuple[CheckedLeaf, dict[int, Recipe]]] = {}
    for leaf in (leaf for check in checks for leaf in check.on):
        _, recipes = seen.setdefault(sights.of(leaf), (leaf, {}))
        every = (recipe for recipe in (leaf.recipe, leaf.other) if recipe is not None)
        recipes.update((id(recipe), recipe) for recipe in every)
    for sight, (leaf, recipes) in seen.items():
        count = sum(held_at_once(one, sight.block, bound, tile) for one in recipes.values())
        if sight.parts is not None:
            count = sight.parts.held_bytes
        if count > bound:
            why = partial(_why_made, list(recipes.values()))
            yield Need(count, str(leaf.path), leaf.recipe.spec.type_text, why)


def judged_again_notes(checks: Sequence[Check], memory_bytes: int) -> list[Remark]:
    """A note where chunks are decoded again and again to be held against others of another shape."""
    sights = Sights(checks, memory_bytes)
    found: dict[Sight, CheckedLeaf] = {}
    for leaf in (leaf for check in checks for leaf in check.on):
        sight = sights.of(leaf)
        if sight.parts is not None and sight.parts.times > MOST_DECODED:
            found.setdefault(sight, leaf)
    if not found:
        return []
    times = max(sight.parts.times for sight in found if sight.parts is not None)
    leaves = found.values()
    return [
        decoded_again(
            dict.fromkeys(str(leaf.path) for leaf in leaves), times, max(map(_enough, leaves))
        )
    ]


def _enough(leaf: CheckedLeaf) -> int:
    every = (recipe for recipe in (leaf.recipe, leaf.other) if recipe is not None)
    stored = [part.spec for recipe in every for part in (recipe, *stored_in(recipe))]
    return enough_bytes(stored, partial(parts_within, leaf))


def _why_written(leaf: PlannedLeaf) -> str:
    """Why a leaf takes what it takes, in a sentence."""
    if leaf.way is not Way.ENCODE:
        return "it is copied as it is stored, one chunk at a time"
    return _why_made([leaf.recipe], [(leaf.spec, write_shape(leaf))])


def _why_made(recipes: Sequence[Recipe], written: Iterable[Stored] = ()) -> str:
    for part in (part for recipe in recipes for part in parts(recipe)):
        if isinstance(part, Made) and part.kernel.is_whole:
            return f"`{part.kernel.name}` needs the whole leaf at once"
    read = [recipe.spec for recipe in recipes]
    read += [part.spec for recipe in recipes for part in stored_in(recipe)]
    stored = [(spec, spec.chunk_shape) for spec in read]
    by_what = {"decoded": stored, "written": list(written)}
    largest = {
        done: max((chunk_bytes(spec, shape) for spec, shape in some), default=0)
        for done, some in by_what.items()
    }
    done = [one for one, size in largest.items() if size == max(largest.values())]
    return why_chunks([*stored, *by_what["written"]], " and ".join(done))
