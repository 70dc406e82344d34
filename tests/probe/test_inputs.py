"""Inputs from specs and files."""

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.inputs import read_inputs


def values(*texts, seed=0):
    return [i.values for i in read_inputs(texts, seed=seed)]


def test_floating_inputs_are_normal_and_depend_on_the_seed():
    (x,) = values("float32[100,100]")

    assert (x.shape, x.dtype) == ((100, 100), np.float32)
    assert abs(x.mean()) < 0.05
    assert abs(x.std() - 1) < 0.05
    assert np.array_equal(x, values("float32[100,100]")[0])
    assert not np.array_equal(x, values("float32[100,100]", seed=1)[0])
    assert not np.array_equal(*values("float32[4]", "float32[4]"))


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("float16", "f2")])
def test_other_floating_dtypes_are_normal_too(name, dtype):
    (x,) = values(f"{name}[1000]")

    assert x.dtype == np.dtype(dtype)
    assert abs(x.astype(np.float64).std() - 1) < 0.1


def test_integers_are_zero_unless_bounded():
    zero, bounded, boolean = values("int32[8]", "int32[1000]<7", "bool[3]")

    assert not zero.any()
    assert (bounded.min(), bounded.max(), bounded.dtype) == (0, 6, np.int32)
    assert boolean.tolist() == [False] * 3


def test_a_value_fills_an_input():
    ones, mask = values("float32[2,2]=1", "mask=bool[2]=1")

    assert ones.tolist() == [[1, 1], [1, 1]]
    assert mask.tolist() == [True, True]


def test_files_give_their_entries_by_name(tmp_path):
    np.savez(tmp_path / "b.npz", x=np.arange(3), y=np.arange(2.0))
    np.save(tmp_path / "one.npy", np.arange(4))
    file = tmp_path / "b.npz"

    both = read_inputs([str(file)], seed=0)
    assert {i.name: i.values.tolist() for i in both} == {"x": [0, 1, 2], "y": [0.0, 1.0]}
    renamed = read_inputs([f"labels={file}:y", f"{tmp_path / 'one.npy'}"], seed=0)
    assert [(i.name, i.values.size) for i in renamed] == [("labels", 2), ("", 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("float32", "'float32' is not an input"),
        ("float33[2]", "'float33' in the input"),
        ("float32[2]<3", "bounds values that are no integers"),
        ("object[2]", "cannot be of dtype"),
        ("nowhere.npz", "cannot be read"),
        ("FILE:z", "has no entry 'z'"),
        ("x=FILE", "has 2 entries, and 'x' is one input"),
    ],
)
def test_what_is_no_input_is_refused(tmp_path, text, message):
    np.savez(tmp_path / "b.npz", x=np.arange(3), y=np.arange(2.0))

    with pytest.raises(SurgeryError, match=message):
        read_inputs([text.replace("FILE", str(tmp_path / "b.npz"))], seed=0)


def test_pickles_in_a_file_are_not_opened(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{}], dtype=object), allow_pickle=True)

    with pytest.raises(SurgeryError, match="cannot be read"):
        read_inputs([str(tmp_path / "evil.npy")], seed=0)


def test_one_name_given_twice_is_refused():
    with pytest.raises(SurgeryError, match="'x' is given twice"):
        read_inputs(["x=float32[2]", "x=float32[3]"], seed=0)
