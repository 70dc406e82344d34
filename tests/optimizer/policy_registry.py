"""What each policy does to the state of each optimizer: the registry that the tests hold and the docs print."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from tests.optimizer.optax_registry import OPTIMIZERS

POLICIES: Final = ("keep", "transform", "reset", "warm")


class Case(NamedTuple):
    """One configuration of ``optax_registry``.

    ``kind`` is the ``optimizer_kind:`` that settles its powers, None where the checkpoint alone tells them.
    ``error`` bounds how far a transformed slot is from that of an optimizer which was fed the scaled gradients from
    its first step (norm of the difference over norm of the slot; 0: equal to the last bit under a power of two; inf:
    not comparable); ``why`` says what is not exact. ``refused`` are policies that are refused, each with its reason.
    ``squares`` are the slots that ``warm`` keeps, ``follows`` copies of params, which take part in every edit.
    """

    kind: str | None = None
    error: float = 0.0
    why: str = ""
    refused: Mapping[str, str] = {}
    squares: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()
    """Copies of params that ``init`` starts at 0 and a reset sets to the params: else the first difference of params
    would be the params themselves."""
    is_compiled: bool = False
    """True where its control flow is slow unless the whole step is compiled."""


_NU: Final = ("nu",)
_ADAM: Final = Case("adam", squares=_NU)
_AFTER: Final = {"transform": "no name says what reaches the accumulator behind Adam"}
_RUNNING: Final = "its running estimates are sums over all params"
_SETTINGS: Final = {"reset": "its initial value is a setting of the script: say it with `slots:`"}
_FADING: Final = {
    "transform": "both moments start at 1e-6, and how much of that is left is not on disk"
}
_PRIVATE: Final = {"transform": "gradients are clipped for each example, and noise is added"}
_CLIPS: Final = "an active clip by the norm of all gradients is undone by no power"
_NOISE: Final = "noise is not scaled with the gradients"
_EPSILON: Final = "an epsilon stands between a gradient and the slot behind it"
_LINE_SEARCH: Final = "one line search serves all params, and its steps are not scaled with them"
_PLUS_STEPS: Final = "z is the params plus steps, which are not scaled with them"

CASES: Final[Mapping[str, Case]] = {
    # --- adam and its family ---------------------------------------------------------------------------
    "adam": _ADAM,
    "adamw": Case("adamw", squares=_NU),
    "adamw_sched": Case("adamw", squares=_NU),
    "adam_mu_bf16": _ADAM,
    "nadam": Case("nadam", squares=_NU),
    "nadamw": Case("nadamw", squares=_NU),
    "radam": Case("radam", squares=_NU),
    "amsgrad": Case(squares=("nu", "nu_max")),
    "adabelief": Case("adabelief", squares=_NU),
    "yogi": Case("yogi", squares=_NU, refused=_FADING),
    "acprop": Case("acprop", squares=_NU),
    "adamax": Case("adamax", squares=_NU, error=1e-7, why="an epsilon is added to each |g|"),
    "adamaxw": Case("adamaxw", squares=_NU, error=1e-7, why="an epsilon is added to each |g|"),
    "adopt": Case("adopt", squares=_NU),
    "lamb": Case("lamb", squares=_NU),
    "adan": Case(squares=("n",)),
    "ademamix": Case(squares=_NU),
    "simplified_ademamix": Case(squares=("n",)),
    "novograd": Case(squares=_NU, error=1e-6, why=_EPSILON),
    "optimistic_adam_v2": Case("optimistic_adam_v2", squares=_NU, error=1e-6, why=_EPSILON),
    # --- scaled by squares alone -----------------------------------------------------------------------
    "adagrad": Case("adagrad", squares=("sum_of_squares",), error=1e-6, why="its sums start at 0.1, which is rounded"),
    "adadelta": Case("adadelta", squares=("e_g", "e_x"), error=0.05, why="its epsilon, 1e-6, sets the size of e_x"),
    "rmsprop": Case("rmsprop", squares=_NU),
    "rmsprop_momentum": Case("rmsprop", squares=_NU, error=1e-5, why=_EPSILON),
    "rmsprop_centered": Case("rmsprop", squares=_NU),
    "rmsprop_centered_momentum": Case("rmsprop", squares=_NU, error=1e-5, why=_EPSILON),
    "rmsprop_biascorr": Case("rmsprop", squares=_NU),
    "sm3": Case(squares=("mu",), error=1e-6, why=_EPSILON),
    "adafactor": Case(squares=("v_row", "v_col", "v")),
    "adafactor_momentum": Case("adafactor", squares=("v_row", "v_col", "v")),
    "adafactor_noparamscale": Case("adafactor-without-parameter-scale", squares=("v_row", "v_col", "v")),
    "sophia": Case(squares=_NU, is_compiled=True),
    # --- momentum --------------------------------------------------------------------------------------
    "sgd": Case(),
    "sgd_momentum": Case(),
    "sgd_momentum_sched": Case(),
    "sign_sgd": Case(),
    "signum": Case(),
    "lion": Case(),
    "lars": Case("lars"),
    "muon": Case("muon", squares=_NU, is_compiled=True),
    "optimistic_gd": Case(),
    "rprop": Case(squares=("step_sizes",), refused=_SETTINGS),
    "noisy_sgd": Case(is_compiled=True),
    "dpsgd": Case(refused=_PRIVATE),
    "fromage": Case(),
    "polyak_sgd": Case(),
    # --- optimizers that keep copies of the params -------------------------------------------------------
    "schedule_free_sgd": Case(
        follows=("z",), error=3, why=_PLUS_STEPS
    ),
    "schedule_free_adamw": Case(
        "schedule_free_adamw", squares=_NU, follows=("z",), error=3, why=_PLUS_STEPS
    ),
    "schedule_free_adam_full": Case(
        "adam", squares=_NU, follows=("z",), error=3, why=_PLUS_STEPS
    ),
    "sam": Case(follows=("cache",)),
    "mechanic_adam": Case("adam", squares=_NU, follows=("x0",), why=_RUNNING),
    "cocob": Case(
        "cocob", squares=("scale", "subgradients"), follows=("init_particles",),
    ),
    "dadapt_adamw": Case(squares=("exp_avg_sq",), error=0.03, why=_RUNNING),
    "prodigy": Case(squares=("exp_avg_sq",), follows=("params0",), error=1, why=_RUNNING),
    "dog": Case(follows=("init_params",), why=_RUNNING),
    "dowg": Case(follows=("init_params",), why=_RUNNING),
    "ldog": Case(
        squares=("max_dist", "grad_sum_of_squares"), follows=("init_params",), refused=_SETTINGS,
        error=0.1, why="distances start at (1 + |p|) times a setting",
    ),
    "madgrad": Case("madgrad", squares=("grad_sum_sq",), follows=("x0",)),
    "momo": Case(),
    "momo_adam": Case(squares=("exp_avg_sq",)),
    "lbfgs": Case(
        follows=("params",), previous=("params",), error=inf, why=_LINE_SEARCH, is_compiled=True
    ),
    # --- chains ----------------------------------------------------------------------------------------
    "clip_inactive_adamw": Case("adamw", squares=_NU),
    "clip_adam": Case("adam", squares=_NU, error=20, why=_CLIPS),
    "agc_sgd": Case("sgd", error=50, why="where a clip by the param's norm is active, +1 would be right"),
    "clip_elem_sgd": Case("sgd", error=10, why="where a clip of elements is active, 0 would be right"),
    "l2_before_adam": Case("adam", squares=_NU, error=0.05, why="decay is added before the moments"),
    "centralize_adam": _ADAM,
    "add_noise_adam": Case("adam", squares=_NU, error=1, why=_NOISE),
    "ema_before_adam": _ADAM,
    "ema_after_adam": Case("adam", squares=_NU, refused=_AFTER),
    "trace_after_adam": Case("adam", squares=_NU, refused=_AFTER),
    "apply_every": Case("adam", squares=_NU, refused=_AFTER),
    "named_chain": Case(
        "adam", squares=_NU, refused={"transform": "the disk does not keep the order of a named chain"}
    ),
    "nested_chain": Case("adam", squares=_NU, error=5, why=_CLIPS),
    "zero_nans": _ADAM,
    "nonneg": _ADAM,
    "freeze": _ADAM,
    "reduce_on_plateau": _ADAM._replace(is_compiled=True),
    "snapshot_norm": _ADAM,
    "snapshot_updates": Case(
        "adam", squares=_NU,
        refused={
            "transform": "a snapshot may hold anything",
            "reset": "a snapshot has no initial value that could be known",
            "warm": "a snapshot may hold squares, or anything else",
        },
    ),
    "backtracking": Case(error=inf, why=_LINE_SEARCH, is_compiled=True),
    # --- wrappers --------------------------------------------------------------------------------------
    "masked_adam": _ADAM,
    "partition_2": _ADAM,
    "partition_3same": _ADAM,
    "selective_transform": _ADAM,
    "inject_hyperparams": _ADAM,
    "inject_const": Case(),
    "multisteps": _ADAM._replace(is_compiled=True),
    "multisteps_skip": _ADAM._replace(is_compiled=True),
    "multisteps_clip_inject": Case("adam", squares=_NU, error=20, why=_CLIPS, is_compiled=True),
    "apply_if_finite": _ADAM._replace(is_compiled=True),
    "conditionally_mask": _ADAM._replace(is_compiled=True),
    "conditionally_transform": _ADAM._replace(is_compiled=True),
    "complex_adam": _ADAM,
}  # fmt: skip

NOT_TRIED: Final[Mapping[str, str]] = {
    "flatten_adam": "refused: one vector holds the slots of all params",
    "galore": "refused: its slots are projections to low rank",
    "sam_opaque": "its state is that of `sam`, without the copy",
}
"""Configurations that no policy is tried on, each with its reason."""

assert {*CASES, *NOT_TRIED} == set(OPTIMIZERS)
