"""From which size on an optimizer factors second moments: its own `init` is asked, on shapes alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from surgery_cli.draft.slots import LEAST_FACTORED, Factoring
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.script.optimizers import Optimizer, made_by
from surgery_cli.script.pytrees import plain_path
from surgery_cli.tree.paths import LeafPath

_LARGEST: Final = 1 << 31
"""No axis is longer; what is factored from there on is never factored."""


def least_factored(optimizer: Optimizer, nodes: Iterable[LeafPath]) -> dict[LeafPath, int]:
    """The shortest second largest axis of which a param is factored, by node of whole second moments.

    ``nodes`` are plain, from the state on. A node is not among them where `init` does not tell.
    """
    if optimizer.params is None:
        return {}
    found: dict[LeafPath, int] = {}
    for node in nodes:
        size = _least(optimizer, node)
        if size is not None:
            found[node] = size
    return found


def with_factoring(survey: OptimizerSurvey, least: Mapping[LeafPath, int]) -> OptimizerSurvey:
    """The survey, in which it is known which params have a factored moment; ``least`` is by plain node."""
    if not least:
        return survey
    states = {
        slot.state: least[plain_path(slot.node)]
        for slot in survey.slots.values()
        if _is_whole(slot.factoring) and plain_path(slot.node) in least
    }
    slots = dict(survey.slots)
    for path, slot in slots.items():
        if slot.factoring is not None and slot.state in states:
            size = states[slot.state]
            told = Factoring(part=slot.factoring.part, factored=size, unfactored=size - 1)
            slots[path] = msgspec.structs.replace(slot, factoring=told)
    return msgspec.structs.replace(survey, slots=slots)


def whole_moments(survey: OptimizerSurvey, below: LeafPath) -> list[LeafPath]:
    """The plain nodes of moments that may be factored, from a state on."""
    top = plain_path(below)
    nodes = (plain_path(one.node) for one in survey.slots.values() if _is_whole(one.factoring))
    return [LeafPath(node[len(top) :]) for node in dict.fromkeys(nodes) if node.is_below(top)]


def _is_whole(factoring: Factoring | None) -> bool:
    return factoring is not None and factoring.part == "whole"


def _least(optimizer: Optimizer, node: LeafPath) -> int | None:
    """The size from which on the moments at a node are factored; None if `init` does not tell."""
    tried = {
        size: _is_factored(optimizer, node, size) for size in (LEAST_FACTORED - 1, LEAST_FACTORED)
    }
    if None in tried.values():
        return None
    if list(tried.values()) == [False, True]:
        return LEAST_FACTORED
    low, high = (0, LEAST_FACTORED - 1) if tried[LEAST_FACTORED - 1] else (LEAST_FACTORED, _LARGEST)
    while high - low > 1:  # not factored at `low`, factored at `high`
        middle = (low + high) // 2
        seen = _is_factored(optimizer, node, middle)
        if seen is None:
            return None
        low, high = (low, middle) if seen else (middle, high)
    return high


def _is_factored(optimizer: Optimizer, node: LeafPath, size: int) -> bool | None:
    """True if params whose two largest axes are ``size`` long get a placeholder for the whole moment."""
    import jax

    def resized(leaf: Any) -> Any:
        axes = len(leaf.shape)
        shape = (*[1] * (axes - 2), size, size) if axes > 1 else (2,) * axes
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    made = made_by(optimizer.transformation, jax.tree.map(resized, optimizer.params)) or {}
    shapes = {shape for path, shape in made.items() if path.is_below(node)}
    has_whole = any(len(shape) > 1 for shape in shapes)
    if has_whole == ((1,) in shapes):  # both, or neither
        return None
    return not has_whole
