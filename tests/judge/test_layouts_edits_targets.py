"""Orbax is the judge: the result of every edit, in every layout, restores into the original training state."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from surgery_cli import reports, surgery
from surgery_cli.operations.table import operations
from surgery_cli.planning import operation_from_options, plan_of
from tests.judge.combinations import (
    EVERY_EDIT,
    PLAIN_EDITS,
    Combination,
    combinations,
    plain_combinations,
)
from tests.judge.conftest import Saved
from tests.judge.edits import DONOR_LAYOUTS, Edit
from tests.judge.merges import TUNES
from tests.judge.targets import TARGETS, Target, abstract, is_same, leaves_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    every = metafunc.config.getoption("--every-combination")
    chosen = {"combination": combinations, "plain_combination": plain_combinations}
    for name in chosen.keys() & set(metafunc.fixturenames):
        found = list(chosen[name](every=every))
        ids = ["-".join(part.name for part in combination) for combination in found]
        metafunc.parametrize(name, found, ids=ids)


def _apply(
    source: Path, destination: Path, edit: Edit, target: Target, donors: Mapping[str, str]
) -> reports.Report:
    steps = [operation_from_options(name, options) for name, options in edit.steps(target, donors)]
    plan = plan_of(steps, params=target.params)
    return surgery.apply(str(source), str(destination), plan, options=edit.options)


def _assert_same(restored: Any, expected: Any, edit: Edit) -> None:
    """The same structure, and the same bits in every leaf; edited leaves to rounding where the edit rounds."""
    found, wanted = leaves_of(restored), leaves_of(expected)
    assert list(found) == list(wanted)
    assert jax.tree.structure(restored) == jax.tree.structure(expected)
    for path, value in wanted.items():
        if edit.is_rounded and path.removesuffix("/value").endswith("Dense_1/kernel"):
            np.testing.assert_allclose(found[path], value, rtol=1e-6)
            assert found[path].dtype == value.dtype
        else:
            assert is_same(found[path], value), path


TREE_EDITS = {"extract-item", "insert-item", "swa", "ema"}
"""What makes items of a step, which ``test_items`` judges, and what needs a run of several, in the cookbook's tests."""
LORA_EDITS = {"merge-lora", "unmerge-lora", "extract-lora"}
"""What meets an adapter: held against PEFT, flax's models and Orbax's restore in ``tests/cli``."""
NODE_EDITS = {"to-dict", "to-list"}
"""What makes dicts of lists, and back: held against `flax.serialization` and Orbax in ``tests/operations``."""


def test_every_operation_of_the_table_is_judged() -> None:
    names = ("members", "mask", "functions", *TUNES, *DONOR_LAYOUTS)
    steps = [
        step for edit in EVERY_EDIT for step in edit.steps(TARGETS[0], dict.fromkeys(names, "a"))
    ]
    judged = {name for name, _ in steps}
    elsewhere = TREE_EDITS | LORA_EDITS | NODE_EDITS
    assert judged.isdisjoint(elsewhere)
    assert judged | elsewhere == set(operations())


def test_every_layout_meets_every_state_and_every_edit_some_layouts() -> None:
    some, every = (list(combinations(every=which)) for which in (False, True))

    assert _names(some, 0, 1) == _names(every, 0, 1)
    for edit in EVERY_EDIT:
        assert len({layout.name for layout, _, other in some if other is edit}) >= 4, edit.name


def test_every_layout_every_state_and_every_plain_edit_is_restored_without_a_target() -> None:
    some, every = (list(plain_combinations(every=which)) for which in (False, True))

    for part in (0, 1):
        assert _names(some, part) == _names(every, part)
    assert _names(some, 2) == {(name,) for name in PLAIN_EDITS}


def _names(found: Iterable[Combination], *parts: int) -> set[tuple[str, ...]]:
    return {tuple(combination[part].name for part in parts) for combination in found}


@pytest.mark.sampled(24)
def test_the_original_target_restores_what_was_edited(
    combination: Combination, saved: Saved, donors: dict[str, str], tmp_path: Path
) -> None:
    layout, target, edit = combination
    source, state = saved(layout, target)
    expected = edit.change(target, state)
    destination = tmp_path / source.name

    report = _apply(source, destination, edit, target, donors)

    assert report.verified
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    restored = layout.restore(destination, abstract(expected))
    _assert_same(restored, expected, edit)
    layout.check(destination)


@pytest.mark.sampled(12)
def test_a_restore_without_target_gives_what_it_gives_where_the_edited_state_was_saved(
    plain_combination: Combination, saved: Saved, donors: dict[str, str], tmp_path: Path
) -> None:
    layout, target, edit = plain_combination
    assert layout.plain is not None
    source, state = saved(layout, target)
    (tmp_path / "reference").mkdir()
    reference = layout.save(tmp_path / "reference", edit.change(target, state))
    destination = tmp_path / source.name

    _apply(source, destination, edit, target, donors)

    _assert_same(layout.plain(destination), layout.plain(reference), edit)
