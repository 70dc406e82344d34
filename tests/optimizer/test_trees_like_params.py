"""Trees like the params outside of optimizer state: an average, or the moments of an optimizer of the script's own.

Metadata cannot tell them apart. Whatever brings values into such a tree that were not in it says what it takes it for,
or was told by the name of the tree.
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
from surgery_cli.operations.table import operations
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.surgery.previews import assumed
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import example_on
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
    assert {each.node for each in assumed(draft)} == new
    for each in assumed(draft):
        assert f"`slots: {{{each.node}: {{power: K}}}}`" in each.sentence


def test_the_sweep_meets_edits_that_bring_new_values() -> None:
    found = {
        name for name, fields in EDITS if assumed(done(name, MOMENTS["in a dict"], **fields)[0])
    }
    assert found >= {"add", "pad", "reinit", "resize", "interpolate-positions"}


@pytest.mark.parametrize("layout", PARAMS_BY_NAME)
@pytest.mark.parametrize(("name", "fields"), EDITS)
def test_nothing_is_assumed_of_what_is_named_as_params(
    name: str, fields: dict[str, Any], layout: str
) -> None:
    assert assumed(done(name, PARAMS_BY_NAME[layout], **fields)[0]) == []


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
