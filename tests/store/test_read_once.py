"""What is read and parsed once, and not again: a checkpoint of 100,000 leaves takes seconds for each time."""

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.sidecars import Sidecars

VALUES = np.arange(2000, dtype=np.float32)
TREE = {"layers": [{"kernel": VALUES + i} for i in range(6)], "step": 3, "rest": {}}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("once") / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, TREE)
    return path


@pytest.fixture
def read_nodes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes of B-trees that are read while the test runs."""
    found: list[str] = []
    dump = ts.ocdbt.dump

    def noting(base: Any, *node: str) -> Any:
        found.extend(node)
        return dump(base, *node)

    monkeypatch.setattr(ts.ocdbt, "dump", noting)
    return found


def test_an_edit_reads_the_tree_of_its_source_once_and_its_own_once(
    source: Path, tmp_path: Path, read_nodes: list[str]
) -> None:
    edit = operation_from_options("rescale", {"at": "layers/0", "by": "2"})
    surgery.apply(str(source), str(tmp_path / "new"), plan_of([edit]))
    assert len(read_nodes) == len(set(read_nodes)) == 2


def test_nodes_in_linked_files_are_not_read_again_and_say_the_same(
    source: Path, tmp_path: Path, read_nodes: list[str]
) -> None:
    known = Survey(source)
    shutil.copytree(source, tmp_path / "linked", copy_function=os.link)
    read_nodes.clear()
    linked = Survey(tmp_path / "linked", known)
    assert read_nodes == []
    fresh = Survey(tmp_path / "linked")
    assert (linked.values, linked.nodes) == (fresh.values, fresh.nodes)


def test_nodes_in_copied_files_are_read_for_a_copy_may_be_damaged(
    source: Path, tmp_path: Path, read_nodes: list[str]
) -> None:
    known = Survey(source)
    shutil.copytree(source, tmp_path / "copied")
    read_nodes.clear()
    assert Survey(tmp_path / "copied", known).values == known.values
    assert len(read_nodes) == 1


def test_the_same_metadata_is_parsed_once(source: Path, tmp_path: Path) -> None:
    known = Sidecars(source)
    assert known.values is not None
    (tmp_path / "same").mkdir()
    shutil.copy(source / "_METADATA", tmp_path / "same")
    assert Sidecars(tmp_path / "same", known).values is known.values


def test_metadata_with_one_letter_changed_is_parsed_for_itself(
    source: Path, tmp_path: Path
) -> None:
    known = Sidecars(source)
    text = (source / "_METADATA").read_text()
    (tmp_path / "_METADATA").write_text(text.replace('"step"', '"stop"'))
    values = Sidecars(tmp_path, known).values
    assert values is not None
    assert known.values is not None
    assert {path[0] for path in known.values} == {"layers", "step", "rest"}
    assert {path[0] for path in values} == {"layers", "stop", "rest"}


def test_leaves_of_which_metadata_says_the_same_share_one_document(source: Path) -> None:
    values = Sidecars(source).values
    assert values is not None
    kernels = [value for path, value in values.items() if path[0] == "layers"]
    assert len(kernels) == 6
    assert len({id(value) for value in kernels}) == 1


def test_a_filesystem_without_reflinks_is_asked_for_one_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(*request: int) -> None:
        asked.append(request[1])
        raise OSError(errno.EOPNOTSUPP, "no reflinks here")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    linker = Linker()
    for name in "abc":
        (tmp_path / name).write_text(name)
        linker.carry(tmp_path / name, tmp_path / f"new-{name}")
        assert (tmp_path / name).samefile(tmp_path / f"new-{name}")
    assert len(asked) == 1
