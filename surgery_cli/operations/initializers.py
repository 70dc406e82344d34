"""The initializers of jax.nn.initializers by name: which parameters each has, and what it draws for a shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from surgery_cli.draft.settings import check_above_zero, check_finite, check_fits, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import listed

_FANS = {"in_axis": -2, "out_axis": -1, "batch_axis": ()}

PARAMETERS = (
    "scale",
    "stddev",
    "value",
    "lower",
    "upper",
    "mode",
    "distribution",
    "in_axis",
    "out_axis",
    "batch_axis",
    "column_axis",
)
"""Every parameter that some initializer has."""

_SCALINGS: dict[str, dict[str, Any]] = {
    f"{name}_{shape}": {"scale": scale, "mode": mode, "distribution": distribution}
    for names, scale, mode in (
        (("lecun",), 1.0, "fan_in"),
        (("glorot", "xavier"), 1.0, "fan_avg"),
        (("he", "kaiming"), 2.0, "fan_in"),
    )
    for name in names
    for shape, distribution in (("normal", "truncated_normal"), ("uniform", "uniform"))
}

INITIALIZERS: dict[str, dict[str, Any]] = {
    "zeros": {},
    "ones": {},
    "constant": {"value": None},
    "uniform": {"scale": 1e-2},
    "normal": {"stddev": 1e-2},
    "truncated_normal": {"stddev": 1e-2, "lower": -2.0, "upper": 2.0},
    **dict.fromkeys(_SCALINGS, _FANS),
    "variance_scaling": {"scale": None, "mode": None, "distribution": None, **_FANS},
    "orthogonal": {"scale": 1.0, "column_axis": -1},
    "delta_orthogonal": {"scale": 1.0, "column_axis": -1},
}
"""The parameters of every initializer with their defaults; None where one must be given."""

ORTHOGONAL = ("orthogonal", "delta_orthogonal")

WITH_FANS = (*_SCALINGS, "variance_scaling")
"""The initializers whose variance depends on the inputs and outputs of a unit."""

_TRUNCATED_STDDEV = 0.87962566103423978
"""Standard deviation of a standard normal truncated to [-2, 2]."""


class Values(NamedTuple):
    """What is drawn: ``shift + scale · x``, with x from ``distribution`` within ``bounds``.

    ``constant`` means x = 1. ``orthogonal`` draws whole matrices, ``delta_orthogonal`` one in the kernel's centre.
    """

    distribution: str
    scale: float
    shift: float = 0.0
    bounds: Mapping[str, float] = {}
    column_axis: int = -1


def resolve(init: str, given: Mapping[str, Any], spec: LeafSpec) -> Values:
    """What an initializer draws for a leaf.

    Raises:
        PlanError: there is no such initializer, it lacks or does not know a parameter, or the shape does not suit it.

    Source: jax.nn.initializers.
    """
    settings = settings_of(init, given)
    if init in ("zeros", "ones", "constant"):
        value = settings.get("value", float(init == "ones"))
        check_fits(value, spec, "value")
        return Values("constant", value)
    if is_complex(spec.dtype):
        raise PlanError(
            f"{init} does not draw {spec.type_text}",
            why="complex leaves are filled with zeros, ones or a constant only",
            fix=worded("use {init: zeros}, or take the values from a file with `replace`"),
            field="init",
        )
    values = _drawn(init, settings, spec)
    # the elements of an orthogonal matrix get smaller as it gets larger
    rows = max(spec.shape[-2:]) if init in ORTHOGONAL else 1
    field = "stddev" if "stddev" in settings else "scale"
    check_above_zero(values.scale / math.sqrt(rows), spec, field)
    return values


def _drawn(init: str, settings: Mapping[str, Any], spec: LeafSpec) -> Values:
    """What an initializer that draws random values draws."""
    if init in ORTHOGONAL:
        _check_orthogonal(init, settings, spec)
        return Values(init, settings["scale"], column_axis=settings["column_axis"])
    if init == "uniform":
        return Values("uniform", settings["scale"])
    if init == "normal":
        return Values("normal", settings["stddev"])
    if init == "truncated_normal":
        bounds = {"lower": settings["lower"], "upper": settings["upper"]}
        return Values("truncated_normal", settings["stddev"], bounds=bounds)
    return _scaled(settings, init, spec)


def check_known(init: str) -> None:
    """Raise PlanError unless jax has such an initializer."""
    if init not in INITIALIZERS:
        close = nearest(init, INITIALIZERS) or ["lecun_normal", "zeros"]
        raise PlanError(
            f"there is no initializer '{init}'",
            why="initializers have the names of jax.nn.initializers",
            fix=f"perhaps {listed(close, word='or')}",
            field="init",
        )


def settings_of(init: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an initializer: as given, else as jax has them.

    Raises:
        PlanError: there is no such initializer, it lacks or does not know one, or could draw nothing with it.
    """
    check_known(init)
    known = INITIALIZERS[init]
    foreign = [name for name in given if name not in known]
    if foreign:
        raise PlanError(
            f"{init} has no parameter {', '.join(foreign)}",
            why=f"it has {', '.join(known) or 'none'}",
            fix=worded("leave it out, or choose another {init}"),
            field=foreign[0],
        )
    missing = [name for name, default in known.items() if default is None and name not in given]
    if missing:
        raise PlanError(
            f"{init} needs {', '.join(missing)}", fix=f"add `{missing[0]}: …`", field=missing[0]
        )
    settings = {**known, **given, **_SCALINGS.get(init, {})}
    for name in ("scale", "stddev", "value", "lower", "upper"):
        if name in settings and not (
            name in ("lower", "upper") and abs(settings[name]) == math.inf
        ):
            check_finite(settings[name], name)
    if init == "truncated_normal":
        _check_bounds(settings["lower"], settings["upper"])
    if init in WITH_FANS and settings["scale"] <= 0:
        raise PlanError(f"{init} needs a scale above 0", field="scale")
    return settings


def _scaled(settings: Mapping[str, Any], init: str, spec: LeafSpec) -> Values:
    """Variance scaling: the variance is ``scale`` over a fan."""
    fan_in, fan_out = fans(
        spec.shape, settings["in_axis"], settings["out_axis"], settings["batch_axis"], init
    )
    divisor = {
        "fan_in": fan_in,
        "fan_out": fan_out,
        "fan_avg": (fan_in + fan_out) / 2,
        "fan_geo_avg": math.sqrt(fan_in * fan_out),
    }[settings["mode"]]
    stddev = math.sqrt(settings["scale"] / divisor)
    if settings["distribution"] == "truncated_normal":
        bounds = {"lower": -2.0, "upper": 2.0}
        return Values("truncated_normal", stddev / _TRUNCATED_STDDEV, bounds=bounds)
    if settings["distribution"] == "normal":
        return Values("normal", stddev)
    limit = math.sqrt(3) * stddev
    return Values("uniform", 2 * limit, shift=-limit)


def fans(
    shape: tuple[int, ...],
    in_axis: int | tuple[int, ...] = -2,
    out_axis: int | tuple[int, ...] = -1,
    batch_axis: int | tuple[int, ...] = (),
    init: str = "variance_scaling",
) -> tuple[float, float]:
    """Inputs and outputs of a unit, for a kernel: axes that have no role are its receptive field.

    Raises:
        PlanError: the shape lacks such axes.

    >>> fans((3, 3, 16, 32))
    (144.0, 288.0)
    >>> fans((12, 64, 256), batch_axis=0)
    (64.0, 256.0)
    """
    if in_axis == -2 and len(shape) < 2:
        raise without_fans(init, shape)
    named = {"in_axis": in_axis, "out_axis": out_axis, "batch_axis": batch_axis}
    in_size, out_size, batch_size = (
        math.prod(shape[n] for n in resolve_axes(axis, len(shape), field)) if axis != () else 1
        for field, axis in named.items()
    )
    receptive_field = math.prod(shape) / in_size / out_size / batch_size
    return in_size * receptive_field, out_size * receptive_field


def without_fans(
    init: str, shape: tuple[int, ...], instead: Text = worded("{init: zeros} or {init: normal}")
) -> PlanError:
    """A leaf has too few axes for an initializer; ``instead`` is what biases and scales may get."""
    return PlanError(
        f"{init} needs a leaf with two axes or more",
        why=f"the shape is {list(shape)}, and a fan counts the inputs along axis -2",
        fix=worded("use {} for a bias or scale, or name {in_axis} and {out_axis}", instead),
        field="init",
    )


def _check_bounds(lower: float, upper: float) -> None:
    """See that a normal distribution has values between these bounds."""
    if lower >= upper or lower > 37 or upper < -37:
        raise PlanError(
            f"no normal values lie between {lower} and {upper}",
            why=worded(
                "{lower} must be below {upper}, and neither tail beyond 37 standard deviations has any"
            ),
            field="lower",
        )


def _check_orthogonal(init: str, settings: Mapping[str, Any], spec: LeafSpec) -> None:
    """See that the shape suits an orthogonal initializer."""
    ndim = len(spec.shape)
    if init == "delta_orthogonal" and not 3 <= ndim <= 5:
        why = "a delta-orthogonal kernel has 1 to 3 spatial axes, then inputs and outputs"
    elif init == "delta_orthogonal" and spec.shape[-1] < spec.shape[-2]:
        why = "a delta-orthogonal kernel has at least as many outputs as inputs"
    elif ndim < 2:
        why = "an orthogonal matrix needs two axes or more"
    else:
        resolve_axes(
            settings["column_axis"], 2 if init == "delta_orthogonal" else ndim, "column_axis"
        )
        return
    raise PlanError(
        f"{init} does not suit {spec.type_text}",
        why=why,
        fix=worded("choose another {init}, such as lecun_normal"),
        field="init",
    )
