"""Arrays and random keys that stand beside the trees of a step, read and decoded as Orbax's handlers of them do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from surgery_cli.draft.seen import NonFinite
from surgery_cli.engine.bounded_reads import block_reading
from surgery_cli.engine.finite import count_non_finite
from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.proof.metadata_files import handlers_of, side_items
from surgery_cli.proof.side_items import trees_in
from surgery_cli.proof.tree_files import Fault
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem


class SideValues:
    """What was found of the arrays beside the trees."""

    def __init__(self, checkpoint: Checkpoint | None, memory_bytes: int) -> None:
        """All of them are read; None: nothing is."""
        self.faults: list[Fault] = []
        """Items of which one cannot be decoded, by name, and why."""
        self.counts: dict[str, Counted] = {}
        """Their values that are not finite, by item and place in it."""
        if checkpoint is None:
            return
        handlers = handlers_of(checkpoint)
        for path in side_items(checkpoint):
            counts: dict[str, Counted] = {}
            for name, why in value_faults(path, handlers.get(path.name, ""), memory_bytes, counts):
                self.faults.append((path.name, f"'{name}': {why}" if name else why))
            self.counts |= {"/".join(filter(None, (path.name, x))): n for x, n in counts.items()}


class Counted(NamedTuple):
    """Of an array so many values, of which these are not finite."""

    size: int
    non_finite: NonFinite


def has_side_values(checkpoint: Checkpoint) -> bool:
    """True if arrays stand in items beside the trees."""
    handlers = handlers_of(checkpoint)
    return any(
        True for path in side_items(checkpoint) for _ in trees_in(path, handlers.get(path.name, ""))
    )


def value_faults(
    folder: Path, handler: str, memory_bytes: int, counts: dict[str, Counted] | None = None
) -> Iterator[Fault]:
    """Read every array below an item, by ``handler`` as in ``item_faults``: the folders of those that do not decode.

    What cannot be opened is a fault, too. Not more than ``memory_bytes`` are held at a time, but for a single chunk.
    ``counts`` gets what is not finite in those that have such values, by their place in the item.

    Raises:
        NotPermittedError: the system does not let this user read one.
    """
    for name in trees_in(folder, handler):
        try:
            item = PytreeItem(folder / name)
            for path, leaf in item.leaves.items():
                reading = block_reading(leaf.spec, memory_bytes)
                if leaf.array is None:
                    continue
                for _, parts in reading.windows(leaf.spec.shape):
                    for window in parts:
                        seen = count_non_finite(reading.read(item, path, leaf.spec, window))
                        if counts is not None and (seen.nan or seen.infinite):
                            place = "/".join(filter(None, (name, str(path))))
                            known = counts.get(place, Counted(leaf.spec.size, NonFinite(0, 0)))
                            joined = known.non_finite.joined(seen)
                            counts[place] = known._replace(non_finite=joined)
        except UnseenError:
            raise
        except CheckpointError as error:
            problem = error.problems[0]
            yield name, problem.why or problem.what
