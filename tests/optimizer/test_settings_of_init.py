"""Settings that optax reads in `init` alone, found by trying out every number that a factory takes."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import optax
from optax import contrib

from surgery_cli.optimizer.follow.donor_numbers import AFTERWARDS, BEFOREHAND

PARAMS = {"w": jax.random.normal(jax.random.key(0), (4, 3))}
GRADS = [{"w": jax.random.normal(jax.random.key(n), (4, 3))} for n in range(1, 4)]
AMBIGUOUS = {"estim_lr0", "eps"}
"""Read in `init` alone by one factory (of dadapt, of cocob), and in updates by others."""


def factories() -> Iterator[tuple[Callable[..., Any], inspect.Signature]]:
    for module in (optax, contrib):
        for name in dir(module):
            thing = getattr(module, name)
            if not name.startswith("_") and inspect.isfunction(thing):
                signature = inspect.signature(thing)
                if "GradientTransformation" in str(signature.return_annotation):
                    yield thing, signature


def steps(transformation, state):
    given = []
    for grads in GRADS:
        updates, state = transformation.update(grads, state, PARAMS)
        given.append(updates)
    return given, state


def same(one, other):
    both = jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), one, other)
    return jax.tree.all(both)


def test_what_init_alone_reads_is_no_setting_by_which_slots_go():
    found = set()
    for make, signature in factories():
        numbers = {
            name: 0.1 if one.default is inspect.Parameter.empty else one.default
            for name, one in signature.parameters.items()
        }
        first = {
            name: number
            for name, number in numbers.items()
            if signature.parameters[name].default is inspect.Parameter.empty
        }
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int | float):
                continue
            try:
                here, there = (
                    make(**first | {name: value}) for value in (number, 0.7 * number + 0.05)
                )
                begun, other = here.init(PARAMS), there.init(PARAMS)
                if not same(begun, other) and same(steps(here, begun), steps(there, begun)):
                    found.add(name)
            except Exception:  # noqa: BLE001 - takes no such number, or other arguments
                continue
    assert {"initial_scale", "initial_accumulator_value"} <= found
    assert found <= BEFOREHAND | AFTERWARDS | AMBIGUOUS
    assert found >= BEFOREHAND
