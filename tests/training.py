"""Steps of training as compiled functions: op by op, each operation on each shape would be compiled alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
import optax


@cache
def compiled_step(tx: Any) -> Callable[..., tuple[Any, Any]]:
    """Gradients, state and params to the next params and the next state; one function for each optimizer object.

    Arrays come to the host first: those that Orbax restored are bound to a device, and all would be compiled anew.
    """

    @jax.jit
    def step(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, new = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), new

    return lambda *trees: step(*jax.tree.map(np.asarray, trees))


@cache
def compiled_init(tx: Any) -> Callable[[Any], Any]:
    """The state that an optimizer starts with."""
    init = jax.jit(tx.init)
    return lambda params: init(jax.tree.map(np.asarray, params))
