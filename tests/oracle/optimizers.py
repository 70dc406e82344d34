"""Optimizers with hyperparameters away from their defaults: every factory of optax that surgery knows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import optax
from optax import contrib

from surgery_cli.optimizer.knowledge import factories
from tests.installed import installed

Draws = np.random.Generator
Tree = Any


def dimension_numbers(params: Tree) -> Tree:
    """That every leaf is a matrix: what Muon takes for granted of None, and then fails."""
    return jax.tree.map(lambda _: contrib.MuonDimensionNumbers(), params)


def matrices(params: Tree) -> Tree:
    return jax.tree.map(lambda leaf: np.ndim(leaf) == 2, params)


CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "learning_rate": (1e-4, 1e-2, 0.3),
    "b1": (0.0, 0.5, 0.9, 0.95),
    "b2": (0.5, 0.9, 0.98, 0.999, 0.9999),
    "b3": (0.9, 0.99, 0.9999),
    "beta": (0.5, 0.9, 0.99),
    "beta3": (None, 0.9),
    "betas": ((0.5, 0.9), (0.9, 0.999), (0.95, 0.99)),
    "alpha": (0.5, 1.0, 5.0),
    "adam_b1": (0.5, 0.9),
    "adam_b2": (0.9, 0.9999),
    "decay": (0.5, 0.9, 0.99),
    "rho": (0.5, 0.9, 0.99),
    "momentum": (None, 0.5, 0.9),
    "eps": (0.0, 1e-16, 1e-8, 1e-4),
    "epsilon": (1e-30, 1e-12),
    "eps_root": (0.0, 1e-16, 1e-8),
    "weight_decay": (0.0, 1e-4, 0.1),
    "weight_decay_rate": (None, 1e-3),
    "adam_weight_decay": (0.0, 0.1),
    "nesterov": (False, True),
    "debias": (False, True),
    "centered": (False, True),
    "bias_correction": (False, True),
    "bias_correction_mu": (False, True),
    "bias_correction_nu": (False, True),
    "eps_in_sqrt": (False, True),
    "initial_scale": (0.0, 1e-3, 1.0),
    "initial_accumulator_value": (1e-6, 0.1, 1.0),
    "min_dim_size_to_factor": (2, 128),
    "decay_rate": (0.5, 0.8),
    "multiply_by_parameter_scale": (True,),
    "clipping_threshold": (None, 1.0),
    "min_scale": (1e-6,),
    "trust_coefficient": (1e-3, 1.0),
    "adaptive": (False, True),
    "trust_ratio_mask": (True, matrices),
    "k": (2, 3),
    "memory_size": (2, 5),
    "scale_init_precond": (False, True),
    "threshold": (2.0, 5.0),
    "use_clipping": (False, True),
    "gamma": (0.01, 0.1),
    "optimism": (0.1, 1.0),
    "update_interval": (1, 3),
    "clip_threshold": (None, 1.0),
    "estim_lr0": (1e-6, 1e-3),
    "safeguard_warmup": (False, True),
    "adapt_lower_bound": (False, True),
    "warmup_steps": (None, 3),
    "reps_rel": (1e-6, 1e-2),
    "mode": ("hard", "smooth", "refined"),
    "store_grad": (True,),
    "max_backtracking_steps": (3,),
    "max_linesearch_steps": (3,),
    "l2_norm_clip": (1.0,),
    "noise_multiplier": (0.1,),
    "eta_minus": (0.3, 0.5),
    "eta_plus": (1.1, 1.2),
}
"""What an argument of a factory may be."""

INSTEAD: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "adafactor-without-parameter-scale": {
        "multiply_by_parameter_scale": (False,),
        "momentum": (0.5, 0.9),
    },
    "adafactor": {"eps": (1e-30, 1e-12), "momentum": (None, 0.5, 0.9)},
    "dowg": {"eps": (1e-8, 1e-4)},
    "lars": {"eps": (0.0,), "momentum": (0.5, 0.9)},
    "sgd": {"momentum": (0.5, 0.9)},
    "sm3": {"momentum": (0.5, 0.9)},
    "dpsgd": {"momentum": (0.5, 0.9), "seed": (0,)},
    "lbfgs": {"linesearch": (optax.scale_by_zoom_linesearch(3),)},
    "scale_by_muon": {"weight_dimension_numbers": (dimension_numbers,)},
    "madgrad": {"momentum": (0.5, 0.9)},
    "scale_by_madgrad": {"momentum": (0.5, 0.9)},
    "scale_by_sm3": {"b2": (1.0, 0.9)},
    "schedule_free_adamw": {"b1": (0.5, 0.9)},
    "schedule_free_sgd": {"b1": (0.5, 0.9)},
    "rprop": {"learning_rate": (1e-3, 1e-2)},
    "scale_by_rprop": {"learning_rate": (1e-3, 1e-2)},
}
"""Choices of one factory that differ."""

LEFT: Final = frozenset(
    {
        "mask", "weight_decay_mask", "mu_dtype", "accumulator_dtype", "dtype_momentum", "state_dtype",
        "param_dtype", "axis", "seed", "key", "clip_value_fn", "decay_rate_fn", "hessian_diagonal_fn",
        "linesearch", "verbose", "print_win_rate_every_n_steps", "ns_coeffs", "ns_steps",
        "preconditioning", "adam_learning_rate", "adam_eps_root", "muon_weight_dimension_numbers",
        "weight_dimension_numbers", "consistent_rms", "weight_lr_power",
        "decay_offset", "step_offset", "factored", "smooth_beta", "lower_bound", "global_scale",
        "init_step", "init_estim_sq_dist", "estim_lr_coef", "decrease_factor", "increase_factor",
        "max_learning_rate", "atol", "rtol", "slope_rtol", "curv_rtol", "tol", "approx_dec_rtol",
        "stepsize_precision", "interval_threshold", "initial_guess_strategy", "min_step_size",
        "max_step_size", "scaling", "f_min", "variant",
    }
)  # fmt: skip
"""Arguments that stay as they are: types, masks, callables, bounds."""


class Optimizer(NamedTuple):
    """A transformation, and what is needed to train with it.

    ``names`` are all factories in it; ``kind`` is the word that names it to surgery. ``is_exact`` if no epsilon is
    in it, and float32 loses little of its slots.
    """

    transformation: Any
    names: tuple[str, ...]
    kind: str | None
    is_exact: bool = False

    @property
    def needs(self) -> str:
        """What beside gradients an update takes: nothing, ``value``, a function by its argument's name, examples."""
        text = " ".join(self.names)
        if "lbfgs" in text or "linesearch" in text:
            return "value_fn"
        if "sophia" in text or "hutchinson" in text:
            return "obj_fn"
        if any(name in text for name in ("momo", "plateau", "polyak")):
            return "value"
        return "examples" if "dpsgd" in text or "private" in text else ""


def factory_of(name: str) -> Callable[..., Any]:
    """The function of that name in optax or optax.contrib."""
    plain = "adafactor" if name.startswith("adafactor") else name
    return getattr(contrib, plain, None) or installed(optax, plain)


def arguments(name: str, draws: Draws) -> dict[str, Any]:
    """Arguments for a factory, drawn by their names."""
    instead = INSTEAD.get(name, {})
    found = {}
    for argument in inspect.signature(factory_of(name)).parameters:
        choices = instead.get(argument, CHOICES.get(argument))
        if choices is None:
            assert argument in LEFT, f"{name}({argument})"
            continue
        found[argument] = choices[draws.integers(len(choices))]
    return found


def labels(params: Tree) -> Tree:
    return jax.tree.map(lambda leaf: "many" if np.ndim(leaf) == 2 else "few", params)


def every_third(step: Any) -> Any:
    return step % 3 != 0


def adam(draws: Draws) -> Any:
    return optax.adam(**arguments("adam", draws))


COMPOSITES: Final[Mapping[str, Callable[[Draws], Any]]] = {
    "apply_if_finite": lambda d: optax.apply_if_finite(adam(d), 3),
    "conditionally_mask": lambda d: optax.conditionally_mask(adam(d), every_third),
    "conditionally_transform": lambda d: optax.conditionally_transform(adam(d), every_third),
    "freeze": lambda d: optax.chain(adam(d), optax.freeze({"a": True, "b": False})),
    "lookahead": lambda d: optax.lookahead(adam(d), 3, 0.5),
    "measure_with_ema": lambda d: optax.chain(
        optax.monitor({"m": optax.measure_with_ema(lambda updates: updates, 0.9)}), adam(d)
    ),
    "mechanize": lambda d: contrib.mechanize(adam(d), weight_decay=0.0),
    "monitor": lambda d: optax.chain(adam(d), optax.monitor({"n": optax.tree.norm})),
    "multi_transform": lambda d: optax.multi_transform(
        {"many": adam(d), "few": optax.sgd(0.1, momentum=0.9)}, labels
    ),
    "partition": lambda d: optax.partition(
        {"many": optax.lars(0.1, momentum=0.9), "few": adam(d)}, labels
    ),
    "sam": lambda d: contrib.sam(adam(d), optax.chain(contrib.normalize(), optax.sgd(0.05))),
    "schedule_free": lambda d: contrib.schedule_free(adam(d), 0.1, b1=0.9),
    "selective_transform": lambda d: optax.selective_transform(
        adam(d), freeze_mask={"a": False, "b": True}
    ),
    "split_real_and_imaginary": lambda d: contrib.split_real_and_imaginary(adam(d)),
}
"""Wrappers, around Adam."""

BEFORE_MOMENTUM: Final[Mapping[str, Callable[[], Any]]] = {
    "adaptive_grad_clip": lambda: optax.adaptive_grad_clip(0.01),
    "add_noise": lambda: optax.add_noise(0.1, 0.5, key=0),
    "centralize": optax.centralize,
    "clip": lambda: optax.clip(0.5),
    "clip_by_block_rms": lambda: optax.clip_by_block_rms(0.5),
    "differentially_private_aggregate": lambda: contrib.differentially_private_aggregate(
        1.0, 0.1, key=0
    ),
    "fromage": lambda: optax.fromage(0.1),
    "identity": optax.identity,
    "noisy_sgd": lambda: optax.noisy_sgd(0.1, key=0),
    "normalize": contrib.normalize,
    "normalize_by_update_norm": optax.normalize_by_update_norm,
    "polyak_sgd": optax.polyak_sgd,
    "reduce_on_plateau": contrib.reduce_on_plateau,
    "scale_by_param_block_norm": optax.scale_by_param_block_norm,
    "scale_by_param_block_rms": optax.scale_by_param_block_rms,
    "scale_by_schedule": lambda: optax.scale_by_schedule(lambda count: 1 / (1 + count)),
    "scale_by_sign": optax.scale_by_sign,
    "scale_by_trust_ratio": optax.scale_by_trust_ratio,
    "snapshot": lambda: optax.snapshot("n", optax.tree.norm),
    "zero_nans": optax.zero_nans,
    "scale_by_adam": optax.scale_by_adam,
    "scale_by_rms": optax.scale_by_rms,
    "scale_by_factored_rms": lambda: optax.scale_by_factored_rms(min_dim_size_to_factor=2),
    "scale_by_lion": optax.scale_by_lion,
    "scale_by_rprop": lambda: optax.scale_by_rprop(0.01),
    "scale_by_muon": lambda: contrib.scale_by_muon(weight_dimension_numbers=dimension_numbers),
}
"""What may stand in front of momentum, and changes what reaches it."""

NAMES: Final = (
    *factories.FACTORIES,
    *COMPOSITES,
    *(f"{name} before momentum" for name in BEFORE_MOMENTUM),
)
"""Everything that is tried."""

SURROUNDINGS: Final = ("plain", "clip", "decay", "mask", "MultiSteps", "inject_hyperparams")


def drawn(name: str, surrounding: str, size: float, draws: Draws) -> Optimizer:
    """The optimizer ``name`` in a surrounding; clips are set for gradients of about ``size``."""
    if name in factories.FACTORIES:
        given = arguments(name, draws)
        made, kind = factory_of(name), name
        is_exact = _is_exact(name, given)
    else:
        given, is_exact = {"learning_rate": 0.0}, False
        before, _, behind = name.partition(" before ")
        kind = "sgd" if behind else "adam"
        one = (
            optax.chain(BEFORE_MOMENTUM[before](), optax.trace(0.9))
            if behind
            else COMPOSITES[name](draws)
        )
        made = partial(_constant, one)
    names = (name, surrounding)
    if surrounding == "inject_hyperparams":
        made = optax.inject_hyperparams(made, static_args=_static(made, given))
    if name == "lookahead":  # its params are pairs, which only what stands inside takes
        inner = _surrounded(adam(draws), surrounding, size, draws)
        return Optimizer(optax.lookahead(inner, 3, 0.5), names, kind)
    own = made(**given)
    return Optimizer(_surrounded(own, surrounding, size, draws), names, kind, is_exact)


def _is_exact(name: str, given: Mapping[str, Any]) -> bool:
    """No epsilon stands between a gradient and a slot, nor does float32 blur the truth itself.

    Simplified AdEMAMix averages as g² + b2 · (n − g²). From n = 0 and with b2 = 0.9999 that leaves a ten-thousandth of
    two numbers that are nearly equal, and of float32's digits as many fewer: two trainings are 4e-4 apart that in
    float64 are 7e-13 apart.
    """
    if "simplified_ademamix" in name and given["b2"] > 0.99:
        return False
    return given.get("eps", 0) == 0 and given.get("eps_root", 0) == 0 and "eps" in given


def _static(made: Callable[..., Any], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that are no plain numbers: they cannot be injected."""
    own = {name: one.default for name, one in inspect.signature(made).parameters.items()} | given
    return tuple(name for name, value in own.items() if not isinstance(value, float) or value == 0)


def _constant(transformation: Any, learning_rate: Any) -> Any:
    return transformation


def _surrounded(own: Any, surrounding: str, size: float, draws: Draws) -> Any:
    if surrounding == "clip":
        norm = size * float(draws.choice([1.0, 1e4]))
        clips = (
            optax.clip_by_global_norm(norm),
            optax.clip(norm),
            optax.adaptive_grad_clip(0.01),
        )
        return optax.chain(clips[draws.integers(len(clips))], own)
    if surrounding == "decay":
        decay = optax.add_decayed_weights(float(draws.choice([1e-4, 0.1])))
        return optax.chain(decay, own) if draws.random() < 0.5 else optax.chain(own, decay)
    if surrounding == "mask":
        return optax.masked(own, matrices)
    if surrounding == "MultiSteps":
        steps = optax.MultiSteps(own, int(draws.integers(2, 4)))
        return optax.GradientTransformationExtraArgs(steps.init, steps.update)
    return own
