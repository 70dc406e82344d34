"""Trees like the params outside of optimizer state: an average, or the moments of an optimizer of the script's own.

Metadata cannot tell them apart. Whatever brings values into such a tree that were not in it says what it takes it for,
or was told by the name of the tree or by ``slots:``; and what ``slots:`` says is obeyed as it is below ``opt_state``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.cli.main import run
from surgery_cli.compute.host import HostKit
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.surgery.assumed import assumed_states
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from tests.operations.value_edits import example_on
from tests.optimizer.optax_registry import train_state
from tests.oracle.editing import InMemory

SHAPE = (4, 3)
FIRST = LeafPath(("params", "Dense_0", "kernel"))
MOMENTS = {
    "beside params": lambda m, v: {"m1": m, "v": v},
    "by optax's names": lambda m, v: {"mu": m, "nu": v, "count": np.int32(3)},
    "by names of averages": lambda m, v: {"exp_avg": m, "exp_avg_sq": v},
    "in a dict": lambda m, v: {"moments": {"first": m, "second": v}},
    "in a list": lambda m, v: {"adam": [m, v]},
    "beside an optimizer state": lambda m, v: {"opt_state": {"trace": m}, "fisher": v},
}  # fmt: skip
PARAMS_BY_NAME = {
    "averages": lambda m, v: {"ema": m, "params_ema": v},
    "targets": lambda m, v: {"target_params": m, "teacher": {"params": v}},
}
NAMING_A_STATE = {"extract-item", "reset-optimizer", "to-dict", "to-list"}
"""Operations whose example names an optimizer state, or what has none."""

EXAMPLES = [(name, {}) for name in sorted(operations().keys() - NAMING_A_STATE)]
EDITS = [
    *EXAMPLES,
    ("resize", {"fill": "normal", "stddev": 0.1}),
    ("pad", {"value": -1.0}),
    ("reinit", {"shape": [6, 5]}),
    ("interpolate-positions", {"method": "cubic"}),
]
"""Every operation, by its example, and others that put other values beside the old ones."""


def network(seed: int, *, is_square: bool = False) -> dict[str, Any]:
    draws = np.random.default_rng(seed)
    values = {
        layer: {key: draws.normal(size=SHAPE).astype(np.float32) for key in ("bias", "kernel")}
        for layer in ("Dense_0", "Dense_1")
    }
    return {
        layer: {key: np.square(leaf) if is_square else leaf for key, leaf in leaves.items()}
        for layer, leaves in values.items()
    }


def in_memory(layout: Any, seed: int) -> InMemory:
    trees = layout(network(seed + 1), network(seed + 2, is_square=True))
    return InMemory({"params": network(seed), "step": np.int32(3), **trees})


def done(name: str, layout: Any, **told: Any) -> tuple[Draft, Mapping[LeafPath, Any], InMemory]:
    """An operation's example: the draft, all values after it, and what they were made of."""
    own, other = in_memory(layout, 0), in_memory(layout, 10)
    draft, sources = example_on(operations()[name], own, other, other.values[FIRST], **told)

    def value(recipe: Any) -> Any:
        evaluation = Evaluation(recipe, sources, HostKit(), recipe.spec.shape)
        return evaluation.block(tuple(slice(0, n) for n in recipe.spec.shape))

    leaves = draft.leaves.items()
    return draft, {p: value(leaf.recipe) for p, leaf in leaves if leaf.spec.has_array}, own


def trees_with_new_values(draft: Draft, after: Mapping[LeafPath, Any], own: InMemory) -> set[str]:
    """The trees beside params in which something stands that stood in none of their leaves; named leaves apart."""
    old = np.concatenate(
        [own.values[p].ravel() for p in own.values if p[0] not in ("params", "step", "count")]
    )
    return {
        str(draft.slots[path].node)
        for path, values in after.items()
        if path in draft.slots and not draft.slots[path].in_optimizer
        if not any(edit.is_named for edit in draft.leaves[path].edits if path not in draft.slots)
        if not np.isin(values, old.astype(values.dtype)).all()
    }


@pytest.mark.parametrize("layout", MOMENTS)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_no_edit_puts_values_into_a_tree_of_unknown_meaning_without_a_word(
    name: str, fields: dict[str, Any], layout: str
) -> None:
    draft, after, own = done(name, MOMENTS[layout], **fields)
    new = trees_with_new_values(draft, after, own)
    assert {each.node for each in assumed_states(draft)} == new
    for each in assumed_states(draft):
        assert f"`slots: {{{each.node}: {{power: K}}}}`" in each.sentence


def test_the_sweep_meets_edits_that_bring_new_values() -> None:
    found = {
        name
        for name, fields in EDITS
        if assumed_states(done(name, MOMENTS["in a dict"], **fields)[0])
    }
    assert found >= {"add", "pad", "reinit", "resize", "interpolate-positions"}


@pytest.mark.parametrize("layout", PARAMS_BY_NAME)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_nothing_is_assumed_of_what_is_named_as_params(
    name: str, fields: dict[str, Any], layout: str
) -> None:
    assert assumed_states(done(name, PARAMS_BY_NAME[layout], **fields)[0]) == []


# --- what the user says of them ---------------------------------------------------------------------------


def powers_of(first: str, second: str) -> dict[str, dict[str, Any]]:
    squares = {"power": -2, "even": True, "second_moment": True, "fresh": 0.0}
    return {first: {"power": -1, "fresh": 0.0}, second: squares}


TOLD = {
    "beside params": powers_of("m1", "v"),
    "by optax's names": powers_of("mu", "nu"),
    "by names of averages": powers_of("exp_avg", "exp_avg_sq"),
    "in a dict": powers_of("moments/first", "moments/second"),
    "in a list": powers_of("adam/0", "adam/1"),
}


def values_below(node: str, after: Mapping[LeafPath, Any]) -> dict[str, Any]:
    return {
        str(path).removeprefix(f"{node}/"): values
        for path, values in after.items()
        if str(path).startswith(f"{node}/")
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize("policy", [None, "keep", "transform", "reset", "warm"])
@pytest.mark.parametrize("layout", TOLD)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_what_is_said_of_slots_holds_wherever_they_stand(
    name: str, fields: dict[str, Any], layout: str, policy: str | None
) -> None:
    """As below ``opt_state``, or as refused there; and no square is negative."""
    more = {} if policy is None else {"optimizer": policy}
    told, usual = TOLD[layout], powers_of("opt_state/m", "opt_state/v")
    try:
        below = done(
            name, lambda m, v: {"opt_state": {"m": m, "v": v}}, slots=usual, **fields, **more
        )
    except PlanError:
        with pytest.raises(PlanError):
            done(name, MOMENTS[layout], slots=told, **fields, **more)
        return
    draft, after, _ = done(name, MOMENTS[layout], slots=told, **fields, **more)
    assert [each.taken_for for each in assumed_states(draft)] == [
        each.taken_for for each in assumed_states(below[0])
    ]
    for node, own in zip(told, usual, strict=True):
        found, wanted = values_below(node, after), values_below(own, below[1])
        assert found.keys() == wanted.keys()
        for path, values in found.items():
            np.testing.assert_array_equal(values, wanted[path], f"{node}/{path}")
    assert all((values >= 0).all() for values in values_below(list(told)[1], after).values())


def asked(found: OptimizerSurvey, node: str) -> bool:
    paths = [problem.path or "" for problem in found.questions]
    return any(
        f"{path}/".startswith(f"{node}/") or f"{node}/".startswith(f"{path}/") for path in paths
    )


def part_of_an_average(m: Any, v: Any) -> dict[str, Any]:
    kernels = {layer: {"kernel": leaves["kernel"]} for layer, leaves in v.items()}
    return {"opt_state": {"trace": m}, "ema": kernels}


def trees() -> dict[str, TreeSpec]:
    layouts = MOMENTS | PARAMS_BY_NAME | {"a part of an average": part_of_an_average}
    beside = {name: in_memory(layout, 0).tree for name, layout in layouts.items()}
    optimizers = ("adam", "multisteps", "adafactor", "partition_2", "sm3")
    return beside | {name: train_state(name) for name in optimizers}


def test_a_part_of_an_average_is_what_the_user_says() -> None:
    tree, said = in_memory(part_of_an_average, 0).tree, {"of": "params/Dense_0", "power": -2}
    found = survey(tree, slots={"ema/Dense_0": said}).slots
    told = {str(path): slot.power for path, slot in found.items() if path[0] == "ema"}
    assert told == {"ema/Dense_0/kernel": -2, "ema/Dense_1/kernel": 1}


@pytest.mark.parametrize("name", trees())
def test_what_is_said_of_a_node_is_obeyed_or_refused(name: str) -> None:
    """Of every node and every leaf of the tree: nothing that the user says is dropped."""
    tree = trees()[name]
    for place in {*tree.nodes, *tree} - {LeafPath()}:
        node, counts = str(place), (place in tree and tree[place].shape == ())
        for hint in ({"power": 5}, {"ignore": True}):
            try:
                found = survey(tree, slots={node: hint})
            except PlanError:
                continue
            below = [
                slot
                for slot in found.slots.values()
                if slot.path.is_below(place) and slot.relation != "hole"
            ]
            if "ignore" in hint:
                assert not below, node
            else:
                said = below and all(slot.power == 5 and slot.in_optimizer for slot in below)
                assert said or asked(found, node) or counts, node


# --- runs on disk ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What a script saves that has written Adam itself, with an average of the params."""
    m, v = network(1), network(2, is_square=True)
    tree = {"params": network(0), "m1": m, "v": v, "ema": network(3), "t": np.int32(3)}
    path = tmp_path_factory.mktemp("trained") / "state"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path, tree


def applied(source: Path, destination: Path, edit: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    plan = plan_from_document({"edits": [edit], **more})
    report = surgery.apply(str(source), str(destination), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        return report, checkpointer.restore(destination)


RESIZE = {
    "op": "resize",
    "at": "params/Dense_0/kernel",
    "axis": 1,
    "size": 5,
    "fill": "normal",
    "stddev": 0.1,
}
"""New places get values of both signs."""

SHORT = {"m1": {"power": -1}, "v": {"power": -2, "even": True}}


def test_the_preview_the_record_and_a_quiet_run_say_what_is_assumed(
    trained: tuple[Path, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report, found = applied(trained[0], tmp_path / "new", RESIZE)
    assert (found["v"]["Dense_0"]["kernel"] < 0).any()
    record = json.loads((tmp_path / "new/surgery.json").read_text())
    for node in ("m1", "v"):
        said = f"'{node}' is taken for a copy of 'params', which is not proved"
        assert sum(each.sentence.startswith(said) for each in report.assumptions) == 1
        assert sum(each["sentence"].startswith(said) for each in record["assumptions"]) == 1
    assert len(report.assumptions) == len(record["assumptions"]) == 2
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"edits": [RESIZE]}))
    with pytest.raises(SystemExit) as ended:
        run(["apply", str(trained[0]), str(tmp_path / "quiet"), str(plan), "-q"])
    assert ended.value.code == 0
    said = capfd.readouterr().err
    assert said.count("assumed: ") == 2
    assert "slots: {v: {power: K}}" in said


def test_stated_moments_have_new_places_as_their_kind_has(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    old = trained[1]
    report, found = applied(trained[0], tmp_path / "new", RESIZE, slots=SHORT)
    assert report.assumptions == []
    m, v = (found[name]["Dense_0"]["kernel"] for name in ("m1", "v"))
    before = old["v"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(m, np.pad(old["m1"]["Dense_0"]["kernel"], ((0, 0), (0, 2))))
    np.testing.assert_array_equal(v[:, :3], before)
    np.testing.assert_allclose(v[:, 3:], np.repeat(before.mean(1, keepdims=True), 2, 1), 1e-6)
    assert np.abs(found["ema"]["Dense_0"]["kernel"][:, 3:]).min() > 0


def test_a_later_run_remembers_what_was_said(trained: tuple[Path, Any], tmp_path: Path) -> None:
    old = trained[1]
    applied(trained[0], tmp_path / "first", RESIZE, slots=SHORT)
    rescale = {"op": "rescale", "at": "params/Dense_1/kernel", "by": 4.0}
    report, found = applied(tmp_path / "first", tmp_path / "second", rescale)
    assert report.edits[0].twins == {"transform": 2}
    for name, factor in (("params", 4.0), ("m1", 1 / 4), ("v", 1 / 16), ("ema", 1.0)):
        before = old[name]["Dense_1"]["kernel"]
        np.testing.assert_array_equal(found[name]["Dense_1"]["kernel"], before * np.float32(factor))
    _, third = applied(tmp_path / "second", tmp_path / "third", RESIZE | {"size": 7})
    assert (third["v"]["Dense_0"]["kernel"] >= 0).all()


@pytest.mark.parametrize("name", ["v", "ema"])
@pytest.mark.parametrize("others", [{}, {"m1": {"power": -1}}], ids=["alone", "beside slots"])
def test_what_is_ignored_is_left_alone(
    trained: tuple[Path, Any], tmp_path: Path, name: str, others: dict[str, Any]
) -> None:
    slots = {name: {"ignore": True}, **others}
    _, found = applied(trained[0], tmp_path / "new", RESIZE, slots=slots)
    before = trained[1][name]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(found[name]["Dense_0"]["kernel"], before)


def test_stated_moments_may_be_put_into_a_state_one_by_one(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    rename = {"op": "rename", "at": "v", "to": "opt_state/v"}
    report, _ = applied(trained[0], tmp_path / "new", rename, slots=SHORT)
    assert report.consequences == []


def test_a_factor_says_what_it_leaves_and_inspect_what_is_assumed(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    report, found = applied(
        trained[0], tmp_path / "new", {"op": "rescale", "at": "params", "by": 2.0}
    )
    np.testing.assert_array_equal(
        found["v"]["Dense_0"]["kernel"], trained[1]["v"]["Dense_0"]["kernel"]
    )
    (said,) = [str(note) for note in report.consequences]
    assert "'ema', 'm1', 'v'" in said
    assert "`slots: {m1: {power: K}}`" in said
    notes = [str(note) for note in surgery.inspect(str(trained[0]), optimizer=True).notes]
    assert sum("is taken for a copy of 'params'" in note for note in notes) == 2
