"""Merge and intersect: unions and common parts of two trees, with their optimizer states; and missing partners."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft import source_leaves
from surgery_cli.errors import PlanError
from surgery_cli.operations.add_scaled import AddScaled
from surgery_cli.operations.average import Average
from surgery_cli.operations.base import Operation
from surgery_cli.operations.intersect import Intersect
from surgery_cli.operations.merge import Merge
from surgery_cli.operations.replace import Replace
from surgery_cli.planning import plan_of
from tests.optimizer.test_new_shapes import start, step, values_of

TX = optax.sgd(0.1, momentum=0.9)
HERE, THERE = {"a": (4, 3), "b": (3, 2)}, {"b": (3, 2), "c": (2, 5)}


def trained(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Any:
    params = start(shapes)
    return step(TX, {"params": params, "opt_state": TX.init(params)}, seed)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    folder = tmp_path_factory.mktemp("both")
    states = trained(HERE, 1), trained(THERE, 2)
    with ocp.StandardCheckpointer() as checkpointer:
        for name, state in zip(("here", "there"), states, strict=True):
            checkpointer.save(folder / name, state)
    return folder, *states


def edited(folder: Path, to: Path, edit: Operation) -> Any:
    plan = plan_of([edit], optimizer_kind="sgd")
    return surgery.apply(str(folder / "here"), str(to), plan)


def restored(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    params = start(shapes)
    target = {"params": params, "opt_state": TX.init(params)}
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
    with ocp.StandardCheckpointer() as checkpointer:
        return values_of(checkpointer.restore(path, target))


@pytest.mark.parametrize("rule", ["ours", "theirs"])
def test_what_is_missing_comes_with_its_slots_and_a_rule_says_the_rest(
    rule: str, both: tuple[Path, Any, Any], tmp_path: Path
) -> None:
    folder, here, there = both
    edit = Merge(at="params", with_=str(folder / "there"), both=rule)
    report = edited(folder, tmp_path / "new", edit)
    assert report.bytes_written == 0
    found = restored(tmp_path / "new", {**HERE, **THERE})
    ours, theirs = values_of(here), values_of(there)
    for path, leaf in found.items():
        layer = next((key for key in path.split("/") if key in "abc"), "a")
        origin = theirs if layer == "c" or (layer == "b" and rule == "theirs") else ours
        np.testing.assert_array_equal(leaf, origin[path], path)
    back = surgery.inverse(str(tmp_path / "new")).plan
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), surgery_plan(back))
    for path, leaf in restored(tmp_path / "back", HERE).items():
        np.testing.assert_array_equal(leaf, ours[path])


def surgery_plan(document: Any) -> Any:
    from surgery_cli.planning import plan_from_document

    return plan_from_document(document)


def test_whole_trees_meet_without_a_pattern(both: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder, _, there = both
    edited(folder, tmp_path / "new", Merge(with_=str(folder / "there"), both="theirs"))
    found, theirs = restored(tmp_path / "new", {**HERE, **THERE}), values_of(there)
    for path, leaf in theirs.items():
        np.testing.assert_array_equal(found[path], leaf, path)


def test_leaves_on_both_sides_need_a_rule(both: tuple[Path, Any, Any], tmp_path: Path) -> None:
    folder = both[0]
    with pytest.raises(PlanError, match="2 leaves stand here and in") as caught:
        edited(folder, tmp_path / "new", Merge(at="params", with_=str(folder / "there")))
    assert "say `both: ours`" in caught.value.problems[0].fix
    with pytest.raises(PlanError, match="nothing that is missing here"):
        edited(
            folder, tmp_path / "new", Merge(at="params", with_=str(folder / "here"), both="ours")
        )


def test_what_the_other_tree_lacks_goes_with_its_slots(
    both: tuple[Path, Any, Any], tmp_path: Path
) -> None:
    folder, here, _ = both
    for number, at in enumerate(("params", ())):
        edited(folder, tmp_path / str(number), Intersect(at=at, with_=str(folder / "there")))
        found, ours = restored(tmp_path / str(number), {"b": HERE["b"]}), values_of(here)
        for path, leaf in found.items():
            np.testing.assert_array_equal(leaf, ours[path], path)
    with pytest.raises(PlanError, match="has none of the 2 leaves"):
        edited(folder, tmp_path / "none", Intersect(at="params/a", with_=str(folder / "there")))


def test_leaves_of_another_shape_may_go_as_well(tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "here", trained({"a": (4, 3), "b": (3, 2)}, 1))
        checkpointer.save(tmp_path / "there", trained({"a": (4, 3), "b": (3, 5)}, 1))
    for by, left in (("path", 4), ("shape", 2)):
        edit = Intersect(at="params", with_=str(tmp_path / "there"), by=by)
        if left == 4:
            assert edited(tmp_path, tmp_path / by, edit).removed == []
        else:
            assert len(edited(tmp_path, tmp_path / by, edit).removed) == 4


@pytest.mark.parametrize("kind", [Average, AddScaled, Replace])
def test_leaves_that_are_missing_elsewhere_are_an_error_or_skipped(
    kind: type[Operation],
    both: tuple[Path, Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, here, _ = both
    fields = {"at": "params", "with_": str(folder / "there")}
    with pytest.raises(PlanError, match="params/a/bias"):
        edited(folder, tmp_path / "new", kind(**fields))
    monkeypatch.setattr(source_leaves, "nearest", None)  # takes long, and nobody would read it
    report = edited(folder, tmp_path / "new", kind(**fields, missing="skip"))
    assert report.edits[0].leaves == 2
    assert any(
        "2 leaves are missing elsewhere and stay as before" in n for n in report.consequences
    )
    found, ours = restored(tmp_path / "new", HERE), values_of(here)
    for path, leaf in found.items():
        if "/a/" in path:
            np.testing.assert_array_equal(leaf, ours[path], path)
    only = {**fields, "at": "params/a"}
    with pytest.raises(PlanError, match="all 2 leaves of"):
        edited(folder, tmp_path / "none", kind(**only, missing="skip"))
