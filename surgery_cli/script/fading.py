"""What becomes of a start other than zero while the gradients are zero: whether it stays, or fades by one factor."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from surgery_cli.draft.slots import Fading
from surgery_cli.script.pytrees import plain_path, stored_leaves
from surgery_cli.script.trial_runs import Leaves, Trial, Values, numbers_of
from surgery_cli.tree.paths import LeafPath

_STEPS: Final = 64
_ROUNDING: Final = 2.0**-24
_SLOWEST: Final = 1e-5
"""Of decays nearer to 1, rounding to float32 decides how fast a start fades."""
UNCOUNTED: Final = "no count beside it tells for how many steps its start has faded"
_UNEVEN: Final = "its start does not fade by one factor a step"
_FAR: Final = (97, 10_007, 1_000_003)
"""Where counters are put to see that a decay is the same later on."""


class Started(NamedTuple):
    """The initial value of a slot, and what is left of it: all if it ``stays``; else by any of ``fadings``.

    With neither, ``because`` says why that cannot be told. ``steps`` is after how many steps it has changed twice.
    """

    fresh: float
    stays: bool = False
    fadings: tuple[Fading, ...] = ()
    because: str = ""
    steps: int = 0

    def left(self, states: Leaves) -> Values:
        """What is left in states of the trial: a number, or one for each state, [sizes, runs]."""
        if not self.fadings:
            return self.fresh
        fading = self.fadings[0]
        counts = states[fading.clock]
        return self.fresh * fading.decay ** counts.reshape(counts.shape[:2])


def tried_starts(trial: Trial, fresh: Mapping[LeafPath, float]) -> dict[LeafPath, Started]:
    """What becomes of the initial values of these slots."""
    if not fresh:
        return {}
    states = list(islice(trial.idle(), _STEPS + 1))
    leaves = [numbers_of(state) for state in states]
    clocks = [path for path in leaves[0] if _counts(path, leaves)]
    found = {path: _started(path, value, clocks, leaves) for path, value in fresh.items()}
    for place in {
        _first_move(one.fadings[0].clock, leaves) for one in found.values() if one.fadings
    }:
        later = list(_elsewhere(trial, states[place]))
        for path, one in found.items():
            if one.fadings and not all(
                _is_same_pace(path, one.fadings[0], *pair) for pair in later
            ):
                because = "its decay follows a schedule, or a number of the state"
                found[path] = Started(one.fresh, because=because)
    return found


def tried_decays(trial: Trial, slots: Collection[LeafPath]) -> dict[LeafPath, float]:
    """What a step without gradients leaves of slots that are all 1, where that is one number below 1."""
    import jax
    import jax.numpy as jnp

    begun = next(trial.idle())
    paths = iter([plain_path(path) for path, _ in stored_leaves(begun)])

    def filled(leaf: Any) -> Any:
        is_slot = next(paths) in slots and jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.ones_like(leaf) if is_slot else leaf

    left = numbers_of(trial.idle_step(jax.tree.map(filled, begun)))
    found: dict[LeafPath, float] = {}
    for path in slots:
        values = left[path].ravel()
        if values.size and 0 <= values[0] < 1 and bool((values == values[0]).all()):
            found[path] = float(f"{values[0]:.6g}")  # as people write it, not as float32 has it
    return found


def _counts(path: LeafPath, leaves: list[Leaves]) -> bool:
    """True for a leaf that counts steps from 0."""
    if leaves[0][path].size != 1:
        return False
    numbers = [float(state[path].flat[0]) for state in leaves]
    rises = [after - before for before, after in pairwise(numbers)]
    return numbers[0] == 0 and set(rises) <= {0.0, 1.0} and any(rises)


def _started(path: LeafPath, fresh: float, clocks: list[LeafPath], leaves: list[Leaves]) -> Started:
    seen = [state[path] for state in leaves]
    if any((values != values.flat[0]).any() for values in seen):
        return Started(fresh, because="without gradients it does not stay one number")
    values = [float(one.flat[0]) for one in seen]
    if all(value == fresh for value in values):
        return Started(fresh, stays=True, steps=1)
    paces = ((clock, [int(state[clock].flat[0]) for state in leaves]) for clock in clocks)
    fadings = tuple(
        Fading(clock=clock, decay=decay)
        for clock, counts in paces
        if (decay := _decay(fresh, values, counts)) is not None
    )
    if not fadings:
        return Started(fresh, because=_UNEVEN if clocks else UNCOUNTED)
    counts = [float(state[fadings[0].clock].flat[0]) for state in leaves]
    return Started(fresh, fadings=fadings, steps=counts.index(min(2.0, counts[-1])))


def _decay(fresh: float, values: list[float], counts: list[int]) -> float | None:
    """The factor, a float32, by which the value fades with each count; None if there is none."""
    import numpy as np

    told = [(v, n) for v, n in zip(values, counts, strict=True) if n and abs(v) > 1e-30]
    value, count = told[-1] if told else (0.0, 1)
    if value / fresh < 0:
        return None
    decay = float(np.float32((value / fresh) ** (1 / count)))
    for value, count in zip(values, counts, strict=True):
        left = fresh * decay**count
        if abs(value - left) > _ROUNDING * (4 + 4 * math.sqrt(count)) * abs(left) + 1e-30:
            return None
    return decay if decay <= 1 - _SLOWEST else None


def _first_move(clock: LeafPath, leaves: list[Leaves]) -> int:
    """The number of the state before the one in which the clock first moves."""
    return next(n for n, state in enumerate(leaves[1:]) if state[clock].flat[0])


def _elsewhere(trial: Trial, state: Any) -> Iterator[tuple[Leaves, Leaves]]:
    """The state with one of its single numbers replaced, and what one more step makes of that: for each number."""
    import jax
    import numpy as np

    flat, structure = jax.tree.flatten(state)
    for place, leaf in enumerate(flat):
        if not isinstance(leaf, jax.Array | np.ndarray) or leaf.size != 1:
            continue
        if jax.dtypes.issubdtype(leaf.dtype, np.integer):
            most = int(np.iinfo(leaf.dtype).max) - 1
            instead: list[Any] = [np.full_like(leaf, min(far, most)) for far in _FAR]
        elif jax.dtypes.issubdtype(leaf.dtype, np.floating) and np.any(leaf):
            instead = [leaf * 0.5]
        else:
            continue
        for other in instead:
            changed = jax.tree.unflatten(structure, [*flat[:place], other, *flat[place + 1 :]])
            yield numbers_of(changed), numbers_of(trial.idle_step(changed))


def _is_same_pace(path: LeafPath, fading: Fading, before: Leaves, after: Leaves) -> bool:
    steps = float(after[fading.clock].flat[0]) - float(before[fading.clock].flat[0])
    wanted = before[path] * fading.decay**steps
    return bool((abs(after[path] - wanted) <= 1e-6 * abs(wanted)).all())
