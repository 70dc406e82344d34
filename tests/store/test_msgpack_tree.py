"""Flax msgpack files and aggregate files, against flax.serialization and Orbax in both directions."""

import tracemalloc
from pathlib import Path

import jax
import ml_dtypes
import msgpack
import numpy as np
import pytest
from flax import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orbax.checkpoint import msgpack_utils

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, WriteError
from surgery_cli.planning import plan_from_document
from surgery_cli.store.files import msgpack_writing
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.msgpack_writing import Stored, in_kind, write_msgpack
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from tests.fixture_truths import FIXTURES

TREE = {
    "params": {
        "Dense_0": {
            "kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
            "bias": np.arange(3).astype(ml_dtypes.bfloat16),
        },
        "a.b": {"c/d e": np.ones((2, 0), np.int8)},
    },
    "opt_state": {"0": {}, "1": {"mu": np.arange(300, dtype=np.float64)}},
    "step": 70_000_000_000,
    "small": -7,
    "large": 2**64 - 1,
    "rate": 1e-3,
    "flag": True,
    "phase": 1 + 2j,
    "np_scalar": np.float32(2.5),
    "name": "größer",
    "nothing": None,
    "blob": b"\x00\x01",
    "float8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    "int4": np.arange(4).astype(ml_dtypes.int4),
    "bools": np.array([True, False]),
    "complex": np.array([1 + 1j], np.complex64),
    "zero_d": np.array(3, np.int32),
}


@pytest.fixture
def file(tmp_path: Path) -> MsgpackFile:
    (tmp_path / "checkpoint_1").write_bytes(serialization.msgpack_serialize(TREE))
    return MsgpackFile(tmp_path / "checkpoint_1")


def _path(*keys: str | int) -> LeafPath:
    return LeafPath(keys)


def _rewritten(file: MsgpackFile, **changed: object) -> dict[LeafPath, object]:
    leaves: dict[LeafPath, object] = {path: Stored(path) for path in file.tree}
    return leaves | {_path(*name.split("/")): value for name, value in changed.items()}


def test_every_leaf_has_the_kind_shape_and_dtype_that_flax_wrote(file: MsgpackFile) -> None:
    found = {str(path): spec.type_text for path, spec in file.tree.items()}
    assert found == {
        "params/Dense_0/kernel": "float32[2,3]",
        "params/Dense_0/bias": "bfloat16[3]",
        "params/a.b/c/d e": "int8[2,0]",
        "opt_state/0": "{}",
        "opt_state/1/mu": "float64[300]",
        "step": "python int64",
        "small": "python int64",
        "large": "python uint64",
        "rate": "python float64",
        "flag": "python bool",
        "phase": "python complex128",
        "np_scalar": "float32[]",
        "name": "str",
        "nothing": "None",
        "blob": "uint8[2]",
        "float8": "float8_e4m3fn[4]",
        "int4": "int4[4]",
        "bools": "bool[2]",
        "complex": "complex64[1]",
        "zero_d": "int32[]",
    }
    assert file.tree[_path("np_scalar")].kind is LeafKind.NUMPY
    assert file.tree[_path("zero_d")].kind is LeafKind.ARRAY
    assert _path("params", "a.b", "c/d e") in file.tree


def test_values_are_those_that_flax_restores(file: MsgpackFile) -> None:
    restored = serialization.msgpack_restore(file.path.read_bytes())
    for path, spec in file.tree.items():
        expected = restored
        for key in path:
            expected = expected[key]
        value = file.read(path)
        if spec.kind is LeafKind.EMPTY:
            assert value is None
            continue
        if str(path) == "blob":
            assert value.tobytes() == expected
            continue
        assert type(value) is type(expected) or str(path) == "np_scalar"
        assert np.asarray(value).dtype == np.asarray(expected).dtype
        assert np.asarray(value).tobytes() == np.asarray(expected).tobytes()


def test_a_rewrite_without_changes_is_identical_byte_by_byte(
    file: MsgpackFile, tmp_path: Path
) -> None:
    size = write_msgpack(file, tmp_path / "out", _rewritten(file))
    assert (tmp_path / "out").read_bytes() == file.path.read_bytes()
    assert size == file.path.stat().st_size


def test_values_that_are_packed_again_are_identical_byte_by_byte(
    file: MsgpackFile, tmp_path: Path
) -> None:
    empties = {"None": None, "Dict": {}, "List": [], "Tuple": ()}

    def value(path: LeafPath) -> object:
        spec = file.tree[path]
        if spec.kind is LeafKind.EMPTY:
            return empties[spec.empty]
        return in_kind(file.read(path), spec, file.scan.leaves[path].code)

    leaves = {path: (lambda path=path: value(path)) for path in file.tree}
    write_msgpack(file, tmp_path / "out", leaves)
    assert (tmp_path / "out").read_bytes() == file.path.read_bytes()


def test_a_computed_array_takes_the_kind_of_the_leaf_it_replaces(
    file: MsgpackFile, tmp_path: Path
) -> None:
    changed = {
        name: in_kind(np.array(value), file.tree[_path(name)], file.scan.leaves[_path(name)].code)
        for name, value in {"rate": 0.5, "step": 3, "np_scalar": np.float32(9)}.items()
    }
    write_msgpack(file, tmp_path / "out", _rewritten(file, **changed))
    restored = serialization.msgpack_restore((tmp_path / "out").read_bytes())
    assert (restored["rate"], type(restored["rate"])) == (0.5, float)
    assert (restored["step"], type(restored["step"])) == (3, int)
    assert (restored["np_scalar"], type(restored["np_scalar"])) == (9.0, np.float32)


def test_an_array_from_elsewhere_stays_an_array(file: MsgpackFile, tmp_path: Path) -> None:
    donated = np.arange(3, dtype=np.uint8)
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=(3,), dtype="uint8")
    write_msgpack(file, tmp_path / "out", _rewritten(file, new=in_kind(donated, spec)))
    restored = serialization.msgpack_restore((tmp_path / "out").read_bytes())
    np.testing.assert_array_equal(restored["new"], donated)


def test_an_edited_leaf_reads_back_in_flax_and_the_others_stay(
    file: MsgpackFile, tmp_path: Path
) -> None:
    kernel = np.full((2, 3), 7, np.float32)
    leaves = _rewritten(file, **{"params/Dense_0/kernel": lambda: kernel})
    write_msgpack(file, tmp_path / "out", leaves)
    restored = serialization.msgpack_restore((tmp_path / "out").read_bytes())
    np.testing.assert_array_equal(restored["params"]["Dense_0"]["kernel"], kernel)
    before = serialization.msgpack_restore(file.path.read_bytes())
    before["params"]["Dense_0"]["kernel"] = kernel
    assert serialization.msgpack_serialize(before) == (tmp_path / "out").read_bytes()


def test_renamed_and_deleted_leaves_make_new_containers(file: MsgpackFile, tmp_path: Path) -> None:
    leaves = {
        _path("net", "kernel"): Stored(_path("params", "Dense_0", "kernel")),
        _path("net", "list", 0): Stored(_path("step")),
        _path("net", "list", 1): Stored(_path("nothing")),
    }
    write_msgpack(file, tmp_path / "out", leaves)
    restored = serialization.msgpack_restore((tmp_path / "out").read_bytes())
    assert list(restored) == ["net"]
    assert restored["net"]["list"] == [70_000_000_000, None]
    np.testing.assert_array_equal(restored["net"]["kernel"], TREE["params"]["Dense_0"]["kernel"])


def test_a_sequence_with_holes_and_a_leaf_above_a_leaf_are_refused(
    file: MsgpackFile, tmp_path: Path
) -> None:
    with pytest.raises(WriteError, match="has holes"):
        write_msgpack(file, tmp_path / "a", {_path("x", 0): 1, _path("x", 2): 2})
    with pytest.raises(WriteError, match="other leaves stand below it"):
        write_msgpack(file, tmp_path / "b", {_path("x"): 1, _path("x", "y"): 2})


def test_chunked_arrays_read_as_one_and_are_written_as_flax_chunks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 64)
    monkeypatch.setattr(msgpack_writing, "LARGEST_ARRAY_BYTES", 64)
    whole = np.arange(15 * 4, dtype=np.float32).reshape(15, 4)
    (tmp_path / "c").write_bytes(serialization.msgpack_serialize({"w": whole, "b": np.ones(2)}))
    file = MsgpackFile(tmp_path / "c")
    spec = file.tree[_path("w")]
    assert (spec.shape, spec.dtype, spec.stored_bytes) == ((15, 4), "float32", 240)
    np.testing.assert_array_equal(file.read(_path("w")), whole)
    block = file.read(_path("w"), (slice(3, 11), slice(1, 3)))
    np.testing.assert_array_equal(block, whole[3:11, 1:3])
    write_msgpack(file, tmp_path / "same", _rewritten(file))
    assert (tmp_path / "same").read_bytes() == (tmp_path / "c").read_bytes()
    write_msgpack(file, tmp_path / "packed", _rewritten(file, w=whole))
    assert (tmp_path / "packed").read_bytes() == (tmp_path / "c").read_bytes()


def test_orbax_tuples_lists_and_number_keys_survive(tmp_path: Path) -> None:
    tree = {"t": (np.ones(2), [1, ()]), "l": [{"x": "PLACEHOLDER://l.0.x"}], "e": [], 7: {-1: 2}}
    raw = msgpack.packb(tree, default=msgpack_utils._msgpack_ext_pack, strict_types=True)
    (tmp_path / "checkpoint").write_bytes(raw)
    file = MsgpackFile(tmp_path / "checkpoint")
    assert [tuple(path) for path in file.tree] == [
        ("t", 0),
        ("t", 1, 0),
        ("t", 1, 1),
        ("l", 0, "x"),
        ("e",),
        ("7", "-1"),
    ]
    assert file.tree[_path("t", 1, 1)].empty == "Tuple"
    assert file.placeholders == {_path("l", 0, "x"): "l.0.x"}
    write_msgpack(file, tmp_path / "out", _rewritten(file))
    assert (tmp_path / "out").read_bytes() == raw
    moved = {_path("new", *path[1:]): Stored(path) for path in file.tree if path[0] == "t"}
    write_msgpack(file, tmp_path / "moved", moved)
    restored = msgpack_utils.msgpack_restore((tmp_path / "moved").read_bytes())
    assert isinstance(restored["new"], tuple)


@pytest.mark.parametrize("release", ["0.2.7", "0.5.10"])
def test_aggregate_files_of_old_releases_are_rewritten_byte_by_byte(
    tmp_path: Path, release: str
) -> None:
    folder = FIXTURES / f"orbax-{release}" / "flax_orbax_mode_chain" / "checkpoint_3"
    file = MsgpackFile(folder / "checkpoint")
    write_msgpack(file, tmp_path / "out", _rewritten(file))
    assert (tmp_path / "out").read_bytes() == (folder / "checkpoint").read_bytes()
    assert isinstance(next(p for p in file.tree if p[0] == "opt_state")[1], int)


def test_a_flax_state_with_optax_resumes_after_a_rewrite(tmp_path: Path) -> None:
    import optax
    from flax.training import train_state

    params = {"w": jax.numpy.ones((2, 2), jax.numpy.bfloat16)}
    state = train_state.TrainState.create(apply_fn=None, params=params, tx=optax.adamw(1e-3))
    (tmp_path / "c").write_bytes(serialization.to_bytes(state))
    file = MsgpackFile(tmp_path / "c")
    leaves = _rewritten(file, **{"params/w": np.full((2, 2), 3, ml_dtypes.bfloat16)})
    write_msgpack(file, tmp_path / "out", leaves)
    resumed = serialization.from_bytes(state, (tmp_path / "out").read_bytes())
    assert resumed.params["w"].tolist() == [[3, 3], [3, 3]]
    assert jax.tree.structure(resumed.opt_state) == jax.tree.structure(state.opt_state)


def test_a_scan_keeps_no_values(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(
        serialization.msgpack_serialize({"w": np.zeros(4_000_000, np.float32), "b": np.ones(1)})
    )
    tracemalloc.start()
    assert MsgpackFile(tmp_path / "c").tree.bytes == 16_000_008
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x81\xa1w\xc7\xff\x01", "255 bytes are declared"),
        (b"\x81\xa1w\xc9\xff\xff\xff\xff\x01\x93", "4294967295 bytes are declared"),
        (b"\xdf\xff\xff\xff\xff\xa1w", "4294967295 entries are declared"),
        (b"\x81\xa1w\xdd\xff\xff\xff\xff\xc0", "4294967295 entries are declared"),
        (b"\x82\xa1w\x01\xa1w\x02", "stands twice"),
        (b"\x81\xa1w\xc1", "begins nothing"),
        (b"\x81\xc0\x01", "neither text nor a number"),
        (b"\x81\xa1w\xd4\x05\x00", "extension type 5"),
        (b"\x81\xa1w\x01\x01", "1 bytes follow"),
        (b"\xa1w", "does not begin with a dict"),
        (b"", "does not begin with a dict"),
        (b"\x81\xa1w" * 300 + b"\x01", "the limit `nesting`"),
    ],
)
def test_damaged_files_say_what_is_wrong(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        _ = MsgpackFile(tmp_path / "c").tree
    assert says in refused.value.problems[0].why


def test_an_array_that_claims_a_terabyte_is_refused_before_memory_is_asked_for(
    tmp_path: Path,
) -> None:
    lie = msgpack.packb(((1 << 20, 1 << 18), "float32", b"\0" * 16), use_bin_type=True)
    (tmp_path / "c").write_bytes(msgpack.packb({"w": msgpack.ExtType(1, lie)}))
    with pytest.raises(CheckpointError) as refused:
        _ = MsgpackFile(tmp_path / "c").tree
    assert "1099511627776 bytes, but stores 16" in refused.value.problems[0].why


@pytest.mark.parametrize("dtype", ["object", "str32", "datetime64[ns]", "float8_", "finfo", "V4"])
def test_dtypes_that_are_no_numbers_are_refused(tmp_path: Path, dtype: str) -> None:
    packed = msgpack.packb(((1,), dtype, b"\0" * 8), use_bin_type=True)
    (tmp_path / "c").write_bytes(msgpack.packb({"w": msgpack.ExtType(1, packed)}))
    with pytest.raises(CheckpointError, match="not a whole msgpack"):
        _ = MsgpackFile(tmp_path / "c").tree


SMALL = serialization.msgpack_serialize(
    {k: v for k, v in TREE.items() if k not in ("opt_state", "float8", "int4")}
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cut=st.integers(0, len(SMALL)),
    flips=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(1, 255)), max_size=3),
)
def test_cut_and_flipped_bytes_give_a_checkpoint_error_or_a_tree(
    tmp_path: Path, cut: int, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(SMALL)
    for at, mask in flips:
        content[at] ^= mask
    (tmp_path / "c").write_bytes(content[:cut])
    file = MsgpackFile(tmp_path / "c")
    try:
        for path in file.tree:
            file.read(path)
    except CheckpointError:
        return
    assert file.tree.bytes <= len(content)


MOVED_AND_EDITED = [
    {"op": "rename", "at": "net", "to": "model"},
    {"op": "rescale", "at": "model", "by": 2.0},
]


def test_number_keys_stay_numbers_where_every_leaf_below_is_moved_and_edited(
    tmp_path: Path,
) -> None:
    tree = {"net": {1: np.ones(2, np.float32), 2: {3: np.ones(3, np.float32)}}, "step": 4}
    (tmp_path / "a").write_bytes(serialization.msgpack_serialize(tree))
    surgery.apply(
        str(tmp_path / "a"), str(tmp_path / "b"), plan_from_document({"edits": MOVED_AND_EDITED})
    )
    restored = msgpack.unpackb(  # as Flax restores it; its older releases refuse number keys, though they write them
        (tmp_path / "b").read_bytes(),
        ext_hook=serialization._msgpack_ext_unpack,
        strict_map_key=False,
    )
    assert [*restored["model"]] == [1, 2]
    assert restored["model"][2][3].tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "edit",
    [
        MOVED_AND_EDITED[1],
        {"op": "reinit", "at": "model", "init": "normal"},
        {"op": "replace", "at": "model", "with": 3.0},
    ],
)
def test_tuples_stay_tuples_where_every_leaf_below_is_moved_and_edited(
    edit: dict[str, object], tmp_path: Path
) -> None:
    tree = {"net": (np.ones(2, np.float32), [np.ones(3, np.float32)]), "step": 4}
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "checkpoint").write_bytes(msgpack_utils.msgpack_serialize(tree))
    plan = plan_from_document({"edits": [MOVED_AND_EDITED[0], edit]})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    restored = msgpack_utils.msgpack_restore((tmp_path / "b" / "checkpoint").read_bytes())
    assert isinstance(restored["model"], tuple)
    assert isinstance(restored["model"][1], list)
    assert restored["model"][0].shape == (2,)
