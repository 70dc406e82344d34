"""What is known of optimizer states: their fields, powers, clocks and fresh values. Data, in one place.

A state is recognised by the set of its field names. The power of a slot does not follow from its name but from its
place in the chain: ``signal`` is the exponent with which the update that reaches the state follows a factor of the
params (-1 at the start of a chain, 0 after a normalising transform, +1 after a trust ratio).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from surgery_cli.draft.assumptions import (
    FAR_FROM_START,
    NO_EPSILON,
    SAME_ESTIMATE,
    SAME_SEARCH,
    SAME_SIGNS,
    Assumption,
)
from surgery_cli.optimizer.knowledge import measured


class Start(msgspec.Struct, frozen=True):
    """What decides at what the slots of a field start: a setting of the factory, which is not on disk.

    ``stays``: all of it stays in the slot; else it fades at a pace that is not on disk either.
    """

    setting: str
    stays: bool = False


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a state that holds a tree shaped like the params.

    The power of its slots is ``of_signal * signal + fixed``. ``relations`` are those which its shapes may have
    to the params' (see ``Slot.relation``). ``fresh`` is the initial value, optax's own default where a ``start`` says
    that a setting decides it. The other fields are those of ``Slot``.
    """

    of_signal: int = 0
    fixed: int = 0
    is_even: bool = False
    is_second_moment: bool = False
    is_params_like: bool = False
    fresh: float | None = 0.0
    start: Start | None = None
    is_per_leaf: bool = False
    provided: Assumption | None = None
    """What else must hold for the power."""
    relations: tuple[str, ...] = ("same",)
    part: Literal["row", "column", "whole"] | None = None
    """Of a second moment that may be factored: which part of it."""

    def power(self, signal: int | None) -> int | None:
        """The power under a known signal, or None where it depends on an unknown one."""
        if self.of_signal == 0:
            return self.fixed
        return None if signal is None else self.of_signal * signal + self.fixed


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of state.

    ``after`` is the signal behind it: ``same``, a number, ``unknown`` where it makes updates of its own, or ``unsure``
    where it lets through gradients that it may have changed. ``inner`` fields hold states that the same
    signal reaches; behind a state that is ``same``, the signal behind its inner states goes on. ``clocks`` say what an
    integer scalar drives; ``numbers`` what a scalar that is no clock means.
    """

    name: str
    family: str
    fields: Mapping[str, Field] = MappingProxyType({})
    clocks: Mapping[str, str] = MappingProxyType({})
    clock_fresh: Mapping[str, int] = MappingProxyType({})
    lone_clocks: frozenset[str] = frozenset()
    """Clocks on which no slot of the state depends, so that they go on where all slots restart."""
    older_clocks: Mapping[str, str] = MappingProxyType({})
    """What clocks drive in states of older releases, which lack a field that stands in ``VANISHING``."""
    numbers: Mapping[str, str] = MappingProxyType({})
    running: Mapping[str, float] = MappingProxyType({})
    """Numbers that the whole state keeps with its slots, and at what they start."""
    estimates: tuple[str, ...] = ()
    """Numbers that follow what was seen, and by which all slots of the state go; they start from a setting."""
    nonnegative: frozenset[str] = frozenset()
    """Which of all these numbers are squares, sizes or rates, and never below 0."""
    infinite: frozenset[str] = frozenset()
    """Fields that are infinite until something was measured: a best loss, the error of a search that has not begun."""
    others: tuple[str, ...] = ()
    """All other fields that are no trees: keys, flags, numbers."""
    inner: tuple[str, ...] = ()
    after: int | str = "same"
    over_leaf: str = ""
    """What it takes of a whole leaf, as a clause; '' if what becomes of an element hangs on no others of its leaf."""
    over_axes: bool = False
    """True if that also hangs on which axis is which."""

    @property
    def signature(self) -> frozenset[str]:
        """The names of all fields."""
        numbers = (*self.clocks, *self.numbers, *self.running, *self.estimates)
        return frozenset((*self.fields, *numbers, *self.others, *self.inner))


_MOMENT: Final = Field()
_SECOND: Final = Field(is_second_moment=True)
_SECOND_NEAR_EPSILON: Final = Field(is_second_moment=True, provided=NO_EPSILON)
_RATIO: Final = Field(provided=NO_EPSILON)
_PARAMS: Final = Field(fixed=1, is_params_like=True, fresh=None)
_ACCUMULATED: Final = Start("initial_accumulator_value")
_SCALED_START: Final = msgspec.structs.replace(_SECOND, start=Start("initial_scale"))
_FACTORED: Final = msgspec.structs.replace(
    _SECOND_NEAR_EPSILON, relations=("same", "one", "factored")
)
_ROW: Final = msgspec.structs.replace(_FACTORED, part="row")
_COLUMN: Final = msgspec.structs.replace(_FACTORED, part="column")
_WHOLE: Final = msgspec.structs.replace(_FACTORED, part="whole")
_FIRST_PARAMS: Final = msgspec.structs.replace(_PARAMS, provided=SAME_ESTIMATE)
"""Params at the first step, from which a distance of all params is measured."""
_ESTIMATED: Final = Field(provided=SAME_ESTIMATE)
# of what no trial measures
_FIRST: Final = Field(of_signal=1)
_SQUARE: Final = Field(of_signal=2, is_even=True, is_second_moment=True)
_SCALAR: Final = ("scalar",)
_SINGLE: Final = ("scalar", "one")
_COUNT: Final = {"count": "bias_correction"}

_TOLD: Final[tuple[Kind, ...]] = (
    # --- moments, then a quotient: the signal behind them is 0 -------------------------------------------
    Kind(
        name="adam",
        family="adam-family",
        fields={"mu": _MOMENT, "nu": _SECOND},
        clocks=_COUNT,
        after=0,
    ),
    Kind(
        name="yogi",
        family="adam-family",
        clocks=_COUNT,
        after=0,
        fields={
            "mu": Field(start=_ACCUMULATED),
            # its steps go by the sign of what is compared with it, so that none of it is a power alone
            "nu": msgspec.structs.replace(_SQUARE, fresh=1e-6, start=_ACCUMULATED),
        },
    ),
    Kind(
        name="adamax",
        family="adam-family",
        fields={"mu": _MOMENT, "nu": _SECOND_NEAR_EPSILON},
        clocks=_COUNT,
        after=0,
    ),
    Kind(
        name="adopt",
        family="adam-family",
        fields={"mu": _RATIO, "nu": _SECOND},
        clocks={"count": "first_step"},
        after=0,
    ),
    Kind(
        name="centered_rmsprop",
        family="adam-family",
        fields={"mu": _MOMENT, "nu": _SCALED_START},
        clocks=_COUNT,
        after=0,
    ),
    Kind(
        name="adabelief",
        family="adam-family",
        fields={"mu": _MOMENT, "nu": _SECOND_NEAR_EPSILON},
        clocks=_COUNT,
        after=0,
    ),
    Kind(
        name="novograd",
        family="novograd",
        clocks={"count": "first_step"},
        after=0,
        over_leaf="novograd divides the gradient of a leaf by its norm",
        fields={
            "mu": _RATIO,
            "nu": msgspec.structs.replace(_SECOND, relations=_SCALAR),
        },
    ),
    Kind(
        name="amsgrad",
        family="adam-family",
        fields={"mu": _MOMENT, "nu": _SECOND, "nu_max": _SECOND},
        clocks=_COUNT,
        after=0,
    ),
    Kind(
        name="adan",
        family="adan",
        fields={"m": _MOMENT, "v": _MOMENT, "n": _SECOND, "g": _MOMENT},
        clocks={"t": "bias_correction"},
        after=0,
    ),
    Kind(
        name="ademamix",
        family="adam-family",
        fields={"m1": _MOMENT, "m2": _MOMENT, "nu": _SECOND},
        clocks={"count": "bias_correction", "count_m2": "schedule"},
        after=0,
    ),
    Kind(
        name="simplified_ademamix",
        family="adam-family",
        fields={"m": _MOMENT, "n": _SECOND},
        clocks={"t": "bias_correction"},
        after=0,
    ),
    Kind(
        name="sophia",
        family="sophia",
        fields={"mu": _FIRST, "nu": _SQUARE},
        clocks={"count": "cycle"},
        others=("hessian_fn_state",),
        after="unknown",
    ),
    Kind(name="rms", family="rmsprop", fields={"nu": _SCALED_START}, after=0),
    Kind(name="rms_count", family="rmsprop", fields={"nu": _SCALED_START}, clocks=_COUNT, after=0),
    Kind(name="stddev", family="rmsprop", fields={"mu": _MOMENT, "nu": _SCALED_START}, after=0),
    Kind(
        name="sm3",
        family="sm3",
        after=0,
        over_leaf="sm3 keeps the largest squares along each axis of a leaf",
        fields={
            "mu": msgspec.structs.replace(_SECOND, relations=("axis",)),
            "nu": _RATIO,
        },
    ),
    Kind(
        name="rss",
        family="adagrad",
        after=0,
        fields={
            "sum_of_squares": msgspec.structs.replace(
                _SECOND, start=Start("initial_accumulator_value", stays=True)
            )
        },
    ),
    Kind(
        name="adadelta",
        family="adadelta",
        after=0,
        fields={
            "e_g": _SECOND,
            "e_x": _SECOND_NEAR_EPSILON,
        },
    ),
    Kind(
        name="rprop",
        family="rprop",
        after=0,
        fields={
            # its steps begin at a setting, and go by the signs of gradients alone
            "step_sizes": msgspec.structs.replace(_SECOND, provided=SAME_SIGNS),
            "prev_updates": Field(provided=SAME_SIGNS),
        },
    ),
    Kind(
        name="factored",
        family="adafactor",
        after=0,
        over_leaf="adafactor keeps means over two axes of a leaf",
        fields={"v_row": _ROW, "v_col": _COLUMN, "v": _WHOLE},
        clocks={"count": "decay"},
    ),
    Kind(name="lion", family="lion", fields={"mu": _MOMENT}, clocks={"count": "nothing"}, after=0),
    Kind(
        name="muon",
        family="muon",
        fields={"mu": _MOMENT},
        clocks=_COUNT,
        others=("ns_coeffs",),
        after="unknown",  # with adaptive scaling the signal stays
        over_leaf="muon makes the update of a matrix orthogonal",
        over_axes=True,
    ),
    # --- accumulators: the signal goes on ----------------------------------------------------------------
    Kind(name="trace", family="momentum", fields={"trace": _MOMENT}),
    Kind(name="ema", family="momentum", fields={"ema": _MOMENT}, clocks=_COUNT),
    Kind(
        name="optimistic",
        family="optimistic",
        fields={"previous_gradient": _MOMENT},
        clocks={"is_initial_step": "first_step"},
        clock_fresh={"is_initial_step": 1},
    ),
    Kind(
        name="apply_every",
        family="accumulation",
        fields={"grad_acc": _MOMENT},
        clocks={"count": "cycle"},
    ),
    Kind(
        name="accumulate",
        family="accumulation",
        fields={"avg_grad": _FIRST},
        clocks={"micro_step": "cycle"},
        others=("ready",),
    ),
    Kind(
        name="zero_nans",
        family="zero_nans",
        fields={"found_nan": Field(relations=_SCALAR)},
    ),
    Kind(
        name="ldog",
        family="dog",
        after=1,
        over_leaf="dog goes by the norms of a leaf",
        fields={
            "max_dist": Field(
                fixed=1,
                is_even=True,
                is_second_moment=True,
                fresh=None,
                relations=_SINGLE,
                provided=FAR_FROM_START,
            ),
            "grad_sum_of_squares": msgspec.structs.replace(_SECOND, relations=_SINGLE),
            "init_params": _PARAMS,
        },
    ),
    # --- line searches and quasi-Newton ------------------------------------------------------------------
    Kind(
        name="lbfgs",
        family="lbfgs",
        after="unknown",
        clocks={"count": "memory"},
        running={"weights_memory": 0.0},
        fields={
            "params": _PARAMS,
            "updates": _FIRST,
            "diff_params_memory": Field(fixed=1, relations=("stacked",)),
            "diff_updates_memory": Field(of_signal=1, relations=("stacked",)),
        },
    ),
    Kind(
        name="linesearch",
        family="linesearch",
        after="unknown",
        fields={"grad": Field(fixed=-1, provided=SAME_SEARCH)},
        numbers={"learning_rate": "learning rate"},
        nonnegative=frozenset({"learning_rate"}),
        others=("value", "info"),
        infinite=frozenset({"value"}),
    ),
    # --- optimizers that keep copies of the params -------------------------------------------------------
    Kind(
        name="cocob",
        family="cocob",
        after="unknown",
        fields={
            "init_particles": _PARAMS,
            "cumulative_gradients": _MOMENT,
            "scale": msgspec.structs.replace(
                _SECOND_NEAR_EPSILON, of_signal=1, is_even=True, fresh=1e-8
            ),
            "subgradients": _SECOND_NEAR_EPSILON,
            "reward": msgspec.structs.replace(_RATIO, is_even=True),
        },
    ),
    Kind(
        name="dadapt",
        family="prodigy",
        after="unknown",
        fields={
            "exp_avg": _ESTIMATED,
            "exp_avg_sq": msgspec.structs.replace(_SECOND, provided=SAME_ESTIMATE),
            "grad_sum": _ESTIMATED,
        },
        clocks=_COUNT,
        running={"numerator_weighted": 0.0},
        estimates=("estim_lr",),
        nonnegative=frozenset({"estim_lr"}),
    ),
    Kind(
        name="prodigy",
        family="prodigy",
        after="unknown",
        clocks=_COUNT,
        running={"numerator_weighted": 0.0},
        estimates=("estim_lr",),
        nonnegative=frozenset({"estim_lr"}),
        fields={
            "exp_avg": _ESTIMATED,
            "exp_avg_sq": msgspec.structs.replace(_SECOND, provided=SAME_ESTIMATE),
            "grad_sum": _ESTIMATED,
            "params0": _PARAMS,
        },
    ),
    Kind(
        name="dog",
        family="dog",
        after="unknown",
        fields={"init_params": _FIRST_PARAMS},
        clocks={"is_init_step": "first_step"},
        clock_fresh={"is_init_step": 1},
        running={"sum_sq_norm_grads": 0.0},
        estimates=("max_dist",),
        nonnegative=frozenset({"max_dist", "sum_sq_norm_grads"}),
    ),
    Kind(
        name="dowg",
        family="dog",
        after="unknown",
        fields={"init_params": _FIRST_PARAMS},
        running={"weighted_sq_norm_grads": 0.0},
        estimates=("estim_sq_dist",),
        nonnegative=frozenset({"estim_sq_dist", "weighted_sq_norm_grads"}),
    ),
    Kind(
        name="madgrad",
        family="madgrad",
        after="unknown",
        fields={"grad_sum_sq": _SECOND, "s": _MOMENT, "x0": _PARAMS},
        clocks={"count": "schedule"},
    ),
    Kind(
        name="momo",
        family="momo",
        after="unknown",
        fields={"exp_avg": _FIRST},
        clocks={"count": "first_step"},
        running={"barf": 0.0, "gamma": 0.0},
        estimates=("lb",),
    ),
    Kind(
        name="momo_adam",
        family="momo",
        after="unknown",
        fields={"exp_avg": _FIRST, "exp_avg_sq": _SQUARE},
        clocks={"count": "first_step"},
        running={"barf": 0.0, "gamma": 0.0},
        estimates=("lb",),
    ),
    Kind(
        name="mechanic",
        family="mechanic",
        after="unknown",
        fields={"x0": _FIRST_PARAMS},
        clocks={"count": "first_step"},
        running={"r": 0.0, "m": 0.0, "v": 0.0},
        estimates=("s",),
        nonnegative=frozenset({"m", "v", "s"}),
        inner=("base_optimizer_state",),
    ),
    Kind(
        name="schedule_free",
        family="schedule_free",
        after="unknown",
        fields={"z": _PARAMS},
        clocks={"step_count": "schedule"},
        clock_fresh={"step_count": 1},
        numbers={"b1": "interpolation b1"},
        running={"weight_sum": 0.0, "max_lr": 0.0},
        nonnegative=frozenset({"b1", "weight_sum", "max_lr"}),
        inner=("base_optimizer_state",),
    ),
    Kind(
        name="sam",
        family="sam",
        after="unknown",
        fields={"cache": _PARAMS},
        clocks={"steps_since_sync": "cycle"},
        inner=("opt_state", "adv_state"),
    ),
    Kind(
        name="sam_opaque",
        family="sam",
        after="unknown",
        clocks={"steps_since_sync": "cycle"},
        inner=("opt_state", "adv_state"),
    ),
    Kind(
        name="lookahead",
        family="lookahead",
        after="unknown",
        clocks={"steps_since_sync": "cycle"},
        inner=("fast_state",),
    ),
    Kind(
        name="galore",
        family="galore",
        after="unknown",
        fields={"projector": Field(fresh=0.0)},
        clocks={"count": "cycle"},
        inner=("base_optimizer_state",),
    ),
    # --- wrappers ----------------------------------------------------------------------------------------
    Kind(
        name="multi_steps",
        family="accumulation",
        fields={"acc_grads": _FIRST},
        clocks={"mini_step": "cycle", "gradient_step": "schedule"},
        lone_clocks=frozenset({"gradient_step"}),
        others=("skip_state",),
        inner=("inner_opt_state",),
    ),
    Kind(name="masked", family="masked", inner=("inner_state",)),
    Kind(name="partition", family="partition", inner=("inner_states",)),
    Kind(
        name="inject_hyperparams",
        family="inject_hyperparams",
        clocks={"count": "nothing"},  # its schedules count in `hyperparams_states`
        older_clocks={"count": "schedule"},
        others=("hyperparams", "hyperparams_states"),
        inner=("inner_state",),
    ),
    Kind(
        name="apply_if_finite",
        family="apply_if_finite",
        clocks={"notfinite_count": "counter", "total_notfinite": "counter"},
        others=("last_finite",),
        inner=("inner_state",),
    ),
    Kind(
        name="conditionally",
        family="conditionally",
        clocks={"step": "counter"},
        inner=("inner_state",),
        after="unknown",
    ),
    # --- states without slots ----------------------------------------------------------------------------
    Kind(name="schedule", family="schedule", clocks={"count": "schedule"}),
    # noise does not scale with the gradients, nor does what a clip of each example's gradient leaves
    Kind(
        name="noise",
        family="noise",
        clocks={"count": "schedule"},
        others=("rng_key",),
        after="unsure",
    ),
    Kind(name="private", family="noise", others=("rng_key",), after="unsure"),
    Kind(name="hutchinson", family="noise", others=("key",)),
    Kind(
        name="plateau",
        family="plateau",
        clocks={"plateau_count": "counter", "cooldown_count": "counter", "count": "counter"},
        numbers={"scale": "learning rate factor"},
        nonnegative=frozenset({"scale"}),
        others=("best_value", "avg_value"),
        infinite=frozenset({"best_value"}),
    ),
    Kind(
        name="search_record",
        family="linesearch",
        clocks={"num_linesearch_steps": "counter"},
        others=("decrease_error", "curvature_error"),
        infinite=frozenset({"decrease_error", "curvature_error"}),
    ),
    Kind(
        name="monitor",
        family="measurement",
        others=("measurements",),
        inner=("measure_states",),
    ),
    Kind(name="snapshot", family="measurement", others=("measurement",)),
)
"""Every kind of state: its names, and what no trial can measure. Powers and starts stand here only where training needs
more than gradients (a loss, a function), or where a rule of several numbers is more than one power."""


def _with_powers(kind: Kind) -> Kind:
    """A kind with the numbers that were measured of its fields."""
    rows = measured.POWERS.get(kind.name, {})
    names = ("of_signal", "fixed", "is_even", "is_per_leaf", "fresh")
    fields = {
        name: msgspec.structs.replace(field, **dict(zip(names, rows[name], strict=True)))
        if name in rows
        else field
        for name, field in kind.fields.items()
    }
    return msgspec.structs.replace(kind, fields=fields)


KINDS: Final[tuple[Kind, ...]] = tuple(map(_with_powers, _TOLD))
"""Every kind of state that optax and optax.contrib make, in the order in which equal signatures are tried."""

VANISHING: Final = {
    "multi_steps": ("skip_state",),
    "inject_hyperparams": ("hyperparams_states",),
    "sam": ("adv_state",),
    "sam_opaque": ("adv_state",),
    "search_record": ("curvature_error",),
}
"""Fields that some releases lack, or that Flax NNX leaves out where they are empty."""

_FACTORED_SQUARE: Final = msgspec.structs.replace(_FACTORED, of_signal=2, is_even=True)

UNDER_PARAM: Final[Mapping[str, Field]] = {
    "v": msgspec.structs.replace(_FACTORED_SQUARE, part="whole"),
    "v_row": msgspec.structs.replace(_FACTORED_SQUARE, part="row"),
    "v_col": msgspec.structs.replace(_FACTORED_SQUARE, part="column"),
    "m": Field(of_signal=1, relations=("same", "one")),
    "momentum": Field(of_signal=1),
    "grad_ema": Field(fixed=-1),
    "grad_sq_ema": Field(fixed=-2, is_even=True, is_second_moment=True),
}
"""Slots that stand under the param's path: T5X and ``flax.optim``.

T5X's adafactor keeps ``m`` of an update that may have been scaled by the params: its power is not sure.
"""

SLOW: Final = _PARAMS
"""The slow weights of lookahead, beside the fast ones."""

BESIDE: Final = _PARAMS
"""A copy of the params beside the optimizer state: EMA params, target networks."""


@cache
def by_signature() -> dict[frozenset[str], tuple[Kind, ...]]:
    """The kinds that a state with these field names may be."""
    found: dict[frozenset[str], list[Kind]] = {}
    for kind in KINDS:
        vanishing = VANISHING.get(kind.name, ())
        signatures = {kind.signature}
        for name in vanishing:
            signatures |= {s - {name} for s in signatures}
        for signature in signatures:
            found.setdefault(signature, []).append(kind)
    return {signature: tuple(kinds) for signature, kinds in found.items()}


@cache
def by_name() -> dict[str, Kind]:
    """The kinds of states by their names."""
    return {kind.name: kind for kind in KINDS}
