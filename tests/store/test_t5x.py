"""T5X checkpoints are called so, by every command, and never opened as a tree of their specs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import serialization

from surgery_cli.cli.main import run
from surgery_cli.errors import CheckpointError
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.store.t5x_checkpoints import KERNEL, write_t5x

COMMANDS: list[list[str]] = [
    ["inspect", "T5X"],
    ["verify", "T5X"],
    ["diff", "T5X", "T5X"],
    ["cast", "T5X", "NEW", "--to", "bfloat16"],
    ["rescale", "T5X", "NEW", "**/bias", "--by", "2"],
    ["rename", "T5X", "NEW", "optimizer/target", "--to", "params"],
    ["compact", "T5X", "NEW"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("is_root", [False, True])
def test_a_t5x_checkpoint_is_refused_by_name(
    tmp_path: Path, capsys: Any, command: list[str], version: int, is_root: bool
) -> None:
    write_t5x(tmp_path / "run" / "checkpoint_1000", version)
    source = tmp_path / "run" if is_root else tmp_path / "run" / "checkpoint_1000"
    names = {"T5X": str(source), "NEW": str(tmp_path / "new")}
    with pytest.raises(SystemExit) as left:
        run([names.get(word, word) for word in command])
    assert left.value.code == 3
    said = capsys.readouterr().err
    assert "checkpoint_1000' is a T5X checkpoint" in said
    assert "2, such as 'optimizer/target/decoder/mlp/kernel'" in said
    assert "load_t5x_checkpoint" in said
    assert not (tmp_path / "new").exists()


def test_a_t5x_checkpoint_gives_no_leaves_to_others(tmp_path: Path) -> None:
    write_t5x(tmp_path / "t5x")
    with pytest.raises(CheckpointError, match="is a T5X checkpoint"):
        _ = open_checkpoint(str(tmp_path / "t5x")).tree


def test_a_t5x_checkpoint_whose_arrays_all_stand_inline_is_a_flax_file(tmp_path: Path) -> None:
    write_t5x(tmp_path / "t5x", is_partitioned=False)
    checkpoint = open_checkpoint(str(tmp_path / "t5x"))
    kernel = checkpoint.read(LeafPath(("optimizer", "target", "decoder", "mlp", "kernel")))
    np.testing.assert_array_equal(kernel, KERNEL)


def test_specs_in_any_flax_file_are_no_leaves(tmp_path: Path) -> None:
    spec = {"driver": "zarr", "kvstore": {"driver": "gcs", "bucket": "b", "path": "w"}}
    file = tmp_path / "checkpoint_3"
    file.write_bytes(serialization.to_bytes({"params": {"w": spec}}))
    with pytest.raises(CheckpointError, match="refers to arrays by TensorStore specs"):
        _ = open_checkpoint(str(file)).tree


def test_keys_that_are_called_like_those_of_a_spec_may_hold_arrays(tmp_path: Path) -> None:
    tree = {"driver": np.ones(2), "kvstore": {"driver": np.ones(3)}}
    file = tmp_path / "checkpoint_3"
    file.write_bytes(serialization.to_bytes({"params": tree}))
    assert len(open_checkpoint(str(file)).tree) == 2
