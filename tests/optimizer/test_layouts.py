"""Twins in every layout: NNX, T5X, flax.optim, MaxText, items, several train states; and trees that deceive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import plan_from_document
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from tests.optimizer.optax_registry import OPTIMIZERS, PARAMS, state_of, train_state, tree_of


def f32(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


COUNT = np.int32(0)
DENSE = {"bias": f32(4), "kernel": f32(3, 4)}


def adam_of(params: Any) -> Any:
    return optax.adam(0.1).init(params)


def twins(tree: TreeSpec, **options: Any) -> dict[str, str]:
    found = survey(tree, **options).slots
    return {str(p): str(s.param) for p, s in found.items() if s.relation != "hole"}


def test_flax_nnx_optimizers_have_values_as_leaves_and_gaps_in_chains() -> None:
    class Model(nnx.Module):
        def __init__(self) -> None:
            self.layers = nnx.List([nnx.Linear(3, 4, rngs=nnx.Rngs(0))])

    model = Model()
    optimizer = nnx.Optimizer(model, optax.chain(optax.clip(1.0), optax.adam(0.1)), wrt=nnx.Param)
    leaves: dict[LeafPath, LeafSpec] = {}
    for name, module in (("model", model), ("optimizer", optimizer)):
        for path, value in nnx.to_flat_state(nnx.state(module)):
            spec = LeafSpec(kind=LeafKind.ARRAY, shape=value.shape, dtype=str(value.dtype))
            leaves[LeafPath((name, *(str(key) for key in path), "value"))] = spec
    result = survey(TreeSpec(leaves))
    assert result.params_roots == (("model",),)
    assert {str(p): str(s.param) for p, s in result.slots.items()} == {
        f"optimizer/opt_state/1/0/{field}/layers/0/{leaf}/value": f"model/layers/0/{leaf}/value"
        for field in ("mu", "nu")
        for leaf in ("bias", "kernel")
    }
    assert {str(p): c.drives for p, c in result.clocks.items()} == {
        "optimizer/opt_state/1/0/count/value": "bias_correction",
        "optimizer/step/value": "nothing",
    }
    assert all("left no trace" in unsure.why for unsure in survey(TreeSpec(leaves)).unsure)
    mu = result.slots[
        LeafPath(("optimizer", "opt_state", "1", "0", "mu", "layers", "0", "bias", "value"))
    ]
    assert str(mu.place_for(LeafPath(("model", "head", "bias", "value")))) == (
        "optimizer/opt_state/1/0/mu/head/bias/value"
    )


def test_the_root_of_an_nnx_state_holds_the_params() -> None:
    leaves = tree_of({"layers": {"0": {"kernel": {"value": f32(2, 3)}}}, "head": {"value": f32(3)}})
    assert survey(leaves).params_roots == ((),)


def test_t5x_slots_stand_under_the_paths_of_their_params() -> None:
    kernel = {"m": f32(1), "v": f32(1), "v_col": f32(300), "v_row": f32(200)}
    bias = {"m": f32(1), "v": f32(300), "v_col": f32(1), "v_row": f32(1)}
    tree = tree_of(
        {
            "target": {"decoder": {"bias": f32(300), "kernel": f32(200, 300)}},
            "state": {
                "param_states": {"decoder": {"bias": bias, "kernel": kernel}},
                "step": COUNT,
            },
        }
    )
    result = survey(tree)
    found = {str(p): (str(s.param), s.name, s.relation, s.power) for p, s in result.slots.items()}
    under = "state/param_states/decoder"
    assert found[f"{under}/kernel/v_row"] == ("target/decoder/kernel", "v_row", "factored", -2)
    assert found[f"{under}/kernel/v"] == ("target/decoder/kernel", "v", "one", -2)
    assert found[f"{under}/bias/v"] == ("target/decoder/bias", "v", "same", -2)
    assert found[f"{under}/kernel/m"][3] is None
    named = survey(tree, kind="adafactor").slots
    assert {s.power for s in named.values() if s.name == "m"} == {1}
    assert len(found) == 8
    assert {str(p): c.drives for p, c in result.clocks.items()} == {"state/step": "decay"}


def test_flax_optim_states_are_found_under_the_params_paths() -> None:
    slots = {"grad_ema": f32(3, 4), "grad_sq_ema": f32(3, 4)}
    tree = tree_of(
        {
            "target": {"Dense_0": {"kernel": f32(3, 4)}},
            "state": {"param_states": {"Dense_0": {"kernel": slots}}, "step": COUNT},
        }
    )
    result = survey(tree)
    powers = {s.name: (s.power, s.is_even, str(s.param)) for s in result.slots.values()}
    assert powers == {
        "grad_ema": (-1, False, "target/Dense_0/kernel"),
        "grad_sq_ema": (-2, True, "target/Dense_0/kernel"),
    }
    assert [c.drives for c in result.clocks.values()] == ["bias_correction"]
    ema = next(s for s in result.slots.values() if s.name == "grad_ema")
    moved = ema.place_for(LeafPath(("target", "Dense_1", "kernel")))
    assert str(moved) == "state/param_states/Dense_1/kernel/grad_ema"


@pytest.mark.parametrize("mirrored", [("params",), ()])
def test_double_params_are_mirrored_with_or_without_the_inner_name(
    mirrored: tuple[str, ...],
) -> None:
    layers = {"decoder": {"layers": {"kernel": f32(3, 2, 4)}}}
    trained = {"params": layers} if mirrored else layers
    tree = tree_of({"params": {"params": layers}, "opt_state": adam_of(trained), "step": COUNT})
    inner = "/".join((*mirrored, "decoder/layers/kernel"))
    assert twins(tree) == {
        f"opt_state/0/{field}/{inner}": "params/params/decoder/layers/kernel"
        for field in ("mu", "nu")
    }


def test_batch_statistics_beside_params_are_not_mirrored() -> None:
    tree = tree_of(
        {
            "params": {"params": DENSE, "batch_stats": {"mean": f32(4), "var": f32(4)}},
            "opt_state": adam_of(DENSE),
        }
    )
    assert set(twins(tree).values()) == {"params/params/bias", "params/params/kernel"}


def test_items_of_a_step_are_searched_together() -> None:
    whole = train_state("amsgrad")
    items = {
        LeafPath(("weights" if p[0] == "params" else "training", *p)): s for p, s in whole.items()
    }
    assert len(twins(TreeSpec(items))) == 12


def test_two_train_states_have_twins_of_their_own() -> None:
    state = {"params": DENSE, "opt_state": adam_of(DENSE)}
    result = survey(tree_of({"actor": state, "critic": state}))
    assert [str(p) for p in result.params_roots] == ["actor/params", "critic/params"]
    assert all(p[0] == s.param[0] for p, s in result.slots.items())
    assert len(result.slots) == 8
    assert result.questions == []


def test_lookahead_keeps_its_slow_weights_inside_the_params() -> None:
    params = {"fast": DENSE, "slow": DENSE}
    state = optax.lookahead(optax.adam(0.1), 5, 0.5).init(optax.LookaheadParams(DENSE, DENSE))
    result = survey(tree_of({"params": params, "opt_state": state}))
    assert list(map(str, result.params_roots)) == ["params/fast"]
    slow = [s for s in result.slots.values() if s.path[:2] == ("params", "slow")]
    assert [(str(s.path), str(s.param)) for s in slow] == [
        (f"params/slow/{leaf}", f"params/fast/{leaf}") for leaf in ("bias", "kernel")
    ]
    assert all(s.is_params_like and s.in_optimizer and s.power == 1 for s in slow)
    moments = [s for s in result.slots.values() if s.path[0] == "opt_state"]
    assert {s.root for s in moments} == {LeafPath(("params", "fast"))}


def test_no_state_of_the_optimizer_holds_its_params() -> None:
    pairs = optax.LookaheadParams(PARAMS, PARAMS)
    state = optax.lookahead(optax.adam(0.1), 5, 0.5).init(pairs)
    lookahead = {"params": {"fast": PARAMS, "slow": PARAMS}, "opt_state": state}
    trees = [train_state(name) for name in OPTIMIZERS]
    for tree in (*trees, tree_of(lookahead), tree_of({"state": lookahead, "rest": COUNT})):
        slots = survey(tree).slots.values()
        assert not [s.path for s in slots if s.in_optimizer and s.param.is_below(s.state)]


def test_a_param_of_lookahead_is_added_and_restarts_as_its_script_would_have_it(
    tmp_path: Path,
) -> None:
    """Orbax restores the result with the state that optax begins with."""
    tx = optax.lookahead(optax.adam(0.1), 5, 0.5)

    def tree(params: Any) -> Any:
        pairs = optax.LookaheadParams(params, params)
        return {"params": {"fast": params, "slow": params}, "opt_state": tx.init(pairs)}

    params = {"a": DENSE, "b": DENSE}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", tree(params))
    edits = {
        "added": {"op": "add", "at": "params/fast/c", "like": "params/fast/b", "init": "ones"},
        "reset": {"op": "reset-optimizer", "at": "params/fast/b"},
    }
    for name, edit in edits.items():
        plan = plan_from_document({"edits": [edit], "optimizer_kind": "adam"})
        report = surgery.apply(str(tmp_path / "source"), str(tmp_path / name), plan)
        assert not [note for note in map(str, report.notes) if "params/fast" in note]
    grown = tree(params | {"c": {key: np.ones_like(leaf) for key, leaf in DENSE.items()}})
    for name, wanted in {"added": grown, "reset": tree(params)}.items():
        with ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(tmp_path / name, wanted)
        jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_copies_beside_the_optimizer_state_are_told_from_its_slots() -> None:
    tree = tree_of({"params": PARAMS, "target_params": PARAMS, "opt_state": state_of("rmsprop")})
    beside = [s for s in survey(tree).slots.values() if not s.in_optimizer]
    assert {s.node for s in beside} == {LeafPath(("target_params",))}
    assert len(beside) == 4


def test_params_that_are_named_like_a_state_are_not_taken_for_one() -> None:
    params = {"count": f32(2), "mu": f32(3), "nu": f32(3), "trace": {"ema": f32(5)}}
    tree = tree_of({"params": params, "ema_params": params, "opt_state": adam_of(params)})
    found = twins(tree)
    assert found["opt_state/0/mu/mu"] == "params/mu"
    assert found["opt_state/0/nu/trace/ema"] == "params/trace/ema"
    assert found["ema_params/count"] == "params/count"
    assert len(found) == 12


def test_an_optimizer_of_a_part_is_recognised_by_its_shapes() -> None:
    params = {"body": {"kernel": f32(5, 3)}, "head": DENSE}
    tree = tree_of({"params": params, "opt_state": adam_of(DENSE)})
    assert set(twins(tree).values()) == {"params/head/bias", "params/head/kernel"}


def test_equal_parts_are_asked_for_and_the_answer_is_taken() -> None:
    tree = tree_of({"params": {"student": DENSE, "teacher": DENSE}, "opt_state": adam_of(DENSE)})
    result = survey(tree)
    assert result.slots == {}
    assert len(result.questions) == 2
    assert all("'params/student', 'params/teacher'" in q.why for q in result.questions)
    edit = [LeafPath(("params", "teacher", "kernel"))]
    assert len(result.questions_about(edit)) == 2
    answered = survey(
        tree,
        kind="adam",
        slots={
            "opt_state/0/mu": {"of": "params/student"},
            "opt_state/0/nu": {"of": "params/student"},
        },
    )
    assert answered.questions == []
    powers = {str(p): (str(s.param), s.power, s.is_even) for p, s in answered.slots.items()}
    assert powers["opt_state/0/nu/kernel"] == ("params/student/kernel", -2, True)
    assert len(powers) == 4


def test_the_params_of_a_whole_state_can_be_named_at_once() -> None:
    state = {"generator": adam_of(DENSE), "critic": adam_of(DENSE)}
    tree = tree_of({"params": {"G": DENSE, "D": DENSE}, "opt_state": state})
    assert len(survey(tree).questions) == 4
    told = {"opt_state/generator": {"of": "params/G"}, "opt_state/critic": {"of": "params/D"}}
    found = twins(tree, slots=told)
    assert found["opt_state/generator/0/mu/bias"] == "params/G/bias"
    assert found["opt_state/critic/0/nu/kernel"] == "params/D/kernel"
    assert len(found) == 8


def test_a_chain_under_an_unusual_name_is_a_chain() -> None:
    chain = optax.chain(optax.clip(1.0), optax.amsgrad(0.1)).init(DENSE)
    slots = survey(tree_of({"params": DENSE, "training": {"tx": chain}})).slots
    assert len(slots) == 6
    assert {s.power for s in slots.values()} == {None}
    assert all(s.in_optimizer for s in slots.values())


def test_an_average_of_params_beside_the_optimizer_is_not_taken_for_momentum() -> None:
    tree = tree_of({"params": DENSE, "ema_state": optax.ema(0.99).init(DENSE)})
    assert {s.power for s in survey(tree).slots.values()} == {None}


def test_a_state_that_no_longer_fits_the_params_is_asked_for() -> None:
    tree = tree_of({"params": {"new": DENSE}, "opt_state": adam_of({"old": {"w": f32(7, 2)}})})
    result = survey(tree)
    assert result.slots == {}
    assert len(result.questions) == 2


def test_an_unknown_state_that_mirrors_the_params_is_kept_and_named() -> None:
    tree = tree_of({"params": DENSE, "opt_state": {"mystery": {"memory": DENSE, "rest": f32(1)}}})
    result = survey(tree)
    assert {s.power for s in result.slots.values()} == {None}
    (unsure,) = result.unsure
    assert "slots:" in unsure.fixes[0]
    told = survey(tree, slots={"opt_state/mystery/memory": {"power": -1, "fresh": 0.5}})
    assert {(s.power, s.fresh, s.start) for s in told.slots.values()} == {(-1, 0.5, None)}
    (unsure,) = told.unsure
    assert "start: S" in unsure.fixes[0]
    hint = {"power": -1, "fresh": 0.5, "start": 0.0}
    assert survey(tree, slots={"opt_state/mystery/memory": hint}).unsure == []


def test_arrays_that_nothing_explains_are_asked_for_once_for_each_part_of_the_state() -> None:
    strange = {f"part_{i}": {"deep": f32(7, i + 1)} for i in range(5)}
    result = survey(tree_of({"params": DENSE, "opt_state": {"preconditioner": strange}}))
    (problem,) = result.questions
    assert problem.path == "opt_state/preconditioner"
    told = survey(
        tree_of({"params": DENSE, "opt_state": {"preconditioner": strange}}),
        slots={"opt_state/preconditioner": {"ignore": True}},
    )
    assert told.questions == []


def test_two_optimizers_in_a_tuple_are_not_read_as_one_chain() -> None:
    momentum = optax.sgd(0.1, momentum=0.9).init(DENSE)
    tree = tree_of({"params": DENSE, "opt_state": (optax.amsgrad(0.1).init(DENSE), momentum)})
    powers = {s.name: s.power for s in survey(tree).slots.values()}
    assert powers == {"mu": -1, "nu": -2, "nu_max": -2, "trace": None}


@pytest.mark.parametrize("tree", [{"params": DENSE}, {"Dense_0": DENSE}, {"w": f32(2)}])
def test_a_tree_without_optimizer_state_has_no_slots(tree: Any) -> None:
    result = survey(tree_of(tree))
    assert (result.slots, result.clocks, result.questions) == ({}, {}, [])


def test_an_optimizer_state_alone_shows_its_clocks() -> None:
    tree = tree_of(adam_of(DENSE))
    result = survey(tree)
    assert result.params_roots == ()
    assert result.slots == {}
    assert {str(p): c.drives for p, c in result.clocks.items()} == {"0/count": "bias_correction"}
    assert result.questions == []


def test_params_under_names_of_their_own_are_asked_for_beside_an_optimizer() -> None:
    state = {"net": DENSE, "averaged": DENSE, "opt_state": adam_of(DENSE)}
    result = survey(tree_of(state))
    (problem,) = result.questions_about([LeafPath(("net", "kernel"))])
    assert "--params net" in problem.fix
    assert result.questions_about([LeafPath(("opt_state", 0, "count"))]) == []
    found = twins(tree_of(state), params="net")
    assert found["opt_state/0/mu/kernel"] == found["averaged/kernel"] == "net/kernel"


def test_one_bare_leaf_is_a_tree() -> None:
    assert survey(tree_of(f32(3))).slots == {}


NAMES = st.sampled_from(
    ["a", "b", "mu", "nu", "count", "trace", "0", "1", "value", "params", "kernel"]
)
LEAF = st.lists(st.integers(1, 3), max_size=3).map(lambda shape: f32(*shape))
TREES = st.dictionaries(
    NAMES, st.recursive(LEAF, lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=6),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(params=TREES, name=st.sampled_from(["amsgrad", "trace", "adagrad", "rmsprop"]))
def test_whatever_the_params_are_called_a_slot_is_right_or_asked_for(
    params: Any, name: str
) -> None:
    factory = {"trace": lambda: optax.sgd(0.1, momentum=0.9)}.get(name) or (
        lambda: getattr(optax, name)(0.1)
    )
    tree = tree_of({"params": params, "opt_state": factory().init(params), "step": COUNT})
    result = survey(tree)
    for path, slot in result.slots.items():
        assert path[:2] == ("opt_state", 0)
        assert path[3:] == slot.param[1:]
    assert result.slots or result.questions
    if not result.questions:
        fields = {"amsgrad": 3, "trace": 1, "adagrad": 1, "rmsprop": 1}[name]
        assert len(result.slots) == fields * sum(p[0] == "params" for p in tree)


def test_where_states_without_leaves_vanish_the_end_of_a_chain_in_a_chain_is_unknown() -> None:
    """What LAMB keeps in an NNX state looks like Adam's; its trust ratio leaves no trace."""
    chain = {"0": {"0": adam_of(DENSE)[0]}, "1": {"count": COUNT, "ema": DENSE}}
    tree = tree_of({"params": DENSE, "opt_state": chain})
    assert {s.power for s in survey(tree).slots.values() if s.name == "ema"} == {None}
    told = survey(tree, kind={"opt_state/0": "adam"})
    assert {s.power for s in told.slots.values() if s.name == "ema"} == {None}


def two_players(first: str, second: str) -> TreeSpec:
    """Params of two players, shape for shape alike, each with an optimizer of its own."""
    names = {"params_g": DENSE, "params_d": DENSE} if "_" in first else {"g": DENSE, "d": DENSE}
    return tree_of({**names, first: adam_of(DENSE), second: optax.sgd(0.1, 0.9).init(DENSE)})


def test_of_two_players_alike_each_has_the_state_that_shares_a_word_with_it() -> None:
    tree = two_players("opt_state_g", "opt_state_d")
    for player, nodes in (("g", {"mu", "nu"}), ("d", {"trace"})):
        for params in (None, f"params_{player}"):
            found = survey(tree, params=params)
            slots = [s for s in found.slots.values() if s.param[0] == f"params_{player}"]
            assert all(s.in_optimizer for s in slots)
            assert {s.name for s in slots if s.relation != "hole"} == nodes
            assert found.questions == []


def test_of_two_players_alike_whose_states_no_word_tells_apart_all_are_asked_for() -> None:
    tree = two_players("optimizer1", "optimizer2")
    result = survey(tree, params="g")
    assert [q.path for q in result.questions] == ["optimizer1", "optimizer2"]
    assert result.questions[0].why == "it may be the optimizer state of 'g', 'd'"
    told = survey(tree, params="g", slots={"optimizer1": {"of": "g"}, "optimizer2": {"of": "d"}})
    assert told.questions == []
    owners = {(s.name, str(s.root)) for s in told.slots.values() if s.in_optimizer}
    assert {("mu", "g"), ("nu", "g"), ("trace", "d")} <= owners


def test_a_question_about_equal_params_names_them_and_offers_none_of_them_as_the_answer() -> None:
    states = {"gen": adam_of(DENSE), "disc": optax.sgd(0.1, 0.9).init(DENSE)}
    tree = tree_of({"params": {"disc": DENSE, "gen": DENSE}, "opt_state": states})
    for question in survey(tree).questions:
        assert "'params/disc', 'params/gen'" in question.why
        assert f"slots: {{{question.path}: {{of: NODE}}}}" in question.fix
    hints = {f"opt_state/{name}": {"of": f"params/{name}"} for name in states}
    told = survey(tree, slots=hints)
    assert told.questions == []
    pairs = {(s.path[1], s.param[1]) for s in told.slots.values() if s.relation != "hole"}
    assert pairs == {("gen", "gen"), ("disc", "disc")}


def test_another_players_state_of_other_shapes_is_not_asked_for() -> None:
    other = {"kernel": f32(7, 2)}
    tree = tree_of({"g": DENSE, "d": other, "opt_g": adam_of(DENSE), "opt_d": adam_of(other)})
    result = survey(tree, params="g")
    assert result.questions == []
    assert {(str(s.node), str(s.root)) for s in result.slots.values() if s.in_optimizer} == {
        (f"opt_{player}/0/{name}", player) for player in "gd" for name in ("mu", "nu")
    }


def test_momentum_of_t5x_is_settled_by_the_name_that_is_advised() -> None:
    slot = {"m": f32(4), "v": f32(4), "v_row": f32(1), "v_col": f32(1)}
    state = {"step": COUNT, "param_states": {"bias": slot}}
    tree = tree_of({"target": {"bias": f32(4)}, "state": state})
    (unsure,) = survey(tree).unsure
    assert "`--optimizer-kind NAME`" in unsure.fixes[0]
    assert "`adafactor`" in unsure.fixes[0]
    told = survey(tree, kind="adafactor").slots
    assert {s.name: s.power for s in told.values()} == {"m": 1, "v": -2, "v_row": -2, "v_col": -2}


@pytest.mark.parametrize("state", [optax.sgd(0.1, 0.9), optax.trace(0.9), optax.adam(0.1)])
@pytest.mark.parametrize("at", [0, 1])
def test_params_in_a_list_beside_their_state_are_asked_for_and_then_followed(
    state: Any, at: int
) -> None:
    both = [state.init(DENSE), state.init(DENSE)]
    both[at] = DENSE
    tree = tree_of(both)
    params = [path for path in tree if path[0] == at]
    (problem,) = survey(tree).questions_about(params)
    assert f"`--params {at}`" in problem.fix

    found = survey(tree, params=str(at))
    assert {slot.param for slot in found.slots.values() if slot.relation != "hole"} == set(params)
    assert all(slot.in_optimizer for slot in found.slots.values())
    assert not found.questions


@pytest.mark.parametrize(
    ("transformation", "power"),
    [
        (optax.named_chain(("sign", optax.scale_by_sign()), ("m", optax.trace(0.9))), None),
        (optax.named_chain(("m", optax.trace(0.9))), None),
        (optax.named_chain(("sign", optax.scale_by_sign()), ("trace", optax.trace(0.9))), None),
        (optax.chain(optax.scale_by_sign(), optax.trace(0.9)), None),
        (optax.trace(0.9), -1),
        (optax.sgd(0.1, momentum=0.9), -1),
    ],
)
def test_where_states_without_leaves_vanish_a_named_chain_may_have_begun_with_one(
    transformation: Any, power: int | None
) -> None:
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, transformation, wrt=nnx.Param)
    leaves: dict[LeafPath, LeafSpec] = {
        LeafPath(("extra",)): LeafSpec(kind=LeafKind.EMPTY, empty="None")
    }
    for name, module in (("model", model), ("optimizer", optimizer)):
        for path, value in nnx.to_flat_state(nnx.state(module)):
            spec = LeafSpec(kind=LeafKind.ARRAY, shape=value.shape, dtype=str(value.dtype))
            leaves[LeafPath((name, *(str(key) for key in path), "value"))] = spec
    assert {slot.power for slot in survey(TreeSpec(leaves)).slots.values()} == {power}


@pytest.mark.parametrize("names", [("mu", "nu"), ("trace", "ema"), ("params", "updates")])
def test_states_of_a_named_chain_may_be_called_as_fields_are(names: tuple[str, str]) -> None:
    def slots(first: str, second: str) -> dict[tuple[Any, ...], int | None]:
        chain = optax.named_chain((first, optax.scale_by_adam()), (second, optax.trace(0.9)))
        tree = tree_of({"params": DENSE, "opt_state": chain.init(DENSE)})
        found = survey(tree)
        assert not found.questions
        return {(*path[2:],): slot.power for path, slot in found.slots.items()}

    assert slots(*names) == slots("first", "second")


def test_momentum_behind_a_private_aggregate_or_noise_is_not_sure() -> None:
    for transformation in (
        optax.contrib.dpsgd(0.1, 1.0, 0.1, 0, 0.9),
        optax.chain(optax.add_noise(0.1, 0.5, key=0), optax.trace(0.9)),
    ):
        tree = tree_of({"params": DENSE, "opt_state": transformation.init(DENSE)})
        slots = [s for s in survey(tree).slots.values() if s.name == "trace"]
        assert {slot.power for slot in slots} == {None}
    with pytest.raises(PlanError, match="noise"):
        survey(tree, kind="dpsgd")
