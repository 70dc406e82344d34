"""Checkpoints written as NumPy's npz: ``numpy.load`` reads them, and any program that knows zip archives."""

import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_of
from surgery_cli.settings.export import Export
from surgery_cli.store.export import zip_parts

PLAN = plan_of([], output=Export(format="npz"))


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def test_numpy_loads_every_leaf_by_its_path(tmp_path: Path) -> None:
    dtypes = [
        "bool",
        "int8",
        "uint16",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
    arrays = {
        name: (3 * np.random.default_rng(0).normal(size=(3, 5))).astype(name) for name in dtypes
    }
    source = save(
        tmp_path / "source", {"params": arrays, "layers": [np.ones(2), np.zeros(1)], "step": 7}
    )
    said = surgery.plan(str(source), PLAN, destination=str(tmp_path / "out.npz")).exported
    surgery.apply(str(source), str(tmp_path / "out.npz"), PLAN)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        assert set(found.files) == {
            *(f"params/{name}" for name in dtypes),
            "layers/0",
            "layers/1",
            "step",
        }
        for name, array in arrays.items():
            assert found[f"params/{name}"].dtype == array.dtype
            np.testing.assert_array_equal(found[f"params/{name}"], array)
        assert found["step"] == 7
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert archive.testzip() is None
    assert [file.bytes for file in said.files] == [(tmp_path / "out.npz").stat().st_size]
    assert surgery.verify(str(tmp_path / "out.npz")).agrees
    assert len(surgery.inspect(str(tmp_path / "out.npz")).leaves) == len(dtypes) + 3


def test_sizes_of_64_bits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every archive had 65,535 entries: readers then go by the record of 64 bits."""
    monkeypatch.setattr(zip_parts, "_MANY", 1)
    monkeypatch.setattr(zip_parts, "_IN_64_BITS", 0xFFFFFFFF)
    source = save(tmp_path / "source", {"a": np.arange(5.0), "b": np.ones(3)})
    surgery.apply(str(source), str(tmp_path / "out.npz"), PLAN)
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found["a"], np.arange(5.0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_what_numpy_has_no_name_for_is_refused(tmp_path: Path, dtype: str) -> None:
    """``numpy.load`` would give bytes without a meaning."""
    source = save(tmp_path / "source", {"w": np.ones(3).astype(getattr(ml_dtypes, dtype))})
    with pytest.raises(PlanError, match=f"npz has no place for {dtype}: 1 leaf") as caught:
        surgery.plan(str(source), PLAN)
    wider = {"bfloat16": "float32", "float8_e4m3fn": "float16", "int4": "int8"}[dtype]
    assert f"{{op: cast, at: w, to: {wider}}}" in caught.value.problems[0].fix


def test_names_that_numpy_would_read_as_others_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"w.npy": np.ones(3), "w": np.ones(2)})
    with pytest.raises(PlanError, match=r"takes '\.npy' off"):
        surgery.plan(str(source), PLAN)


def test_a_destination_that_is_not_called_so_is_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"w": np.ones(3)})
    with pytest.raises(PlanError, match=r"name 'out\.npz'"):
        surgery.plan(str(source), PLAN, destination=str(tmp_path / "out"))


@pytest.mark.parametrize("saved", [np.savez, np.savez_compressed])
def test_what_numpy_wrote_is_opened_and_edited(tmp_path: Path, saved: Any) -> None:
    tree = {"a/b": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.ones((2, 2)))}
    saved(tmp_path / "in.npz", **tree)
    surgery.apply(str(tmp_path / "in.npz"), str(tmp_path / "out.npz"), PLAN)
    with np.load(tmp_path / "out.npz") as found:
        for name, array in tree.items():
            np.testing.assert_array_equal(found[name], array)
