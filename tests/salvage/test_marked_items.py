"""The mark that a save in a bucket leaves in each item is no content of it, empty or not."""

import shutil

import pytest

from surgery_cli import surgery
from tests.verification.test_items_of_every_handler import RESTORES, SAVES, _is_restored, saved

MARK = "commit_success.txt"
MARKS = {"empty": b"", "filled": b"Checkpoint commit was successful to gs://bkt/run/1"}
__all__ = ["saved"]


def _marked(root, place, content):
    """A copy with such a mark in the step, and in every item."""
    step = shutil.copytree(root / "1", place / "run" / "1")
    for folder in [step, *(path for path in step.iterdir() if path.is_dir())]:
        (folder / MARK).write_bytes(content)
    return step


@pytest.mark.parametrize("is_sealed", [False, True], ids=["unsealed", "sealed"])
@pytest.mark.parametrize("mark", MARKS)
def test_no_item_is_lost_for_its_mark(saved, tmp_path, mark, is_sealed):
    step = _marked(saved, tmp_path, MARKS[mark])
    assert {name for name in RESTORES if _is_restored(step, name)} == set(RESTORES)
    if is_sealed:
        surgery.seal(str(step))
    found = surgery.rescue(str(step), str(tmp_path / "new"))
    assert (found.lost, found.is_whole) == (0, True)
    for name in [*SAVES, "metrics"]:
        assert _is_restored(tmp_path / "new", name), name
        for file in (path for path in (step / name).rglob("*") if path.is_file()):
            if file.name != MARK and name in ("json", "proto", "array", "own", "metrics"):
                assert (tmp_path / "new" / file.relative_to(step)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", ["json", "proto", "array", "own", "metrics"])
def test_an_item_of_nothing_but_its_mark_is_lost(saved, tmp_path, mark, name):
    step = _marked(saved, tmp_path, MARKS[mark])
    for file in sorted((step / name).rglob("*"), reverse=True):
        if file.name != MARK:
            file.rmdir() if file.is_dir() and not any(file.iterdir()) else None
            file.unlink() if file.is_file() else None
    assert not _is_restored(step, name)
    lost = {one.name: one.why for one in surgery.rescue(str(step)).lost_items}
    assert lost == {name: "it holds no file"}
