"""What is said beside the edits: trees that are inferred, items that go, leftovers, room on the disk."""

import os
import re
import shutil
from typing import NamedTuple

import numpy as np
import pytest

NO_METADATA = (
    "there is no `_METADATA`: the tree is inferred from names;"
    " None leaves and lists cannot be known"
)


@pytest.fixture(scope="module")
def two_items(tmp_path_factory):
    """A root with one step of two trees, written by Orbax itself."""
    import orbax.checkpoint as ocp

    root = tmp_path_factory.mktemp("two") / "run"
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    with ocp.CheckpointManager(root, options=options) as manager:
        manager.save(
            3,
            args=ocp.args.Composite(
                params=ocp.args.StandardSave({"w": np.arange(3.0)}),
                opt_state=ocp.args.PyTreeSave({"mu": np.arange(3.0)}),
            ),
        )
    return root


def test_a_tree_without_its_metadata_is_said_to_be_inferred(surgery, own_checkpoint, tmp_path):
    (own_checkpoint / "_METADATA").unlink()
    assert surgery("inspect", own_checkpoint, "--json").document["notes"][0] == NO_METADATA
    for name in ("_CHECKPOINT_METADATA", "_sharding"):
        (own_checkpoint / name).unlink()
    shutil.rmtree(
        own_checkpoint / "array_metadatas"
    )  # an old layout: nothing tells that it is lost
    edit = ("rescale", own_checkpoint, tmp_path / "new", "params", "--by", "2", "--dry-run")
    found = surgery(*edit, "--json").document
    assert NO_METADATA in found["notes"]
    assert [taken for taken in found["assumptions"] if "tree of dicts" in taken["taken_for"]] == []


def test_a_database_without_its_first_file_names_that_file(surgery, own_checkpoint):
    (own_checkpoint / "manifest.ocdbt").unlink()
    ended = surgery("inspect", own_checkpoint)
    assert ended.code == 3
    assert f"'{own_checkpoint}' has no 'manifest.ocdbt'" in ended.err.replace("\n", "")


def test_an_item_that_loses_all_leaves_is_said_to_go(surgery, two_items, tmp_path):
    new = tmp_path / "new"
    ended = surgery("keep", two_items, new, "params", "--json")
    assert ended.code == 0
    assert [note for note in ended.document["notes"] if "item" in note] == [
        "the item 'opt_state' loses all its leaves, and is left out of the result",
        "one item is left: paths of the result begin inside 'params'",
    ]
    leaves = surgery("inspect", new, "--json").document["leaves"]
    assert [leaf["path"] for leaf in leaves] == ["w"]


def test_what_a_run_that_cannot_be_told_left_beside_the_destination_is_named_and_kept(
    surgery, checkpoint, tmp_path
):
    left = tmp_path / ".new.surgery-tmp-0123abcd"
    left.mkdir()
    (tmp_path / ".other.surgery-tmp-0123abcd").mkdir()
    edit = ("rescale", checkpoint, tmp_path / "new", "**/kernel", "--by", "2", "--twins", "named")
    ended = surgery(*edit, "--json")
    assert ended.code == 0
    named = [note for note in ended.document["notes"] if "surgery-tmp" in note]
    assert len(named) == 1
    assert f"'{left}'" in named[0]
    assert f"`surgery clean {tmp_path / 'new'} --stale`" in named[0]
    assert left.is_dir()


class Room(NamedTuple):
    """A filesystem of 4 KiB blocks, as `statvfs` tells it."""

    f_bavail: int
    f_favail: int = 1 << 20
    f_blocks: int = 1 << 28
    f_files: int = 1 << 20
    f_frsize: int = 4096


def test_the_room_that_is_asked_for_is_in_proportion(surgery, checkpoint, tmp_path, monkeypatch):
    copy = ("compact", checkpoint, tmp_path / "new", "--dry-run")
    monkeypatch.setattr(os, "statvfs", lambda _: Room(2048))
    assert surgery(*copy).code == 0
    monkeypatch.setattr(os, "statvfs", lambda _: Room(2))
    ended = surgery(*copy)
    assert ended.code == 2
    assert re.search(r"about [0-9.]+ MiB needed, 8\.0 KiB free", ended.err)


def test_files_for_which_there_is_no_room_are_counted_where_leaves_are_directories(
    surgery, tmp_path, monkeypatch
):
    import orbax.checkpoint as ocp

    tree = {"a": np.ones((4, 4), np.float32), "b": np.ones(3, np.float32)}
    for name, use_ocdbt in (("leaves", False), ("database", True)):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt)) as checkpointer:
            checkpointer.save(tmp_path / name, tree)
    edit = ("rescale", tmp_path / "leaves", tmp_path / "new", "a", "--by", "2", "--dry-run")
    monkeypatch.setattr(os, "statvfs", lambda _: Room(2048, 4))
    assert surgery(*edit).code == 0
    # the directory of `b`, whose files are linked; that of `a`, its document and its chunk
    monkeypatch.setattr(os, "statvfs", lambda _: Room(2048, 3))
    ended = surgery(*edit)
    assert ended.code == 2
    assert "at least 4 new files and directories, and its filesystem takes 3 more" in ended.err
    assert surgery("rescale", tmp_path / "database", *edit[2:]).code == 0
    monkeypatch.setattr(os, "statvfs", lambda _: Room(2048, 0, f_files=0))  # it does not tell
    assert surgery(*edit).code == 0


def test_a_destination_where_no_files_can_be_is_not_a_full_disk(surgery, checkpoint):
    ended = surgery("rescale", checkpoint, "/proc/foo", "**/bias", "--by", "2", "--twins", "named")
    assert ended.code == 2
    assert "'/proc/foo' cannot be written" in ended.err


def test_the_record_and_whole_blocks_of_small_files_need_room_too(surgery, tmp_path, monkeypatch):
    import orbax.checkpoint as ocp

    tree = {f"w_{n:03d}": np.ones(2, np.float32) for n in range(300)}
    for name, use_ocdbt in (("leaves", False), ("database", True)):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt)) as checkpointer:
            checkpointer.save(tmp_path / name, tree)

    def blocks_needed(name, *words):
        """How many blocks of 4 KiB must be free."""
        low, high = 0, 1 << 14
        edit = (
            "rescale",
            tmp_path / name,
            tmp_path / "new",
            "w_0[0-4]?",
            "--by",
            "2",
            "--force",
            *words,
        )
        while low < high:
            middle = (low + high) // 2
            monkeypatch.setattr(os, "statvfs", lambda _, n=middle: Room(n))
            low, high = (
                (low, middle) if surgery(*edit, "--dry-run").code == 0 else (middle + 1, high)
            )
        monkeypatch.undo()
        assert surgery(*edit).code == 0
        return low

    def blocks_taken():
        places = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
        return sum(-(-os.lstat(place).st_size // 4096) for place in places)

    database = blocks_needed("database", "--seal")
    assert blocks_taken() <= database
    unsealed = blocks_needed("database")
    assert database - unsealed >= 250 * 120 // 4096  # a digest of each of the others
    leaves = blocks_needed("leaves")
    assert leaves >= 50 * 2 + 300  # a document and a chunk of each that changes, and directories
    assert blocks_needed("leaves", "--link", "never") >= leaves + 2 * 250
    assert blocks_taken() <= leaves + 2 * 250 + 10
