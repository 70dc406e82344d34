"""Each layout of each state is saved once per worker, and each donor."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.judge.edits import DONOR_LAYOUTS, DONOR_VALUES
from tests.judge.layouts import Layout, pytree_checkpointer
from tests.judge.merges import TUNES
from tests.judge.targets import Target
from tests.judge.values_and_shapes import FUNCTIONS, MASK, MEMBER
from tests.source_trees import everything_of

Saved = Callable[[Layout, Target], tuple[Path, Any]]


@pytest.fixture(scope="session")
def _saved_states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    states: dict[str, Any] = {}
    saved: dict[tuple[str, str], tuple[Path, Any]] = {}

    def save(layout: Layout, target: Target) -> tuple[Path, Any]:
        key = (layout.name, target.name)
        if key not in saved:
            if target.name not in states:
                states[target.name] = target.make()
            state = layout.before(states[target.name])
            folder = tmp_path_factory.mktemp(f"{target.name}-{layout.name}")
            saved[key] = (layout.save(folder, state), state)
        return saved[key]

    return save


@pytest.fixture
def saved(_saved_states: Saved) -> Iterator[Saved]:
    """A layout's checkpoint of a state, and the state; it must be as it was when the test ends."""
    before: dict[Path, Any] = {}

    def save(layout: Layout, target: Target) -> tuple[Path, Any]:
        path, state = _saved_states(layout, target)
        before[path] = everything_of(path)
        return path, state

    yield save
    for path, content in before.items():
        assert everything_of(path) == content


@pytest.fixture(scope="session")
def _donors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A leaf in each of the four array layouts, beside another that is not wanted; and what else edits name."""
    folder = tmp_path_factory.mktemp("donors")
    tree = {
        "donated": {"kernel": jax.numpy.asarray(DONOR_VALUES)},
        "other": jax.numpy.asarray(np.ones((64, 64), np.float32)),
    }
    for name in DONOR_LAYOUTS:
        store, zarr = name.split("-")
        with pytree_checkpointer(ocdbt=store == "ocdbt", zarr3=zarr == "zarr3") as checkpointer:
            checkpointer.save(folder / name, args=ocp.args.PyTreeSave(tree))
    bias = jax.numpy.asarray(MEMBER)
    layer = {"Dense_2": {"bias": bias}}
    member = {"params": layer, "model": {"Dense_2": {"bias": {"value": bias}}}}
    with pytree_checkpointer(ocdbt=True, zarr3=False) as checkpointer:
        checkpointer.save(folder / "members", args=ocp.args.PyTreeSave(member))
    for name, values in TUNES.items():
        kernel = jax.numpy.asarray(values)
        tune = {"params": {"Dense_1": {"kernel": kernel}}}
        tune |= {"model": {"Dense_1": {"kernel": {"value": kernel}}}}
        with pytree_checkpointer(ocdbt=True, zarr3=False) as checkpointer:
            checkpointer.save(folder / name, args=ocp.args.PyTreeSave(tune))
    np.save(folder / "mask.npy", MASK)
    (folder / "edit.py").write_text(FUNCTIONS)
    files = {name: name for name in (*DONOR_LAYOUTS, "members", *TUNES)}
    files |= {"mask": "mask.npy", "functions": "edit.py"}
    return {name: folder / file for name, file in files.items()}


@pytest.fixture
def donors(_donors: dict[str, Path]) -> Iterator[dict[str, str]]:
    """Paths of the donors by layout; they must be as they were when the test ends."""
    before = {name: everything_of(path) for name, path in _donors.items()}
    yield {name: str(path) for name, path in _donors.items()}
    assert {name: everything_of(path) for name, path in _donors.items()} == before
