"""Every optimizer of optax, tried out: makes ``optimizer/knowledge/measured.py``.

``make powers`` writes the table anew, by the same trial that a script's own optimizer
undergoes. Each state is reached by updates that follow a factor of the params with exponents -1, 0 and 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from surgery_cli.optimizer.knowledge import measured
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.optimizer.knowledge.kinds import by_name
from surgery_cli.script.optimizer_call import optimizer_of
from surgery_cli.script.pytrees import param_of
from surgery_cli.script.slot_powers import (
    Measured,
    initial_value,
    measured_above_starts,
    seen_in,
)
from surgery_cli.script.trial_runs import Sizes, Trial
from surgery_cli.tree.paths import LeafPath

SHAPES: Final = {"a": {"bias": (6,), "kernel": (4, 6)}, "b": {"kernel": (4, 6)}}
SIGNALS: Final = (-1, 0, 1)
_SIZES: Final = Sizes(1.0)
"""Where no epsilon is felt; settings leave clips at rest."""

STATES: Final[Mapping[str, str]] = {
    "adabelief": "scale_by_belief()",
    "adadelta": "scale_by_adadelta()",
    "adam": "scale_by_adam()",
    "adamax": "scale_by_adamax()",
    "adan": "scale_by_adan()",
    "ademamix": "scale_by_ademamix()",
    "adopt": "scale_by_adopt()",
    "amsgrad": "scale_by_amsgrad()",
    "apply_every": "apply_every(4)",
    "centered_rmsprop": "scale_by_stddev(bias_correction=True)",
    "cocob": "scale_by_cocob()",
    "dadapt": "dadapt_adamw(0.1)",
    "dog": "dog(0.1)",
    "dowg": "dowg(0.1)",
    "ema": "ema(0.9)",
    "factored": "scale_by_factored_rms(min_dim_size_to_factor=2)",
    "ldog": "scale_by_distance_over_gradients()",
    "lion": "scale_by_lion()",
    "madgrad": "scale_by_madgrad(learning_rate=0.1)",
    "muon": "muon(0.1)",
    "novograd": "scale_by_novograd()",
    "optimistic": "scale_by_optimistic_gradient()",
    "prodigy": "prodigy(0.1)",
    "rms": "scale_by_rms()",
    "rms_count": "scale_by_rms(bias_correction=True)",
    "rprop": "scale_by_rprop(0.01)",
    "rss": "scale_by_rss()",
    "simplified_ademamix": "scale_by_simplified_ademamix()",
    "sm3": "scale_by_sm3()",
    "stddev": "scale_by_stddev()",
    "trace": "trace(0.9)",
    "yogi": "scale_by_yogi()",
}
"""For every kind of state that gradients alone drive, a call that makes it."""

_OTHERS: Final = {"rprop": "scale_by_rprop(0.02)"}
"""Where a setting without a default decides initial values, a call with another: then there is none."""

_SETTINGS: Final[Mapping[str, str]] = {
    "adafactor": "0.1, min_dim_size_to_factor=2, momentum=0.9",
    "adafactor-without-parameter-scale": (
        "0.1, min_dim_size_to_factor=2, momentum=0.9, multiply_by_parameter_scale=False"
    ),
    "apply_every": "4",
    "ema": "0.9",
    "lars": "0.1, momentum=0.9",
    "rmsprop": "0.1, momentum=0.9",
    "rprop": "0.01",
    "scale_by_factored_rms": "min_dim_size_to_factor=2",
    "scale_by_madgrad": "learning_rate=0.1",
    "scale_by_rprop": "0.01",
    "sgd": "0.1, momentum=0.9",
    "sm3": "0.1, momentum=0.9",
    "trace": "0.9",
}  # fmt: skip
"""Arguments that bring out every state of a factory; otherwise there are none, or a learning rate."""


def call_of(name: str) -> str:
    """The call of a factory that is tried out."""
    plain = name.partition("-")[0]
    return f"{plain}({_SETTINGS.get(name, '' if name.startswith('scale_by_') else '0.1')})"


class Rule(NamedTuple):
    """What a factor of the params does to slots."""

    power: int
    is_even: bool
    is_per_leaf: bool


Row: TypeAlias = tuple[int, int, bool, bool, float | None]
"""``of_signal``, ``fixed``, ``is_even``, ``is_per_leaf`` and ``fresh`` of a field."""


class _Tried:
    """What a trial shows of the slots of a transformation, by the field that they stand in."""

    def __init__(self, transformation: Any) -> None:
        import jax
        import jax.numpy as jnp

        shapes = jax.tree.map(
            lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
            SHAPES,
            is_leaf=lambda x: isinstance(x, tuple),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._trial = Trial(transformation, shapes)
            self._runs = self._trial.runs([_SIZES])
            starts = {path: initial_value(values) for path, values in self._runs.first.items()}
            above = {path: value for path, value in starts.items() if value and self._param(path)}
            self._above_starts = measured_above_starts(self._trial, above)
        self._starts = starts

    def fields(self, names: Iterable[str]) -> dict[LeafPath, dict[str, list[LeafPath]]]:
        """The slots of every node that has fields of these names, by field."""
        wanted, found = set(names), dict[LeafPath, dict[str, list[LeafPath]]]()
        for path in self._starts:
            at = next((n for n, key in enumerate(path) if key in wanted), None)
            if at is not None and self._param(path) is not None:
                fields = found.setdefault(LeafPath(path[:at]), {})
                fields.setdefault(str(path[at]), []).append(path)
        return {node: fields for node, fields in found.items() if fields.keys() == wanted}

    def rule(self, slots: Iterable[LeafPath]) -> Rule | None:
        """Power, parity, and whether arrays break it, where neither epsilon nor clip is felt; None if there is none."""
        seen = {path: self._seen(path) for path in slots if self._runs.last[path].any()}
        rules = {one.rule for one in seen.values()}
        if len(rules) != 1:
            return None
        power, is_even = rules.pop()
        is_per_leaf = any(
            one.is_per_leaf for path, one in seen.items() if self._is_like_param(path)
        )
        return None if power is None else Rule(power, is_even, is_per_leaf)

    def fresh(self, slots: Iterable[LeafPath]) -> float | None:
        """The initial value, if it is one number."""
        found = {self._starts[path] for path in slots}
        value = found.pop() if len(found) == 1 else None
        return None if value is None else float(f"{value:.6g}")  # a float32

    def _param(self, path: LeafPath) -> LeafPath | None:
        return param_of(path, self._trial.params)

    def _is_like_param(self, path: LeafPath) -> bool:
        param = self._param(path)
        shape = self._runs.last[path].shape[2:]
        return param is not None and self._trial.params[param].shape == shape

    def _seen(self, path: LeafPath) -> Measured:
        param = self._param(path)
        assert param is not None
        one = seen_in(path, param, [_SIZES], self._runs)[_SIZES]
        assert one is not None
        return self._above_starts.get(path, one)


def powers_of(kind: str) -> dict[str, Row]:
    """What was measured of the fields of one kind of state; those that follow no power at all signals are left out."""
    import optax

    tried = {
        signal: _Tried(optax.chain(_reaching(signal), optimizer_of(STATES[kind])))
        for signal in SIGNALS
    }
    names = by_name()[kind].fields
    slots = next(iter(tried[-1].fields(names).values()))
    other = _Tried(optimizer_of(_OTHERS[kind])).fields(names) if kind in _OTHERS else {}
    found = {}
    for name in names:
        row = _row([one.rule(slots[name]) for one in tried.values()])
        if row is not None:
            found[name] = (*row, tried[-1].fresh(slots[name]) if not other else None)
    return found


def _row(rules: list[Rule | None]) -> tuple[int, int, bool, bool] | None:
    """How a power follows from the signal: ``of_signal`` and ``fixed`` of a field, parity, and if arrays break it."""
    if None in rules:
        return None
    low, middle, high = (rule for rule in rules if rule is not None)
    of_signal, fixed = middle.power - low.power, middle.power
    return (
        (of_signal, fixed, low.is_even, low.is_per_leaf)
        if high.power == fixed + of_signal
        else None
    )


def signals_of(name: str) -> dict[str, int]:
    """The exponent with which updates reach each state of a factory, as far as its slots show it."""
    found: dict[str, int] = {}
    try:
        tried = _Tried(optimizer_of(call_of(name)))
    except Exception:  # noqa: BLE001 - it needs more than gradients: a loss, a function
        return found
    for kind in FACTORIES[name]:
        fields = by_name()[kind].fields
        for slots in tried.fields(fields).values():
            for field, paths in slots.items():
                rule = tried.rule(paths)
                if rule is not None and fields[field].of_signal:
                    signal, rest = divmod(rule.power - fields[field].fixed, fields[field].of_signal)
                    if rest == 0:
                        found[kind] = signal
    return found


def _reaching(signal: int) -> Any:
    """What makes updates follow a factor of each element with this exponent."""
    import jax
    import optax

    return optax.stateless(
        lambda updates, params: jax.tree.map(
            lambda g, p: g * abs(p) ** (signal + 1), updates, params
        )
    )


_HEAD: Final = '''"""What optax's states and factories were seen to do, tried out. Made by a program; not to be edited.

``make powers`` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# fmt: off
'''


def table(states: Mapping[str, Mapping[str, Row]], signals: Mapping[str, Mapping[str, int]]) -> str:
    """The module ``measured``."""
    lines = [
        _HEAD,
        "POWERS: Final[Mapping[str, Mapping[str, tuple[int, int, bool, bool, float | None]]]] = {",
    ]
    for kind, fields in states.items():
        lines += [
            f'    "{kind}": {{',
            *(f'        "{name}": {row},' for name, row in fields.items()),
            "    },",
        ]
    lines += ["}", _POWERS_ARE, "", "SIGNALS: Final[Mapping[str, Mapping[str, int]]] = {"]
    for name, found in signals.items():
        inside = ", ".join(f'"{kind}": {signal}' for kind, signal in found.items())
        lines.append(f'    "{name}": {{{inside}}},')
    return "\n".join([*lines, "}", _SIGNALS_ARE, ""])


_POWERS_ARE: Final = (
    '"""By kind of state and field: ``of_signal``, ``fixed``, ``is_even``, ``is_per_leaf`` and ``fresh`` of'
    ' a ``Field``."""'
)
_SIGNALS_ARE: Final = (
    '"""By factory and kind of state: the exponent with which updates that reach it follow a factor of the'
    ' params."""'
)


def main() -> None:
    """Try everything out, and write the table."""
    states = {kind: powers_of(kind) for kind in STATES}
    signals = {name: signals_of(name) for name in FACTORIES}
    known = {name: found for name, found in signals.items() if found}
    Path(measured.__file__).write_text(table(states, known))


if __name__ == "__main__":
    main()
