"""What a run reads first, begun while its destination is seen to."""

from __future__ import annotations

from surgery_cli.draft.expression import Stored, stored_in
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.bands import bands_of
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.grid import block_shape
from surgery_cli.store.orbax.ocdbt import SMALL_BYTES
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.store.write.writing_order import together
from surgery_cli.surgery.expected_reads import array_of, expect_reads, recipes_read
from surgery_cli.surgery.run import Run


def begin_to_read(run: Run) -> None:
    """Tell the stores what will be read of them; where reads are requests, ask for what is read first.

    That is an array which the first leaf reads whole, and once, and nothing else does. Who goes on from an earlier run
    may need less.
    """
    expected = expect_reads(run.prepared)
    computed = next((item.computed for item in run.prepared.plans.values() if item.computed), ())
    is_alone = run.head is None and run.company is None
    if not (expected and computed and is_alone):
        return
    first = together(computed)[0]
    stored = _read_at_once(first, run)
    there = None if stored is None else array_of(run.prepared, stored)
    if there is None or there[1].stored_bytes <= SMALL_BYTES:
        return
    others = [recipe for recipe in recipes_read(run.prepared) if recipe is not first.recipe]
    if stored not in stored_in(*others):  # which would share what is read once
        there[0].begin_reading(there[1].name)


def _read_at_once(leaf: PlannedLeaf, run: Run) -> Stored | None:
    """The one stored leaf that is read, whole and once, for the one block that is all of a leaf."""
    parts = Composition(leaf.recipe, run.memory_bytes)
    is_block = leaf.is_read_whole and block_shape(leaf.spec, write_shape(leaf)) == leaf.spec.shape
    # what is rounded as it decodes is read otherwise
    if not is_block or parts.measured or parts.rounded:
        return None
    window = _all_of(leaf.spec.shape)
    is_cut = bands_of(leaf, run.memory_bytes, run.kit.tile_elements) is not None
    if is_cut or len(parts.passes(window)) > 1:
        return None
    found = reads(leaf.recipe, window)
    is_one = len(found) == 1 and found[0][1] == _all_of(found[0][0].spec.shape)
    return found[0][0] if is_one and 2 * found[0][0].spec.bytes <= run.memory_bytes else None


def _all_of(shape: tuple[int, ...]) -> Window:
    return tuple(slice(0, n) for n in shape)
