"""Which optax factory makes which states: what ``optimizer_kind:`` may say. Data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from surgery_cli.optimizer.assumptions import ABOVE_FLOOR, NO_MASK, Assumption

_ADAM: Final = {"adam": -1}
_BELIEF: Final = {"adabelief": -1}
_ADAMAX: Final = {"adamax": -1}
_ADEMAMIX: Final = {"ademamix": -1}
_FACTORED: Final = {"factored": -1}
_RMS: Final = {"rms": -1, "rms_count": -1}
_STDDEV: Final = {"stddev": -1, "centered_rmsprop": -1}
_SGD: Final = {"trace": -1}
_MUON: Final = {"muon": -1, "adam": -1}
_SIMPLE: Final = {"simplified_ademamix": -1}

FACTORIES: Final[Mapping[str, Mapping[str, int]]] = {
    "acprop": _BELIEF,
    "adabelief": _BELIEF,
    "adadelta": {"adadelta": -1},
    "adafactor": {"factored": -1, "ema": 1},
    "adafactor-without-parameter-scale": {"factored": -1, "ema": 0},
    "adagrad": {"rss": -1},
    "adam": _ADAM,
    "adamax": _ADAMAX,
    "adamaxw": _ADAMAX,
    "adamw": _ADAM,
    "adan": {"adan": -1},
    "ademamix": _ADEMAMIX,
    "adopt": {"adopt": -1},
    "amsgrad": {"amsgrad": -1},
    "apply_every": {"apply_every": -1},
    "cocob": {"cocob": -1},
    "dadapt_adamw": {"dadapt": -1},
    "dog": {"dog": -1, "ldog": -1},
    "dowg": {"dowg": -1},
    "ema": {"ema": -1},
    "lamb": _ADAM,
    "lars": {"trace": 1},
    "lbfgs": {"lbfgs": -1, "linesearch": -1},
    "lion": {"lion": -1},
    "madgrad": {"madgrad": -1},
    "momo": {"momo": -1},
    "momo_adam": {"momo_adam": -1},
    "muon": _MUON,
    "nadam": _ADAM,
    "nadamw": _ADAM,
    "novograd": {"novograd": -1},
    "optimistic_adam": {"adam": -1, "optimistic": 0},
    "optimistic_adam_v2": {"adam": -1, "optimistic": 0},
    "optimistic_gradient_descent": {"optimistic": -1},
    "prodigy": {"prodigy": -1},
    "radam": _ADAM,
    "rmsprop": {**_RMS, **_STDDEV, "trace": 0},
    "rprop": {"rprop": -1},
    "schedule_free_adamw": {"rms": -1, "rms_count": -1, "adam": -1, "schedule_free": -1},
    "schedule_free_sgd": {"schedule_free": -1, "trace": -1},
    "sgd": _SGD,
    "signum": {"ema": -1},
    "simplified_ademamix": _SIMPLE,
    "sm3": {"sm3": -1},
    "sophia": {"sophia": -1},
    "trace": _SGD,
    "yogi": {"yogi": -1},
    "scale_by_acprop": _BELIEF,
    "scale_by_adadelta": {"adadelta": -1},
    "scale_by_adam": _ADAM,
    "scale_by_adamax": _ADAMAX,
    "scale_by_adan": {"adan": -1},
    "scale_by_ademamix": _ADEMAMIX,
    "scale_by_adopt": {"adopt": -1},
    "scale_by_amsgrad": {"amsgrad": -1},
    "scale_by_backtracking_linesearch": {"linesearch": -1},
    "scale_by_belief": _BELIEF,
    "scale_by_cocob": {"cocob": -1},
    "scale_by_distance_over_gradients": {"ldog": -1},
    "scale_by_factored_rms": _FACTORED,
    "scale_by_lbfgs": {"lbfgs": -1},
    "scale_by_lion": {"lion": -1},
    "scale_by_madgrad": {"madgrad": -1},
    "scale_by_muon": {"muon": -1},
    "scale_by_novograd": {"novograd": -1},
    "scale_by_optimistic_gradient": {"optimistic": -1},
    "scale_by_radam": _ADAM,
    "scale_by_rms": _RMS,
    "scale_by_rprop": {"rprop": -1},
    "scale_by_rss": {"rss": -1},
    "scale_by_simplified_ademamix": _SIMPLE,
    "scale_by_sm3": {"sm3": -1},
    "scale_by_stddev": _STDDEV,
    "scale_by_yogi": {"yogi": -1},
    "scale_by_zoom_linesearch": {"linesearch": -1},
}
"""For every factory, the kinds of state it makes (see ``kinds``) and the signal that reaches each.

A signal is the exponent with which the update follows a factor of the params: -1, 0 or 1. Naming a factory in
``optimizer_kind:`` says that every state of these kinds stands as the factory puts it, whatever came before it
in the chain.
"""

PER_LEAF: Final[Mapping[str, tuple[str, Assumption | None]]] = {
    "adafactor": ("ema", ABOVE_FLOOR),
    "adafactor-without-parameter-scale": ("ema", None),
    "lars": ("trace", NO_MASK),
}
"""Factories that divide by the size of a whole leaf before a state of this kind: no array of factors reaches it.

With what their own settings must leave alone for the signal to be what it is.
"""

WRAPPERS: Final[Mapping[str, str]] = {
    "MultiSteps": "multi_steps",
    "apply_if_finite": "apply_if_finite",
    "conditionally_mask": "conditionally",
    "conditionally_transform": "conditionally",
    "freeze": "masked",
    "inject_hyperparams": "inject_hyperparams",
    "inject_stateful_hyperparams": "inject_hyperparams",
    "lookahead": "lookahead",
    "masked": "masked",
    "measure_with_ema": "ema",
    "mechanize": "mechanic",
    "monitor": "monitor",
    "multi_transform": "partition",
    "partition": "partition",
    "sam": "sam",
    "schedule_free": "schedule_free",
    "selective_transform": "partition",
    "split_real_and_imaginary": "masked",
}
"""Factories whose state holds the states of others, by the kind of their own."""

WITHOUT_SLOTS: Final[Mapping[str, str]] = {
    "add_noise": "noise",
    "differentially_private_aggregate": "private",
    "fromage": "schedule",
    "hutchinson_estimator_diag_hessian": "hutchinson",
    "noisy_sgd": "noise",
    "reduce_on_plateau": "plateau",
    "scale_by_learning_rate": "schedule",
    "scale_by_schedule": "schedule",
    "snapshot": "snapshot",
    "zero_nans": "zero_nans",
}
"""Factories with a state that holds no slot (clocks, keys, flags), by its kind."""

STATELESS: Final = frozenset(
    {
        "adaptive_grad_clip",
        "add_decayed_weights",
        "centralize",
        "chain",
        "clip",
        "clip_by_block_rms",
        "clip_by_global_norm",
        "identity",
        "keep_params_nonnegative",
        "named_chain",
        "normalize",
        "normalize_by_update_norm",
        "polyak_sgd",
        "scale",
        "scale_by_param_block_norm",
        "scale_by_param_block_rms",
        "scale_by_polyak",
        "scale_by_sign",
        "scale_by_trust_ratio",
        "set_to_zero",
        "sign_sgd",
        "stateless",
        "stateless_with_tree_map",
        "with_extra_args_support",
    }
)
"""Factories without a state of their own; on disk an empty place in the chain, or nothing."""

REFUSED: Final[Mapping[str, str]] = {
    "dpsgd": "it clips the gradient of each example and adds noise, so that its slots follow no factor",
    "flatten": "one vector holds the slots of all params, so no leaf belongs to one param",
    "galore": "its slots are projections to low rank, which no edit of the full param can follow",
    "scale_by_galore": "its slots are projections to low rank, which no edit of the full param can follow",
}
"""Factories whose slots cannot be carried, each with its reason."""


def factories_of_both(before: Iterable[str], kinds: Iterable[str]) -> list[str]:
    """Factories that make a state of one of ``before``, and behind it one of ``kinds``.

    >>> factories_of_both(["rms"], ["trace"]), factories_of_both(["lion"], ["trace"])
    (['rmsprop'], [])
    """
    first, then = set(before), set(kinds)
    return [
        name
        for name, signals in FACTORIES.items()
        if first & signals.keys() and any(signals[kind] != -1 for kind in then & signals.keys())
    ]


_USUAL: Final = ("adamw", "sgd", "rmsprop", "lars", "adafactor", "adagrad", "lion")


def factories_of(kinds: Iterable[str]) -> list[str]:
    """Factories that make states of these kinds, one for each kind and signal, the usual ones first.

    >>> factories_of(["adam", "adopt"]), factories_of(["trace"])
    (['adamw', 'adopt'], ['sgd', 'rmsprop', 'lars'])
    """
    wanted = set(kinds)
    found: dict[tuple[str, int], str] = {}
    for name in (*_USUAL, *FACTORIES):
        for kind, signal in FACTORIES[name].items():
            if kind in wanted:
                found.setdefault((kind, signal), name)
    return list(dict.fromkeys(found.values()))
