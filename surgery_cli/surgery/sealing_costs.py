"""What `--seal` reads of a result in the end: every file, and of the leaves those that were not read back."""

from __future__ import annotations

from surgery_cli.settings.run import Options
from surgery_cli.store.orbax.ocdbt import SMALL_BYTES
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.write.strategy import is_per_leaf
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.request_tally import PIECE_BYTES, Tally
from surgery_cli.surgery.value_requests import compression


def bytes_to_seal(prepared: Prepared, options: Options, taken_bytes: int) -> int:
    """Bytes of values and of files, estimated; ``taken_bytes`` are stored in the result as they are in what is read."""
    if not options.seal:
        return 0
    values = files = 0
    for plan in prepared.plans.values():
        values += sum(leaf.spec.bytes for leaf in _not_read_back(plan))
        files += round(compression(plan) * sum(leaf.written_bytes for leaf in plan.computed))
        files += sum(leaf.spec.bytes for leaf in plan.packed)
    return values + files + taken_bytes


def add_sealing(tally: Tally, prepared: Prepared) -> None:
    """The requests for that, once all that is written was counted."""
    left = tally.built - tally.known
    plans = prepared.plans.values()
    # the documents of arrays with folders of their own are small, and were read since, to open the result
    known = sum(len(plan.leaves) for plan in plans if is_per_leaf(plan.item))
    tally.read_back(left.requests - known + left.bytes // PIECE_BYTES, left.bytes)
    for plan in plans:
        arrays = [one.array for leaf in _not_read_back(plan) for one in leaf.taken]
        is_alone = is_per_leaf(plan.item)
        one_by_one = [array for array in arrays if is_alone or array.stored_bytes > SMALL_BYTES]
        count = sum(array.stored_bytes for array in one_by_one)
        tally.read_back(sum(len(array.keys) for array in one_by_one), count)
        together = sum(array.stored_bytes for array in arrays) - count
        tally.read_back(-(-together // PIECE_BYTES), together)


def _not_read_back(plan: ItemPlan) -> list[PlannedLeaf]:
    done = {leaf.draft_path for leaf in (*plan.computed, *plan.packed)}
    return [leaf for leaf in plan.leaves if leaf.draft_path not in done]
