"""One pattern over params and over trees like them: of moments of the script's own, an edit makes what they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import yaml

from surgery_cli import surgery
from surgery_cli.draft.effect import Means, Takes
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import ValueOperation
from surgery_cli.operations.table import operations
from surgery_cli.planning.reading import plan_from_document
from tests.optimizer.test_trees_like_params import MOMENTS, UNSAID, done

LAYOUTS = [layout for layout in MOMENTS if layout != "beside an optimizer state"]
VALUES = [name for name, kind in sorted(operations().items()) if issubclass(kind, ValueOperation)]


def refusals(name: str, layout: str) -> tuple[list[str], bool]:
    """What is said of trees of unknown meaning; and whether the pattern is none for the operation in any case."""
    try:
        done(name, MOMENTS[layout], at="**/kernel")
    except PlanError as refused:
        said = [one.what for one in refused.problems]
        elsewhere = all("in which order" in one or "would both stand" in one for one in said)
        return [one for one in said if "nothing says what" in one], elsewhere
    return [], False


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VALUES)
def test_one_pattern_puts_no_values_into_trees_of_unknown_meaning(name: str, layout: str) -> None:
    """Means of several checkpoints, and what is taken from the same place in one, are right for either."""
    untold, elsewhere = refusals(name, layout)
    if elsewhere:
        assert not untold
        return
    if untold:
        assert all(f"'{node}'" in said for said in untold for node in UNSAID[layout])
        return
    draft, after, own = done(name, MOMENTS[layout], at="**/kernel")
    for path, values in after.items():
        node = next((one for one in UNSAID[layout] if f"{path}".startswith(f"{one}/")), "")
        before = own.values.get(path)
        if not node or before is None or values.shape != before.shape:
            continue
        is_taken = any(isinstance(one.effect, Means | Takes) for one in draft.leaves[path].edits)
        assert is_taken or np.isin(values, before.astype(values.dtype)).all()
        assert before.min() < 0 or values.min() >= 0


def test_the_sweep_meets_edits_of_every_kind() -> None:
    refused = {name for name in VALUES if refusals(name, "in a dict")[0]}
    assert refused >= {"rescale", "noise", "map", "reinit", "prune", "mask", "pad", "resize", "set"}
    assert not refused & {"cast", "transpose", "average", "swa", "permute"}


TREES = ("m1", "v")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untold")
    kernel = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    tree = {
        "params": {"a": {"kernel": kernel}},
        "m1": {"a": {"kernel": kernel / 10}},
        "v": {"a": {"kernel": kernel**2 / 100}},
        "ema_params": {"a": {"kernel": kernel * 2}},
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder / "a", tree)
    return folder / "a"


def factors(source: Path, goal: Path, **plan: Any) -> dict[str, float]:
    """By what each tree was multiplied; all elements by the same."""
    surgery.apply(str(source), str(goal), plan_from_document(plan))
    with ocp.PyTreeCheckpointer() as checkpointer:
        before, after = checkpointer.restore(source), checkpointer.restore(goal)
    found = {}
    for tree in before:
        ratio = after[tree]["a"]["kernel"] / before[tree]["a"]["kernel"]
        np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-6)
        found[tree] = float(ratio.flat[0])
    return found


@pytest.mark.parametrize("at", ["**/kernel", "*/a", "{params,v}/**", "re:.*/kernel", "{params,m1}"])
def test_every_pattern_over_several_trees_is_refused_and_what_it_says_works(
    source: Path, tmp_path: Path, at: str
) -> None:
    edit = {"op": "rescale", "at": at, "by": -2.0}
    with pytest.raises(PlanError, match="nothing says what") as refused:
        factors(source, tmp_path / "b", edits=[edit])
    fix = str(refused.value.problems[0].fix)
    assert "below `params/`" in fix
    assert "slots:" in fix
    named = factors(source, tmp_path / "b", edits=[{**edit, "twins": "named"}])
    assert named["params"] == -2
    alone = factors(source, tmp_path / "c", edits=[{**edit, "at": "params/**"}])
    assert (alone["params"], alone["m1"], alone["v"]) == (-2, 1, 1)
    slots = yaml.safe_load("{m1: {power: -1, fresh: 0}, v: {power: -2, even: true, fresh: 0}}")
    told = factors(source, tmp_path / "d", slots=slots, edits=[{**edit, "at": "params/**"}])
    assert (told["params"], told["m1"], told["v"]) == (-2, -0.5, 0.25)
    with pytest.raises(PlanError, match="its twin"):
        factors(source, tmp_path / "e", slots=slots, edits=[edit])
    copies = {node: {"copy": True} for node in TREES}
    copied = factors(source, tmp_path / "f", slots=copies, edits=[edit])
    assert {copied[node] for node in TREES} <= {1.0, -2.0}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("params/**/kernel", {"params": -2}),
        (["params/a", "m1/a"], {"params": -2, "m1": -2}),
        ("*params/a/kernel", {"params": -2, "ema_params": -2}),
        ("m1/**", {"m1": -2}),
    ],
)
def test_trees_that_a_pattern_of_their_own_names_or_whose_names_tell_are_edited_as_named(
    source: Path, tmp_path: Path, at: Any, expected: dict[str, float]
) -> None:
    found = factors(source, tmp_path / "b", edits=[{"op": "rescale", "at": at, "by": -2.0}])
    assert {tree: by for tree, by in found.items() if by != 1} == expected


def test_ordinary_checkpoints_are_edited_by_any_pattern(tmp_path: Path) -> None:
    """Two networks in the params, batch statistics, optimizer states without twins of this shape."""
    kernel = np.ones((4, 3), np.float32)
    params = {"actor": {"kernel": kernel}, "critic": {"kernel": kernel}}
    tree = {"params": params, "batch_stats": {"bn": {"mean": kernel[0]}}, "step": np.int32(1)}
    tree["opt_state"] = optax.sgd(0.1).init(params)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", tree)
    edit = {"op": "rescale", "at": "**/kernel", "by": -2.0}
    plan = plan_from_document({"edits": [edit]})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        done_params = checkpointer.restore(tmp_path / "b")["params"]
    for network in params:
        np.testing.assert_array_equal(done_params[network]["kernel"], kernel * -2)


def test_what_is_taken_for_all_of_them_from_one_place_is_refused_and_from_its_like_is_not(
    source: Path, tmp_path: Path
) -> None:
    """Of another checkpoint with the same trees, moments are moments."""
    file = tmp_path / "edit.py"
    file.write_text("def less(array, path): return array - 1\n")
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(source)
        other = {name: {"a": {"kernel": one["a"]["kernel"] * 3}} for name, one in tree.items()}
        other["params"]["b"] = {"kernel": np.full((4, 3), -1, np.float32)}
        checkpointer.save(tmp_path / "donor", other)
    np.savez(tmp_path / "one.npz", w=np.full((4, 3), -1, np.float32))
    every = {"op": "replace", "at": "{params,m1,v}/a/kernel", "with": str(tmp_path / "donor")}
    refused = [
        {**every, "from": "params/b/kernel"},
        {**every, "with": f"{tmp_path / 'one.npz'}:w"},
        {"op": "map", "at": "**/kernel", "with": f"{file}:less", "effect": "takes"},
    ]
    for number, edit in enumerate(refused):
        with pytest.raises(PlanError, match="nothing says what"):
            surgery.plan(str(source), plan_from_document({"edits": [edit]}))
        goal, named = tmp_path / f"named{number}", {**edit, "twins": "named"}
        surgery.apply(str(source), str(goal), plan_from_document({"edits": [named]}))
    for number, edit in enumerate([every, {**every, "from": r"\1/a/kernel", "at": "*/a/kernel"}]):
        found = factors(source, tmp_path / f"taken{number}", edits=[edit])
        assert {found[node] for node in ("params", *TREES)} == {3.0}
