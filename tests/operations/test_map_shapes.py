"""A function of the user's that makes another shape is given all of the leaf, whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning import operation_from_options, plan_of

FUNCTIONS = """
import numpy as np

def last(array, path): return array[-3:]
def right(array, path): return array[:, -2:]
def flipped(array, path): return array[::-1, ::-1]
def grown(array, path): return np.concatenate([array, array[:2] * 3])
def wide(array, path): return np.concatenate([array, -array], axis=1)
def flat(array, path): return array.ravel(order="F")
def sums(array, path): return array.astype("float32").sum(1).astype(array.dtype)
def total(array, path): return array.astype("float32").sum().astype(array.dtype)
def stacked(array, path): return np.stack([array[::-1], array])
def turned(array, path): return array.T
def one_row(array, path): return array[-1:]
def none(array, path): return array[:0]
"""

EXPECTED: Mapping[str, Callable[[Any], Any]] = {
    "last": lambda x: x[-3:],
    "right": lambda x: x[:, -2:],
    "flipped": lambda x: x[::-1, ::-1],
    "grown": lambda x: np.vstack([x, x[:2] * 3]),
    "wide": lambda x: np.hstack([x, -x]),
    "flat": lambda x: x.T.reshape(-1),
    "sums": lambda x: np.add.reduce(x.astype(np.float32), axis=1).astype(x.dtype),
    "total": lambda x: np.add.reduce(x.astype(np.float32), axis=None).astype(x.dtype),
    "stacked": lambda x: np.array([x[::-1], x]),
    "turned": lambda x: np.swapaxes(x, 0, 1),
    "one_row": lambda x: x[5:6],
    "none": lambda x: x[6:],
}
LEAVES = {
    "one chunk": (np.arange(24, dtype=np.float32).reshape(6, 4), None),
    "many chunks": (np.arange(24, dtype=np.float64).reshape(6, 4), 16),
    "half": (np.arange(24).reshape(6, 4).astype(ml_dtypes.bfloat16), None),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "edit.py"
    path.write_text(FUNCTIONS)
    return path


def saved(folder: Path, tree: Any, chunk_bytes: int | None = None) -> Path:
    args = None
    if chunk_bytes is not None:
        args = ocp.args.PyTreeSave(tree, save_args=_chunked(tree, chunk_bytes))
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True)) as checkpointer:
        checkpointer.save(folder / "a", args=args or ocp.args.PyTreeSave(tree))
    return folder / "a"


def _chunked(tree: Any, chunk_bytes: int) -> Any:
    if isinstance(tree, dict):
        return {key: _chunked(value, chunk_bytes) for key, value in tree.items()}
    return ocp.SaveArgs(chunk_byte_size=chunk_bytes)


def restored(folder: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(folder / "b")


def map_of(file: Path, name: str, expected: Any, at: Any = "params/k", **fields: Any) -> Any:
    sizes = ",".join(map(str, expected.shape))
    spec = f"{expected.dtype.name}[{sizes}]"
    options = {"at": at, "with": f"{file}:{name}", "spec": spec, **fields}
    return operation_from_options("map", options)


@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("name", EXPECTED)
def test_it_is_given_all_of_the_leaf_whatever_it_returns(
    tmp_path: Path, file: Path, name: str, kind: str
) -> None:
    leaf, chunk_bytes = LEAVES[kind]
    expected = EXPECTED[name](leaf)
    source = saved(tmp_path, {"params": {"k": leaf}}, chunk_bytes)
    plan = plan_of([map_of(file, name, expected)])
    promised = surgery.plan(str(source), plan).bytes_read
    report = surgery.apply(str(source), str(tmp_path / "b"), plan)
    done = np.asarray(restored(tmp_path)["params"]["k"])
    assert done.dtype == expected.dtype  # older ml_dtypes makes float32 of bfloat16 times 3
    np.testing.assert_array_equal(done, expected)
    assert promised == report.bytes_read == leaf.nbytes


@pytest.mark.parametrize("name", ["last", "grown", "flat", "stacked"])
def test_so_are_calls_on_what_other_edits_made_and_edits_of_what_it_made(
    tmp_path: Path, file: Path, name: str
) -> None:
    leaf = np.arange(24, dtype=np.float32).reshape(6, 4)
    source = saved(tmp_path, {"params": {"k": leaf, "half": leaf + 100}})
    turned = (leaf * 2)[::-1]
    expected = EXPECTED[name](turned)
    edits = [
        operation_from_options("rescale", {"at": "params/*", "by": 2}),
        operation_from_options(
            "permute", {"at": "params/k", "axis": 0, "index": [5, 4, 3, 2, 1, 0]}
        ),
        map_of(file, name, expected),
        operation_from_options("slice", {"at": "params/k", "slices": "1:2"}),
        operation_from_options("rescale", {"at": "params/k", "by": 0.5}),
    ]
    surgery.apply(str(source), str(tmp_path / "b"), plan_of(edits))
    np.testing.assert_array_equal(restored(tmp_path)["params"]["k"], expected[1:2] / 2)


@pytest.mark.parametrize("effect", ["shifts", "keeps", "takes"])
@pytest.mark.parametrize("name", ["last", "grown", "flat"])
def test_so_is_a_call_on_a_copy_of_the_params_beside_them(
    tmp_path: Path, file: Path, name: str, effect: str
) -> None:
    """A copy that kept its shape would no longer restore beside them; one of other values is a copy of them."""
    leaf = np.arange(24, dtype=np.float32).reshape(6, 4)
    source = saved(tmp_path, {"params": {"k": leaf}, "ema_params": {"k": leaf + 100}})
    expected = EXPECTED[name](leaf)
    edit = map_of(file, name, expected, effect=effect)
    surgery.apply(str(source), str(tmp_path / "b"), plan_of([edit]))
    done = restored(tmp_path)
    np.testing.assert_array_equal(done["params"]["k"], expected)
    copy = expected if effect == "takes" else EXPECTED[name](leaf + 100)
    np.testing.assert_array_equal(done["ema_params"]["k"], copy)


@pytest.mark.parametrize("name", ["last", "grown", "flat", "stacked"])
def test_nan_that_was_anywhere_in_the_leaf_may_come_along_and_no_other(
    tmp_path: Path, file: Path, name: str
) -> None:
    """Elements need not stand where they stood, and what stands there says nothing of them."""
    leaf = np.arange(24, dtype=np.float32).reshape(6, 4)
    leaf[5, 1] = np.nan
    file.write_text(
        FUNCTIONS + "def broken(array, path): return array[-3:] * array.dtype.type('nan')\n"
    )
    source = saved(tmp_path, {"params": {"k": leaf, "whole": np.ones((6, 4), np.float32)}})
    expected = EXPECTED[name](leaf)
    surgery.apply(str(source), str(tmp_path / "b"), plan_of([map_of(file, name, expected)]))
    np.testing.assert_array_equal(restored(tmp_path)["params"]["k"], expected)
    plan = plan_of([map_of(file, "broken", leaf[-3:], at="params/whole")])
    with pytest.raises(ValueRefusal, match="12 new non-finite values"):
        surgery.apply(str(source), str(tmp_path / "c"), plan)


@pytest.mark.parametrize("shape", [(12, 4), (3, 4), (2, 6, 4), (4,)], ids=str)
def test_nan_of_a_donor_is_said_to_be_new_whatever_shape_the_leaf_had(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    """What the source has there says nothing, be it a crop, nothing at all or NaN."""
    other = np.ones(shape, np.float32)
    other.flat[-1] = np.nan
    here = np.full((6, 4), np.nan, np.float32)
    source = saved(tmp_path, {"params": {"k": here}})
    donor = saved(tmp_path / "donor", {"params": {"k": other}})
    edits = [
        {"at": "params/k", "with": str(donor), "shape": list(shape)},
        {"at": "params/k", "by": 2.0},
    ]
    named = zip(("replace", "rescale"), edits, strict=True)
    plan = plan_of([operation_from_options(name, one) for name, one in named])
    with pytest.raises(ValueRefusal, match="1 new non-finite value"):
        surgery.apply(str(source), str(tmp_path / "b"), plan)
    surgery.apply(
        str(source), str(tmp_path / "b"), plan, options=surgery.Options(allow_non_finite=True)
    )
    np.testing.assert_array_equal(restored(tmp_path)["params"]["k"], other * 2)
