"""Which optax factory makes which states: what ``optimizer_kind:`` may say. Data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from surgery_cli.draft.assumptions import ABOVE_FLOOR, NO_MASK, Assumption
from surgery_cli.optimizer.knowledge import measured

_ADAM: Final = ("adam",)
_BELIEF: Final = ("adabelief",)
_ADAMAX: Final = ("adamax",)
_ADEMAMIX: Final = ("ademamix",)
_FACTORED: Final = ("factored",)
_RMS: Final = ("rms", "rms_count")
_STDDEV: Final = ("stddev", "centered_rmsprop")
_SGD: Final = ("trace",)
_MUON: Final = ("muon", "adam")
_SIMPLE: Final = ("simplified_ademamix",)

_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "acprop": _BELIEF,
    "adabelief": _BELIEF,
    "adadelta": ("adadelta",),
    "adafactor": ("factored", "ema"),
    "adafactor-without-parameter-scale": ("factored", "ema"),
    "adagrad": ("rss",),
    "adam": _ADAM,
    "adamax": _ADAMAX,
    "adamaxw": _ADAMAX,
    "adamw": _ADAM,
    "adan": ("adan",),
    "ademamix": _ADEMAMIX,
    "adopt": ("adopt",),
    "amsgrad": ("amsgrad",),
    "apply_every": ("apply_every",),
    "cocob": ("cocob",),
    "dadapt_adamw": ("dadapt",),
    "dog": ("dog", "ldog"),
    "dowg": ("dowg",),
    "ema": ("ema",),
    "lamb": _ADAM,
    "lars": ("trace",),
    "lbfgs": ("lbfgs", "linesearch"),
    "lion": ("lion",),
    "madgrad": ("madgrad",),
    "momo": ("momo",),
    "momo_adam": ("momo_adam",),
    "muon": _MUON,
    "nadam": _ADAM,
    "nadamw": _ADAM,
    "novograd": ("novograd",),
    "optimistic_adam": ("adam", "optimistic"),
    "optimistic_adam_v2": ("adam", "optimistic"),
    "optimistic_gradient_descent": ("optimistic",),
    "prodigy": ("prodigy",),
    "radam": _ADAM,
    "rmsprop": (*_RMS, *_STDDEV, "trace"),
    "rprop": ("rprop",),
    "schedule_free_adamw": ("rms", "rms_count", "adam", "schedule_free"),
    "schedule_free_sgd": ("schedule_free", "trace"),
    "sgd": _SGD,
    "signum": ("ema",),
    "simplified_ademamix": _SIMPLE,
    "sm3": ("sm3",),
    "sophia": ("sophia",),
    "trace": _SGD,
    "yogi": ("yogi",),
    "scale_by_acprop": _BELIEF,
    "scale_by_adadelta": ("adadelta",),
    "scale_by_adam": _ADAM,
    "scale_by_adamax": _ADAMAX,
    "scale_by_adan": ("adan",),
    "scale_by_ademamix": _ADEMAMIX,
    "scale_by_adopt": ("adopt",),
    "scale_by_amsgrad": ("amsgrad",),
    "scale_by_backtracking_linesearch": ("linesearch",),
    "scale_by_belief": _BELIEF,
    "scale_by_cocob": ("cocob",),
    "scale_by_distance_over_gradients": ("ldog",),
    "scale_by_factored_rms": _FACTORED,
    "scale_by_lbfgs": ("lbfgs",),
    "scale_by_lion": ("lion",),
    "scale_by_madgrad": ("madgrad",),
    "scale_by_muon": ("muon",),
    "scale_by_novograd": ("novograd",),
    "scale_by_optimistic_gradient": ("optimistic",),
    "scale_by_radam": _ADAM,
    "scale_by_rms": _RMS,
    "scale_by_rprop": ("rprop",),
    "scale_by_rss": ("rss",),
    "scale_by_simplified_ademamix": _SIMPLE,
    "scale_by_sm3": ("sm3",),
    "scale_by_stddev": _STDDEV,
    "scale_by_yogi": ("yogi",),
    "scale_by_zoom_linesearch": ("linesearch",),
}
"""For every factory, the kinds of state that it makes (see ``kinds``): their names are no matter of measurement."""

FACTORIES: Final[Mapping[str, Mapping[str, int]]] = {
    name: {kind: measured.SIGNALS.get(name, {}).get(kind, -1) for kind in kinds}
    for name, kinds in _STATES.items()
}
"""For every factory, the kinds of state that it makes, and the signal that reaches each.

A signal is the exponent with which the update follows a factor of the params: -1, 0 or 1. It was measured; -1, that of
gradients, is taken where training needs a loss as well, or no slot of the state shows it. Naming a factory in
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

_TRUST_RATIO: Final = "takes the ratio of two norms of a leaf"
OVER_LEAVES: Final[Mapping[str, str]] = {
    "adafactor": "adafactor clips the update of a leaf by its size, and multiplies it by that of the param",
    "adafactor-without-parameter-scale": "adafactor clips the update of a leaf by its size",
    "lamb": f"lamb {_TRUST_RATIO}",
    "lars": f"lars {_TRUST_RATIO}",
}
"""Factories that make more of a whole leaf than their states tell (see ``Kind.over_leaf``), as clauses.

Source: optax.scale_by_trust_ratio, optax.clip_by_block_rms and optax.scale_by_param_block_rms, as the factories chain
them. What has no slots (fromage, adaptive_grad_clip, centralize) cannot be named; a trial shows it.
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
_USUAL_FIRST: Final = tuple(dict.fromkeys((*_USUAL, *FACTORIES)))


def factories_of(kinds: Iterable[str]) -> list[str]:
    """Factories that make states of these kinds, one for each kind and signal, the usual ones first.

    >>> factories_of(["adam", "adopt"]), factories_of(["trace"])
    (['adamw', 'adopt'], ['sgd', 'rmsprop', 'lars'])
    """
    wanted = set(kinds)
    found: dict[tuple[str, int], str] = {}
    for name in _USUAL_FIRST:
        for kind, signal in FACTORIES[name].items():
            if kind in wanted:
                found.setdefault((kind, signal), name)
    return list(dict.fromkeys(found.values()))


def every_factory_of(kinds: Iterable[str]) -> list[str]:
    """Factories that make a state of one of these kinds, all of them, the usual ones first.

    >>> every_factory_of(["lion"]), every_factory_of(["adamax"])
    (['lion', 'scale_by_lion'], ['adamax', 'adamaxw', 'scale_by_adamax'])
    """
    wanted = set(kinds)
    return [name for name in _USUAL_FIRST if wanted & FACTORIES[name].keys()]
