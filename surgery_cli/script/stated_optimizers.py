"""Optimizers that the user states as calls of optax: which states they made, and what a trial of them shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from surgery_cli.draft.assumptions import PLAIN_GRADIENTS, Assumption
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.optimizer.detect.stated_kind import by_node, is_call
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.script.factoring import least_factored, whole_moments
from surgery_cli.script.optimizer_call import optimizer_of
from surgery_cli.script.optimizer_trial import try_optimizer
from surgery_cli.script.optimizers import Optimizer, Table, made_by
from surgery_cli.script.pytrees import plain_path
from surgery_cli.script.slot_powers import Measured
from surgery_cli.script.time_limit import StillRunning
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed

_SHOWN: Final = 3


class Stated(NamedTuple):
    """A call, and what was seen of the slots of every state that it makes, by plain path.

    ``least_factored`` is by plain node (see ``factoring``).
    """

    text: str
    measured: dict[LeafPath, Measured]
    least_factored: dict[LeafPath, int]


def tried_calls(
    kind: str | Mapping[str, str] | None,
    tree: TreeSpec,
    survey: OptimizerSurvey,
    counters: Callable[[LeafPath], Mapping[LeafPath, int]],
) -> list[Stated]:
    """Try out what ``optimizer_kind:`` says as calls; ``counters`` reads the integers of the state below a node.

    Raises:
        PlanError: a text is no call of optax, it makes no state that the tree holds, or it cannot be tried out.
    """
    calls = [(node, text) for node, text in by_node(kind).items() if is_call(text)]
    return [_tried(node, text, tree, survey, counters) for node, text in calls]


def _tried(
    node: str,
    text: str,
    tree: TreeSpec,
    survey: OptimizerSurvey,
    counters: Callable[[LeafPath], Mapping[LeafPath, int]],
) -> Stated:
    transformation = optimizer_of(text)
    states = {place: _state(tree, place) for place in _places(tree, survey, node)}
    measured: dict[LeafPath, Measured] = {}
    least: dict[LeafPath, int] = {}
    made: Table | None = None
    for params, root in _params(tree, survey):
        made = made_by(transformation, params)
        fitting = [place for place, state in states.items() if state == made]
        if not fitting:
            continue
        optimizer = Optimizer(transformation, params)
        try:
            tried = [(place, try_optimizer(optimizer, counters(place))) for place in fitting]
        except Exception as error:  # noqa: BLE001 - whatever an optimizer raises that wants more than gradients
            said = (str(error).splitlines() or [""])[0]
            raise PlanError(
                worded("{optimizer_kind: {}} cannot be tried out", text),
                why=said if isinstance(error, StillRunning) else f"{type(error).__name__}: {said}",
                fix="name the factory alone, without its settings",
                field="optimizer_kind",
            ) from None
        for place, seen in tried:
            top, taken = plain_path(place), _taken_for_granted(place, root)
            measured.update((top / path, one.below(top, taken)) for path, one in seen.items())
            shown = least_factored(optimizer, whole_moments(survey, place))
            least.update((top / inner, size) for inner, size in shown.items())
    if not measured:
        _refuse(node, text, states, made, _example(tree, survey))
    return Stated(text, measured, least)


def _taken_for_granted(place: LeafPath, root: LeafPath) -> Assumption | None:
    """That nothing stands before the state at ``place``, where that is part of a larger one."""
    is_whole = not place or is_optimizer_name(place[-1]) or root.is_below(LeafPath(place[:-1]))
    return None if is_whole else PLAIN_GRADIENTS


def _roots(survey: OptimizerSurvey) -> list[LeafPath]:
    """The nodes that may be the params of an optimizer: those that slots mirror."""
    mirrored = (slot.root for slot in survey.slots.values() if slot.in_optimizer)
    return list(dict.fromkeys((*survey.params_roots, *mirrored)))


def _places(tree: TreeSpec, survey: OptimizerSurvey, node: str) -> list[LeafPath]:
    """The nodes that may be a whole state: the one that was named, or any above slots."""
    if node:
        above = (LeafPath(path[:depth]) for path in tree for depth in range(len(path)))
        return list(dict.fromkeys(place for place in above if str(place) == node))
    nodes = {slot.node for slot in survey.slots.values() if slot.in_optimizer}
    above = (LeafPath(one[:depth]) for one in nodes for depth in range(1, len(one)))
    return sorted(dict.fromkeys(above), key=len)


def _state(tree: TreeSpec, place: LeafPath) -> Table:
    """The shapes of what stands below a node, by plain path."""
    return {
        plain_path(LeafPath(path[len(place) :])): spec.shape
        for path, spec in tree.items()
        if spec.has_array and path.is_below(place)
    }


def _params(tree: TreeSpec, survey: OptimizerSurvey) -> Iterator[tuple[Any, LeafPath]]:
    """What may be the params of an optimizer, and their node: all below it, or those mirrored (no batch statistics)."""
    for root in _roots(survey):
        below = {path for path, spec in tree.items() if path.is_below(root) and spec.has_array}
        slots = (slot for slot in survey.slots.values() if slot.in_optimizer and slot.root == root)
        mirrored = {slot.param for slot in slots}
        yield _shapes(tree, root), root
        if mirrored and mirrored < below:
            yield _shapes(tree, root, mirrored), root


def _shapes(tree: TreeSpec, root: LeafPath, only: Collection[LeafPath] | None = None) -> Any:
    """The params below a node, all or some, as nested dicts of ``ShapeDtypeStruct``."""
    import jax

    found: dict[str, Any] = {}
    for path, spec in tree.items():
        if not path.is_below(root) or not spec.has_array or (only is not None and path not in only):
            continue
        shape = jax.ShapeDtypeStruct(spec.shape, "float32")
        *above, last = plain_path(LeafPath(path[len(root) :])) or ("",)
        inside = found
        for key in above:
            inside = inside.setdefault(str(key), {})
        inside[str(last)] = shape
    return found[""] if found.keys() == {""} else found


def _refuse(
    node: str, text: str, states: Mapping[LeafPath, Table], made: Table | None, example: str
) -> None:
    """Raise PlanError: no state is what the call makes; the nearest is shown beside it."""
    if not states:
        where = f"there is no node '{node}'" if node else "the checkpoint holds no optimizer state"
        raise PlanError(
            worded("{optimizer_kind: {}} fits no state", text), why=where, field="optimizer_kind",
            fix="`surgery inspect --optimizer` shows what there is",
        )  # fmt: skip
    if made is None:
        raise PlanError(
            worded("{optimizer_kind: {}} makes no state of these params", text),
            why="its `init` fails on their names and shapes",
            fix="name the factory alone, without its settings",
            field="optimizer_kind",
        )
    place, there = min(states.items(), key=lambda one: len(one[1].items() ^ made.items()))
    raise PlanError(
        worded("{optimizer_kind: {}} does not make the state at '{}'", text, place),
        why=f"'{place}' holds {_only(there, made)}; the call makes {_only(made, there)}",
        fix=worded("write the whole chain as in the script, with wrappers{}", example),
        field="optimizer_kind",
    )


def _example(tree: TreeSpec, survey: OptimizerSurvey) -> str:
    """How the call of one node is said, by one that makes what stands there; '' where no factory alone does."""
    usual = ("trace(0.9)", "scale_by_adam()")
    alone = [f"{name}()" for name in FACTORIES if name.startswith("scale_by_")]
    states = {slot.state: slot.root for slot in survey.slots.values() if slot.in_optimizer}
    for state, root in states.items():
        there, params = _state(tree, state), _shapes(tree, root)
        for text in dict.fromkeys((*usual, *alone)):
            with suppress(PlanError):  # it has settings without defaults
                if made_by(optimizer_of(text), params) == there:
                    return worded(
                        "; or say which node a call made, as in {optimizer_kind: {{{}: {}}}}",
                        state,
                        text,
                    )
    return ""


def _only(some: Table, others: Table) -> str:
    """What one side has and the other has not, as text."""
    apart = (path for path, shape in some.items() if others.get(path) != shape)
    texts = [f"{path} [{', '.join(map(str, some[path]))}]" for path in apart]
    return listed(texts, _SHOWN) or "no more"
