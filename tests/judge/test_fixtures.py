"""Checkpoints of four Orbax releases open with their true values, before and after an edit of one leaf."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.dtypes import is_complex, is_floating
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from tests.fixture_truths import FIXTURES, finished, is_true, truth_key, truths, unfinished
from tests.source_trees import everything_of

RESTORABLE = [name for name in finished() if "cm_composite" not in name]
"""What the installed Orbax restores as one tree; a step of several items needs its manager."""


def _false_leaves(checkpoint: Path, name: str, edited: LeafPath | None = None) -> list[str]:
    """Leaves that are missing, not asked for, or do not hold their true value."""
    opened, wanted = open_checkpoint(str(checkpoint)), truths(name)
    found = {
        truth_key(path): opened.read(path)
        for path, spec in opened.tree.items()
        if spec.has_array or spec.kind is LeafKind.STRING
    }
    skipped = truth_key(edited) if edited is not None else None
    wrong = [key for key in found.keys() & wanted.keys() if not is_true(found[key], wanted[key])]
    return sorted((found.keys() ^ wanted.keys()) | {key for key in wrong if key != skipped})


def _editable(checkpoint: Path) -> LeafPath:
    """An array of the checkpoint, one of floating values if there is any."""
    arrays = {
        path: spec
        for path, spec in open_checkpoint(str(checkpoint)).tree.items()
        if spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY) and not is_complex(spec.dtype)
    }
    return min(arrays, key=lambda path: not is_floating(arrays[path].dtype))


def _one_leaf_set_to_one(source: Path, destination: Path, **options: Any) -> LeafPath:
    path = _editable(source)
    operation = operation_from_options("replace", {"at": str(path), "with": "1"})
    surgery.apply(
        str(source),
        str(destination),
        plan_of([operation]),
        options=surgery.Options(optimizer="keep", **options),
    )
    return path


@pytest.mark.parametrize("name", finished())
def test_every_checkpoint_opens_with_exactly_its_true_values(name: str) -> None:
    assert _false_leaves(FIXTURES / name, name) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compact", ["never", "always"])
@pytest.mark.parametrize("name", finished())
def test_an_edit_of_one_leaf_leaves_every_other_one_exact(
    name: str, compact: str, tmp_path: Path
) -> None:
    source, destination = FIXTURES / name, tmp_path / Path(name).name
    before = everything_of(source)
    path = _one_leaf_set_to_one(source, destination, compact=compact)
    assert _false_leaves(destination, name, edited=path) == []
    edited = np.asarray(open_checkpoint(str(destination)).read(path)).astype(np.float32)
    np.testing.assert_array_equal(edited, np.ones(edited.shape, np.float32))
    assert everything_of(source) == before


@pytest.mark.parametrize("name", finished())
def test_an_empty_plan_copies_every_leaf(name: str, tmp_path: Path) -> None:
    destination = tmp_path / Path(name).name
    surgery.apply(str(FIXTURES / name), str(destination), plan_of([]))
    assert _false_leaves(destination, name) == []


def _restored_by_orbax(path: Path) -> dict[str, np.ndarray]:
    """Every leaf as the installed Orbax restores it, on whatever devices there are."""
    path = next(path.glob("checkpoint_*"), path)  # roots of `flax.training.checkpoints`
    with ocp.PyTreeCheckpointer() as checkpointer:
        described = checkpointer.metadata(path).item_metadata
        if described is None:  # older saves, with their structure in the file `checkpoint`
            restored = checkpointer.restore(path)
        else:
            arguments = jax.tree.map(
                lambda _: ocp.RestoreArgs(restore_type=np.ndarray), described.tree
            )
            args = ocp.args.PyTreeRestore(restore_args=arguments)
            restored = checkpointer.restore(path, args=args)
    flat, _ = jax.tree_util.tree_flatten_with_path(restored)
    return {truth_key(tuple(_key(key) for key in keys)): np.asarray(leaf) for keys, leaf in flat}


def _key(key: Any) -> str | int:
    return key.key if hasattr(key, "key") else key.idx


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RESTORABLE)
def test_orbax_restores_the_edited_checkpoints_of_its_older_releases(
    name: str, tmp_path: Path
) -> None:
    destination = tmp_path / Path(name).name
    path = _one_leaf_set_to_one(FIXTURES / name, destination)
    restored, wanted = _restored_by_orbax(destination), truths(name)
    assert restored.keys() == wanted.keys()
    edited = truth_key(path)
    assert [k for k in wanted if k != edited and not is_true(restored[k], wanted[k])] == []
    np.testing.assert_array_equal(restored[edited], np.ones_like(restored[edited]))


@pytest.mark.parametrize("name", unfinished())
def test_unfinished_saves_are_refused_as_sources_and_nothing_is_written(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="unfinished"):
        surgery.apply(str(FIXTURES / name), str(tmp_path / "new"), plan_of([]))
    assert list(tmp_path.iterdir()) == []
