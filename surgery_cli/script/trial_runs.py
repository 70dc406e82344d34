"""An optimizer run on tiny params, each multiplied by factors of its own: what becomes of every slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

from surgery_cli.script.pytrees import plain_path, stored_leaves
from surgery_cli.tree.paths import LeafPath

GRADIENTS: Final = (1e-6, 1e-3, 1.0, 1e3)
"""Sizes of gradients: where a clip rests and where it acts, where an epsilon is felt and where it is not."""
PARAMS: Final = (1e-5, 1e-2, 1.0, 1e2)
"""Sizes of params: below the floor of a scale and above it."""
TRIED_ON: Final = f"params of {PARAMS[0]:g} to {PARAMS[-1]:g} with gradients of {GRADIENTS[0]:g} to {GRADIENTS[-1]:g}"
_NUMBERS: Final = (1.0, 0.5, 2.0, -1.0)
"""Factors of leaves: in each run a leaf has another of them than the next, so that no power holds by chance for all
leaves at once."""
_ARRAYS: Final = 2
"""Runs in which every element has a factor of its own."""
STEPS: Final = 3
_MOST_STEPS: Final = 64
"""How long slots that are still zero are waited for: those behind an accumulation of gradients."""

Values = Any
Leaves = dict[LeafPath, Values]


class Sizes(NamedTuple):
    """About how large every element is."""

    gradients: float
    params: float = 1.0


class Run(NamedTuple):
    """The first and the last state under factors of the params, which are by path: [] or [the param's shape]."""

    factors: Leaves
    first: Leaves
    last: Leaves


class Runs(NamedTuple):
    """Runs with gradients and params of one size: without factors, with a number for each leaf, with arrays."""

    plain: Run
    numbers: list[Run]
    arrays: list[Run]


class Trial:
    """Feeds an optimizer g, and g/c with params c·p. Nothing of a checkpoint is read.

    Every axis of the params is cut to at most two elements.
    """

    def __init__(self, transformation: Any, shapes: Any) -> None:
        import jax
        import numpy as np

        self._random = np.random.default_rng(0)
        self._shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(tuple(min(n, 2) for n in leaf.shape), np.float32),
            shapes,
        )
        self._params = self._filled(self._drawn)
        self._gradients = [self._filled(self._drawn) for _ in range(STEPS)]
        self._arrays = [self._filled(self._drawn_factors) for _ in range(_ARRAYS)]
        self._done: dict[tuple[Sizes, int], Runs] = {}
        self._init = transformation.init
        self._update = jax.jit(transformation.update)
        self.params = dict(_by_plain_path(self._params))
        """The tiny params, by plain path."""

    def runs(self, sizes: Sizes, steps: int = STEPS) -> Runs:
        """All runs under gradients and params of these sizes, each of so many steps."""
        if (sizes, steps) not in self._done:
            factors = (*map(self._numbers, range(len(_NUMBERS))), *self._arrays)
            plain = self._run(self._filled(lambda _: _one()), sizes, steps)
            others = [self._run(one, sizes, steps) for one in factors]
            runs = Runs(plain, others[: len(_NUMBERS)], others[len(_NUMBERS) :])
            self._done[sizes, steps] = runs
        return self._done[sizes, steps]

    def first_step_with(self, waiting: list[LeafPath]) -> int | None:
        """The first step after the usual ones at which one of these slots is no longer zero; None if none ever is."""
        if not waiting:
            return None
        ones = self._filled(lambda _: _one())
        states = islice(self._states(ones, Sizes(1e-3)), STEPS + 1, _MOST_STEPS + 1)
        numbers = enumerate(map(numbers_of, states), STEPS + 1)
        return next((n for n, later in numbers if any(later[p].any() for p in waiting)), None)

    def idle(self) -> Iterator[Any]:
        """The initial state, and that after each step with gradients of zero."""
        return self._states(self._filled(lambda _: _one()), Sizes(0.0))

    def idle_step(self, state: Any) -> Any:
        """What one step with gradients of zero makes of a state."""
        import jax

        zeros = jax.tree.map(lambda p: p * 0, self._params)
        return self._update(zeros, state, self._params)[1]

    def _run(self, factors: Any, sizes: Sizes, steps: int) -> Run:
        first, *_, last = islice(self._states(factors, sizes), steps + 1)
        return Run(dict(_by_plain_path(factors)), numbers_of(first), numbers_of(last))

    def _states(self, factors: Any, sizes: Sizes) -> Iterator[Any]:
        """The initial state, and that after each step."""
        import jax
        import numpy as np

        gradients, params = map(np.float32, sizes)
        scaled = jax.tree.map(lambda p, c: params * p * c, self._params, factors)
        state = self._init(scaled)
        yield state
        for gradient in cycle(self._gradients):
            divided = jax.tree.map(lambda g, c: gradients * g / c, gradient, factors)
            _, state = self._update(divided, state, scaled)
            yield state

    def _filled(self, make: Callable[[tuple[int, ...]], Values]) -> Any:
        import jax

        return jax.tree.map(lambda leaf: make(leaf.shape), self._shapes)

    def _drawn(self, shape: tuple[int, ...]) -> Values:
        """Values away from zero."""
        import numpy as np

        signs = self._random.choice([-1.0, 1.0], shape)
        return np.asarray(self._random.uniform(0.5, 1.5, shape) * signs, np.float32)

    def _drawn_factors(self, shape: tuple[int, ...]) -> Values:
        import numpy as np

        return np.asarray(self._random.choice([0.25, 0.5, 2.0, -4.0], shape), np.float32)

    def _numbers(self, shift: int) -> Any:
        """For each leaf another number."""
        import numpy as np

        turn = iter(islice(cycle(_NUMBERS), shift, None))
        return self._filled(lambda _: np.float32(next(turn)))


def _one() -> Values:
    import numpy as np

    return np.float32(1)


def _by_plain_path(pytree: Any) -> Iterator[tuple[LeafPath, Values]]:
    return ((plain_path(path), leaf) for path, leaf in stored_leaves(pytree))


def numbers_of(state: Any) -> Leaves:
    """The leaves of a state that are numbers, in float64."""
    import jax
    import numpy as np

    return {
        path: np.asarray(leaf, np.float64)
        for path, leaf in _by_plain_path(state)
        if isinstance(leaf, jax.Array | np.ndarray) and jax.dtypes.issubdtype(leaf.dtype, np.number)
    }


def param_of(slot: LeafPath, params: Mapping[LeafPath, object]) -> LeafPath | None:
    """The param whose path stands in that of a slot, the longest and last one; None if there is none.

    >>> param_of(LeafPath(("0", "mu", "a", "w")), {LeafPath(("a", "w")): 1, LeafPath(("w",)): 1})
    ('a', 'w')
    """
    best: LeafPath | None = None
    for end in range(len(slot), -1, -1):
        for start in range(end + 1):
            part = LeafPath(slot[start:end])
            if part in params and (best is None or len(part) > len(best)):
                best = part
    return best
