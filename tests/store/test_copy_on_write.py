"""What source and destination share on disk, which bytes are new, and that neither can spoil the other."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import reports, surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.tree.paths import LeafPath

NUMBERS = np.random.default_rng(3)
TREE = {
    "a": {"kernel": NUMBERS.normal(size=(64, 64)).astype(np.float32)},
    "b": {"kernel": NUMBERS.normal(size=(64, 64)).astype(np.float32)},
    "big": NUMBERS.normal(size=(512, 1024)).astype(np.float32),
}
KERNEL_BYTES = 64 * 64 * 4
LAYOUTS = [(ocdbt, zarr3) for ocdbt in (True, False) for zarr3 in (False, True)]


def _save(path: Path, tree: Any, layout: tuple[bool, bool]) -> Path:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=layout[0], use_zarr3=layout[1])
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(tree))
    return path


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.fixture(params=LAYOUTS, ids=lambda x: f"{'ocdbt' if x[0] else 'leaves'}-zarr{2 + x[1]}")
def layout(request: pytest.FixtureRequest) -> tuple[bool, bool]:
    return request.param


@pytest.fixture
def source(layout: tuple[bool, bool], tmp_path: Path) -> Path:
    return _save(tmp_path / "source", TREE, layout)


@pytest.fixture
def ocdbt_source(tmp_path: Path) -> Path:
    return _save(tmp_path / "source", TREE, (True, False))


def _apply(
    source: Path, destination: Path, *steps: tuple[str, dict[str, Any]], **options: Any
) -> reports.Report:
    plan = plan_of([operation_from_options(name, fields) for name, fields in steps])
    settings = surgery.Options(**{"link": "hard", "optimizer": "keep", **options})
    return surgery.apply(str(source), str(destination), plan, options=settings)


RESCALE = ("rescale", {"at": "a/kernel", "by": "2"})
RENAME = ("rename", {"at": "a", "to": "c"})


def _files(path: Path) -> dict[str, Path]:
    return {str(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}


def _inodes(path: Path) -> set[int]:
    return {file.stat().st_ino for file in _files(path).values()}


def _contents(path: Path) -> dict[str, tuple[bytes, int]]:
    return {name: (f.read_bytes(), f.stat().st_mtime_ns) for name, f in _files(path).items()}


def _is_data(name: str) -> bool:
    """True for files of a database that hold chunks or tree nodes, and for files in a leaf's directory."""
    in_ocdbt = name.startswith(("d/", "ocdbt.")) and not name.endswith("manifest.ocdbt")
    return in_ocdbt or name.startswith(("a.", "b.", "c.", "big/"))


def _new_data_bytes(source: Path, destination: Path) -> int:
    """Bytes of data files in the destination that are no links to the source's."""
    shared = _inodes(source)
    files = _files(destination)
    return sum(
        f.stat().st_size for n, f in files.items() if _is_data(n) and f.stat().st_ino not in shared
    )


def test_one_edited_leaf_adds_its_own_bytes_and_links_the_rest(
    source: Path, tmp_path: Path
) -> None:
    report = _apply(source, tmp_path / "new", RESCALE)
    assert report.strategy == "copy-on-write"
    assert report.bytes_written == KERNEL_BYTES
    assert report.bytes_read == KERNEL_BYTES
    assert report.by_reference == 2
    assert 0 < _new_data_bytes(source, tmp_path / "new") < 1.1 * KERNEL_BYTES + 4096
    assert report.bytes_linked >= TREE["big"].nbytes // 2


def test_only_data_files_are_shared_never_the_small_files_that_may_be_replaced(
    source: Path, tmp_path: Path
) -> None:
    _apply(source, tmp_path / "new", RESCALE)
    shared = _inodes(source)
    linked = {n for n, f in _files(tmp_path / "new").items() if f.stat().st_ino in shared}
    assert linked
    assert {name for name in linked if not _is_data(name)} == set()


def test_a_rename_writes_no_tensor_bytes(source: Path, tmp_path: Path) -> None:
    report = _apply(source, tmp_path / "new", RENAME)
    assert (report.bytes_written, report.bytes_read) == (0, 0)
    assert _new_data_bytes(source, tmp_path / "new") < 4096
    np.testing.assert_array_equal(_restored(tmp_path / "new")["c"]["kernel"], TREE["a"]["kernel"])


def test_copies_and_swaps_write_no_tensor_bytes(source: Path, tmp_path: Path) -> None:
    swap = ("rename", {"moves": ["a=b", "b=a"]})
    report = _apply(source, tmp_path / "new", swap, ("copy", {"at": "big", "to": "again"}))
    assert (report.bytes_written, report.bytes_read) == (0, 0)
    restored = _restored(tmp_path / "new")
    np.testing.assert_array_equal(restored["a"]["kernel"], TREE["b"]["kernel"])
    np.testing.assert_array_equal(restored["b"]["kernel"], TREE["a"]["kernel"])
    np.testing.assert_array_equal(restored["again"], TREE["big"])
    assert _new_data_bytes(source, tmp_path / "new") < 4096


def test_a_graft_of_an_equal_leaf_links_the_donors_file(
    layout: tuple[bool, bool], source: Path, tmp_path: Path
) -> None:
    values = np.random.default_rng(8).normal(size=(64, 64)).astype(np.float32)
    donor = _save(tmp_path / "donor", {"a": {"kernel": values}, "other": TREE["big"]}, layout)
    before = _contents(donor)
    report = _apply(source, tmp_path / "new", ("replace", {"at": "a/kernel", "with": str(donor)}))
    assert (report.bytes_written, report.bytes_read) == (0, 0)
    assert _inodes(donor) & _inodes(tmp_path / "new")
    np.testing.assert_array_equal(_restored(tmp_path / "new")["a"]["kernel"], values)
    assert _contents(donor) == before
    shutil.rmtree(donor)
    np.testing.assert_array_equal(_restored(tmp_path / "new")["a"]["kernel"], values)


def test_grafts_from_two_donors_and_again_into_the_result_stand_side_by_side(
    layout: tuple[bool, bool], source: Path, tmp_path: Path
) -> None:
    donors = []
    for number in range(3):
        values = np.full((64, 64), number + 1, np.float32)
        donors.append(_save(tmp_path / f"donor{number}", {"kernel": values}, layout))
    steps = [
        ("replace", {"at": f"{name}/kernel", "with": str(donor), "from": "kernel"})
        for name, donor in zip(("a", "b"), donors, strict=False)
    ]
    _apply(source, tmp_path / "first", *steps)
    again = ("replace", {"at": "a/kernel", "with": str(donors[2]), "from": "kernel"})
    _apply(tmp_path / "first", tmp_path / "second", again)
    for donor in donors:
        shutil.rmtree(donor)
    shutil.rmtree(source)
    shutil.rmtree(tmp_path / "first")
    restored = _restored(tmp_path / "second")
    np.testing.assert_array_equal(restored["a"]["kernel"], np.full((64, 64), 3.0))
    np.testing.assert_array_equal(restored["b"]["kernel"], np.full((64, 64), 2.0))
    np.testing.assert_array_equal(restored["big"], TREE["big"])


def _spoil_other_leaves(checkpoint: Path, edited: str) -> None:
    """Overwrite the encoded chunks of every other leaf, in place, with what no codec can decode."""
    item = PytreeItem(checkpoint)
    assert item.store is not None
    for name, array in item.store.arrays.items():
        if name == edited:
            continue
        for key in array.keys:
            if key in (".zarray", "zarr.json"):
                continue
            if isinstance(item.store, OcdbtStore):
                extent = item.store.survey.values[f"{name}/{key}".encode()]
                assert isinstance(extent, Extent)
                file, offset, length = checkpoint / extent.file, extent.offset, extent.length
            else:
                file = checkpoint / name / key
                offset, length = 0, file.stat().st_size
            with file.open("r+b") as stream:
                stream.seek(offset)
                stream.write(b"\xff" * length)


def test_an_edit_decodes_no_other_leaf(source: Path, tmp_path: Path) -> None:
    _spoil_other_leaves(source, "a.kernel")
    with pytest.raises(CheckpointError, match=r"'big'.* cannot be read"):
        open_checkpoint(str(source)).read(LeafPath(("big",)))
    _apply(source, tmp_path / "new", RESCALE)
    values = open_checkpoint(str(tmp_path / "new")).read(LeafPath(("a", "kernel")))
    np.testing.assert_array_equal(values, TREE["a"]["kernel"] * np.float32(2))


def test_linking_never_shares_nothing(source: Path, tmp_path: Path) -> None:
    report = _apply(source, tmp_path / "new", RESCALE, link="never")
    assert not _inodes(source) & _inodes(tmp_path / "new")
    assert (report.bytes_linked, report.shared_files) == (0, 0)
    np.testing.assert_array_equal(_restored(tmp_path / "new")["big"], TREE["big"])


def test_the_destination_outlives_the_source(source: Path, tmp_path: Path) -> None:
    _apply(source, tmp_path / "new", RESCALE, RENAME)
    shutil.rmtree(source)
    restored = _restored(tmp_path / "new")
    np.testing.assert_array_equal(restored["c"]["kernel"], TREE["a"]["kernel"] * np.float32(2))
    np.testing.assert_array_equal(restored["b"]["kernel"], TREE["b"]["kernel"])
    np.testing.assert_array_equal(restored["big"], TREE["big"])


def test_the_source_survives_writes_into_the_destination(
    layout: tuple[bool, bool], source: Path, tmp_path: Path
) -> None:
    _apply(source, tmp_path / "new", RENAME)
    before = _contents(source)
    base: dict[str, Any] = {"driver": "file", "path": f"{tmp_path / 'new'}/"}
    if layout[0]:
        kvstore: dict[str, Any] = {"driver": "ocdbt", "base": base, "path": "big/"}
    else:
        kvstore = {"driver": "file", "path": f"{tmp_path / 'new' / 'big'}/"}
    spec = {"driver": "zarr3" if layout[1] else "zarr", "kvstore": kvstore}
    array = ts.open(spec, open=True).result()
    array[...].write(np.ones((512, 1024), np.float32)).result()
    np.testing.assert_array_equal(_restored(tmp_path / "new")["big"], np.ones((512, 1024)))
    assert _contents(source) == before
    np.testing.assert_array_equal(_restored(source)["big"], TREE["big"])


def test_generations_of_edits_leave_all_their_ancestors_alone(source: Path, tmp_path: Path) -> None:
    edits = [RESCALE, RENAME, ("rescale", {"at": "c/kernel", "by": "2"}), ("delete", {"at": "b"})]
    places = [source] + [tmp_path / f"generation{n}" for n in range(len(edits))]
    contents = [_contents(source)]
    for edit, old, new in zip(edits, places, places[1:], strict=False):
        _apply(old, new, edit)
        contents.append(_contents(new))
    assert [_contents(place) for place in places] == contents
    restored = _restored(places[-1])
    assert sorted(restored) == ["big", "c"]
    np.testing.assert_array_equal(restored["c"]["kernel"], TREE["a"]["kernel"] * np.float32(4))


def test_the_manifest_of_a_clone_has_one_version(ocdbt_source: Path, tmp_path: Path) -> None:
    _apply(ocdbt_source, tmp_path / "new", RESCALE, RENAME, ("delete", {"at": "b"}))
    base = ts.KvStore.open(f"file://{tmp_path / 'new'}/").result()
    manifest = ts.ocdbt.dump(base).result()
    assert len(manifest["versions"]) == 1
    assert manifest["version_tree_nodes"] == []


def test_a_clone_has_no_file_that_its_tree_does_not_name(
    ocdbt_source: Path, tmp_path: Path
) -> None:
    _apply(ocdbt_source, tmp_path / "new", RESCALE, RENAME)
    item = PytreeItem(tmp_path / "new")
    assert isinstance(item.store, OcdbtStore)
    stored = {name for name in _files(tmp_path / "new") if _is_data(name)}
    assert stored == {extent.file for extent in _extents(item.store)}


def _extents(store: OcdbtStore) -> list[Extent]:
    values = [value for value in store.survey.values.values() if isinstance(value, Extent)]
    return [*store.survey.nodes, *values]


def test_what_is_removed_is_dead_in_a_clone_and_gone_in_a_compact_store(
    ocdbt_source: Path, tmp_path: Path
) -> None:
    delete = ("delete", {"at": "big"})
    clone = _apply(ocdbt_source, tmp_path / "clone", delete, compact="never")
    fresh = _apply(ocdbt_source, tmp_path / "fresh", delete, compact="always")
    assert (clone.strategy, fresh.strategy) == ("copy-on-write", "compact")
    assert any("removed values may remain" in note for note in clone.notes)
    assert sum(f.stat().st_size for f in _files(tmp_path / "fresh").values()) < 3 * KERNEL_BYTES
    assert not _inodes(ocdbt_source) & _inodes(tmp_path / "fresh")
    for result in ("clone", "fresh"):
        restored = _restored(tmp_path / result)
        assert sorted(restored) == ["a", "b"]
        np.testing.assert_array_equal(restored["b"]["kernel"], TREE["b"]["kernel"])


def test_a_store_is_compacted_by_itself_once_a_quarter_and_a_mebibyte_would_be_dead(
    ocdbt_source: Path, tmp_path: Path
) -> None:
    assert TREE["big"].nbytes > 1 << 20
    few = surgery.plan(str(ocdbt_source), plan_of([operation_from_options("delete", {"at": "a"})]))
    most = surgery.plan(
        str(ocdbt_source), plan_of([operation_from_options("delete", {"at": "big"})])
    )
    assert few.strategy == "copy-on-write"
    # how Orbax spreads leaves over data files decides: a file of its own is simply not linked
    linked = most.strategy == "copy-on-write"
    assert not linked or most.bytes_linked < 4 * KERNEL_BYTES
    report = _apply(ocdbt_source, tmp_path / "new", ("delete", {"at": "big"}), compact="auto")
    size = sum(file.stat().st_size for file in _files(tmp_path / "new").values())
    assert size < 4 * KERNEL_BYTES
    assert report.strategy == most.strategy


def test_a_leaf_that_lies_below_anothers_name_survives_its_removal(
    layout: tuple[bool, bool], tmp_path: Path
) -> None:
    tree = {"x": np.arange(3.0), "x/y": np.arange(4.0), "x/y/z": np.arange(5.0)}
    _save(tmp_path / "source", tree, layout)
    _apply(tmp_path / "source", tmp_path / "new", ("delete", {"at": "re:x"}))
    restored = _restored(tmp_path / "new")
    assert sorted(restored) == ["x/y", "x/y/z"]
    np.testing.assert_array_equal(restored["x/y"], tree["x/y"])
    np.testing.assert_array_equal(restored["x/y/z"], tree["x/y/z"])


def test_names_of_which_one_begins_like_the_other_are_told_apart(
    layout: tuple[bool, bool], tmp_path: Path
) -> None:
    tree = {f"layer_{n}": {"w": np.full(3, n, np.float32)} for n in (1, 10, 100)}
    _save(tmp_path / "source", tree, layout)
    steps = [("rename", {"at": "layer_1", "to": "layer_2"}), ("delete", {"at": "layer_10"})]
    _apply(tmp_path / "source", tmp_path / "new", *steps)
    restored = _restored(tmp_path / "new")
    assert {k: v["w"].tolist() for k, v in restored.items()} == {
        "layer_2": [1.0, 1.0, 1.0],
        "layer_100": [100.0, 100.0, 100.0],
    }
