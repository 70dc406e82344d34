"""What is taken by reference is proved before the commit: to be the bytes that the plan meant, or a copy of them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.write.step import StepWriter
from surgery_cli.tree.paths import LeafPath

TREE = {
    name: np.random.default_rng(seed).integers(-(2**31), 2**31, (16, 16), np.int32)
    for seed, name in enumerate(("a", "b", "c"))
}
"""Nothing to compress: as stored, all of them have one size."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("references")
    found = {}
    for layout, ocdbt in (("ocdbt", True), ("leaves", False)):
        found[layout] = folder / layout
        with ocp.PyTreeCheckpointer(use_ocdbt=ocdbt) as checkpointer:
            checkpointer.save(found[layout], TREE)
    return found


def _apply(source: Path, destination: Path, **settings: Any) -> Any:
    plan = plan_of([operation_from_options("rename", {"at": "a", "to": "first"})])
    options = surgery.Options(**settings)
    return surgery.apply(str(source), str(destination), plan, options=options)


def _spoil(monkeypatch: pytest.MonkeyPatch, blow: Callable[[Path], None]) -> None:
    """Let something happen to what was written, just before it is verified."""
    finish = StepWriter.finish

    def spoilt(self: StepWriter) -> None:
        finish(self)
        blow(self.new)

    monkeypatch.setattr(StepWriter, "finish", spoilt)


def _exchange_in_database(new: Path) -> None:
    store = ts.KvStore.open(
        {"driver": "ocdbt", "base": {"driver": "file", "path": f"{new}/"}}
    ).result()
    first, b = store["first/0.0"], store["b/0.0"]
    store["first/0.0"], store["b/0.0"] = b, first


def _exchange_files(new: Path) -> None:
    (new / "first" / "0.0").rename(new / "kept")
    (new / "b" / "0.0").rename(new / "first" / "0.0")
    (new / "kept").rename(new / "b" / "0.0")


@pytest.mark.parametrize(
    ("layout", "settings"),
    [
        ("ocdbt", {}),
        ("ocdbt", {"link": "never"}),
        ("ocdbt", {"compact": "always"}),
    ],
    ids=["linked", "copied", "compact"],
)
def test_two_leaves_of_one_shape_that_changed_places_are_noticed(
    sources: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    settings: dict[str, Any],
) -> None:
    _spoil(monkeypatch, _exchange_in_database)

    with pytest.raises(WriteError) as caught:
        _apply(sources[layout], tmp_path / "new", **settings)

    assert [problem.path for problem in caught.value.problems] == ["first", "b"]
    assert "is not the stored values that were meant" in caught.value.problems[0].what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("link", ["hard", "never"])
def test_a_file_that_lost_its_end_is_noticed(
    sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    def cut(new: Path) -> None:
        file = new / "b" / "0.0"
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content[:-1])

    _spoil(monkeypatch, cut)

    with pytest.raises(WriteError, match="'b' is not the stored values that were meant"):
        _apply(sources["leaves"], tmp_path / "new", link=link)


def test_links_that_changed_places_are_noticed(
    sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spoil(monkeypatch, _exchange_files)

    with pytest.raises(WriteError) as caught:
        _apply(sources["leaves"], tmp_path / "new", link="hard")

    assert {problem.path for problem in caught.value.problems} == {"b", "first"}


def test_strings_and_numbers_that_stand_in_one_file_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"a": np.ones(3), "name": "resnet"})

    def respell(new: Path) -> None:
        (file,) = new.rglob("_strings.json")
        content = file.read_text()
        file.unlink()
        file.write_text(content.replace("resnet", "renset"))

    _spoil(monkeypatch, respell)

    with pytest.raises(WriteError, match="'name' is not the stored values"):
        _apply(tmp_path / "source", tmp_path / "new")


def test_a_graft_says_that_nobody_looked_at_its_values(
    sources: dict[str, Path], tmp_path: Path
) -> None:
    plan = plan_of([operation_from_options("replace", {"at": "a", "with": str(sources["ocdbt"])})])
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", TREE)

    preview = surgery.plan(str(tmp_path / "source"), plan)

    (note,) = preview.notes
    assert note.startswith("1 leaf comes from elsewhere as stored, unread: NaN in there would")


def test_a_data_file_that_lost_its_end_after_it_was_opened_is_no_shorter_value(
    sources: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(sources["ocdbt"], tmp_path / "cut")
    checkpoint = open_checkpoint(str(tmp_path / "cut"))
    path = LeafPath(("c",))
    assert checkpoint.tree[path].shape == (16, 16)
    for file in tmp_path.rglob("d/*"):
        file.write_bytes(b"")

    with pytest.raises(CheckpointError, match="is truncated"):
        checkpoint.read(path)


def test_a_directory_with_the_name_of_a_data_file_is_none_however_large(
    sources: dict[str, Path], tmp_path: Path
) -> None:
    database = tmp_path / "turned"
    shutil.copytree(sources["ocdbt"], database)
    (item,) = open_checkpoint(str(database)).items.values()
    assert isinstance(item, PytreeItem)
    assert isinstance(item.store, OcdbtStore)
    for file in [database / name for name in item.store.survey.files]:
        content = file.read_bytes()
        file.unlink()
        file.mkdir()
        with pytest.raises(CheckpointError, match=file.name):
            _ = open_checkpoint(str(database)).tree
        file.rmdir()
        file.write_bytes(content)
    assert open_checkpoint(str(database)).tree
