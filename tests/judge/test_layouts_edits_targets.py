"""Orbax is the judge: the result of every edit, in every layout, restores into the original training state."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conftest import Saved
from edits import EDITS, Edit
from layouts import LAYOUTS, Layout
from targets import TARGETS, Target, abstract, is_same, leaves_of

from surgery_cli import surgery
from surgery_cli.plan import operation_from_options, plan_of


def _apply(source: Path, destination: Path, edit: Edit, target: Target, donors: Mapping[str, str]) -> Any:
    steps = edit.steps(target, donors)
    plan = plan_of([operation_from_options(name, options) for name, options in steps], params=target.params)
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


def _test_of(layout: Layout, target: Target, edit: Edit) -> Any:
    return pytest.param(layout, target, edit, id=f"{layout.name}-{target.name}-{edit.name}")


EVERY = [
    _test_of(layout, target, edit)
    for layout in LAYOUTS
    for target in TARGETS
    for edit in EDITS
    if layout.supports(target)
]


@pytest.mark.parametrize(("layout", "target", "edit"), EVERY)
def test_the_original_target_restores_what_was_edited(
    layout: Layout, target: Target, edit: Edit, saved: Saved, donors: dict[str, str], tmp_path: Path
) -> None:
    source, state = saved(layout, target)
    expected = edit.change(target, state)
    destination = tmp_path / source.name

    report = _apply(source, destination, edit, target, donors)

    assert report.verified
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    restored = layout.restore(destination, abstract(expected))
    _assert_same(restored, expected, edit)
    layout.check(destination)
