"""Names that optax and Flax once had for what they keep, and have no more."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from surgery_cli.matching.structures import Node

_FLAX_OPTIM: Final = "the optimizers of `flax.optim`, which optax replaced, called it so"
_PLATEAU: Final = "the first `optax.contrib.reduce_on_plateau` called it so"

FORMER_NAMES: Final = (
    (r"(?:optimizer/)?target/(?:params/)?(.+)", r"params/\1", _FLAX_OPTIM),
    (r"(.*/)best_loss", r"\1best_value", _PLATEAU),
    (r"(.*/)cooldown_counter", r"\1cooldown_count", _PLATEAU),
)
"""What a path was, how it ends today, and who called it so.

Source: flax.optim.Optimizer in Flax 0.5, which T5X keeps; ReduceLROnPlateauState in optax 0.1.8 and 0.2.
"""


def by_former_names(
    here: Sequence[Node], there: Sequence[Node]
) -> Iterator[tuple[Node, Node, str]]:
    """Leaves of the one side that are the only ones of the other under the name of today, and who named them."""
    ends: dict[int, dict[tuple[str, ...], list[Node]]] = {}
    for node in here:
        for pattern, today, why in FORMER_NAMES if node.is_leaf else ():
            found = re.fullmatch(pattern, node.path.text)
            if found is None:
                continue
            keys = tuple(found.expand(today).split("/"))
            if len(keys) not in ends:
                ends[len(keys)] = _by_end(there, len(keys))
            goals = [goal for goal in ends[len(keys)][keys] if goal.structure == node.structure]
            if len(goals) == 1:
                yield node, goals[0], why


def _by_end(nodes: Sequence[Node], count: int) -> dict[tuple[str, ...], list[Node]]:
    """The leaves by their last keys, so many of them."""
    found: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    for node in nodes:
        if node.is_leaf:
            found[tuple(map(str, node.path[-count:]))].append(node)
    return found
