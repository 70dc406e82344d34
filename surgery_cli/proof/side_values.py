"""Arrays and random keys that stand beside the trees of a step, read and decoded as Orbax's handlers of them do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from surgery_cli.engine.bounded_reads import block_reading
from surgery_cli.errors import CheckpointError, NotPermittedError
from surgery_cli.proof.metadata_files import handlers_of, side_items
from surgery_cli.proof.side_items import trees_in
from surgery_cli.proof.tree_files import Fault
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem


def side_value_faults(checkpoint: Checkpoint, memory_bytes: int) -> list[Fault]:
    """Items beside the trees of which an array cannot be decoded, by name, and why."""
    handlers = handlers_of(checkpoint)
    return [
        (path.name, f"'{name}': {why}" if name else why)
        for path in side_items(checkpoint)
        for name, why in value_faults(path, handlers.get(path.name, ""), memory_bytes)
    ]


def has_side_values(checkpoint: Checkpoint) -> bool:
    """True if arrays stand in items beside the trees."""
    handlers = handlers_of(checkpoint)
    return any(
        True for path in side_items(checkpoint) for _ in trees_in(path, handlers.get(path.name, ""))
    )


def value_faults(folder: Path, handler: str, memory_bytes: int) -> Iterator[Fault]:
    """Read every array below an item, by ``handler`` as in ``item_faults``: the folders of those that do not decode.

    What cannot be opened is a fault, too. Not more than ``memory_bytes`` are held at a time, but for a single chunk.

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
                        reading.read(item, path, leaf.spec, window)
        except NotPermittedError:
            raise
        except CheckpointError as error:
            problem = error.problems[0]
            yield name, problem.why or problem.what
