"""Whoever does how much of the work, the result is the same: leaves, digests, structure, what is said of it."""

import json
import shutil

import numpy as np
import pytest
from flax import serialization

from surgery_cli import surgery
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from tests.hosts.companies import (
    apply_together,
    assert_same_bits,
    restored,
    saved,
    tree_to_cut,
)

EDITS = {
    "cast": [("cast", {"at": "params", "to": "bfloat16"})],
    "measured": [("normalize", {"at": "params", "to": 2.0})],
    "over-all": [("prune", {"at": "params", "sparsity": 0.3, "over": "all"})],
    "drawn": [
        ("noise", {"at": "params", "std": 0.1, "seed": 3}),
        ("reinit", {"at": "params/layer_1", "init": "lecun_normal"}),
    ],
    "judged": [
        ("assert", {"at": "params", "finite": True}),
        ("rescale", {"at": "params/embed", "by": 0.5}),
        ("assert", {"at": "params/embed", "norm": "..1e6"}),
        ("copy", {"at": "params/embed", "to": "params/other"}),
        ("rescale", {"at": "params/embed", "by": 3.0}),
        ("assert", {"at": "params/other", "finite": True}),
    ],
    "moved": [
        ("rename", {"at": "params/layer_0", "to": "params/first"}),
        ("delete", {"at": "params/layer_1"}),
        ("transpose", {"at": "params/embed", "axes": (1, 0)}),
    ],
    "by-chunks": [("pad", {"at": "params/embed", "axis": 0, "after": 4096})],
    "stacked": [("stack", {"at": "params/layer_{0..5}", "to": "params/layers"})],
}  # fmt: skip
LAYOUTS = {
    "ocdbt-zarr2": {},
    "ocdbt-zarr3": {"use_zarr3": True},
    "leaves-zarr2": {"use_ocdbt": False},
    "leaves-zarr3": {"use_ocdbt": False, "use_zarr3": True},
}


def plan(edits):
    return plan_of([operation_from_options(name, options) for name, options in edits])


def record_of(folder):
    (file,) = folder.rglob("surgery.json")
    record = json.loads(file.read_text())
    return {key: record[key] for key in ("digests", "leaves", "removed", "verified", "draft")}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    made = {}

    def source(layout):
        if layout not in made:
            made[layout] = saved(folder / layout, tree_to_cut(), **LAYOUTS[layout])
        return made[layout]

    yield source
    shutil.rmtree(folder)


def check_same(source, folder, edits, count, options=Options()):
    one = surgery.apply(str(source), str(folder / "one"), plan(edits), options=options)
    many = apply_together(count, source, folder / "many", lambda: plan(edits), options)
    assert_same_bits(restored(folder / "many"), restored(folder / "one"))
    assert surgery.diff(str(folder / "one"), str(folder / "many")).equal
    assert record_of(folder / "many") == record_of(folder / "one")
    assert many.digests == one.digests
    assert (many.checks, many.checked, many.bytes_written, many.by_reference) == (
        (one.checks, one.checked, one.bytes_written, one.by_reference)
    )
    assert sorted(path.name for path in folder.iterdir()) == ["many", "one"]
    shutil.rmtree(folder)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", EDITS)
def test_every_kind_of_work(sources, tmp_path, name):
    check_same(sources("ocdbt-zarr2"), tmp_path, EDITS[name], 3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", list(LAYOUTS)[1:])
def test_every_layout(sources, tmp_path, layout):
    check_same(sources(layout), tmp_path, EDITS["cast"], 3)


def test_a_fresh_store(sources, tmp_path):
    edits = EDITS["moved"]
    check_same(sources("ocdbt-zarr2"), tmp_path, edits, 4, Options(compact="always"))


def test_a_source_with_digests_on_record_is_held_against_them(sources, tmp_path):
    sealed = tmp_path / "sealed"
    shutil.copytree(sources("ocdbt-zarr2"), sealed)
    surgery.seal(str(sealed))
    edits = EDITS["cast"]
    one = surgery.apply(str(sealed), str(tmp_path / "one"), plan(edits))
    many = apply_together(3, sealed, tmp_path / "many", lambda: plan(edits))
    assert many.sources_checked == one.sources_checked == 7
    assert many.bytes_read == one.bytes_read


def test_a_format_that_is_one_file_is_written_by_the_first_process(tmp_path):
    tree = {"params": {"w": np.arange(6, dtype=np.float32), "b": np.ones(3, np.float32)}}
    (tmp_path / "ck").write_bytes(serialization.msgpack_serialize(tree))
    edits = [("rescale", {"at": "params/w", "by": 2.0})]
    apply_together(2, tmp_path / "ck", tmp_path / "many", lambda: plan(edits))
    found = serialization.msgpack_restore((tmp_path / "many").read_bytes())
    np.testing.assert_array_equal(found["params"]["w"], 2 * tree["params"]["w"])


@pytest.mark.parametrize(
    "edits",
    [
        [("cast", {"at": "params/layer_2", "to": "float16"})],
        [("assert", {"at": "params", "absmax": "..1e3"})],
    ],
    ids=["made", "judged"],
)
def test_what_values_refuse_is_refused_by_all_and_nothing_is_left(tmp_path, edits):
    tree = tree_to_cut()
    tree["params"]["layer_2"]["kernel"][3, 3] = 1e30
    source = saved(tmp_path / "ck", tree)
    with pytest.raises(ValueRefusal, match="layer_2"):
        apply_together(3, source, tmp_path / "new", lambda: plan(edits))
    assert [path.name for path in tmp_path.iterdir()] == ["ck"]
