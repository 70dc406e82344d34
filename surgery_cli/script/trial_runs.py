"""An optimizer run on tiny params, each multiplied by factors of its own: what becomes of every slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

from surgery_cli.script.pytrees import plain_path, stored_leaves
from surgery_cli.tree.paths import LeafPath


def _half_decades(first: int, last: int) -> tuple[float, ...]:
    """10**first, 3 * 10**first and so on to 10**last."""
    return (*(float(f"{n}e{power}") for power in range(first, last) for n in (1, 3)), 10.0**last)


GRADIENTS: Final = _half_decades(-6, 3)
"""Sizes of gradients: where a clip rests and where it acts, where an epsilon is felt and where it is not.

Elements of one size lie further apart than two sizes do, so that whatever the threshold of a clip is, some run has
elements on both sides of it: far from it on either side, what is clipped may follow by one power, and between by none.
"""
PARAMS: Final = _half_decades(-5, 2)
"""Sizes of params: below the floor of a scale and above it."""
TRIED_ON: Final = (
    f"params of {PARAMS[0]:g} to {PARAMS[-1]:g}, at most two elements an axis,"
    f" with gradients of {GRADIENTS[0]:g} to {GRADIENTS[-1]:g}"
)
_NUMBERS: Final = (1.0, 0.5, 2.0, -1.0)
"""Factors of leaves: in each run a leaf has another of them than the next, so that no power holds by chance for all
leaves at once."""
_ARRAYS: Final = 2
"""Runs in which every element has a factor of its own."""
_RUNS: Final = 1 + len(_NUMBERS) + _ARRAYS
STEPS: Final = 3
MOST_STEPS: Final = 64
"""How long slots that are still zero are waited for: those behind an accumulation of gradients."""


def tried_steps(count: int) -> list[tuple[int, int]]:
    """The first and the last of the steps in which an optimizer is tried out whose state has counted to ``count``.

    >>> tried_steps(0), tried_steps(60)
    ([(1, 3)], [(1, 3), (31, 33), (61, 63)])
    """
    begun = (0, count // 2, count) if count > STEPS else (0,)
    return [(before + 1, before + STEPS) for before in begun]


Values = Any
Leaves = dict[LeafPath, Values]


class Sizes(NamedTuple):
    """About how large every element is."""

    gradients: float
    params: float = 1.0

    @property
    def cross(self) -> tuple[Sizes, ...]:
        """These sizes, then those with all others of gradients, then those with all others of params."""
        gradients = (self._replace(gradients=size) for size in GRADIENTS)
        return (self, *gradients, *(self._replace(params=size) for size in PARAMS))


_TOGETHER: Final = 1 + len(GRADIENTS) + len(PARAMS)
"""So many sizes are tried in one call, or the optimizer would be compiled again."""
BATCH: Final = _TOGETHER * _RUNS


class Factors(NamedTuple):
    """The factors of one param in the runs that have any: ``numbers`` for the whole, ``arrays`` for its elements.

    They broadcast to a slot, [runs, …]; ``arrays`` is None where the slot has another shape than the param.
    """

    numbers: Values
    arrays: Values | None


class Runs(NamedTuple):
    """Runs with gradients and params of several sizes: one without factors, then with numbers, then with arrays.

    ``first`` and ``last`` are states by path: [sizes, runs, the leaf's shape].
    """

    by_param: Leaves
    first: Leaves
    last: Leaves

    def factors(self, param: LeafPath, slot: tuple[int, ...]) -> Factors:
        """The factors of a param, for a slot of this shape."""
        every = self.by_param[param]
        numbers, arrays = every[1 : 1 + len(_NUMBERS)], every[1 + len(_NUMBERS) :]
        flat = (-1, *(1 for _ in slot))
        shape = arrays.shape[1:]
        whole = numbers.reshape(len(numbers), -1)[:, 0].reshape(flat)
        by_element = arrays if shape == slot else None if shape else arrays.reshape(flat)
        return Factors(whole, by_element)


class Trial:
    """Feeds an optimizer g, and g/c with params c·p. Nothing of a checkpoint is read.

    Every axis of the params is cut to two elements, or has one. All runs are computed at once. ``counters`` are the
    integers that a state on disk has, by plain path: runs that jump go on with half of each, and then with all of it,
    so that a rule which sets in after many steps is seen.
    """

    def __init__(
        self, transformation: Any, shapes: Any, counters: Mapping[LeafPath, int] | None = None
    ) -> None:
        import jax
        import numpy as np

        self._random = np.random.default_rng(0)
        self.shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                tuple(min(max(n, 1), 2) for n in leaf.shape), np.float32
            ),
            shapes,
        )
        self._params = self._filled(self._drawn)
        self._gradients = [self._filled(self._drawn) for _ in range(STEPS)]
        turn = cycle(range(len(_NUMBERS)))
        self._factors = self._filled(lambda shape: self._drawn_factors(shape, next(turn)))
        far = {path: n for path, n in (counters or {}).items() if n > STEPS}
        self.jumps = [{path: n // 2 for path, n in far.items()}, far] if far else []
        """The counters from which runs that jump go on, ``STEPS`` steps each time."""
        self._done: dict[tuple[tuple[Sizes, ...], int, bool], Runs] = {}
        self.init, self.update = _each(transformation.init), _each(transformation.update)
        self.params = dict(by_plain_path(self._params))
        """The tiny params, by plain path."""

    def runs(self, sizes: Sequence[Sizes], steps: int = STEPS, *, jumping: bool = False) -> Runs:
        """All runs under gradients and params of these sizes, each of so many steps, and then ``jumping``."""
        import numpy as np

        key = tuple(sizes), steps, jumping
        if key not in self._done:
            parts = [
                self._together(key[0][at : at + _TOGETHER], steps, jumping=jumping)
                for at in range(0, len(sizes), _TOGETHER)
            ]
            first, last = (
                {
                    path: np.concatenate([part[end][path] for part in parts])
                    for path in parts[0][end]
                }
                for end in (0, 1)
            )
            factors = {path: by.astype(float) for path, by in by_plain_path(self._factors)}
            self._done[key] = Runs(factors, first, last)
        return self._done[key]

    def first_step_with(self, waiting: list[LeafPath]) -> int | None:
        """The first step after the usual ones at which one of these slots is no longer zero; None if none ever is."""
        if not waiting:
            return None
        states = islice(self._states([Sizes(1e-3)]), STEPS + 1, MOST_STEPS + 1)
        numbers = enumerate(map(numbers_of, states), STEPS + 1)
        return next((n for n, later in numbers if any(later[p].any() for p in waiting)), None)

    def idle(self) -> Iterator[Any]:
        """The initial state, and that after each step with gradients of zero."""
        return map(_one_of, self._states([Sizes(0.0)]))

    def idle_step(self, state: Any) -> Any:
        """What one step with gradients of zero makes of a state."""
        import jax
        import jax.numpy as jnp

        def again(leaf: Any) -> Any:
            return jnp.broadcast_to(leaf, (BATCH, *jnp.shape(leaf)))

        zeros = jax.tree.map(lambda p: p * 0, self._params)
        given = (jax.tree.map(again, x) for x in (zeros, state, self._params))
        return _one_of(self.update(*given)[1])

    def _together(
        self, sizes: Sequence[Sizes], steps: int, *, jumping: bool
    ) -> tuple[Leaves, Leaves]:
        """The first and the last states of the runs of at most ``_TOGETHER`` sizes: [sizes, runs, the leaf's shape]."""
        jumps = {steps + n * STEPS: to for n, to in enumerate(self.jumps if jumping else ())}
        count = steps + len(jumps) * STEPS
        first, *_, last = islice(self._states(sizes, jumps), count + 1)

        def apart(state: Any) -> Leaves:
            found = numbers_of(state).items()
            return {p: x.reshape(_TOGETHER, _RUNS, *x.shape[1:])[: len(sizes)] for p, x in found}

        return apart(first), apart(last)

    def _states(
        self, sizes: Sequence[Sizes], jumps: Mapping[int, Mapping[LeafPath, int]] | None = None
    ) -> Iterator[Any]:
        """The initial states, and those after each step: [_TOGETHER * _RUNS, the leaf's shape].

        ``jumps`` says after which steps to go on with which counters.
        """
        import jax
        import numpy as np

        every = [*sizes, *[sizes[-1]] * (_TOGETHER - len(sizes))]

        def sized(which: int, leaf: Values, factor: Values) -> Values:
            by = np.asarray([one[which] for one in every], np.float32)
            values = np.multiply.outer(by, leaf * factor)
            return values.reshape(-1, *leaf.shape)

        params = jax.tree.map(partial(sized, 1), self._params, self._factors)
        inverse = jax.tree.map(lambda c: 1 / c, self._factors)  # powers of two
        state = self.init(params)
        yield state
        for number, gradient in enumerate(cycle(self._gradients), 1):
            moved = jax.tree.map(partial(sized, 0), gradient, inverse)
            state = self.update(moved, state, params)[1]
            yield state
            if jumps and number in jumps:
                state = _counted(state, jumps[number])

    def _filled(self, make: Callable[[tuple[int, ...]], Values]) -> Any:
        import jax

        return jax.tree.map(lambda leaf: make(leaf.shape), self.shapes)

    def _drawn(self, shape: tuple[int, ...]) -> Values:
        """Values away from zero."""
        import numpy as np

        signs = self._random.choice([-1.0, 1.0], shape)
        return np.asarray(self._random.uniform(0.5, 1.5, shape) * signs, np.float32)

    def _drawn_factors(self, shape: tuple[int, ...], turn: int) -> Values:
        """The factors of one leaf in all runs, its numbers in another order at each ``turn``: [_RUNS, *shape]."""
        import numpy as np

        numbers = np.concatenate([np.ones(1), np.roll(_NUMBERS, turn)])
        whole = np.multiply.outer(numbers, np.ones(shape))
        arrays = self._random.choice([0.25, 0.5, 2.0, -4.0], (_ARRAYS, *shape))
        return np.concatenate([whole, arrays]).astype(np.float32)


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of many runs at once, or of one after the other where it does not take a batch."""
    import jax

    quickly = {"xla_backend_optimization_level": 0}  # compiling takes longer than all steps
    batched = jax.jit(jax.vmap(function), compiler_options=quickly)
    in_turn = jax.jit(lambda *given: jax.lax.map(lambda one: function(*one), given))

    def found(*given: Any) -> Any:
        try:
            return batched(*given)
        except Exception:  # noqa: BLE001 - e.g. callbacks; what fails in turn too is the optimizer's own error
            return in_turn(*given)

    return found


def _counted(state: Any, counters: Mapping[LeafPath, int]) -> Any:
    """The states of many runs with these counters."""
    import jax
    import jax.numpy as jnp

    paths = iter(path for path, _ in by_plain_path(state))

    def one(leaf: Any) -> Any:
        count = counters.get(next(paths))
        is_counter = count is not None and jnp.issubdtype(leaf.dtype, jnp.integer)
        return jnp.full_like(leaf, count) if is_counter and leaf.ndim == 1 else leaf

    return jax.tree.map(one, state)


def _one_of(states: Any) -> Any:
    """The state of one of many runs."""
    import jax

    return jax.tree.map(lambda leaf: leaf[0], states)


def by_plain_path(pytree: Any) -> Iterator[tuple[LeafPath, Values]]:
    """The leaves that are not empty, by plain path."""
    return ((plain_path(path), leaf) for path, leaf in stored_leaves(pytree))


def numbers_of(state: Any) -> Leaves:
    """The leaves of a state that are numbers, in float64."""
    import jax
    import numpy as np

    return {
        path: np.asarray(leaf, np.float64)
        for path, leaf in by_plain_path(state)
        if isinstance(leaf, jax.Array | np.ndarray) and jax.dtypes.issubdtype(leaf.dtype, np.number)
    }
