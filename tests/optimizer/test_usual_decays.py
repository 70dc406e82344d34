"""Where no decay is stored, it is the default of the factory that the user named, in optax's own signature."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import optax
import pytest
from optax import contrib

from surgery_cli.operations.rescale import Rescale
from surgery_cli.optimizer.follow.decays import decays_of
from surgery_cli.optimizer.knowledge.defaults import DEFAULTS
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.optimizer.knowledge.kinds import by_name
from surgery_cli.optimizer.knowledge.usual_decays import decay_arguments
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from tests.optimizer.optax_registry import PARAMS, tree_of

PAIRS = [(factory, kind) for factory, kinds in FACTORIES.items() for kind in kinds]


def made_by(factory: str) -> Any:
    name = factory.removesuffix("-without-parameter-scale")
    return getattr(optax, name, None) or getattr(contrib, name)


def defaults(factory: str) -> dict[str, Any]:
    return {
        name: one.default for name, one in inspect.signature(made_by(factory)).parameters.items()
    }


@pytest.mark.parametrize(("factory", "kind"), PAIRS)
def test_every_default_is_that_of_the_signature(factory: str, kind: str) -> None:
    for name, default in decay_arguments((kind,), factory):
        assert not name or defaults(factory)[name] == default


@pytest.mark.parametrize("factory", sorted({factory for factory, _ in PAIRS}))
def test_every_decay_of_a_moment_of_the_usual_families_is_known(factory: str) -> None:
    for kind in FACTORIES[factory]:
        if by_name()[kind].family in ("adam-family", "rmsprop"):
            _, second = decay_arguments((kind,), factory)
            assert second.default


def test_no_decay_is_guessed_where_factories_differ() -> None:
    assert decay_arguments(("rms_count",)) == ()  # RMSProp's, or that of schedule-free AdamW


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_table_of_defaults_is_what_the_signatures_say(factory: str) -> None:
    numbers = {
        name: default
        for name, default in defaults(factory).items()
        if type(default) in (int, float) and name != "learning_rate"
    }
    assert DEFAULTS.get(factory, {}) == numbers


class Stored:
    """A checkpoint that is only a tree."""

    fingerprint = "stored"

    def __init__(self, state: Any) -> None:
        self.tree = tree_of(state)


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        ("adam", (0.9, 0.999)),
        ("adopt", (0.9, 0.9999)),
        ("schedule_free_adamw", (0.0, 0.999)),
        ("simplified_ademamix", (0.99, 0.95)),
        ("rmsprop", (0.0, 0.9)),
    ],
)
@pytest.mark.parametrize("by_node", [False, True])
def test_the_factory_named_for_a_state_says_its_decays(factory, expected, by_node) -> None:
    settings = {"learning_rate": 0.1} | ({"alpha": 0.5} if "alpha" in defaults(factory) else {})
    state = {"params": PARAMS, "opt_state": made_by(factory)(**settings).init(PARAMS)}
    state["step"] = np.int32(7)
    kind = {"opt_state": factory} if by_node else factory
    plan = plan_of([Rescale(at="params", by=0.1, optimizer="keep")], optimizer_kind=kind)

    draft = resolve(plan, Stored(state), lambda text: pytest.fail(f"{text} was opened"))

    second = [slot for slot in draft.slots.values() if slot.is_second_moment]
    found = {decays_of(slot, draft, lambda _: None) for slot in second}
    assert {(one.first, one.second) for one in found if one} == {expected}


def test_stored_arguments_of_muon_are_found_under_their_names() -> None:
    make = optax.inject_hyperparams(contrib.muon, static_args=("ns_steps",))
    state = {"params": PARAMS, "opt_state": make(0.1, adam_b1=0.8, adam_b2=0.99).init(PARAMS)}
    plan = plan_of([Rescale(at="params", by=0.1, optimizer="keep")], optimizer_kind="muon")
    draft = resolve(plan, Stored(state), lambda text: pytest.fail(f"{text} was opened"))
    stored = {"adam_b1": 0.8, "adam_b2": 0.99}

    second = [slot for slot in draft.slots.values() if slot.is_second_moment]

    found = [decays_of(slot, draft, lambda ref: stored[str(ref.path[-1])]) for slot in second]
    words = {one.words for one in found if one is not None}
    assert words == {"stored b1 = 0.8 and stored b2 = 0.99"}
