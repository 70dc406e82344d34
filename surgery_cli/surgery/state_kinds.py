"""Of which kind the optimizer's states are, where metadata leave it open: by the record, else by values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.grid import block_shape, windows
from surgery_cli.engine.reading import read_values
from surgery_cli.optimizer.detect.evidence import ADAMAX_BOUND, MOST_BYTES, Evidence
from surgery_cli.optimizer.detect.settled import Settled, judged, recalled, to_record
from surgery_cli.optimizer.detect.starts import as_gathered
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.proof.file_marks import is_its_file
from surgery_cli.proof.on_record import read_record
from surgery_cli.proof.record_places import record_key
from surgery_cli.proof.records import carried_keys, checked
from surgery_cli.proof.statistics import moment_statistics
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath

Pairs = Sequence[tuple[LeafPath, LeafPath]]


def with_record(checkpoint: Checkpoint, found: OptimizerSurvey) -> OptimizerSurvey:
    """The survey with what the checkpoint's own record tells of slots of which the metadata do not tell all."""
    if all(
        slot.in_optimizer
        and slot.is_settled
        and (slot.fresh is not None or slot.takes_param or slot.relation == "hole")
        for slot in found.slots.values()
    ):
        return found
    record = read_record(checkpoint, of_any=True)
    if record is None or not record.slots or is_its_file(record, checkpoint) is False:
        return found
    return recalled(found, record.slots, lambda node: record_key(checkpoint, node))


def with_values(checkpoint: Checkpoint, found: OptimizerSurvey) -> tuple[OptimizerSurvey, int]:
    """The survey after a look at the values of states whose kind they may rule out, and the bytes read.

    A record that says of a state that values left it open is believed: edits may have changed them since.
    """
    pending = {
        owner: pairs
        for owner, pairs in found.telling_pairs.items()
        if all(found.slots[mu].known_by != "undecided" for mu, _ in pairs)
    }
    if not pending:
        return found, 0
    seen, count = _evidence(checkpoint, pending)
    like_adam = [owner for owner, evidence in seen.items() if evidence.is_like_adam]
    return judged(found, pending, like_adam), count


def _evidence(
    checkpoint: Checkpoint, states: Mapping[LeafPath, Pairs]
) -> tuple[dict[LeafPath, Evidence], int]:
    """What the smallest leaves of each state show, and how many bytes of them were read."""
    tree = checkpoint.tree
    found, total = {}, 0
    for owner, pairs in states.items():
        evidence = found[owner] = Evidence()
        left = MOST_BYTES // len(states)
        for mu, nu in sorted(pairs, key=lambda pair: tree[pair[0]].size):
            count = _look(checkpoint, mu, nu, left, evidence)
            left, total = left - count, total + count
            if left <= 0 or evidence.is_enough:
                break
    return found, total


def _look(checkpoint: Checkpoint, mu: LeafPath, nu: LeafPath, most: int, evidence: Evidence) -> int:
    """Look at a pair of slots block by block, until ``most`` bytes were read; how many there were."""
    spec, source = checkpoint.tree[mu], checked(checkpoint)
    count = elements = 0
    squares, is_beyond = 0.0, False
    for block in windows(spec.shape, block_shape(spec, spec.write_shape)):
        first, second = (read_values(source, path, block) for path in (mu, nu))
        count += first.nbytes + second.nbytes
        seen = moment_statistics(first, second, ADAMAX_BOUND)
        is_beyond |= seen.is_beyond
        squares, elements = squares + seen.squares, elements + seen.elements
        if count >= most:
            break
    evidence.see(is_beyond, sqrt(squares / elements) if elements else 0.0, elements)
    return count


def settled_after(source: Checkpoint, written: Checkpoint, draft: Draft) -> list[Settled]:
    """What the record of the result keeps of its slots; of items that were not chosen, what the old record says."""
    old = read_record(source, of_all=True)
    kept = list(old.slots) if old is not None else []
    if not draft.outcomes:  # a plain copy, for which nobody looked
        return kept
    carried = carried_keys(source)
    slots = to_record(
        (
            as_gathered(slot, draft.leaves[path])
            for path, slot in draft.slots.items()
            if path in draft.leaves
        ),
        lambda node: record_key(written, node),
    )
    return slots + [one for one in kept if one.node.startswith(carried)]
