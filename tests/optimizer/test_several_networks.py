"""Several networks in one tree: each has the slots that its optimizer keeps, or it is asked whose a state is."""

from __future__ import annotations

import itertools
from typing import Any

import jax.numpy as jnp
import optax
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.tree.paths import LeafPath
from tests.optimizer.copies_beside import COPIES, layouts_with_copies
from tests.optimizer.optax_registry import OPTIMIZERS, params_for, state_of, tree_of

TX = optax.chain(optax.clip(1.0), optax.adamw(1e-2))

BY_LABELS = optax.multi_transform(
    {"fast": optax.adam(1e-2), "slow": optax.adam(1e-3)}, {"d0": "fast", "d1": "slow"}
)


def net(out: int) -> dict[str, Any]:
    return {
        "d0": {"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)},
        "d1": {"kernel": jnp.ones((4, out)), "bias": jnp.ones(out)},
    }


def layouts(out: int) -> dict[str, tuple[dict[str, Any], dict[str, str], set[str]]]:
    """By name: a tree, the state of each network that has one, and networks that may be asked for.

    ``out``: of the second network; with 4 both are just alike.
    """
    a, b = net(4), net(out)
    s, t = TX.init(a), TX.init(b)
    one, two = {"params": a, "opt_state": s}, {"params": b, "opt_state": t}
    alike = out == 4
    both = {"policy/params": "opt_state/policy", "critic/params": "opt_state/critic"}
    return {
        **layouts_with_copies(a, b, s, t, alike=alike),
        "states in one dict": (
            {
                "policy": {"params": a},
                "critic": {"params": b},
                "opt_state": {"policy": s, "critic": t},
            },
            both,
            set(),
        ),
        "one dict, and a target": (
            {
                "policy": {"params": a},
                "critic": {"params": b},
                "target_critic": {"params": b},
                "opt_state": {"policy": s, "critic": t},
            },
            both,
            {"critic/params", "target_critic/params"},
        ),
        "prefixed": (
            {"params": a, "opt_state": s, "critic_params": b, "critic_opt_state": t},
            {"params": "opt_state", "critic_params": "critic_opt_state"},
            set(),
        ),
        "nested beside": (
            {**one, "disc": two},
            {"params": "opt_state", "disc/params": "disc/opt_state"},
            set(),
        ),
        "nested deep": (
            {**one, "agents": {"x": {"disc": two}}},
            {"params": "opt_state", "agents/x/disc/params": "agents/x/disc/opt_state"},
            set(),
        ),
        "in a list": (
            {"states": [one, two]},
            {f"states/{n}/params": f"states/{n}/opt_state" for n in (0, 1)},
            set(),
        ),
        "one in a list": ({"states": [one]}, {"states/0/params": "states/0/opt_state"}, set()),
        "online and target": (
            {"online": a, "target": a, "opt_state": s},
            {"online": "opt_state"},
            {"online", "target"},
        ),
        "policy and target": (
            {"policy": {"params": a}, "target": {"params": a}, "opt_state": s},
            {"policy/params": "opt_state"},
            {"policy/params", "target/params"},
        ),
        "params and target": (
            {"params": a, "target": a, "opt_state": s},
            {"params": "opt_state"},
            set(),
        ),
        "params and averages": (
            {"params": a, "ema_params": a, "opt_state": s, "step": 3},
            {"params": "opt_state"},
            set(),
        ),
        "params by labels, and averages": (
            {"params": a, "ema_params": a, "opt_state": BY_LABELS.init(a)},
            {"params": "opt_state"},
            set(),
        ),
        "a chain with a name of a tree": (
            {"params": a, "ema": a, "opt_state": {"ema": optax.ema(0.9).init(a), "adam": s}},
            {"params": "opt_state"},
            set(),
        ),
        "players": (
            {"g_params": a, "d_params": b, "g_opt": s, "d_opt": t},
            {"g_params": "g_opt", "d_params": "d_opt"},
            set(),
        ),
        "players by number of letters": (
            {"gen": a, "disc": b, "opt_gen": s, "opt_disc": t},
            {"gen": "opt_gen", "disc": "opt_disc"},
            set(),
        ),
        "players without a name": (
            {"gen": a, "disc": b, "opt_state": (s, t)},
            {"gen": "opt_state/0", "disc": "opt_state/1"},
            {"gen", "disc"} if alike else set(),
        ),
        "joint": (
            {
                "actor": {"params": a},
                "critic": {"params": b},
                "opt_state": TX.init({"actor": a, "critic": b}),
            },
            {},
            {"actor/params", "critic/params"},
        ),
        "twins by number": (
            {"q1": a, "q2": b, "opt1": s, "opt2": t},
            {"q1": "opt1", "q2": "opt2"},
            {"q1", "q2"} if alike else set(),
        ),
        "one of two by name": (
            {"q1": a, "q2": b, "q1_opt": s, "adam": t},
            {"q1": "q1_opt", "q2": "adam"},
            {"q1", "q2"} if alike else set(),
        ),
        "three, one of them apart": (
            {"q1": a, "q2": b, "value": net(2), "opts": (s, TX.init(net(2)), t)},
            {"q1": "opts/0", "value": "opts/1", "q2": "opts/2"},
            {"q1", "q2"} if alike else set(),
        ),
        "numbered": (
            {"policy": {"params": a}, "critic": {"params": b}, "optimizers": [s, t]},
            {"policy/params": "optimizers/0", "critic/params": "optimizers/1"},
            {"policy/params", "critic/params"} if alike else set(),
        ),
        "models and optimizers": (
            {"actor": {"model": a, "optimizer": s}, "critic": {"model": b, "optimizer": t}},
            {"actor/model": "actor/optimizer", "critic/model": "critic/optimizer"},
            set(),
        ),
        "model and target": (
            {"model": a, "optimizer": s, "target": a},
            {"model": "optimizer"},
            set(),
        ),
        "items": (
            {"model": a, "optimizer": s, "critic_model": b, "critic_optimizer": t},
            {"model": "optimizer", "critic_model": "critic_optimizer"},
            set(),
        ),
        "item of its own": (
            {**one, "critic": two},
            {"params": "opt_state", "critic/params": "critic/opt_state"},
            set(),
        ),
        "a state that mirrors nothing whole": (
            {
                "params": a,
                "opt_state": s,
                "critic_params": b,
                "critic_opt_state": optax.adafactor(1e-2, min_dim_size_to_factor=2).init(b),
            },
            {"params": "opt_state", "critic_params": "critic_opt_state"},
            set() if alike else {"params", "critic_params"},
        ),
        "a state that no name tells": (
            {"params": a, "opt_state": s, "critic_params": b, "critic_adam": t},
            {"params": "opt_state", "critic_params": "critic_adam"},
            {"params", "critic_params"} if alike else {"critic_params"},
        ),
    }


def slots_of(found: OptimizerSurvey, param: LeafPath) -> set[str]:
    return {str(s.path) for s in found.slots.values() if s.param == param and s.in_optimizer}


CASES = [(name, out) for out in (1, 4) for name in layouts(out)]


@pytest.mark.parametrize(("name", "out"), CASES, ids=str)
def test_each_network_has_its_own_slots_or_is_asked_for(name: str, out: int) -> None:
    values, states, may_be_asked = layouts(out)[name]
    tree = tree_of(values)
    found = survey(tree)
    networks = {path.text: LeafPath(path) for path in map(_network, tree) if path}
    for network, node in networks.items():
        params = [path for path in tree if path.is_below(node)]
        if network in may_be_asked and all(found.questions_about([param]) for param in params):
            continue
        state = states.get(network)
        for param in params:
            tail = param[len(node) :]
            true = {
                str(path)
                for path in tree
                if state is not None
                and path.text.startswith(f"{state}/")
                and path[-len(tail) :] == tail
            }
            assert not found.questions_about([param]), (network, found.questions_about([param]))
            assert slots_of(found, param) == true, param
    for slot in found.slots.values():  # no network that is trained is a copy of another
        if not slot.in_optimizer:
            assert _network(slot.path).text not in states, slot.path


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_of_what_it_follows_wherever_both_stand(name: str) -> None:
    tree = tree_of(layouts(1)[name][0])
    found = survey(tree)
    copied = {s.path: s.param for s in found.slots.values() if not s.in_optimizer}
    expected = {
        path: LeafPath((*of.split("/"), *path[len(copy.split("/")) :]))
        for copy, of in COPIES[name].items()
        for path in tree
        if path.text.startswith(f"{copy}/")
    }
    assert expected
    assert copied == expected


def test_a_layer_that_looks_like_another_is_no_copy_of_it() -> None:
    values = {"params": net(4), "opt_state": TX.init(net(4)), "probe": net(4)["d0"]}
    assert all(slot.in_optimizer for slot in survey(tree_of(values)).slots.values())


def _network(leaf: LeafPath) -> LeafPath:
    """The node above `d0` and `d1`, where no state is around it."""
    text = leaf.text
    at = next((n for n, key in enumerate(leaf) if key in ("d0", "d1")), 0)
    return LeafPath() if "opt" in text or "adam" in text else LeafPath(leaf[:at])


@pytest.mark.parametrize(("name", "out"), CASES, ids=str)
def test_what_is_advised_settles_it(name: str, out: int) -> None:
    """Each question is answered as its own words say, with what is true; then none is left, and all slots are right."""
    values, states, _ = layouts(out)[name]
    tree = tree_of(values)
    asked = survey(tree).open_questions
    hints: dict[str, dict[str, object]] = {}
    params = None
    for question in asked:
        place = question.problem.path
        owners = [one for one, state in states.items() if _stand_together(state, place)]
        if len(owners) == 1 and f"`--params {owners[0]}`" in question.problem.fix:
            params = owners[0]
        else:
            assert f"slots: {{{place}: {{of: NODE" in question.problem.fix
            hints[place] = {"of": owners[0]} if len(owners) == 1 else {"ignore": True}
    found = survey(tree, params=params, slots=hints)
    assert [question.problem for question in found.open_questions] == []
    for network, state in states.items():
        for param in (path for path in tree if _network(path).text == network):
            assert all(path.startswith(f"{state}/") for path in slots_of(found, param))
            assert slots_of(found, param) or any("ignore" in hint for hint in hints.values())


@pytest.mark.parametrize(("name", "out"), CASES, ids=str)
def test_what_is_said_of_some_gives_no_network_the_state_of_another(name: str, out: int) -> None:
    """Any of the truth that a user may say: of which networks, and which is the root."""
    values, states, _ = layouts(out)[name]
    tree = tree_of(values)
    for said in itertools.product(*[(False, True)] * len(states)):
        hints = {
            state: {"of": one}
            for (one, state), is_said in zip(states.items(), said, strict=True)
            if is_said
        }
        for root in (None, *states):
            try:
                found = survey(tree, params=root, slots=hints)
            except PlanError:
                continue
            for slot in found.slots.values():
                if found.questions_about([slot.param]):  # no edit of it comes so far
                    continue
                if slot.in_optimizer:
                    (one,) = (o for o in states if slot.param.text.startswith(f"{o}/"))
                    assert slot.path.text.startswith(f"{states[one]}/"), (hints, root, slot)
                else:
                    assert _network(slot.path).text not in states, (hints, root, slot)


def _stand_together(state: str, place: str) -> bool:
    return f"{place}/".startswith(f"{state}/") or f"{state}/".startswith(f"{place}/")


@pytest.mark.parametrize("name", ["online and target", "policy and target"])
def test_what_the_user_says_settles_it(name: str) -> None:
    values, states, _ = layouts(4)[name]
    tree = tree_of(values)
    ((network, _state),) = states.items()
    found = survey(tree, params=network)
    assert not found.open_questions
    param = LeafPath((*network.split("/"), "d0", "kernel"))
    assert len(slots_of(found, param)) == 2
    copies = {s.path.text for s in found.slots.values() if not s.in_optimizer}
    assert copies
    assert all(path.startswith("target/") for path in copies)


CHANGES = {
    "resized": lambda net: {**net, "d1": {"kernel": jnp.ones((4, 9)), "bias": jnp.ones(9)}},
    "renamed": lambda net: {"first": net["d0"], "d1": net["d1"]},
    "without a layer": lambda net: {"d1": net["d1"]},
    "one more layer": lambda net: {**net, "d2": {"kernel": jnp.ones((4, 4))}},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", ["params", "critic", "model"])
def test_what_an_edit_left_behind_is_not_the_state_of_an_average(place: str, change: str) -> None:
    """An average fits the state that its params had before: whose it is must be asked, or found."""
    old, new, state = net(2), CHANGES[change](net(2)), TX.init(net(2))
    trees = {
        "params": {"params": new, "ema_params": old, "opt_state": state},
        "critic": {
            "params": {"actor": net(3), "critic": new},
            "target_critic": old,
            "actor_opt": TX.init(net(3)),
            "critic_opt": state,
        },
        "model": {"model": {**new, "bn": {"mean": jnp.ones(4)}}, "ema": old, "opt": state},
    }
    found = survey(tree_of(trees[place]))
    copies = {"ema_params", "target_critic", "ema"}
    assert not [s for s in found.slots.values() if s.in_optimizer and s.param[0] in copies]
    edited = [p for p in tree_of(trees[place]) if p[0] in ("params", "model") and "d1" in p]
    for param in (p for p in edited if "actor" not in p):
        assert slots_of(found, param) or found.questions_about([param])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_averages_beside_take_nothing_from_the_params_of_any_optimizer(name: str) -> None:
    params = params_for(name)
    alone = {"params": params, "opt_state": state_of(name)}
    found = survey(tree_of(alone))
    beside = survey(tree_of({**alone, "ema_params": params, "best": {"params": params}}))
    assert {path: slot for path, slot in beside.slots.items() if slot.in_optimizer} == found.slots
    assert beside.questions == found.questions
    assert beside.clocks == found.clocks


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_of_any_optimizer_are_each_for_its_own_network(name: str) -> None:
    params, state = params_for(name), state_of(name)
    found = survey(tree_of({"params": params, "opt_state": state}))
    layouts = {
        "a/params": (
            "a/opt_state",
            "b/opt_state",
            {k: {"params": params, "opt_state": state} for k in "ab"},
        ),
        "a_params": (
            "a_opt",
            "b_opt",
            {
                f"{k}_{part}": value
                for k in "ab"
                for part, value in {"params": params, "opt": state}.items()
            },
        ),
    }
    for root, (own, other, tree) in layouts.items():
        both = survey(tree_of(tree))
        slots = [slot for slot in both.slots.values() if slot.in_optimizer]
        mine = {slot for slot in slots if f"{slot.param}/".startswith(f"{root}/")}
        assert len(mine) == len(found.slots)
        assert all(str(slot.path).startswith(f"{own}/") for slot in mine)
        assert not any(str(slot.path).startswith(f"{other}/") for slot in mine)
        assert len(both.questions) == 2 * len(found.questions) or not found.slots
