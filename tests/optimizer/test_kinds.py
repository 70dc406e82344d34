"""The tables of kinds and factories against optax itself."""

from __future__ import annotations

import inspect
from typing import Any

import optax
import pytest
from optax import contrib

from surgery_cli.draft.assumptions import ADAM_FAMILY, BY_VALUES
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.optimizer.knowledge import factories
from surgery_cli.optimizer.knowledge.kinds import KINDS, by_name, by_signature
from tests.installed import is_older
from tests.optimizer.optax_registry import train_state

NO_FACTORIES = {
    # what mentions transformations without making one
    "GradientTransformation",
    "GradientTransformationExtraArgs",
    "TransformInitFn",
    "TransformUpdateExtraArgsFn",
    "TransformUpdateFn",
    "schedule_free_eval_params",
    "tree_map_params",
    "value_and_grad_from_state",
}


def _makes_transformations(thing: Any) -> bool:
    try:
        source = inspect.getsource(thing)
        annotation = str(inspect.signature(thing).return_annotation)
    except (TypeError, ValueError, OSError):
        return False
    unsaid = annotation in ("<class 'inspect._empty'>", "inspect._empty")
    made = "GradientTransformation"
    return made in annotation or (unsaid and not inspect.isclass(thing) and made in source)


def _factories(module: Any) -> set[str]:
    public = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        name
        for name, thing in public.items()
        if callable(thing) and (_makes_transformations(thing) or name == "MultiSteps")
    } - NO_FACTORIES


@pytest.mark.parametrize("module", [optax, contrib])
def test_every_factory_of_optax_is_known_or_refused_with_its_reason(module: Any) -> None:
    known = (
        set(factories.FACTORIES)
        | set(factories.WRAPPERS)
        | set(factories.WITHOUT_SLOTS)
        | set(factories.STATELESS)
        | set(factories.REFUSED)
    )
    found = _factories(module)
    assert len(found) >= 30
    assert found - known == set()


def test_no_factory_is_listed_twice_and_none_is_invented() -> None:
    lists = [
        set(factories.FACTORIES) - {"adafactor-without-parameter-scale"},
        set(factories.WRAPPERS),
        set(factories.WITHOUT_SLOTS),
        set(factories.STATELESS),
        set(factories.REFUSED),
    ]
    names = [name for part in lists for name in part]
    assert len(names) == len(set(names))
    missing = set(names) - {*dir(optax), *dir(contrib)}
    assert not missing or is_older("optax")
    assert len(missing) < 10


def test_every_factory_refers_to_kinds_that_exist() -> None:
    kinds = by_name()
    for signals in factories.FACTORIES.values():
        assert set(signals) <= set(kinds)
        assert set(signals.values()) <= {-1, 0, 1}
    assert {*factories.WRAPPERS.values(), *factories.WITHOUT_SLOTS.values()} <= set(kinds)


def _states() -> list[Any]:
    modules = [optax, contrib, optax.transforms]
    found = {
        thing
        for module in modules
        for thing in vars(module).values()
        if inspect.isclass(thing) and issubclass(thing, tuple) and hasattr(thing, "_fields")
    }
    return sorted(found, key=lambda state: state.__name__)


NO_STATES = {
    "GaLoreDimensionNumbers",
    "GradientTransformation",
    "GradientTransformationExtraArgs",
    "LookaheadParams",
    "MuonDimensionNumbers",
    "WrappedSchedule",
}


@pytest.mark.parametrize("state", _states(), ids=lambda state: state.__name__)
def test_the_fields_of_every_state_of_optax_are_a_known_signature(state: Any) -> None:
    if state.__name__ in NO_STATES or not state._fields:
        return
    assert frozenset(state._fields) in by_signature()


def test_kinds_of_one_signature_agree_on_which_fields_hold_slots() -> None:
    for kinds in by_signature().values():
        assert len({frozenset(kind.fields) for kind in kinds}) == 1
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_the_assumption_of_adams_family_names_every_kind_whose_slots_may_be_others():
    others = by_signature()[frozenset({"count", "mu", "nu"})]
    adam = by_name()["adam"].fields
    unlike = {k.name.replace("_", " ") for k in others if k.fields != adam and "nu" in k.fields}
    unlike -= {"novograd"}  # known by its shapes
    named = " ".join(BY_VALUES.unless)
    assert BY_VALUES.taken_for == ADAM_FAMILY
    assert {name for name in unlike if name not in named} == set()


SETTINGS_PER_LEAF = {"adafactor": "root mean square below 0.001", "lars": "`trust_ratio_mask`"}


@pytest.mark.parametrize("name", factories.FACTORIES)
def test_a_slot_that_the_factory_scales_by_its_param_names_the_setting_that_may_not(name):
    scaled = [kind for kind, signal in factories.FACTORIES[name].items() if signal == 1]
    assert bool(scaled) == (name in SETTINGS_PER_LEAF)
    if not scaled:
        return
    optimizer = {"adafactor": "adafactor_momentum"}.get(name, name)
    found = survey(train_state(optimizer), params="params", kind=name).slots.values()
    (taken,) = {slot.assumed for slot in found if slot.power == 1}
    assert taken is not None
    assert SETTINGS_PER_LEAF[name] in " ".join(taken.unless)
    assert taken.settled_by.count("`--optimizer keep`") == 1


def test_what_no_factor_moves_says_under_what_that_holds():
    """Beside gradients that stand alone a ratio or a sign stays; what is added to them moves it."""
    without = {
        (kind.name, name)
        for kind in KINDS
        for name, field in kind.fields.items()
        if field.of_signal == field.fixed == 0 and field.provided is None
    }
    # a flag, and what is not carried
    assert without == {("zero_nans", "found_nan"), ("galore", "projector")}
