"""What optax's states and factories were seen to do, tried out. Made by a program; not to be edited.

``make powers`` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# fmt: off

POWERS: Final[Mapping[str, Mapping[str, tuple[int, int, bool, bool, float | None]]]] = {
    "adabelief": {
        "mu": (1, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "adadelta": {
        "e_g": (2, 0, True, False, 0.0),
        "e_x": (0, 0, True, False, 0.0),
    },
    "adam": {
        "mu": (1, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "adamax": {
        "mu": (1, 0, False, False, 0.0),
        "nu": (1, 0, True, False, 0.0),
    },
    "adan": {
        "m": (1, 0, False, False, 0.0),
        "v": (1, 0, False, False, 0.0),
        "n": (2, 0, True, False, 0.0),
        "g": (1, 0, False, False, 0.0),
    },
    "ademamix": {
        "m1": (1, 0, False, False, 0.0),
        "m2": (1, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "adopt": {
        "mu": (0, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "amsgrad": {
        "mu": (1, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
        "nu_max": (2, 0, True, False, 0.0),
    },
    "apply_every": {
        "grad_acc": (1, 0, False, False, 0.0),
    },
    "centered_rmsprop": {
        "mu": (1, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "cocob": {
        "init_particles": (0, 1, False, False, None),
        "cumulative_gradients": (1, 0, False, False, 0.0),
        "subgradients": (1, 0, True, False, 0.0),
    },
    "dadapt": {
        "exp_avg": (1, 0, False, False, 0.0),
        "exp_avg_sq": (2, 0, True, False, 0.0),
        "grad_sum": (1, 0, False, False, 0.0),
    },
    "dog": {
        "init_params": (0, 1, False, False, None),
    },
    "dowg": {
        "init_params": (0, 1, False, False, None),
    },
    "ema": {
        "ema": (1, 0, False, False, 0.0),
    },
    "factored": {
        "v_row": (2, 0, True, False, 0.0),
        "v_col": (2, 0, True, False, 0.0),
        "v": (2, 0, True, False, 0.0),
    },
    "ldog": {
        "grad_sum_of_squares": (2, 0, True, False, 0.0),
        "init_params": (0, 1, False, False, None),
    },
    "lion": {
        "mu": (1, 0, False, False, 0.0),
    },
    "madgrad": {
        "grad_sum_sq": (2, 0, True, False, 0.0),
        "s": (1, 0, False, False, 0.0),
        "x0": (0, 1, False, False, None),
    },
    "muon": {
        "mu": (1, 0, False, False, 0.0),
    },
    "novograd": {
        "mu": (0, 0, False, True, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "optimistic": {
        "previous_gradient": (1, 0, False, False, 0.0),
    },
    "prodigy": {
        "exp_avg": (1, 0, False, False, 0.0),
        "exp_avg_sq": (2, 0, True, False, 0.0),
        "grad_sum": (1, 0, False, False, 0.0),
        "params0": (0, 1, False, False, None),
    },
    "rms": {
        "nu": (2, 0, True, False, 0.0),
    },
    "rms_count": {
        "nu": (2, 0, True, False, 0.0),
    },
    "rprop": {
        "step_sizes": (0, 0, True, False, None),
    },
    "rss": {
        "sum_of_squares": (2, 0, True, False, 0.1),
    },
    "simplified_ademamix": {
        "m": (1, 0, False, False, 0.0),
        "n": (2, 0, True, False, 0.0),
    },
    "sm3": {
        "mu": (2, 0, True, False, 0.0),
        "nu": (0, 0, False, True, 0.0),
    },
    "stddev": {
        "mu": (1, 0, False, False, 0.0),
        "nu": (2, 0, True, False, 0.0),
    },
    "trace": {
        "trace": (1, 0, False, False, 0.0),
    },
    "yogi": {
        "mu": (1, 0, False, False, 1e-06),
    },
}
"""By kind of state and field: ``of_signal``, ``fixed``, ``is_even``, ``is_per_leaf`` and ``fresh`` of a ``Field``."""

SIGNALS: Final[Mapping[str, Mapping[str, int]]] = {
    "acprop": {"adabelief": -1},
    "adabelief": {"adabelief": -1},
    "adadelta": {"adadelta": -1},
    "adafactor": {"factored": -1, "ema": 1},
    "adafactor-without-parameter-scale": {"factored": -1, "ema": 0},
    "adagrad": {"rss": -1},
    "adam": {"adam": -1},
    "adamax": {"adamax": -1},
    "adamaxw": {"adamax": -1},
    "adamw": {"adam": -1},
    "adan": {"adan": -1},
    "ademamix": {"ademamix": -1},
    "adopt": {"adopt": -1},
    "amsgrad": {"amsgrad": -1},
    "apply_every": {"apply_every": -1},
    "cocob": {"cocob": -1},
    "dadapt_adamw": {"dadapt": -1},
    "ema": {"ema": -1},
    "lamb": {"adam": -1},
    "lars": {"trace": 1},
    "lion": {"lion": -1},
    "madgrad": {"madgrad": -1},
    "muon": {"muon": -1, "adam": -1},
    "nadam": {"adam": -1},
    "nadamw": {"adam": -1},
    "novograd": {"novograd": -1},
    "optimistic_adam": {"adam": -1, "optimistic": 0},
    "optimistic_adam_v2": {"adam": -1, "optimistic": 0},
    "optimistic_gradient_descent": {"optimistic": -1},
    "prodigy": {"prodigy": -1},
    "radam": {"adam": -1},
    "rmsprop": {"rms": -1, "rms_count": -1, "trace": 0},
    "schedule_free_adamw": {"rms": -1, "rms_count": -1},
    "sgd": {"trace": -1},
    "signum": {"ema": -1},
    "simplified_ademamix": {"simplified_ademamix": -1},
    "sm3": {"sm3": -1},
    "trace": {"trace": -1},
    "yogi": {"yogi": -1},
    "scale_by_acprop": {"adabelief": -1},
    "scale_by_adadelta": {"adadelta": -1},
    "scale_by_adam": {"adam": -1},
    "scale_by_adamax": {"adamax": -1},
    "scale_by_adan": {"adan": -1},
    "scale_by_ademamix": {"ademamix": -1},
    "scale_by_adopt": {"adopt": -1},
    "scale_by_amsgrad": {"amsgrad": -1},
    "scale_by_belief": {"adabelief": -1},
    "scale_by_cocob": {"cocob": -1},
    "scale_by_distance_over_gradients": {"ldog": -1},
    "scale_by_factored_rms": {"factored": -1},
    "scale_by_lbfgs": {"lbfgs": -1},
    "scale_by_lion": {"lion": -1},
    "scale_by_madgrad": {"madgrad": -1},
    "scale_by_novograd": {"novograd": -1},
    "scale_by_optimistic_gradient": {"optimistic": -1},
    "scale_by_radam": {"adam": -1},
    "scale_by_rms": {"rms": -1, "rms_count": -1},
    "scale_by_rss": {"rss": -1},
    "scale_by_simplified_ademamix": {"simplified_ademamix": -1},
    "scale_by_sm3": {"sm3": -1},
    "scale_by_stddev": {"stddev": -1, "centered_rmsprop": -1},
    "scale_by_yogi": {"yogi": -1},
}
"""By factory and kind of state: the exponent with which updates that reach it follow a factor of the params."""
