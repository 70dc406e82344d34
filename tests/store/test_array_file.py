"""Files of arrays that an edit takes values from."""

import io
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)
BLOCK = (slice(1, 3), slice(0, 2))


class _Bomb:
    """Fails the test if it is ever unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a pickle was loaded",)


def _only(file: ArrayFile) -> LeafPath:
    (path,) = file.tree
    return path


def test_an_npy_file_is_one_array_called_like_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "scale.npy", WEIGHTS)
    file = ArrayFile(str(tmp_path / "scale.npy"))
    spec = file.tree[LeafPath(("scale",))]
    assert (spec.kind, spec.shape, spec.dtype) == (LeafKind.NUMPY, (3, 4), "float32")
    np.testing.assert_array_equal(file.read(_only(file)), WEIGHTS)


@pytest.mark.parametrize(
    "stored",
    [
        WEIGHTS,
        np.asfortranarray(WEIGHTS),
        WEIGHTS.astype(">f4"),
        WEIGHTS[:, ::2],
        np.float64(3.5),
        np.ones((0, 2), np.int8),
        np.array([[True, False, True]]),
        np.ones((2, 2), np.complex64),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_values_and_blocks_are_those_that_numpy_loads(
    tmp_path: Path, stored: np.ndarray, compressed: bool
) -> None:
    np.save(tmp_path / "w.npy", stored)
    (np.savez_compressed if compressed else np.savez)(tmp_path / "w.npz", w=stored)
    for text in ("w.npy", "w.npz:w"):
        file = ArrayFile(str(tmp_path / text))
        value = file.read(_only(file))
        np.testing.assert_array_equal(value, np.load(tmp_path / "w.npy"))
        assert value.dtype.isnative
        assert value.dtype.name == file.tree[_only(file)].dtype
        if value.shape == (3, 4):
            np.testing.assert_array_equal(file.read(_only(file), BLOCK), WEIGHTS[BLOCK])


def test_entries_of_an_archive_are_listed_under_their_own_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", **{"conv/w": WEIGHTS, "b.c": np.ones(2)})
    file = ArrayFile(str(tmp_path / "f.npz"))
    assert list(file.tree) == [LeafPath(("conv/w",)), LeafPath(("b.c",))]
    one = ArrayFile(f"{tmp_path}/f.npz:conv/w")
    assert list(one.tree) == [LeafPath(("conv/w",))]


def test_an_entry_that_is_not_there_shows_the_nearest(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", kernel=WEIGHTS, bias=np.ones(2))
    with pytest.raises(PlanError, match="no entry 'kernal'") as refused:
        ArrayFile(f"{tmp_path}/f.npz:kernal")
    assert refused.value.problems[0].fix == f"`{tmp_path}/f.npz:kernel`"


def test_a_safetensors_entry_keeps_its_dotted_name(tmp_path: Path) -> None:
    values = np.ones(2).astype(ml_dtypes.bfloat16)
    save_file({"h.0.w": values, "b": WEIGHTS}, tmp_path / "x.safetensors")
    file = ArrayFile(f"{tmp_path}/x.safetensors:h.0.w")
    assert file.tree[LeafPath(("h.0.w",))].dtype == "bfloat16"
    assert file.read(LeafPath(("h.0.w",))).tobytes() == values.tobytes()


def test_a_file_whose_name_holds_a_colon_is_found_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=WEIGHTS)
    shutil.copy(tmp_path / "a.npz", tmp_path / "a.npz:w.npz")
    assert ArrayFile(f"{tmp_path}/a.npz:w.npz").path.name == "a.npz:w.npz"


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_objects_are_refused_and_never_unpickled(tmp_path: Path, save: object) -> None:
    path = tmp_path / ("o.npy" if save is np.save else "o.npz")
    save(path, np.array([_Bomb()], dtype=object))
    with pytest.raises(CheckpointError, match="holds Python objects"):
        ArrayFile(str(path))


def test_a_pickle_called_npy_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    (tmp_path / "o.npy").write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(CheckpointError, match="is not a whole array file"):
        ArrayFile(str(tmp_path / "o.npy"))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.ones(2).astype(ml_dtypes.bfloat16), "does not store the dtypes of ml_dtypes"),
        (np.array(["a"]), "numbers or booleans"),
        (np.zeros(2, [("a", "f4")]), "ml_dtypes|numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "numbers or booleans"),
        (np.ones(1, np.longdouble), "numbers or booleans"),
    ],
)
def test_arrays_that_no_leaf_can_hold_are_refused(
    tmp_path: Path, values: np.ndarray, says: str
) -> None:
    np.save(tmp_path / "w.npy", values)
    with pytest.raises(CheckpointError, match=says):
        ArrayFile(str(tmp_path / "w.npy"))


def test_a_header_that_claims_a_terabyte_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }\n"
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16)
    (tmp_path / "w.npy").write_bytes(body)
    with pytest.raises(CheckpointError, match="should have 4398046511104 bytes"):
        ArrayFile(str(tmp_path / "w.npy"))


def test_a_compressed_entry_that_claims_more_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }\n"
    claimed = 1 << 31
    raw = header % (claimed - 128)
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("w.npy", body)
    content = archive.getvalue()
    size = struct.pack("<I", len(body))
    assert content.count(size) >= 2
    (tmp_path / "w.npz").write_bytes(content.replace(size, struct.pack("<I", claimed)))
    with pytest.raises(CheckpointError, match=f"claims {claimed} bytes"):
        ArrayFile(str(tmp_path / "w.npz"))


def test_the_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WEIGHTS)
    first = ArrayFile(str(tmp_path / "w.npy")).fingerprint
    assert ArrayFile(str(tmp_path / "w.npy")).fingerprint == first
    os.utime(tmp_path / "w.npy", ns=(1, 1))
    assert ArrayFile(str(tmp_path / "w.npy")).fingerprint != first


def test_a_file_cut_after_it_was_opened_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WEIGHTS)
    file = ArrayFile(str(tmp_path / "w.npy"))
    os.truncate(tmp_path / "w.npy", 150)
    with pytest.raises(CheckpointError, match="has become shorter"):
        file.read(LeafPath(("w",)))


def test_missing_files_and_other_suffixes_are_errors(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", WEIGHTS)
    with pytest.raises(PlanError, match="does not exist") as refused:
        ArrayFile(str(tmp_path / "v.npy"))
    assert str(tmp_path / "w.npy") in refused.value.problems[0].fix
    (tmp_path / "w.csv").write_text("1")
    with pytest.raises(PlanError, match="no file of arrays"):
        ArrayFile(str(tmp_path / "w.csv"))


def _archive() -> bytes:
    body = io.BytesIO()
    np.savez_compressed(body, w=WEIGHTS, b=np.asfortranarray(WEIGHTS))
    return body.getvalue()


def _plain() -> bytes:
    body = io.BytesIO()
    np.save(body, WEIGHTS)
    return body.getvalue()


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), kind=st.sampled_from(["npz", "npy"]))
def test_cut_and_flipped_bytes_give_a_checkpoint_error_or_arrays(
    tmp_path: Path, data: st.DataObject, kind: str
) -> None:
    content = bytearray(_archive() if kind == "npz" else _plain())
    places = st.tuples(st.integers(0, len(content) - 1), st.integers(1, 255))
    for at, mask in data.draw(st.lists(places, max_size=3)):
        content[at] ^= mask
    cut = data.draw(st.integers(0, len(content)))
    (tmp_path / f"w.{kind}").write_bytes(content[:cut])
    try:
        file = ArrayFile(str(tmp_path / f"w.{kind}"))
        for path in file.tree:
            file.read(path)
    except CheckpointError:
        return
    assert file.tree.bytes <= 1000 * len(content)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_that_numpy_refuses_is_refused_in_whole_and_in_parts(
    save: Callable[..., None], tmp_path: Path
) -> None:
    save(tmp_path / "a.npz", k=np.random.default_rng(0).standard_normal((64, 512), np.float32))
    whole = (tmp_path / "a.npz").read_bytes()
    refused = 0
    for at in range(200, len(whole), len(whole) // 24):
        flipped = bytearray(whole)
        flipped[at] ^= 0x40
        (tmp_path / "b.npz").write_bytes(flipped)
        try:
            np.load(tmp_path / "b.npz")["k"]
        except Exception:  # noqa: BLE001 - NumPy raises a dozen kinds
            refused += 1
            for window in (None, (slice(0, 1), slice(0, 512))):
                with pytest.raises(CheckpointError):
                    ArrayFile(str(tmp_path / "b.npz")).read(LeafPath(("k",)), window)
    assert refused > 12
