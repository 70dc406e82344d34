"""Configurations of optax and optax.contrib whose real states the tests look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from tests.installed import installed

PARAMS: dict[str, Any] = {
    "Dense_0": {"bias": np.zeros(6, np.float32), "kernel": np.ones((8, 6), np.float32)},
    "Dense_1": {"bias": np.zeros(3, np.float32), "kernel": np.ones((6, 3), np.float32)},
}
COMPLEX_PARAMS: dict[str, Any] = {"c": np.ones((4, 3), np.complex64), "r": np.ones(5, np.float32)}


def _decay(count: Any) -> Any:
    return 0.1 / (1.0 + count)


def _is_matrix(params: Any) -> Any:
    return jax.tree.map(lambda x: jnp.ndim(x) == 2, params)


def _labels(params: Any, matrix: str, other: str) -> Any:
    return jax.tree.map(lambda x: matrix if jnp.ndim(x) == 2 else other, params)


def _top_labels(params: Any) -> Any:
    return {key: str(place) for place, key in enumerate(params)}


def _every_third(count: Any) -> Any:
    return count % 3 != 0


_CHAIN: dict[str, Callable[[], Any]] = {
    "ema_before_adam": lambda: optax.chain(optax.ema(0.9), optax.adam(0.1)),
    "ema_after_adam": lambda: optax.chain(optax.adam(0.1), optax.ema(0.9)),
    "trace_after_adam": lambda: optax.chain(optax.adam(0.1), optax.trace(0.9)),
    "apply_every": lambda: optax.chain(optax.adam(0.1), optax.apply_every(4)),
    "add_noise_adam": lambda: optax.chain(optax.add_noise(0.1, 0.5, key=0), optax.adam(0.1)),
    "clip_adam": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1)),
    "l2_before_adam": lambda: optax.chain(optax.add_decayed_weights(0.01), optax.adam(0.1)),
    "centralize_adam": lambda: optax.chain(optax.centralize(), optax.adam(0.1)),
    "clip_inactive_adamw": lambda: optax.chain(optax.clip_by_global_norm(1e9), optax.adamw(_decay)),
    "agc_sgd": lambda: optax.chain(optax.adaptive_grad_clip(0.01), optax.sgd(0.1, momentum=0.9)),
    "clip_elem_sgd": lambda: optax.chain(optax.clip(0.1), optax.sgd(0.1, momentum=0.9)),
    "zero_nans": lambda: optax.chain(optax.zero_nans(), optax.adam(0.1)),
    "nonneg": lambda: optax.chain(optax.adam(0.1), optax.keep_params_nonnegative()),
    "freeze": lambda: optax.chain(
        optax.adam(0.1), optax.freeze({"Dense_0": True, "Dense_1": False})
    ),
    "named_chain": lambda: optax.named_chain(
        ("adam", optax.scale_by_adam()), ("params", optax.trace(0.9))
    ),
    "nested_chain": lambda: optax.chain(
        optax.chain(optax.clip(9.0), optax.chain(optax.chain(optax.scale_by_adam()))),
        optax.chain(optax.scale_by_schedule(_decay)),
    ),
    "reduce_on_plateau": lambda: optax.chain(optax.adam(0.1), contrib.reduce_on_plateau()),
    "snapshot_norm": lambda: optax.chain(optax.adam(0.1), optax.snapshot("n", optax.tree.norm)),
    "snapshot_updates": lambda: optax.chain(
        optax.snapshot("g", lambda updates: updates), optax.adam(0.1)
    ),
    "backtracking": lambda: optax.chain(
        optax.sgd(0.1), optax.scale_by_backtracking_linesearch(15, store_grad=True)
    ),
    "ldog": optax.scale_by_distance_over_gradients,
}

_WRAPPED: dict[str, Callable[[], Any]] = {
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(0.1), 3),
    "conditionally_mask": lambda: optax.conditionally_mask(optax.adam(0.1), _every_third),
    "conditionally_transform": lambda: optax.conditionally_transform(optax.adam(0.1), _every_third),
    "flatten_adam": lambda: optax.flatten(optax.adam(0.1)),
    "selective_transform": lambda: optax.selective_transform(
        optax.adam(0.1), freeze_mask={"Dense_0": True, "Dense_1": False}
    ),
    "masked_adam": lambda: optax.masked(optax.adam(0.1), _is_matrix),
    "partition_2": lambda: optax.partition(
        {"w": optax.adam(0.1), "b": optax.sgd(0.1, momentum=0.9)},
        partial(_labels, matrix="w", other="b"),
    ),
    "partition_3same": lambda: optax.partition(
        {"0": optax.adam(0.1), "1": optax.adam(0.2)}, _top_labels
    ),
    "multisteps": lambda: optax.MultiSteps(optax.adam(0.1), 3),
    "multisteps_skip": lambda: optax.MultiSteps(
        optax.adam(0.1), 3, should_skip_update_fn=optax.skip_not_finite
    ),
    "multisteps_clip_inject": lambda: optax.MultiSteps(
        optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.inject_hyperparams(optax.adamw)(learning_rate=_decay),
        ),
        3,
    ),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adamw)(learning_rate=_decay),
    "inject_const": lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.1, momentum=0.9),
    "complex_adam": lambda: contrib.split_real_and_imaginary(optax.adam(0.1)),
    "mechanic_adam": lambda: contrib.mechanize(optax.adam(0.1), weight_decay=0.0),
    "schedule_free_adam_full": lambda: contrib.schedule_free(optax.adam(0.1), 0.1, b1=0.9),
    "sam": lambda: contrib.sam(
        optax.sgd(0.1, momentum=0.9),
        optax.chain(contrib.normalize(), optax.sgd(0.05)),
        sync_period=2,
    ),
    "sam_opaque": lambda: contrib.sam(
        optax.sgd(0.1, momentum=0.9),
        optax.chain(contrib.normalize(), optax.sgd(0.05)),
        opaque_mode=True,
    ),
}

_ALIASES: dict[str, Callable[[], Any]] = {
    "adabelief": lambda: optax.adabelief(0.1),
    "adam": lambda: optax.adam(0.1),
    "adam_mu_bf16": lambda: optax.adam(0.1, mu_dtype=jnp.bfloat16),
    "nadam": lambda: optax.nadam(0.1),
    "nadamw": lambda: optax.nadamw(0.1),
    "adamw": lambda: optax.adamw(0.1),
    "adamw_sched": lambda: optax.adamw(_decay),
    "amsgrad": lambda: optax.amsgrad(0.1),
    "lamb": lambda: optax.lamb(0.1),
    "radam": lambda: optax.radam(0.1),
    "acprop": lambda: contrib.acprop(0.1),
    "yogi": lambda: optax.yogi(0.1),
    "adamax": lambda: optax.adamax(0.1),
    "adamaxw": lambda: optax.adamaxw(0.1),
    "adopt": lambda: contrib.adopt(0.1),
    "adadelta": lambda: optax.adadelta(0.1, weight_decay=0.01),
    "adafactor": lambda: optax.adafactor(0.1, min_dim_size_to_factor=4),
    "adafactor_momentum": lambda: optax.adafactor(0.1, min_dim_size_to_factor=4, momentum=0.9),
    "adafactor_noparamscale": lambda: optax.adafactor(
        0.1, min_dim_size_to_factor=4, momentum=0.9, multiply_by_parameter_scale=False
    ),
    "adagrad": lambda: optax.adagrad(0.1),
    "adan": lambda: optax.adan(0.1),
    "fromage": lambda: optax.fromage(0.1),
    "lars": lambda: optax.lars(0.1),
    "lbfgs": lambda: optax.lbfgs(0.1, memory_size=5),
    "lion": lambda: optax.lion(0.1),
    "noisy_sgd": lambda: optax.noisy_sgd(0.1, key=0),
    "novograd": lambda: optax.novograd(0.1),
    "optimistic_gd": lambda: optax.optimistic_gradient_descent(0.1),
    "optimistic_adam_v2": lambda: optax.optimistic_adam_v2(0.1),
    "polyak_sgd": lambda: optax.polyak_sgd(0.1),
    "sgd": lambda: optax.sgd(0.1),
    "sign_sgd": lambda: optax.sign_sgd(0.1),
    "rmsprop": lambda: optax.rmsprop(0.1),
    "rmsprop_momentum": lambda: optax.rmsprop(0.1, momentum=0.9),
    "rmsprop_centered": lambda: optax.rmsprop(0.1, centered=True),
    "rmsprop_centered_momentum": lambda: optax.rmsprop(0.1, centered=True, momentum=0.9),
    "rmsprop_biascorr": lambda: optax.rmsprop(0.1, bias_correction=True),
    "rprop": lambda: optax.rprop(0.001),
    "sgd_momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "sgd_momentum_sched": lambda: optax.sgd(_decay, momentum=0.9),
    "signum": lambda: installed(optax, "signum")(0.1),
    "sm3": lambda: optax.sm3(0.1),
    "ademamix": lambda: contrib.ademamix(0.1),
    "simplified_ademamix": lambda: contrib.simplified_ademamix(0.1),
    "cocob": contrib.cocob,
    "dadapt_adamw": contrib.dadapt_adamw,
    "prodigy": contrib.prodigy,
    "dog": lambda: contrib.dog(1.0),
    "dowg": contrib.dowg,
    "galore": lambda: installed(contrib, "galore")(0.1, rank=2),
    "madgrad": lambda: installed(contrib, "madgrad")(0.1),
    "momo": lambda: contrib.momo(0.1),
    "momo_adam": lambda: contrib.momo_adam(0.1),
    "muon": lambda: contrib.muon(0.1),
    "dpsgd": lambda: contrib.dpsgd(0.1, 1.0, 0.1, 0, 0.9),
    "schedule_free_sgd": lambda: contrib.schedule_free_sgd(0.1),
    "schedule_free_adamw": lambda: contrib.schedule_free_adamw(0.1),
    "sophia": lambda: contrib.sophia(0.1, 0.9),
}

OPTIMIZERS: dict[str, Callable[[], Any]] = {**_ALIASES, **_CHAIN, **_WRAPPED}


def params_for(name: str) -> dict[str, Any]:
    """The params on which the configuration is tried."""
    return COMPLEX_PARAMS if name == "complex_adam" else PARAMS


def state_of(name: str) -> Any:
    """The optimizer's own initial state."""
    return OPTIMIZERS[name]().init(params_for(name))


def leaves_of(tree: Any, path: LeafPath | None = None) -> dict[LeafPath, LeafSpec]:
    """The leaves as Orbax stores them: NamedTuples by field, tuples by index, empties as leaves of their own."""
    path = LeafPath() if path is None else path
    if tree is None or (isinstance(tree, tuple) and hasattr(tree, "_fields") and not tree._fields):
        return {path: LeafSpec(kind=LeafKind.EMPTY, empty="None")}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        tree = tree._asdict()
    if isinstance(tree, Mapping | tuple | list):
        if not tree:
            name = "Dict" if isinstance(tree, Mapping) else type(tree).__name__.capitalize()
            return {path: LeafSpec(kind=LeafKind.EMPTY, empty=name)}
        items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
        return {p: s for k, v in items for p, s in leaves_of(v, path / (k,)).items()}
    if isinstance(tree, jax.Array) and jnp.issubdtype(tree.dtype, jax.dtypes.prng_key):
        return {path: LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry")}
    return {
        path: LeafSpec(
            kind=LeafKind.ARRAY, shape=jnp.shape(tree), dtype=str(jnp.asarray(tree).dtype)
        )
    }


def tree_of(tree: Any) -> TreeSpec:
    """``leaves_of`` as a tree."""
    return TreeSpec(leaves_of(tree))


def train_state(name: str) -> TreeSpec:
    """A TrainState with the optimizer, as Orbax stores it."""
    state = {"params": params_for(name), "opt_state": state_of(name), "step": np.int32(7)}
    return tree_of(state)
