"""What moves elements and leaves the bytes of stored chunks alone moves no tensor bytes, and gives what NumPy says."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from msgspec import UNSET

from surgery_cli import surgery
from surgery_cli.errors import ValueRefusal, WriteError
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.store.write.step import StepWriter


def _name(layout: tuple[bool, bool]) -> str:
    return f"{'ocdbt' if layout[0] else 'leaves'}{2 + layout[1]}"


LAYOUTS = [(ocdbt, zarr3) for ocdbt in (True, False) for zarr3 in (False, True)]
Case = tuple[np.ndarray, tuple[int, ...], dict[str, Any]]
"""An array, its stored chunks, and what else its document says."""


def _spec(path: Path, name: str, *, ocdbt: bool, zarr3: bool) -> dict[str, Any]:
    kvstore: dict[str, Any] = {"driver": "file", "path": f"{path / name}/"}
    if ocdbt:
        base = {"driver": "file", "path": f"{path}/"}
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    return {"driver": "zarr3" if zarr3 else "zarr", "kvstore": kvstore}


def _document(case: Case, *, zarr3: bool) -> dict[str, Any]:
    values, chunks, said = case
    if not zarr3:
        said = {"compressor": {"id": "zstd", "level": 1}, **said}
        said.pop("inner", None)
        return {"shape": values.shape, "chunks": chunks, "dtype": "<f4", **said}
    inner = {"chunk_shape": said.get("inner", chunks), "codecs": [{"name": "bytes"}]}
    return {
        "shape": values.shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
    }


def save(path: Path, cases: dict[str, Case], layout: tuple[bool, bool] = (True, False)) -> Path:
    """A checkpoint by Orbax, whose arrays are then stored in the chunks of the cases."""
    ocdbt, zarr3 = layout
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    tree = {name: jax.numpy.asarray(case[0]) for name, case in cases.items()}
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(tree))
    for name, case in cases.items():
        spec = {
            **_spec(path, name, ocdbt=ocdbt, zarr3=zarr3),
            "store_data_equal_to_fill_value": True,
        }
        spec["metadata"] = _document(case, zarr3=zarr3)
        ts.open(spec, create=True, delete_existing=True).result().write(case[0]).result()
    return path


def restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return jax.tree.map(np.asarray, checkpointer.restore(path))


def apply(source: Path, new: Path, *edits: dict[str, Any], **options: Any) -> Any:
    plan = plan_from_document({"edits": list(edits)})
    given = surgery.Options(**{"compact": "never", **options})
    before = surgery.plan(str(source), plan, options=given)
    report = surgery.apply(str(source), str(new), plan, options=given)
    for name in ("by_reference", "rearranged", "partly_by_reference", "bytes_written", "draft"):
        assert getattr(before, name) == getattr(report, name), name
    if not before.checks:
        assert before.bytes_read == report.bytes_read
    return report


def new_bytes(source: Path, new: Path) -> int:
    """Bytes of data files of the result that are not the source's own."""
    own = {file.stat().st_ino for file in source.rglob("*")}
    files = (file for folder in new.iterdir() if folder.is_dir() for file in folder.rglob("*"))
    beside = ("process_0", ".zarray", "zarr.json")
    files = (file for file in files if file.is_file() and file.name not in beside)
    return sum(file.stat().st_size for file in files if file.stat().st_ino not in own)


W = np.random.default_rng(3).normal(size=(12, 8)).astype(np.float32)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
@pytest.mark.parametrize(
    ("edit", "expected", "chunks"),
    [
        ({"op": "expand", "axis": 0}, W[None], 4),
        ({"op": "expand", "axis": 1}, W[:, None], 4),
        ({"op": "reshape", "shape": [4, 3, 8]}, W.reshape(4, 3, 8), 4),
        ({"op": "reshape", "shape": [12, 2, 4]}, W.reshape(12, 2, 4), 4),
        ({"op": "reshape", "shape": [96]}, W.reshape(96), 4),
        ({"op": "permute", "index": [*range(6, 12), *range(6)]}, np.roll(W, 6, 0), 4),
        ({"op": "repeat", "axis": 0, "times": 2, "order": "tiled"}, np.tile(W, (2, 1)), 8),
        ({"op": "repeat", "axis": 1, "times": 3, "new_axis": True}, np.stack([W] * 3, 1), 12),
        ({"op": "slice", "slices": "3:9"}, W[3:9], 2),
        ({"op": "slice", "slices": "3:"}, W[3:], 3),
    ],
    ids=lambda x: x["op"] if isinstance(x, dict) else "",
)
def test_no_tensor_byte_is_read_or_written_where_chunks_stay_as_they_are(
    tmp_path: Path, layout: Any, edit: dict[str, Any], expected: np.ndarray, chunks: int
) -> None:
    source = save(tmp_path / "source", {"w": (W, (3, 8), {}), "other": (W, (12, 8), {})}, layout)
    report = apply(source, tmp_path / "new", {**edit, "at": "w"})
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"], expected, strict=True)
    np.testing.assert_array_equal(restored(tmp_path / "new")["other"], W, strict=True)
    assert (report.bytes_read, report.bytes_written) == (0, 0)
    assert (report.by_reference, report.rearranged, report.partly_by_reference) == (2, 1, UNSET)
    assert [leaf.chunks_by_reference for leaf in report.leaves] == [chunks]
    assert new_bytes(source, tmp_path / "new") < (2000 if layout[0] else 1)


@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_of_a_leaf_that_grows_the_new_chunks_alone_are_written(tmp_path: Path, layout: Any) -> None:
    source = save(tmp_path / "source", {"w": (W, (3, 8), {})}, layout)
    report = apply(source, tmp_path / "new", {"op": "pad", "at": "w", "axis": 0, "after": 5})
    expected = np.pad(W, ((0, 5), (0, 0)))
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"], expected, strict=True)
    assert (report.bytes_read, report.bytes_written) == (0, 5 * 8 * 4)
    assert (report.by_reference, report.partly_by_reference, report.checked) == (0, 1, 1)
    assert report.digests == {}
    assert [leaf.chunks_by_reference for leaf in report.leaves] == [4]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_leaves_are_put_together_and_taken_apart_by_reference_in_one_plan_with_value_edits_of_others(
    tmp_path: Path, layout: Any
) -> None:
    names = ("s0", "s1", "s2", "u", "c0", "c1", "p", "t", "r", "z")
    values = {name: W + n for n, name in enumerate(names)}
    units = {"u": (1, 8), "t": (12, 4)}
    cases: dict[str, Case] = {n: (v, units.get(n, (3, 8)), {}) for n, v in values.items()}
    source = save(tmp_path / "source", cases, layout)
    report = apply(
        source,
        tmp_path / "new",
        {"op": "stack", "at": "s{0..2}", "to": "s", "axis": 1},
        {"op": "unstack", "at": "u", "to": "u{0..11}"},
        {"op": "concat", "at": ["c0", "c1"], "to": "c", "axis": 0},
        {"op": "split", "at": "p", "to": ["p0", "p1"], "axis": 0, "sizes": [9, 3]},
        {"op": "split", "at": "t", "to": ["t0", "t1"], "axis": 1},
        {"op": "resize", "at": "r", "axis": 0, "size": 6},
        {"op": "rescale", "at": "z", "by": 2},
    )
    found = restored(tmp_path / "new")
    s, t = np.stack([values[f"s{n}"] for n in range(3)], 1), values["t"]
    expected = {"s": s, **{f"u{n}": row for n, row in enumerate(values["u"])}}
    expected |= {"c": np.concatenate([values["c0"], values["c1"]])}
    expected |= {"p0": values["p"][:9], "p1": values["p"][9:], "t0": t[:, :4], "t1": t[:, 4:]}
    expected |= {"r": values["r"][:6], "z": values["z"] * 2}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, name, strict=True)
    assert (report.bytes_read, report.bytes_written) == (W.nbytes, W.nbytes)
    assert report.by_reference == report.rearranged == len(expected) - 1


def test_chunks_that_stay_may_become_others_keys_in_one_edit(tmp_path: Path) -> None:
    """Chunk n of the source is not chunk n of the result, and stands under the same name."""
    source = save(tmp_path / "source", {"w": (W, (3, 8), {}), "w/x": (W + 1, (3, 8), {})})
    apply(source, tmp_path / "new", {"op": "slice", "at": "w", "slices": "6:12"})
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"], W[6:])
    np.testing.assert_array_equal(restored(tmp_path / "new")["w/x"], W + 1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("chunks", "said", "edit", "taken"),
    [
        ((5, 8), {}, {"op": "slice", "slices": "5:"}, 2),  # the last one is partial on both sides
        ((5, 8), {}, {"op": "slice", "slices": ":9"}, 1),  # partial in the result alone
        ((5, 8), {}, {"op": "reshape", "shape": [12, 1, 8]}, 3),
        (
            (5, 8),
            {},
            {"op": "reshape", "shape": [96]},
            3,
        ),  # elements first, and as much behind them
        ((5, 3), {}, {"op": "reshape", "shape": [1, 12, 8]}, 9),
        ((5, 3), {}, {"op": "transpose"}, 0),
        ((12, 1), {}, {"op": "transpose"}, 8),
        ((3, 8), {"order": "F"}, {"op": "reshape", "shape": [4, 3, 8]}, 0),
        ((3, 8), {"order": "F"}, {"op": "reshape", "shape": [96]}, 0),
        ((3, 8), {"order": "F"}, {"op": "slice", "slices": "3:"}, 3),
        ((3, 8), {"compressor": None}, {"op": "expand", "axis": 0}, 4),
        ((3, 8), {"dimension_separator": "/"}, {"op": "expand", "axis": 0}, 4),
        ((3, 8), {}, {"op": "slice", "slices": "::-1"}, 0),
        ((3, 8), {}, {"op": "slice", "slices": "1:"}, 0),
        ((3, 8), {"fill_value": 7.0}, {"op": "expand", "axis": 0}, 4),
    ],
)
@pytest.mark.parametrize("ocdbt", [True, False])
def test_a_chunk_is_taken_only_with_what_stands_around_its_elements(
    tmp_path: Path, ocdbt: bool, chunks: Any, said: Any, edit: dict[str, Any], taken: int
) -> None:
    source = save(tmp_path / "source", {"w": (W, chunks, said)}, (ocdbt, False))
    report = apply(source, tmp_path / "new", {**edit, "at": "w"})
    expected = {
        "slice": lambda: eval(f"W[{edit.get('slices')}]"),
        "reshape": lambda: W.reshape(edit["shape"]),
        "transpose": lambda: W.T,
        "expand": lambda: W[None],
    }[edit["op"]]()
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"], expected, strict=True)
    assert [leaf.chunks_by_reference for leaf in report.leaves] == [taken]


@pytest.mark.parametrize(
    ("inner", "edit", "taken"),
    [
        ((3, 4), {"op": "expand", "axis": 0}, 2),
        ((3, 4), {"op": "reshape", "shape": [2, 6, 8]}, 2),
        (
            (3, 4),
            {"op": "reshape", "shape": [96]},
            0,
        ),  # chunks inside a shard do not follow each other
        ((6, 8), {"op": "reshape", "shape": [96]}, 2),
    ],
)
def test_a_shard_is_taken_whole_where_its_inner_chunks_agree(
    tmp_path: Path, inner: Any, edit: dict[str, Any], taken: int
) -> None:
    source = save(tmp_path / "source", {"w": (W, (6, 8), {"inner": inner})}, (True, True))
    report = apply(source, tmp_path / "new", {**edit, "at": "w"})
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"].ravel(), W.ravel())
    assert [leaf.chunks_by_reference for leaf in report.leaves] == [taken]


def test_a_chunk_that_is_not_stored_is_written_as_what_it_stands_for(tmp_path: Path) -> None:
    values = W.copy()
    values[3:6] = 7
    source = save(tmp_path / "source", {"w": (values, (3, 8), {"fill_value": 7.0})}, (False, False))
    metadata = json.loads((source / "_METADATA").read_text())
    metadata["store_array_data_equal_to_fill_value"] = False
    (source / "_METADATA").write_text(json.dumps(metadata))
    (source / "w" / "1.0").unlink()
    report = apply(source, tmp_path / "new", {"op": "expand", "at": "w", "axis": 0})
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"], values[None])
    assert (report.bytes_written, report.partly_by_reference) == (3 * 8 * 4, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{"compact": "always"}, {"link": "never"}, {"link": "hard"}])
@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_chunks_are_copied_as_they_are_where_they_are_not_to_be_shared(
    tmp_path: Path, layout: Any, options: dict[str, Any]
) -> None:
    source = save(tmp_path / "source", {"w": (W, (3, 8), {}), "v": (W, (3, 8), {})}, layout)
    edits = (
        {"op": "expand", "at": "w", "axis": 0},
        {"op": "pad", "at": "v", "axis": 0, "before": 3},
    )
    report = apply(source, tmp_path / "new", *edits, **options)
    found = restored(tmp_path / "new")
    np.testing.assert_array_equal(found["w"], W[None])
    np.testing.assert_array_equal(found["v"], np.pad(W, ((3, 0), (0, 0))))
    assert (report.rearranged, report.partly_by_reference) == (1, 1)
    if options.get("link") == "never":
        assert report.bytes_linked == 0


@pytest.mark.parametrize(
    "edit", [{"op": "expand", "axis": 0}, {"op": "pad", "axis": 0, "after": 3}]
)
def test_a_leaf_with_a_digest_is_held_against_it_and_gets_one_of_its_own(
    tmp_path: Path, edit: dict[str, Any]
) -> None:
    source = save(tmp_path / "source", {"w": (W, (3, 8), {}), "other": (W, (3, 8), {})})
    surgery.seal(str(source))
    report = apply(source, tmp_path / "new", {**edit, "at": "w"})
    written = 3 * 8 * 4 if edit["op"] == "pad" else 0
    assert (report.bytes_read, report.bytes_written) == (W.nbytes, written)
    assert (report.sources_checked, list(report.digests)) == (1, ["w"])
    judged = surgery.verify(str(tmp_path / "new"))
    assert (judged.agrees, judged.unchecked) == (True, 0)


def test_what_must_hold_of_such_a_leaf_is_judged_on_all_of_its_values(tmp_path: Path) -> None:
    values = W.copy()
    values[2, 2] = 50
    source = save(tmp_path / "source", {"w": (values, (3, 8), {})})
    for edit in ({"op": "expand", "axis": 0}, {"op": "pad", "axis": 0, "after": 3}):
        apply(
            source,
            tmp_path / edit["op"],
            {**edit, "at": "w"},
            {"op": "assert", "at": "w", "absmax": "..50"},
        )
        plan = [{**edit, "at": "w"}, {"op": "assert", "at": "w", "absmax": "..49"}]
        with pytest.raises(ValueRefusal, match="absmax"):
            apply(source, tmp_path / "none", *plan)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
def test_chunks_of_a_donor_are_taken_too(tmp_path: Path, layout: Any) -> None:
    source = save(tmp_path / "source", {"w": (W, (3, 8), {})}, layout)
    donor = save(tmp_path / "donor", {"w": (W * 2, (3, 8), {})}, layout)
    edits = (
        {"op": "replace", "at": "w", "with": str(donor)},
        {"op": "expand", "at": "w", "axis": 0},
    )
    report = apply(source, tmp_path / "new", *edits)
    np.testing.assert_array_equal(restored(tmp_path / "new")["w"], W[None] * 2)
    assert (report.bytes_read, report.bytes_written) == (0, 0)
    assert any("NaN in there would come along" in note for note in report.notes)


def _exchange(new: Path) -> None:
    """Two chunks of one array change places."""
    store = ts.KvStore.open(
        {"driver": "ocdbt", "base": {"driver": "file", "path": f"{new}/"}}
    ).result()
    first, second = store["w/0.0.0"], store["w/0.1.0"]
    store["w/0.0.0"], store["w/0.1.0"] = second, first


@pytest.mark.parametrize(
    "edit", [{"op": "expand", "axis": 0}, {"op": "pad", "axis": 1, "after": 3}]
)
@pytest.mark.parametrize("options", [{}, {"compact": "always"}])
def test_chunks_that_changed_places_are_noticed_before_the_result_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: dict[str, Any], options: dict[str, Any]
) -> None:
    drawn = np.random.default_rng(1).integers(-(2**31), 2**31, (1, 12, 8), np.int32)
    values, chunks = drawn.view(np.float32), (1, 3, 8)
    if edit["op"] == "expand":
        values, chunks = values[0], chunks[1:]
    source = save(tmp_path / "source", {"w": (values, chunks, {})})
    finish = StepWriter.finish

    def spoilt(self: StepWriter) -> None:
        finish(self)
        _exchange(self.new)

    monkeypatch.setattr(StepWriter, "finish", spoilt)
    with pytest.raises(WriteError, match="'w' is not the stored values that were meant"):
        apply(source, tmp_path / "new", {**edit, "at": "w"}, allow_non_finite=True, **options)
    assert not (tmp_path / "new").exists()


# -- random ones ---------------------------------------------------------------------------------------------------


def _drawn(rng: random.Random) -> tuple[Case, list[dict[str, Any]], np.ndarray]:
    """A chunked array, one or two edits, and what NumPy says comes of them."""
    shape = tuple(rng.choice([1, 2, 4, 6, 7, 8]) for _ in range(rng.randint(1, 3)))
    chunks = tuple(rng.randint(1, n) for n in shape)
    inner = tuple(rng.choice([c for c in range(1, n + 1) if n % c == 0]) for n in chunks)
    values = np.random.default_rng(rng.randrange(2**32)).normal(size=shape).astype(np.float32)
    order = rng.choice(["C", "C", "F"]) if len(shape) > 1 else "C"
    case = (values, chunks, {"inner": rng.choice([chunks, inner]), "order": order})
    found, edits = values, []
    for _ in range(rng.randint(1, 2)):
        edit, found = _step(found, chunks, rng)
        edits.append(edit)
    return case, edits, found


def _step(
    a: np.ndarray, chunks: tuple[int, ...], rng: random.Random
) -> tuple[dict[str, Any], np.ndarray]:
    axis = rng.randrange(a.ndim) if a.ndim else 0
    unit = chunks[axis] if axis < len(chunks) else 1
    which = rng.choice(
        ["expand", "reshape", "slice", "slice", "pad", "pad", "transpose", "permute"]
    )
    if not a.ndim or which == "expand":
        return {"op": "expand", "axis": 0}, a[None]
    if which == "reshape":
        cut = rng.choice([n for n in range(1, a.size + 1) if a.size % n == 0])
        return {"op": "reshape", "shape": [cut, a.size // cut]}, a.reshape(cut, -1)
    if which == "slice":
        start = min(rng.choice([0, unit, unit, 1]), a.shape[axis] - 1)
        stop = rng.randint(start + 1, a.shape[axis])
        text = ", ".join([":"] * axis + [f"{start}:{stop}"])
        return {"op": "slice", "slices": text}, a[(slice(None),) * axis + (slice(start, stop),)]
    if which == "pad":
        widths = [(0, 0)] * a.ndim
        widths[axis] = (rng.choice([0, unit]), rng.choice([1, unit, 2 * unit]))
        before, after = widths[axis]
        edit = {"op": "pad", "axis": axis, "before": before, "after": after}
        return {**edit, "value": 2.5}, np.pad(a, widths, constant_values=2.5)
    if which == "transpose":
        axes = rng.sample(range(a.ndim), a.ndim)
        return {"op": "transpose", "axes": axes}, a.transpose(axes)
    index = list(range(a.shape[axis]))
    rng.shuffle(index)
    return {"op": "permute", "axis": axis, "index": index}, a.take(index, axis)


def _chunks_of(labels: np.ndarray, chunks: tuple[int, ...]) -> list[bytes]:
    """The elements of every chunk in the order in which they are stored, -1 where there are none."""
    padded = np.pad(
        labels, [(0, -n % c) for n, c in zip(labels.shape, chunks, strict=True)], constant_values=-1
    )
    starts = itertools.product(*(range(0, n, c) for n, c in zip(padded.shape, chunks, strict=True)))
    return [
        padded[tuple(slice(s, s + c) for s, c in zip(at, chunks, strict=True))].tobytes()
        for at in starts
    ]


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("layout", LAYOUTS, ids=_name)
@pytest.mark.parametrize("seed", range(3))
def test_random_arrangements_of_random_grids_are_what_numpy_says(
    tmp_path: Path, layout: Any, seed: int
) -> None:
    rng = random.Random(f"{layout} {seed}")
    drawn = {f"w{n}": _drawn(rng) for n in range(40)}
    source = save(tmp_path / "source", {name: case for name, (case, _, _) in drawn.items()}, layout)
    edits = [{**edit, "at": name} for name, (_, edits, _) in drawn.items() for edit in edits]
    report = apply(source, tmp_path / "new", *edits)
    found = restored(tmp_path / "new")
    for name, (case, steps, expected) in drawn.items():
        np.testing.assert_array_equal(found[name], expected, f"{case[1:]} {steps}", strict=True)
    assert report.rearranged
    assert report.partly_by_reference
