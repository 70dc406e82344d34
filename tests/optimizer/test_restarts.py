"""Squares that are made smaller by name, and counts that are set to another number: the preview says what comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import serialization

from surgery_cli import surgery
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.set import Set
from surgery_cli.optimizer.follow.bias_correction import restarts, shifts
from surgery_cli.optimizer.follow.restarts import emptied
from surgery_cli.planning import plan_of
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.words.notes import Consequence, Note, Remark
from tests.optimizer.optax_registry import PARAMS, state_of, tree_of

COUNT, MU, NU = (f"opt_state/0/{name}" for name in ("count", "mu", "nu"))


class Stored:
    """A checkpoint that is only a tree."""

    fingerprint = "stored"

    def __init__(self, state: Any) -> None:
        self.tree = tree_of(state)


def resolved(*edits: Operation, name: str = "adam") -> Draft:
    state = {"params": PARAMS, "opt_state": state_of(name)}
    plan = plan_of(edits, optimizer_kind="adam" if name == "multisteps" else name)
    return resolve(plan, Stored(state), lambda text: pytest.fail(f"{text} was opened"))


def steps_of_adam(count: int, *, mu: float, nu: float, to: int | None = None) -> list[float]:
    """Adam's steps under gradients of 1, once its moments at ``count`` were multiplied by numbers."""
    optimizer = optax.adam(1.0, eps=0.0)
    ones = {"w": np.ones(1, np.float64)}
    inner, *rest = optimizer.init(ones)
    inner = inner._replace(
        count=np.int32(count if to is None else to),
        mu={"w": np.full(1, mu * (1 - 0.9**count))},
        nu={"w": np.full(1, nu * (1 - 0.999**count))},
    )
    state, steps = (inner, *rest), []
    for _ in range(40):
        update, state = optimizer.update(ones, state, ones)
        steps.append(abs(float(update["w"][0])))
    return steps


@pytest.mark.parametrize(
    ("edits", "mu", "nu", "what"),
    [
        ([Replace(at=NU, with_=0)], 1, 0, "4 slots with squares become 0 "),
        ([Replace(at=NU, with_=0), Replace(at=MU, with_=0)], 0, 0, "become 0 "),
        ([Rescale(at=NU, by=1e-8)], 1, 1e-8, "4 slots with squares shrink to 1e-08 "),
        ([Rescale(at=NU, by=0.1), Rescale(at=NU, by=0.1)], 1, 0.01, "shrink to 0.01 "),
        ([Rescale(at=NU, by=0.25), Rescale(at=MU, by=0.5)], 0.5, 0.25, "shrink to 0.25 "),
        ([Rescale(at=NU, by=0.95)], 1, 0.95, None),
        ([ResetOptimizer(at=NU)], 1, 0, "4 slots with squares restart "),
        ([ResetOptimizer()], 0, 0, "4 slots with squares restart "),
        ([Reinit(at=NU, init="zeros")], 1, 0, "become 0 "),
    ],
)  # fmt: skip
def test_the_announced_factor_is_what_adam_does_with_what_is_left(
    edits: list[Operation], mu: float, nu: float, what: str | None
) -> None:
    steps = steps_of_adam(5_000, mu=mu, nu=nu)
    (found,) = restarts(resolved(*edits))

    sentence = found.sentence(5_000)

    if what is None:
        assert max(steps) < 1.1
        assert sentence is None
        return
    assert sentence is not None
    assert what in sentence
    assert "'opt_state/0/count' is at 5,000" in sentence
    after = steps.index(max(steps)) + 1
    assert f"up to {max(steps):.1f} learning rates large (step {after}, with b1" in sentence
    assert "`clocks: true`" in sentence


@pytest.mark.parametrize(
    "edits",
    [
        [Rescale(at=NU, by=4.0)],
        [Rescale(at=MU, by=0.1)],
        [Cast(at=NU, to="bfloat16")],
        [Rescale(at="params", by=10.0)],
        [Rescale(at="params", by=2.0, twins="named"), Rescale(at=NU, by=0.25)],
        [Replace(at=MU, with_=0), Replace(at=NU, with_=0), Set(at=COUNT, to=0)],
    ],
)
def test_squares_that_stay_or_follow_are_not_announced(edits: list[Operation]) -> None:
    assert restarts(resolved(*edits)) == []


@pytest.mark.parametrize("edit", [Replace(at=NU, with_=1e-30), Normalize(at=NU, to=1.0)])
def test_squares_of_unknown_size_are_announced_without_a_factor(edit: Operation) -> None:
    (found,) = restarts(resolved(edit))
    sentence = found.sentence(5_000) or ""
    assert "get other values" in sentence
    assert "too large" in sentence


@pytest.mark.parametrize("to", [1, 10, 150])
def test_a_count_that_goes_back_alone_is_announced_with_its_factor(to: int) -> None:
    steps = steps_of_adam(5_000, mu=1, nu=1, to=to)
    (found,) = shifts(resolved(Set(at=COUNT, to=to)))

    sentence = found.sentence(5_000) or ""

    assert (
        f"'opt_state/0/count' goes from 5,000 to {to} while 4 slots with squares go on" in sentence
    )
    after = steps.index(min(steps)) + 1
    assert f"{min(steps):.2g} times as large as usual (step {after}, with b1" in sentence
    assert found.sentence(to) is None


def test_a_count_that_goes_ahead_is_announced_only_while_the_squares_are_young() -> None:
    (found,) = shifts(resolved(Set(at=COUNT, to=100_000)))
    assert found.sentence(20_000) is None
    largest = max(steps_of_adam(150, mu=1, nu=1, to=100_000))
    assert f"{largest:.2g} times as large as usual" in (found.sentence(150) or "")


def test_squares_that_restart_with_a_count_that_is_set_are_judged_by_what_it_is_set_to() -> None:
    draft = resolved(ResetOptimizer(), Set(at=COUNT, to=10_000))
    assert shifts(draft) == []
    (found,) = restarts(draft)
    sentence = found.sentence(5) or ""
    assert "'opt_state/0/count' is at 10,000" in sentence
    assert "up to 6.6 learning rates" in sentence


def test_a_kind_that_is_said_of_the_whole_tree_names_the_states_that_it_was_used_for() -> None:
    params = Rescale(at="params", by=2.0)
    state = {"params": PARAMS, "opt_state": state_of("partition_3same")}

    def notes(kind: Any, *edits: Operation) -> list[Note]:
        draft = resolve(plan_of(edits, optimizer_kind=kind), Stored(state), pytest.fail)
        return [note for note in draft.notes if "is used for" in note]

    nodes = [f"opt_state/inner_states/{k}/inner_state/0" for k in (0, 1)]
    (several,) = notes("adam", params)
    assert several == f"`optimizer_kind: adam` is used for '{nodes[0]}', '{nodes[1]}'"
    assert isinstance(several, Consequence)
    (one,) = notes("adam", Rescale(at="params/Dense_1", by=2.0))
    assert one == f"`optimizer_kind: adam` is used for '{nodes[1]}'"
    assert isinstance(one, Remark)
    assert notes("adam", Rescale(at="params", by=2.0, optimizer="keep")) == []
    assert notes(dict.fromkeys(nodes, "adam"), params) == []


def test_a_fill_that_would_fill_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="would fill nothing"):
        resolved(ResetOptimizer(fill=0.5, clocks=True))


def first_update_of_multi_steps(mini_step: int, *, is_emptied: bool) -> float:
    """What MultiSteps of 4 gives after gradients of 1, if its accumulator was emptied at ``mini_step``."""
    optimizer = optax.MultiSteps(optax.sgd(1.0), 4)
    ones = {"w": np.ones(1, np.float32)}
    state = optimizer.init(ones)
    for step in range(4):
        if step == mini_step and is_emptied:
            state = state._replace(acc_grads={"w": np.zeros(1, np.float32)})
        update, state = optimizer.update(ones, state, ones)
    return abs(float(update["w"][0]))


@pytest.mark.parametrize(
    "edits", [[ResetOptimizer()], [Reinit(at="params", init="zeros")], [Rescale(at="opt_state/acc_grads", by=0)]]
)  # fmt: skip
def test_an_accumulator_that_restarts_within_its_cycle_is_announced(edits: list[Operation]) -> None:
    assert first_update_of_multi_steps(2, is_emptied=False) == pytest.approx(1.0)
    assert first_update_of_multi_steps(2, is_emptied=True) == pytest.approx(0.5)
    (found,) = emptied(resolved(*edits, name="multisteps"))

    sentence = found.sentence(2) or ""

    assert "4 accumulators restart while 'opt_state/mini_step' is at 2" in sentence
    assert "2 steps of nothing" in sentence
    assert found.sentence(0) is None


def test_accumulators_that_restart_with_their_counter_or_are_scaled_are_not_announced() -> None:
    for edit in (ResetOptimizer(clocks=True), Rescale(at="params", by=2.0)):
        draft = resolved(edit, name="multisteps")
        assert [found.sentence(2) for found in emptied(draft)] in ([], [None])


def test_a_counter_that_is_set_while_its_accumulators_go_on_is_announced() -> None:
    (found,) = emptied(resolved(Set(at="opt_state/mini_step", to=1), name="multisteps"))
    assert "goes from 2 to 1 while 4 accumulators go on" in (found.sentence(2) or "")
    assert found.sentence(1) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("adopt", "first step"),
        ("novograd", "first step"),
        ("adafactor", "sets the pace"),
        ("sophia", "until their turn comes"),
    ],
)
def test_squares_that_restart_under_any_clock_are_announced(name: str, why: str) -> None:
    draft = resolved(ResetOptimizer(), name=name)
    (sentence,) = {found.sentence(200) for found in emptied(draft)}
    assert sentence is not None
    assert why in sentence
    assert all(found.sentence(0) is None for found in emptied(draft))


@pytest.mark.parametrize("suffix", ["", ".msgpack"])
def test_slots_that_came_with_a_donor_restart_beside_the_donors_own_count(
    tmp_path: Path, suffix: str
) -> None:
    params = {"w": np.ones((3, 2), np.float32)}
    state = optax.adam(1e-3).init(params)
    donor = {"params": params, "opt_state": (state[0]._replace(count=np.int32(500)), state[1])}
    for name, tree in (("own", {"params": params}), ("donor", donor)):
        path = tmp_path / f"{name}{suffix}"
        if suffix:
            path.write_bytes(serialization.to_bytes(tree))
        else:
            ocp.PyTreeCheckpointer().save(path, tree)
    put_in = {"op": "insert-item", "at": "new", "with": str(tmp_path / f"donor{suffix}")}
    plan = plan_from_document({"edits": [put_in, {"op": "reset-optimizer"}]})
    said = surgery.plan(str(tmp_path / f"own{suffix}"), plan).consequences
    assert any("while 'new/opt_state/0/count' is at 500" in sentence for sentence in said)
