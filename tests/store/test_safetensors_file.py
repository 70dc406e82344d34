"""Safetensors, against the safetensors package."""

import json
import math
import re
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors import numpy as reference

from surgery_cli.errors import CheckpointError
from surgery_cli.store.files.safetensors import SafetensorsFile
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.orbax.new_documents import grid_within
from surgery_cli.tree.paths import LeafPath

TENSORS = {
    "model.layers.0.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "model.layers.0.bias": np.arange(3).astype(ml_dtypes.bfloat16),
    "half": np.arange(4, dtype=np.float16),
    "double": np.arange(4, dtype=np.float64),
    "ids": np.arange(5, dtype=np.int64),
    "flags": np.array([True, False]),
    "u8": np.arange(3, dtype=np.uint8),
    "scalar": np.array(2.5, np.float32),
    "none": np.ones((0, 4), np.float32),
}


def _file(path: Path, header: object, body: bytes = b"") -> SafetensorsFile:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + body)
    return SafetensorsFile(path)


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_names_shapes_dtypes_and_values_are_those_of_the_reference(tmp_path: Path) -> None:
    reference.save_file(TENSORS, tmp_path / "m.safetensors", metadata={"format": "np"})
    file = SafetensorsFile(tmp_path / "m.safetensors")
    assert {path[0] for path in file.tree} == set(TENSORS)
    for name, expected in TENSORS.items():
        path = LeafPath((name,))
        assert (file.tree[path].shape, file.tree[path].dtype) == (
            expected.shape,
            expected.dtype.name,
        )
        assert file.read(path).tobytes() == expected.tobytes()


def test_a_file_of_another_name_is_told_by_its_begin(tmp_path: Path) -> None:
    """As the cache of a hub keeps it: under a digest, with a link to it that has the name."""
    reference.save_file(TENSORS, tmp_path / "5d2c9f")
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "5d2c9f")
    for name in ("5d2c9f", "model.safetensors"):
        opened = open_checkpoint(str(tmp_path / name))
        assert (len(opened.tree), opened.layout) == (len(TENSORS), "safetensors")


def test_a_dotted_name_is_one_key(tmp_path: Path) -> None:
    reference.save_file({"a.b/c": np.ones(2)}, tmp_path / "m.safetensors")
    assert list(SafetensorsFile(tmp_path / "m.safetensors").tree) == [LeafPath(("a.b/c",))]


@pytest.mark.parametrize(
    ("code", "dtype"), [("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")]
)
def test_float8_is_read_as_ml_dtypes(tmp_path: Path, code: str, dtype: str) -> None:
    values = np.array([1, 2, 0.5]).astype(getattr(ml_dtypes, dtype))
    file = _file(tmp_path / "m.safetensors", {"w": _entry(code, [3], 0, 3)}, values.tobytes())
    assert file.read(LeafPath(("w",))).astype(np.float32).tolist() == [1, 2, 0.5]


@pytest.mark.parametrize(
    "window",
    [
        (slice(0, 2), slice(0, 3), slice(0, 4)),
        (slice(1, 2), slice(0, 3), slice(0, 4)),
        (slice(0, 2), slice(1, 2), slice(2, 4)),
        (slice(0, 0), slice(0, 3), slice(0, 4)),
    ],
)
def test_a_window_is_read_without_the_rest(tmp_path: Path, window: tuple[slice, ...]) -> None:
    reference.save_file(TENSORS, tmp_path / "m.safetensors")
    name = "model.layers.0.weight"
    block = SafetensorsFile(tmp_path / "m.safetensors").read(LeafPath((name,)), window)
    np.testing.assert_array_equal(block, TENSORS[name][window])
    assert block.flags.c_contiguous


def test_windows_are_cut_inside_rows_that_are_larger_than_the_slab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surgery_cli.store.files.contiguous._SLAB_BYTES", 100)
    values = np.arange(3 * 40 * 5, dtype=np.int32).reshape(3, 40, 5)
    reference.save_file({"w": values}, tmp_path / "m.safetensors")
    window = (slice(1, 3), slice(7, 33), slice(2, 4))
    block = SafetensorsFile(tmp_path / "m.safetensors").read(LeafPath(("w",)), window)
    np.testing.assert_array_equal(block, values[window])


def _shards(folder: Path) -> None:
    reference.save_file({"a": np.ones(2), "b": np.zeros(2)}, folder / "model-1.safetensors")
    reference.save_file({"c": np.full(2, 3.0)}, folder / "model-2.safetensors")


WEIGHT_MAP = {"c": "model-2.safetensors", "b": "model-1.safetensors", "a": "model-1.safetensors"}


def test_shards_with_and_without_an_index_are_one_tree(tmp_path: Path) -> None:
    _shards(tmp_path)
    assert [str(path) for path in SafetensorsFile(tmp_path).tree] == ["a", "b", "c"]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": WEIGHT_MAP}))
    reference.save_file({"a": np.ones(2)}, tmp_path / "consolidated.safetensors")
    file = SafetensorsFile(tmp_path)
    assert sorted(map(str, file.tree)) == ["a", "b", "c"]
    assert file.read(LeafPath(("c",))).tolist() == [3, 3]


SERIES = ("model-00001-of-00002", "model-00002-of-00002")


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("model", "consolidated"), "'consolidated.safetensors', 'model.safetensors'"),
        (("model", "adapter_model"), "'adapter_model.safetensors', 'model.safetensors'"),
        (("model", "model_1"), "'model.safetensors', 'model_1.safetensors'"),
        (
            (*SERIES, "adapter_model"),
            "'adapter_model.safetensors', 'model-00001-of-00002.safetensors'",
        ),
        ((*SERIES, "model"), "'model-00001-of-00002.safetensors', 'model.safetensors'"),
        (
            (*SERIES, "model-00001-of-00001"),
            "'model-00001-of-00001.safetensors', 'model-00001-of-00002",
        ),
        (
            ("diffusion_pytorch_model", "diffusion_pytorch_model.fp16"),
            "'diffusion_pytorch_model.fp16",
        ),
    ],
)
def test_several_models_in_a_folder_are_not_read_as_one(
    tmp_path: Path, names: tuple[str, ...], shown: str
) -> None:
    for number, name in enumerate(names):
        reference.save_file({f"w{number}": np.ones(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(CheckpointError) as caught:
        _ = SafetensorsFile(tmp_path).tree
    said = str(caught.value)
    assert f"holds several models: {shown}" in said
    named = re.search(r"such as '(.*)', or put", said)
    assert (named is None) == all("-of-" in name for name in names)
    if named:
        assert Path(named[1]).stem in {name for name in names if "-of-" not in name}
        assert Path(named[1]).is_file()
    index = tmp_path / f"{names[0].partition('-')[0]}.safetensors.index.json"
    weight_map = {f"w{n}": f"{name}.safetensors" for n, name in enumerate(names)}
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert sorted(map(str, SafetensorsFile(tmp_path).tree)) == sorted(weight_map)


@pytest.mark.parametrize("names", [SERIES, ("model",), ("layer_0", "layer_1"), ("a", "adapter_b")])
def test_a_series_and_files_of_other_names_are_one_tree(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for number, name in enumerate(names):
        reference.save_file({f"w{number}": np.ones(2)}, tmp_path / f"{name}.safetensors")
    assert len(SafetensorsFile(tmp_path).tree) == len(names)


def test_a_model_beside_an_index_that_does_not_name_it_is_refused(tmp_path: Path) -> None:
    """transformers reads the file and not the shards."""
    _shards(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": WEIGHT_MAP}))
    reference.save_file({"a": np.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds two models: 'model"):
        _ = SafetensorsFile(tmp_path).tree


def test_an_index_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    _shards(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for weight_map, says in (
        ({"a": "gone.safetensors"}, "does not exist"),
        ({**WEIGHT_MAP, "x": "model-1.safetensors"}, "does not hold 'x'"),
        ({"c": "model-2.safetensors", "a": "model-1.safetensors"}, "holds 'b', and the index"),
        ({**WEIGHT_MAP, "a": "model-2.safetensors"}, "model-2.safetensors' does not hold 'a'"),
        ({"x": "../model-1.safetensors"}, "names the shard '../model-1"),
        ({"x": "/etc/model-1.safetensors"}, "names the shard '/etc/model-1"),
        ({"x": ".."}, "names the shard '..'"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(CheckpointError, match=says):
            _ = SafetensorsFile(tmp_path).tree
    index.write_text("[]")
    with pytest.raises(CheckpointError, match="is not an index"):
        _ = SafetensorsFile(tmp_path).tree


def test_a_numbered_shard_that_is_missing_is_told_from_the_others_names(tmp_path: Path) -> None:
    for number in (1, 3):
        name = f"model-0000{number}-of-00003.safetensors"
        reference.save_file({f"w{number}": np.ones(2)}, tmp_path / name)
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003.safetensors' does not exist"):
        _ = SafetensorsFile(tmp_path).tree


def test_a_name_in_two_shards_is_refused_without_an_index(tmp_path: Path) -> None:
    _shards(tmp_path)
    reference.save_file({"a": np.ones(2)}, tmp_path / "model-3.safetensors")
    with pytest.raises(CheckpointError, match="stands in two shards"):
        _ = SafetensorsFile(tmp_path).tree


@pytest.mark.parametrize(
    ("header", "body", "says"),
    [
        ({"w": _entry("F32", [1 << 40], 0, 1 << 42)}, b"", "its tensors need"),
        ({"w": _entry("F32", [2], 0, 4)}, b"\0" * 4, "8 bytes, and should begin at 0"),
        ({"w": _entry("F32", [1], 4, 8)}, b"\0" * 8, "should begin at 0"),
        ({"a": _entry("U8", [4], 0, 4), "b": _entry("U8", [4], 2, 6)}, b"\0" * 6, "begin at 4"),
        ({"w": _entry("F32", [-1], 0, -4)}, b"", "has the shape [-1]"),
        ({"w": _entry("U8", [1], 0, 1)}, b"\0\0", "and it has"),
        ({"w": {"dtype": "U8"}}, b"", "does not read"),
        (b"{", b"", "does not read"),
        (b'{"w":1,"w":2}', b"", "stands twice"),
        (b"[" * 100_000, b"", "does not read"),
    ],
)
def test_headers_that_lie_are_refused_before_a_byte_of_data_is_read(
    tmp_path: Path, header: object, body: bytes, says: str
) -> None:
    file = _file(tmp_path / "m.safetensors", header, body)
    with pytest.raises(CheckpointError) as refused:
        _ = file.tree
    assert says in refused.value.problems[0].why


_FIELDS = '"dtype":"I32","shape":[1],"data_offsets":[0,4]'


@pytest.mark.parametrize(
    "header",
    [
        *(f'{{"w":{{{_FIELDS},{field}}}}}' for field in _FIELDS.replace(',"', ';"').split(";")),
        '{"w":{"dtype":"I32","shape":[2],"shape":[1],"data_offsets":[0,4]}}',
        f'{{"w":{{{_FIELDS},"x":1,"x":2}}}}',
        f'{{"w":{{{_FIELDS},"x":{{"shape":1,"shape":2}}}}}}',
        *(
            f'{{"__metadata__":{said},"w":{{{_FIELDS}}}}}'
            for said in ("null", "{}", '{"a":"1","a":"2"}', '{"dtype":"1","dtype":"2"}', "[]", '"a"', "1",
                         '{"a":1}', '{"a":null}', '{"a":{}}', '{"a":["b"]}')
        ),
        f'{{"w":{{{_FIELDS}}},"z":{{"dtype":"I32","shape":[0,{1 << 40},{1 << 40}],"data_offsets":[4,4]}}}}',
        f'{{"w":{{{_FIELDS}}},"z":{{"dtype":"I32","shape":[{1 << 40},{1 << 40},0],"data_offsets":[4,4]}}}}',
        f'{{"w":{{{_FIELDS}}},"z":{{"dtype":"I32","shape":[0,{10**30}],"data_offsets":[4,4]}}}}',
        f'{{"w":{{{_FIELDS}}},"z":{{"dtype":"I32","shape":[0,{1 << 40}],"data_offsets":[4,4]}}}}',
    ],
)  # fmt: skip
def test_odd_headers_are_refused_where_the_reference_refuses_them(
    tmp_path: Path, header: str
) -> None:
    file = _file(tmp_path / "m.safetensors", header.encode(), b"\1\0\0\0")
    try:
        expected = reference.load_file(tmp_path / "m.safetensors")
    except (SafetensorError, ValueError):  # the latter is NumPy's
        with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
            _ = file.tree
        return
    assert {path[0]: file.read(path).tolist() for path in file.tree} == {
        name: value.tolist() for name, value in expected.items()
    }


@pytest.mark.parametrize("length", [0, 7, 8, 2**63])
def test_a_header_longer_than_the_file_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", length)[: max(length, 1)])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        _ = SafetensorsFile(tmp_path / "m.safetensors").tree


@pytest.mark.parametrize(
    "shape", [(), (0, 3), (7,), (64, 3), (3, 64), (5, 4, 3), (1, 1000), (2, 3, 500)]
)
@pytest.mark.parametrize("most", [4, 40, 1000, 100_000])
def test_chunks_of_what_had_none_are_within_a_bound_and_of_whole_rows(
    shape: tuple[int, ...], most: int
) -> None:
    grid = grid_within(shape, "float32", most)
    assert len(grid) == len(shape)
    assert all(1 <= part <= max(size, 1) for part, size in zip(grid, shape, strict=True))
    assert math.prod(grid) * 4 <= most
    cut = [axis for axis, (part, size) in enumerate(zip(grid, shape, strict=True)) if part < size]
    assert all(part == 1 for part in grid[: max(cut, default=0)])


def test_a_dtype_of_several_values_to_a_byte_is_refused_by_name(tmp_path: Path) -> None:
    file = _file(tmp_path / "m.safetensors", {"w": _entry("F4", [2], 0, 1)}, b"\0")
    with pytest.raises(CheckpointError, match=r"has the dtype 'F4'.*\n.*several values to a byte"):
        _ = file.tree


SMALL = reference.save(TENSORS)


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
    (tmp_path / "m.safetensors").write_bytes(content[:cut])
    file = SafetensorsFile(tmp_path / "m.safetensors")
    try:
        for path in file.tree:
            file.read(path)
    except CheckpointError:
        return
    assert file.tree.bytes <= len(content)
