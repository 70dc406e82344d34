"""A save that was never merged is told as that, with what is whole, and the advice ends it."""

import asyncio
import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from orbax.checkpoint._src.serialization import ocdbt_utils, tensorstore_utils

from surgery_cli.errors import CheckpointError
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath

TREE = {"w": np.random.default_rng(0).normal(size=(30, 40)), "b": np.arange(3.0)}


@pytest.fixture
def unmerged(tmp_path: Path) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "x", TREE)
    (tmp_path / "x" / "manifest.ocdbt").unlink()
    shutil.rmtree(tmp_path / "x" / "d")
    return tmp_path / "x"


@pytest.mark.parametrize("has_metadata", [True, False])
def test_arrays_that_were_never_merged_are_told_as_that(
    unmerged: Path, *, has_metadata: bool
) -> None:
    if not has_metadata:
        (unmerged / "_METADATA").unlink()
        (unmerged / "_CHECKPOINT_METADATA").unlink()
    with pytest.raises(CheckpointError, match="was never merged") as caught:
        _ = open_checkpoint(str(unmerged)).tree
    assert "in 'ocdbt.process_0' all 2 arrays are whole" in caught.value.problems[0].why


def test_the_advice_ends_the_save(unmerged: Path) -> None:
    context = tensorstore_utils.get_ts_context(use_ocdbt=True)
    asyncio.run(
        ocdbt_utils.merge_ocdbt_per_process_files(epath.Path(unmerged), context, use_zarr3=False)
    )
    checkpoint = open_checkpoint(str(unmerged))
    for name, values in TREE.items():
        np.testing.assert_array_equal(checkpoint.read(LeafPath((name,))), values)


def test_arrays_of_which_a_process_wrote_only_a_part_are_counted(unmerged: Path) -> None:
    shutil.rmtree(unmerged / "ocdbt.process_0" / "d")
    with pytest.raises(CheckpointError, match=r"has no 'manifest.ocdbt'"):
        _ = open_checkpoint(str(unmerged)).tree


def test_a_database_of_a_process_is_no_step(unmerged: Path, tmp_path: Path) -> None:
    shutil.copytree(unmerged / "ocdbt.process_0", tmp_path / "y" / "ocdbt.process_0")
    with pytest.raises(CheckpointError, match="was never merged"):
        open_checkpoint(str(tmp_path / "y"))
