"""Files written from begin to end are read back as they grow; what is another thing by the end is found then."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file

from surgery_cli import surgery
from surgery_cli.errors import RemovedError, SurgeryError, WriteError
from surgery_cli.planning import Plan, operation_from_options, plan_of
from surgery_cli.proof import result
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.store.export import growing_files
from surgery_cli.store.export.growing_files import GrowingFiles
from surgery_cli.store.export.sequential import SequentialWriter

RANDOM = np.random.default_rng(3)
TREE = {name: RANDOM.normal(size=(64, 64)).astype(np.float32) for name in "abc"}
BLOCK_BY_BLOCK = Options(memory_bytes=1)


def _doubling(**output: Any) -> Plan:
    edit = operation_from_options("rescale", {"at": "**", "by": "2"})
    return plan_of([edit], output=Export(**output))


@pytest.fixture
def source(tmp_path: Path) -> str:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", TREE)
    return str(tmp_path / "source")


def _assert_doubled(files: list[Path]) -> None:
    found = {name: values for file in files for name, values in load_file(file).items()}
    assert found.keys() == TREE.keys()
    for name, values in TREE.items():
        np.testing.assert_array_equal(found[name], values * np.float32(2))


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
    """Let ``deed`` be done to the file once all of it was written, and read back."""
    finish = SequentialWriter.finish

    def spoiled(writer: SequentialWriter) -> None:
        finish(writer)
        deed(writer.target)

    monkeypatch.setattr(SequentialWriter, "finish", spoiled)


def _flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    with file.open("r+b") as stream:
        stream.write(content)


def _exchanged(file: Path) -> None:
    """Another file of the same name, size and time."""
    status, other = file.stat(), file.with_name("other")
    other.write_bytes(file.read_bytes())
    _flipped(other)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)


def _swapped(file: Path) -> None:
    """One leaf is said to stand where another does; nothing but the header tells of it."""
    status, content = file.stat(), file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["a"], header["b"] = header["b"], header["a"]
    with file.open("r+b") as stream:
        stream.seek(8)
        stream.write(json.dumps(header, separators=(",", ":")).encode().ljust(length))
    assert file.stat().st_size == status.st_size
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(("shard", "files"), [(None, 1), ("20kB", 3), ("40kB", 2)])
def test_what_was_read_back_as_it_was_written_is_not_read_again(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: str | None, files: int
) -> None:
    read = _read_at_the_end(monkeypatch)
    report = surgery.apply(
        source, str(tmp_path / "new"), _doubling(format="safetensors", shard=shard)
    )
    assert (report.checked, read) == (3, [])
    found = sorted((tmp_path / "new").glob("*.safetensors"))
    assert len(found) == files
    _assert_doubled(found)


def test_a_format_with_checksums_is_read_whole_at_the_end(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = _read_at_the_end(monkeypatch)
    surgery.apply(source, str(tmp_path / "new.npz"), _doubling(format="npz"))
    assert sorted(read) == ["a", "b", "c"]


@pytest.mark.parametrize("options", [Options(), BLOCK_BY_BLOCK], ids=["at once", "block by block"])
@pytest.mark.parametrize("deed", [_flipped, _exchanged, _swapped])
def test_what_is_another_thing_by_the_end_is_found(
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deed: Callable[[Path], None],
    options: Options,
) -> None:
    _finished_by(monkeypatch, deed)
    new = tmp_path / "place" / "new.safetensors"
    with pytest.raises((WriteError, RemovedError), match="read back"):
        surgery.apply(source, str(new), _doubling(format="safetensors"), options=options)
    assert not new.parent.exists()


def test_what_does_not_read_back_as_it_is_written_never_gets_its_name(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk gives back something else from the first."""
    read = GrowingFiles.read

    def spoiled(reads: GrowingFiles, leaf: Any, *given: Any) -> None:
        if str(leaf.path) == "c":
            file = reads._arrays[leaf.path].path
            status = file.stat()
            _flipped(file)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        read(reads, leaf, *given)

    monkeypatch.setattr(GrowingFiles, "read", spoiled)
    new = tmp_path / "place" / "new.safetensors"
    with pytest.raises(SurgeryError, match="read back"):
        surgery.apply(source, str(new), _doubling(format="safetensors"))
    assert not new.parent.exists()


def test_what_others_write_to_a_file_while_it_grows_is_found(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one block was read back, and before the next is written."""
    growing, files = GrowingFiles.growing, set[Path]()

    def spoiled(reads: GrowingFiles, paths: Any) -> Any:
        for file in list(reads._standing):
            if file not in files:
                files.add(file)
                _flipped(file)
        return growing(reads, paths)

    monkeypatch.setattr(GrowingFiles, "growing", spoiled)
    new = tmp_path / "place" / "new.safetensors"
    with pytest.raises(WriteError, match="read back"):
        surgery.apply(source, str(new), _doubling(format="safetensors"), options=BLOCK_BY_BLOCK)
    assert files
    assert not new.parent.exists()


def test_what_only_has_another_time_is_read_again_and_stands(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _finished_by(monkeypatch, os.utime)
    read = _read_at_the_end(monkeypatch)
    new = tmp_path / "new.safetensors"
    surgery.apply(source, str(new), _doubling(format="safetensors"))
    assert sorted(read) == ["a", "b", "c"]
    _assert_doubled([new])


def test_all_but_what_was_written_last_leaves_the_cache_of_the_system(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[str] = []
    monkeypatch.setattr(growing_files, "CACHED_BYTES", 20_000)
    monkeypatch.setattr(
        growing_files, "let_cached_go", lambda file, written: gone.append((file.name, written))
    )
    plan = _doubling(format="safetensors", shard="20kB")
    surgery.apply(source, str(tmp_path / "new"), plan, options=BLOCK_BY_BLOCK)
    assert gone == [(f"model-{number:05d}-of-00003.safetensors", True) for number in (1, 2)]
    _assert_doubled(sorted((tmp_path / "new").glob("*.safetensors")))
