"""A checkpoint that is replaced while it is read is an error of every command: what was read is of neither version."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from safetensors.numpy import save_file

import surgery_cli
from surgery_cli.errors import CheckpointError
from surgery_cli.store.open import checkpoint

NAMES = ("first", "last")
VALUES = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
Tree = dict[str, Any]


def _orbax(path: Path, tree: Tree, *, ocdbt: bool) -> None:
    with ocp.PyTreeCheckpointer(use_ocdbt=ocdbt) as checkpointer:
        checkpointer.save(path, tree)


FORMATS: dict[str, Callable[[Path, Tree], Any]] = {
    "ocdbt": lambda path, tree: _orbax(path, tree, ocdbt=True),
    "a folder a leaf": lambda path, tree: _orbax(path, tree, ocdbt=False),
    "safetensors": lambda path, tree: save_file(tree, path),
    "msgpack": lambda path, tree: path.write_bytes(serialization.msgpack_serialize(tree)),
    "npz": lambda path, tree: np.savez(path, **tree),
}
COMMANDS = {
    "verify": ("verify", "SRC"),
    "bad": ("inspect", "SRC", "--only", "bad"),
    "digests": ("inspect", "SRC", "--digests"),
    "stats": ("inspect", "SRC", "--stats"),
    "diff": ("diff", "SRC", "OTHER"),
    "diff, the other way": ("diff", "OTHER", "SRC"),
    "assert": ("assert", "SRC", "--finite"),
    "check": ("check", "SRC", "POLICY"),
    "rescale": ("rescale", "SRC", "NEW", "first", "--by", "2"),
}


def _made(folder: Path, kind: str) -> dict[str, Path]:
    """Two versions, each with a NaN in another leaf, and one without any."""
    ending = f".{kind}" if kind in ("safetensors", "msgpack", "npz") else ""
    found = {}
    for name, bad in {"old": "last", "new": "first", "other": ""}.items():
        tree = {leaf: VALUES.copy() for leaf in NAMES}
        if bad:
            tree[bad][0, 0] = np.nan
        found[name] = folder / f"{name}{ending}"
        FORMATS[kind](found[name], tree)
    return found


def _put(new: Path, place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
        shutil.copytree(new, place)
    else:
        shutil.copy(new, f"{place}.part")
        Path(f"{place}.part").replace(place)


def _write_into(_: Path, place: Path) -> None:
    """Other bytes in the largest file of values, which keeps its name, its size, and what holds it open."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    of_values = [file for file in files if file.parent.name in ("d", *NAMES)] or files
    largest = max(of_values, key=lambda file: file.stat().st_size)
    with largest.open("r+b") as file:
        content = file.read()
        file.seek(len(content) // 2)
        file.write(bytes(255 - byte for byte in content[len(content) // 2 :][:8]))


@pytest.mark.covers(1)
@pytest.mark.parametrize("change", [_put, _write_into])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_verdict_is_given(surgery, tmp_path, monkeypatch, command, kind, change):
    versions = _made(tmp_path, kind)
    (tmp_path / "policy.yaml").write_text("rules:\n- finite: true\n")
    places = {
        "SRC": versions["old"],
        "OTHER": versions["other"],
        "POLICY": tmp_path / "policy.yaml",
        "NEW": tmp_path / "result",
    }
    known = checkpoint.Checkpoint._before.func
    replaced = []

    def then_replaced(self: checkpoint.Checkpoint) -> Any:
        found = known(self)
        if self.place_on_disk == versions["old"] and not replaced:
            replaced.append(True)
            change(versions["new"], versions["old"])
        return found

    monkeypatch.setattr(checkpoint.Checkpoint._before, "func", then_replaced)

    result = surgery(*(str(places.get(word, word)) for word in COMMANDS[command]))

    assert replaced
    assert result.code == 3, result.out
    assert "changed while it was read" in result.err or "is gone" in result.err
    assert not places["NEW"].exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_leaf_that_stays_open_is_what_it_was_or_an_error(tmp_path, kind):
    versions = _made(tmp_path, kind)
    held = surgery_cli.open(versions["old"])
    np.testing.assert_array_equal(held["first"], VALUES)
    other = {"first": np.arange(6), "last": np.arange(8, dtype=np.float32)}
    place = tmp_path / f"another{versions['old'].suffix}"
    FORMATS[kind](place, other)
    _put(place, versions["old"])

    for name in NAMES:
        try:
            found = np.asarray(held[name])
        except CheckpointError:
            continue
        assert (found.shape, found.dtype) == (held[name].shape, held[name].dtype)
        assert np.isin(found[~np.isnan(found)], VALUES).all()


def test_what_is_damaged_from_the_start_is_told_as_it_is(surgery, tmp_path):
    """It has no fingerprint, and has not changed."""
    place = _made(tmp_path, "a folder a leaf")["old"]
    (place / "_METADATA").write_text("{")
    result = surgery("verify", place)
    assert (result.code, "changed while" in result.err) == (3, False)
