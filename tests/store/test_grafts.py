"""Values taken by reference from donors: whose files come along, which are pruned, and which names they may have."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_from_document, plan_of
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.ocdbt import OcdbtStore


def _kernel(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(64, 64)).astype(np.float32)


def _save(path: Path, first: int) -> Path:
    tree = {name: _kernel(first + n) for n, name in enumerate("abc")}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def _graft(source: Path, donor: Path, new: Path, leaf: str) -> None:
    plan = plan_of([operation_from_options("replace", {"at": leaf, "with": str(donor)})])
    options = surgery.Options(compact="never", optimizer="keep")
    surgery.apply(str(source), str(new), plan, options=options)


def _data_files(path: Path) -> set[str]:
    """Every file on disk that lies in a folder for data files, however deep."""
    return {str(file.relative_to(path)) for file in path.rglob("d/*") if file.is_file()}


def test_dead_bytes_of_a_graft_and_of_a_graft_of_it_are_what_its_files_have_too_many(
    tmp_path: Path,
) -> None:
    sources = [_save(tmp_path / str(n), 10 * n) for n in range(3)]
    _graft(sources[1], sources[2], tmp_path / "first", "a")
    _graft(sources[0], tmp_path / "first", tmp_path / "second", "a")
    _graft(sources[0], tmp_path / "second", tmp_path / "third", "a")
    for path in sources:
        shutil.rmtree(path)
    for name in ("first", "second", "third"):
        new = tmp_path / name
        store = PytreeItem(new).store
        assert isinstance(store, OcdbtStore)
        on_disk = _data_files(new)
        assert on_disk == set(store.survey.files)
        size = sum((new / file).stat().st_size for file in on_disk)
        assert 0 <= store.dead_bytes == size - store.survey.live_bytes()
        np.testing.assert_array_equal(_restored(new)["a"], _kernel(20))


def test_files_of_a_donor_that_nothing_refers_to_any_more_are_gone(tmp_path: Path) -> None:
    source, donor = _save(tmp_path / "source", 0), _save(tmp_path / "donor", 10)
    _graft(source, donor, tmp_path / "grafted", "a")
    assert list((tmp_path / "grafted").glob("ocdbt.donor_*"))
    again = plan_of([operation_from_options("rescale", {"at": "a", "by": "2"})])
    options = surgery.Options(compact="never", optimizer="keep")
    surgery.apply(str(tmp_path / "grafted"), str(tmp_path / "new"), again, options=options)
    assert list((tmp_path / "new").glob("ocdbt.donor_*")) == []
    np.testing.assert_array_equal(_restored(tmp_path / "new")["a"], _kernel(10) * np.float32(2))


def test_a_source_may_be_a_donor_of_itself_beside_renames(tmp_path: Path) -> None:
    source = _save(tmp_path / "source", 0)
    rename = {"op": "rename", "at": "b", "to": "z"}
    replace = {"op": "replace", "at": "c", "with": "me", "from": "a"}
    plan = plan_from_document({"sources": {"me": str(source)}, "edits": [rename, replace]})
    options = surgery.Options(compact="never", optimizer="keep")
    surgery.apply(str(source), str(tmp_path / "new"), plan, options=options)
    restored = _restored(tmp_path / "new")
    assert sorted(restored) == ["a", "c", "z"]
    np.testing.assert_array_equal(restored["a"], _kernel(0))
    np.testing.assert_array_equal(restored["c"], _kernel(0))
    np.testing.assert_array_equal(restored["z"], _kernel(1))


def test_a_preview_says_how_much_of_a_donors_files_is_not_needed(tmp_path: Path) -> None:
    source = _save(tmp_path / "source", 0)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", {f"a{i}": _kernel(i) for i in range(200)})
    rescale = plan_of([operation_from_options("rescale", {"at": "**", "by": 2.0})])
    surgery.apply(str(tmp_path / "saved"), str(tmp_path / "donor"), rescale)  # in one file
    fields = {"at": "a", "with": str(tmp_path / "donor"), "from": "a7"}
    edit = operation_from_options("replace", fields)

    def notes(**options: Any) -> str:
        given = surgery.Options(**options)
        plan = plan_of([edit])
        return " ".join(surgery.plan(str(source), plan, options=given).notes)

    assert "MiB of the linked files are other leaves of a donor" in notes(compact="never")
    assert "other leaves of a donor" not in notes(compact="always")
