"""Whether the updates of an optimizer hang on whole leaves, tried out: norms, trust ratios, means along axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from surgery_cli.script.pytrees import param_of
from surgery_cli.script.trial_runs import BATCH, MOST_STEPS, STEPS, Trial, by_plain_path
from surgery_cli.tree.paths import LeafPath

_GRADIENTS: Final = (1e-3, 1.0)
"""Sizes of gradients: where clips rest, and where they act."""
_TOLERANCE: Final = 1e-3
"""How far updates may lie apart without hanging on another element, relative: sums over all params are rounded."""


def over_leaves(trial: Trial) -> dict[LeafPath, bool]:
    """For each param of more than one element whether updates of some hang on others of the same leaf.

    The first elements of leaves that the state treats alike change places, with all their gradients: what goes by
    single elements, or by all params at once, makes the same updates of the others. A param alone in its kind, and
    updates that stay zero for long, show nothing. The compiled functions are those of the ``trial``.
    """
    import jax
    import numpy as np

    leaves, tree = jax.tree.flatten(trial.shapes)
    paths = list(trial.params)
    draws = np.random.default_rng(0)

    def drawn() -> list[Any]:
        """Values of which no two leaves have the same sizes."""
        sizes = (2.0 ** (n % 5 - 2) for n in range(len(leaves)))
        signs = (draws.choice([-1.0, 1.0], leaf.shape) for leaf in leaves)
        return [
            np.asarray(draws.uniform(0.5, 1.5, leaf.shape) * size * sign, np.float32)
            for leaf, size, sign in zip(leaves, sizes, signs, strict=True)
        ]

    gradients = [drawn() for _ in range(STEPS)]

    def runs(values: list[Any], by: Iterable[float]) -> Any:
        """In turn at each size, as they are and with first elements in other places: [BATCH, the leaf's shape]."""
        both = zip(values, _exchanged(values, groups), strict=True)
        rows = (np.stack([x * s for s in by for x in pair]) for pair in both)
        return tree.unflatten([np.resize(row, (BATCH, *row.shape[1:])) for row in rows])

    params = drawn()
    plain = tree.unflatten([np.broadcast_to(leaf, (BATCH, *leaf.shape)) for leaf in params])
    groups = _groups(paths, (path for path, _ in by_plain_path(trial.init(plain))))
    every = runs(params, (1.0,) * len(_GRADIENTS))
    shown = {paths[n] for group in groups if len(group) > 1 for n in group if leaves[n].size > 1}
    state, found = trial.init(every), dict.fromkeys(shown, False)
    steps = 0
    for number in range(MOST_STEPS):
        updates, state = trial.update(runs(gradients[number % STEPS], _GRADIENTS), state, every)
        moved = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(updates)]
        steps += any(leaf.any() for leaf in moved)
        for path, leaf in (one for one in zip(paths, moved, strict=True) if one[0] in shown):
            rest = leaf[: 2 * len(_GRADIENTS)].reshape(len(_GRADIENTS), 2, -1)[:, :, 1:]
            apart = abs(rest[:, 0] - rest[:, 1]) > _TOLERANCE * abs(rest[:, 0])
            found[path] |= bool(np.isfinite(rest).all() and apart.any())
        if steps == STEPS:
            break
    return found if steps else {}


def _groups(params: list[LeafPath], state: Iterable[LeafPath]) -> list[list[int]]:
    """The params, as numbers, by the fields of the state that hold something of each."""
    known: Mapping[LeafPath, int] = {path: n for n, path in enumerate(params)}
    fields: dict[int, set[tuple[Any, ...]]] = {n: set() for n in known.values()}
    for path in state:
        param = param_of(path, known)
        if param is not None:
            fields[known[param]].add(tuple(key for key in path if key not in param))
    groups: dict[frozenset[tuple[Any, ...]], list[int]] = {}
    for n, own in fields.items():
        groups.setdefault(frozenset(own), []).append(n)
    return list(groups.values())


def _exchanged(values: list[Any], groups: Iterable[list[int]]) -> list[Any]:
    found = [value.copy() for value in values]
    for group in groups:
        filled = [n for n in group if values[n].size]
        for n, other in zip(filled, (*filled[1:], *filled[:1]), strict=True):
            found[n].flat[0] = values[other].flat[0]
    return found
