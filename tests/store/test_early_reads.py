"""What is written to a disk is read back after each commit; what is another thing by the end is found then."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.errors import RemovedError, SurgeryError, WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.proof import result
from surgery_cli.settings.run import Options
from surgery_cli.store.write import early_reads
from surgery_cli.store.write.early_reads import EarlyReads
from surgery_cli.store.write.item import PytreeWriter

RANDOM = np.random.default_rng(3)
TREE = {name: RANDOM.normal(size=(64, 64)).astype(np.float32) for name in "ab"}
RESCALE = plan_of([operation_from_options("rescale", {"at": "**", "by": "2"})])


@pytest.fixture(params=[False, True], ids=["zarr2", "zarr3"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=request.param)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "source", args=ocp.args.PyTreeSave(TREE))
    return tmp_path / "source"


def _assert_doubled(path: Path) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(path)
    for name, values in TREE.items():
        np.testing.assert_array_equal(restored[name], values * np.float32(2))


def _read_at_the_end(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The leaves that are read back once all is written."""
    found: list[str] = []
    read_back = result.read_back

    def noting(written: Any, done: Any, *given: Any) -> None:
        found.extend(map(str, done.digests))
        read_back(written, done, *given)

    monkeypatch.setattr(result, "read_back", noting)
    return found


def _finished_by(monkeypatch: pytest.MonkeyPatch, deed: Callable[[Path], None]) -> None:
    """Let ``deed`` be done to an item once all of it was written, and read back."""
    finish = PytreeWriter.finish

    def spoiled(writer: PytreeWriter) -> None:
        finish(writer)
        deed(writer.target)

    monkeypatch.setattr(PytreeWriter, "finish", spoiled)


def _largest(item: Path) -> Path:
    return max((item / "d").iterdir(), key=lambda file: file.stat().st_size)


def _flip(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))


def _flipped(item: Path) -> None:
    _flip(_largest(item))


def _exchanged(item: Path) -> None:
    """Another file of the same name, size and time."""
    file = _largest(item)
    status, other = file.stat(), file.with_name("other")
    other.write_bytes(file.read_bytes())
    _flip(other)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)


def _swapped(item: Path) -> None:
    """One leaf has the other's values in the database; no data file of before is touched."""
    base = {"driver": "file", "path": f"{item}/"}
    database = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    one, other = (
        next(key for key in database.list().result() if key[:1] == name and key[-1:] == b"0")
        for name in (b"a", b"b")
    )
    database.write(one, database.read(other).result().value).result()


def test_what_was_read_back_after_its_commit_is_not_read_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = _read_at_the_end(monkeypatch)
    report = surgery.apply(str(source), str(tmp_path / "new"), RESCALE)
    assert (report.checked, read) == (2, [])
    _assert_doubled(tmp_path / "new")


@pytest.mark.parametrize("deed", [_flipped, _exchanged, _swapped])
def test_what_is_another_thing_by_the_end_is_found(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: Callable[[Path], None]
) -> None:
    _finished_by(monkeypatch, deed)
    with pytest.raises((WriteError, RemovedError), match="read back"):
        surgery.apply(str(source), str(tmp_path / "place" / "new"), RESCALE)
    assert not (tmp_path / "place").exists()


def test_what_does_not_read_back_after_its_commit_never_gets_its_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk gives back something else from the first."""
    read = EarlyReads.read

    def spoiled(reads: EarlyReads, *given: Any) -> None:
        _flipped(reads.target)
        read(reads, *given)

    monkeypatch.setattr(EarlyReads, "read", spoiled)
    with pytest.raises(SurgeryError, match="read back"):
        surgery.apply(str(source), str(tmp_path / "place" / "new"), plan_of(
            [operation_from_options("rescale", {"at": "a", "by": "2"})]
        ))  # fmt: skip
    assert not (tmp_path / "place").exists()


def test_what_only_has_another_time_is_read_again_and_stands(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _finished_by(monkeypatch, lambda item: os.utime(_largest(item)))
    read = _read_at_the_end(monkeypatch)
    surgery.apply(str(source), str(tmp_path / "new"), RESCALE)
    assert set(read) <= {"a", "b"}
    assert read
    _assert_doubled(tmp_path / "new")


def test_all_but_what_was_written_last_leaves_the_cache_of_the_system(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was linked stays there: it is the source's."""
    gone: list[Path] = []
    monkeypatch.setattr(early_reads, "CACHED_BYTES", 20_000)
    monkeypatch.setattr(early_reads, "let_cached_go", gone.append)
    one = plan_of([operation_from_options("rescale", {"at": "a", "by": "2"})])
    surgery.apply(str(source), str(tmp_path / "one"), one, options=Options(memory_bytes=1))
    assert gone == []  # 16 KB
    linked = {file.stat().st_ino for file in (source / "d").iterdir()}
    surgery.apply(str(source), str(tmp_path / "new"), RESCALE, options=Options(memory_bytes=1))
    assert len(gone) == 1
    assert gone[0].parent.name == "d"
    _assert_doubled(tmp_path / "new")
    assert linked == {file.stat().st_ino for file in (source / "d").iterdir()}
