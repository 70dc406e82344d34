"""Checkpoints written as safetensors: the format's own library reads them, and what was not asked for is said."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from safetensors import safe_open
from safetensors.numpy import save_file

from surgery_cli import reports, surgery
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.engine import grid
from surgery_cli.errors import DestinationError, PlanError, UndoError
from surgery_cli.planning import Plan, plan_of, read_plan
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.store.export import sequential
from surgery_cli.store.export.leaves import exported
from surgery_cli.store.export.planning import plan_export
from surgery_cli.store.export.table import FORMATS
from surgery_cli.store.open.checkpoint import open_checkpoint

SAMPLES = Path(__file__).parents[2] / "sample_checkpoints"
DTYPES = "float64 float32 float16 int64 uint64 int32 uint32 int16 uint16 int8 uint8 bool complex64"
RICH = "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def export(source: Path, target: Path, plan: Plan | None = None, **request: Any) -> reports.Report:
    asked = Export(**{"format": "safetensors", **request})
    edits = plan.edits if plan is not None else ()
    return surgery.apply(str(source), str(target), plan_of(edits, output=asked))


def preview(source: Path, target: Path | None = None, **request: Any) -> reports.Preview:
    asked = plan_of([], output=Export(**{"format": "safetensors", **request}))
    return surgery.plan(str(source), asked, destination=str(target) if target else None)


def read(file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every array's dtype and shape, as the format's library gives them."""
    found = {}
    with safe_open(file, "np") as opened:
        for name in opened.keys():  # noqa: SIM118 - it is no dict
            part = opened.get_slice(name)
            found[name] = (part.get_dtype(), tuple(part.get_shape()))
    return found


def values(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_every_dtype_comes_out_as_it_was(tmp_path: Path) -> None:
    tree = {name: (8 * values(0, 3, 5)).astype(name) for name in DTYPES.split()}
    source = save(tmp_path / "source", tree)
    report = export(source, tmp_path / "out.safetensors")
    with safe_open(tmp_path / "out.safetensors", "np") as opened:
        found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        assert opened.metadata() == {"format": "pt"}
    assert found.keys() == tree.keys()
    for name, array in tree.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert report.verified
    assert report.checked == len(tree)


def test_narrow_floats_have_the_bytes_that_they_had(tmp_path: Path) -> None:
    """NumPy knows no names for them: the library says where they stand, and of which dtype they are."""
    tree = {name: values(1, 7).astype(getattr(ml_dtypes, name)) for name in RICH.split()}
    export(save(tmp_path / "source", tree), tmp_path / "out.safetensors")
    raw = (tmp_path / "out.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert (8 + length) % 8 == 0
    codes = ["BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"]
    for name, code in zip(tree, codes, strict=True):
        begin, end = header[name]["data_offsets"]
        assert raw[8 + length + begin : 8 + length + end] == tree[name].tobytes()
        assert header[name]["dtype"] == code
    assert {code for code, _ in read(tmp_path / "out.safetensors").values()} == set(codes)


def test_shards_are_filled_in_order_and_the_index_says_which_holds_what(tmp_path: Path) -> None:
    tree = {f"layers.{n}.weight": values(n, 10 + n, 10) for n in range(7)}  # 400, 440, … 640 bytes
    source = save(tmp_path / "source", tree)
    said = preview(source, tmp_path / "out", shard="1kB").exported
    report = export(source, tmp_path / "out", shard="1kB")
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 3640
    numbers = [1, 1, 2, 2, 3, 4, 5]
    assert index["weight_map"] == {
        name: f"model-{number:05d}-of-00005.safetensors"
        for name, number in zip(tree, numbers, strict=True)
    }
    sizes = {p.name: p.stat().st_size for p in (tmp_path / "out").iterdir()}
    sizes.pop("surgery.json")
    assert {file.name: file.bytes for file in said.files} == sizes
    assert [file.leaves for file in said.files] == [2, 2, 1, 1, 1, 0]
    assert report.exported == said
    for name, array in tree.items():
        with safe_open(tmp_path / "out" / index["weight_map"][name], "np") as opened:
            np.testing.assert_array_equal(opened.get_tensor(name), array)
    assert surgery.verify(str(tmp_path / "out")).agrees


def test_what_fits_is_one_file_without_an_index(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"params": {"w": values(0, 4)}})
    export(source, tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model.safetensors", "surgery.json"}


def test_arrays_begin_at_multiples_of_their_width(tmp_path: Path) -> None:
    """Readers that map a file cannot take an array of floats that begins at an odd byte."""
    tree = {"a": np.ones(3, np.int8), "b": np.ones(3), "c": np.ones(1, bool), "d": values(0, 5)}
    export(save(tmp_path / "source", tree), tmp_path / "out.safetensors")
    raw = (tmp_path / "out.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert all(header[name]["data_offsets"][0] % tree[name].itemsize == 0 for name in tree)


NAMES = ("model.layers.0.q_proj.weight", "a/b", 'with "quotes"', "ä ☃", "[*]", "%2F")


def test_names_come_back_as_they_were(tmp_path: Path) -> None:
    """What is read from the format is written in it under the very same names."""
    given = {name: np.full(3, n, np.float32) for n, name in enumerate(NAMES)}
    save_file(given, tmp_path / "in.safetensors")
    export(tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    assert read(tmp_path / "out.safetensors") == read(tmp_path / "in.safetensors")
    assert surgery.diff(str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")).equal


def test_keys_of_a_path_are_joined_by_dots(tmp_path: Path) -> None:
    tree = {"params": [{"w": values(0, 2)}, {"w": values(1, 2)}], "step": 3}
    report = export(save(tmp_path / "source", tree), tmp_path / "out.safetensors")
    found = read(tmp_path / "out.safetensors")
    assert set(found) == {"params.0.w", "params.1.w", "step"}
    assert found["step"][1] == ()
    assert any("keys joined" in note for note in report.notes)


def test_two_leaves_of_one_name_are_refused(tmp_path: Path) -> None:
    tree = {"a.b": values(0, 2), "a": {"b": values(1, 2), "c": values(2, 2)}}
    (tmp_path / "source").write_bytes(serialization.msgpack_serialize(tree))
    with pytest.raises(PlanError, match=r"'a\.b' would be the name of 2 leaves in safetensors"):
        preview(tmp_path / "source")


def test_dtypes_that_the_format_lacks_are_all_named_with_a_cast(tmp_path: Path) -> None:
    tree = {f"w{n}": values(n, 3).astype(ml_dtypes.int4) for n in range(12)}
    tree |= {"c": np.ones(2, np.complex128), "f": values(0, 3).astype(ml_dtypes.float8_e4m3b11fnuz)}
    source = save(tmp_path / "source", tree | {"key": values(0, 2)})
    with pytest.raises(PlanError) as caught:
        preview(source)
    said = {problem.what: problem for problem in caught.value.problems}
    narrow = said["safetensors has no place for int4: 12 leaves"]
    assert narrow.why == "'w{0..11}'"
    assert 'at: "**", where_dtype: int4, to: int8' in narrow.fix
    assert "to: bfloat16" in said["safetensors has no place for float8_e4m3b11fnuz: 1 leaf"].fix
    assert "no dtype" in said["safetensors has no place for complex128: 1 leaf"].fix
    fix = "edits: [{op: cast, at: '**', where_dtype: int4, to: int8}, {op: delete, at: [c, f]}]"
    (tmp_path / "plan.yaml").write_text(f"{fix}\noutput: {{format: safetensors}}\n")
    plan = read_plan(str(tmp_path / "plan.yaml"))
    surgery.apply(str(source), str(tmp_path / "out.safetensors"), plan)
    with safe_open(tmp_path / "out.safetensors", "np") as opened:
        np.testing.assert_array_equal(opened.get_tensor("w3"), tree["w3"].astype(np.int8))


def test_texts_are_refused_and_empty_nodes_said(tmp_path: Path) -> None:
    source = save(tmp_path / "texts", {"name": "run", "w": values(0, 2)})
    with pytest.raises(PlanError, match="no place for texts: 1 leaf"):
        preview(source)
    source = save(tmp_path / "source", {"none": None, "empty": {}, "w": values(0, 2)})
    report = export(source, tmp_path / "out.safetensors")
    assert any("2 nodes without values stay behind" in note for note in report.consequences)
    assert set(read(tmp_path / "out.safetensors")) == {"w"}


def test_a_tree_without_values_is_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"none": None, "empty": {}})
    with pytest.raises(PlanError, match="no leaf would be left"):
        preview(source)


def test_arrays_without_elements_and_numbers_come_out(tmp_path: Path) -> None:
    tree = {
        "a": np.zeros((0, 3), np.float32),
        "n": 7,
        "x": 0.5,
        "z": np.zeros((2, 0)),
        "e": values(0, 2),
    }
    (tmp_path / "source").write_bytes(serialization.msgpack_serialize(tree))
    export(tmp_path / "source", tmp_path / "out.safetensors")
    with safe_open(tmp_path / "out.safetensors", "np") as opened:
        found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    assert {name: array.shape for name, array in found.items()} == {
        name: np.shape(value) for name, value in tree.items()
    }
    assert (found["n"], found["x"]) == (7, 0.5)
    np.testing.assert_array_equal(found["e"], tree["e"])


def test_edits_come_before_and_nothing_else_is_written(tmp_path: Path) -> None:
    """As a conversion does it: renamed, transposed, cast, and written in one go."""
    tree = {"params": {"dense": {"kernel": values(0, 3, 5)}}, "opt": {"mu": values(1, 3, 5)}}
    source = save(tmp_path / "source", tree)
    (tmp_path / "plan.yaml").write_text(
        "edits:\n- {op: keep, at: params}\n- {op: transpose, at: params/dense/kernel, axes: [1, 0]}\n"
        "- {op: rename, at: params/dense/kernel, to: model.dense.weight}\n- {op: cast, to: bfloat16}\n"
        "output: {format: safetensors}\n"
    )
    plan = read_plan(str(tmp_path / "plan.yaml"))
    surgery.apply(str(source), str(tmp_path / "out.safetensors"), plan)
    raw = (tmp_path / "out.safetensors").read_bytes()
    expected = tree["params"]["dense"]["kernel"].T.astype(ml_dtypes.bfloat16)
    assert raw.endswith(np.ascontiguousarray(expected).tobytes())
    assert read(tmp_path / "out.safetensors") == {"model.dense.weight": ("BF16", (5, 3))}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "out.safetensors", "out.safetensors.surgery.json", "plan.yaml", "source",
    ]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chunks", [(40, 7), (3, 700), (64, 64), None])
def test_leaves_of_any_chunks_are_written_block_by_block_in_c_order(
    tmp_path: Path, chunks: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of a few rows, of chunks that lie across them, with hardly any memory."""
    monkeypatch.setattr(grid.block_shape, "__defaults__", (4096,))
    array = values(0, 257, 700)
    options = ocp.args.PyTreeSave({"w": array, "v": array[:5]})
    if chunks is not None:
        options = ocp.args.PyTreeSave(
            {"w": array, "v": array[:5]},
            save_args={
                name: ocp.SaveArgs(chunk_byte_size=4 * chunks[0] * chunks[1]) for name in "vw"
            },
        )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "source", args=options)
    held = []
    write = sequential._Batch.write

    def seen(batch: Any, *block: Any) -> None:
        write(batch, *block)
        values = batch.blocks[-1][2]
        held.append(getattr(values.base, "nbytes", 0) <= values.nbytes)

    monkeypatch.setattr(sequential._Batch, "write", seen)
    surgery.apply(
        str(tmp_path / "source"),
        str(tmp_path / "out.safetensors"),
        plan_of([], output=Export(format="safetensors")),
        options=Options(memory_bytes=1 << 20),
    )
    assert all(held)  # what waits to be written keeps nothing larger in memory
    with safe_open(tmp_path / "out.safetensors", "np") as opened:
        np.testing.assert_array_equal(opened.get_tensor("w"), array)
        np.testing.assert_array_equal(opened.get_tensor("v"), array[:5])


def test_destinations_that_are_called_otherwise_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"w": values(0, 2)})
    with pytest.raises(PlanError, match=r"called like another format"):
        preview(source, tmp_path / "out.npz")
    with pytest.raises(PlanError, match=r"is one file, and `shard` would cut it"):
        preview(source, tmp_path / "out.safetensors", shard="1GB")
    export(source, tmp_path / "out")
    with pytest.raises(DestinationError, match="exists"):
        export(source, tmp_path / "out")


@pytest.mark.parametrize("setting", [{"as_step": 3}, {"resume": True}, {"link": "hard"}])
def test_options_that_say_nothing_of_files_are_refused(tmp_path: Path, setting: Any) -> None:
    source = save(tmp_path / "source", {"w": values(0, 2)})
    plan = plan_of([], output=Export(format="safetensors"))
    with pytest.raises(PlanError, match="says nothing of safetensors"):
        surgery.plan(str(source), plan, options=Options(**setting))


def test_what_is_written_beside_params_and_what_stays_behind_is_said() -> None:
    found = preview(SAMPLES / "digits_manager")
    assert any(
        "optimizer state is written as well: 16 of 26" in note for note in found.consequences
    )
    assert any(
        "1 thing beside them stays behind ('metrics')" in note for note in found.consequences
    )


def test_only_leaves_that_were_asked_for_are_on_record(tmp_path: Path) -> None:
    """Of a step with several trees one is chosen: what its record says of the others is true of nothing here."""
    with ocp.CheckpointManager(tmp_path / "run", item_names=("a", "b")) as manager:
        items = {name: ocp.args.PyTreeSave({"w": values(n, 3)}) for n, name in enumerate("ab")}
        manager.save(0, args=ocp.args.Composite(**items))
    surgery.seal(str(tmp_path / "run"))
    plan = plan_of([], output=Export(format="safetensors"))
    options = Options(item="a")
    surgery.apply(str(tmp_path / "run"), str(tmp_path / "out"), plan, options=options)
    record = json.loads((tmp_path / "out/surgery.json").read_text())
    assert set(record["digests"]) == {"w"}
    export(tmp_path / "run", tmp_path / "both")
    record = json.loads((tmp_path / "both/surgery.json").read_text())
    assert set(record["digests"]) == {"a.w", "b.w"}
    found = surgery.verify(str(tmp_path / "both"))
    assert (found.agrees, found.checked, found.unchecked) == (True, 2, 0)


def test_an_export_is_not_undone_by_a_plan(tmp_path: Path) -> None:
    export(save(tmp_path / "source", {"w": values(0, 2)}), tmp_path / "out")
    with pytest.raises(UndoError, match="is an export"):
        surgery.inverse(str(tmp_path / "out"))


def test_transactions_that_end_in_another_order_are_written_in_theirs(tmp_path: Path) -> None:
    """Several are on their way at once: the second ends first, and waits."""
    tree = {name: values(n, 5) for n, name in enumerate("abc")}
    source = save(tmp_path / "source", tree)
    form = FORMATS["safetensors"]
    opened = open_checkpoint(str(source))
    request = Export(format="safetensors")
    draft = exported(Draft.of(opened.tree, opened.fingerprint), form, request)
    (plan,) = plan_export(draft, form, {SOURCE: opened}).values()
    writer = form.writer(plan, tmp_path / "out.safetensors", request)
    writer.begin()
    batches = [writer.batch() for _ in tree]
    for batch, leaf in zip(batches, plan.leaves, strict=True):
        batch.__enter__().write(leaf, (slice(0, 5),), tree[str(leaf.path)])
    with ThreadPoolExecutor(3) as pool:
        ends = [pool.submit(batch.__exit__, None, None, None) for batch in reversed(batches)]
        for end in ends:
            end.result()
    writer.finish()
    with safe_open(tmp_path / "out.safetensors", "np") as found:
        for name, array in tree.items():
            np.testing.assert_array_equal(found.get_tensor(name), array)
