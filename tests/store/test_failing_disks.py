"""A disk that fails says nothing of the file: wherever it does, the archive is not called damaged, nor no archive."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.files.npy_arrays import npz_entries, unpacked
from surgery_cli.store.files.torch_archive import TorchArchive
from surgery_cli.store.locate.file_formats import zip_names
from tests.fixture_truths import FIXTURES

LOOKS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "names": ("npz", zip_names),
    "entries": ("npz", npz_entries),
    "stored": ("npz", lambda path: unpacked(path, "w.npy")),
    "deflated": ("deflated", lambda path: unpacked(path, "w.npy")),
    "torch": ("pt", lambda path: TorchArchive(path).entries),
}


class Failing(io.RawIOBase):
    """A file of which one read fails, and all after it."""

    def __init__(self, path: Path, good: int) -> None:
        self._file, self.left = path.open("rb", buffering=0), good

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def readinto(self, into: Any) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._file.readinto(into)

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    values = {"w": np.arange(40_000, dtype=np.float32), "b": np.ones(9)}
    np.savez(tmp_path / "a.npz", **values)
    np.savez_compressed(tmp_path / "c.npz", **values)
    return {
        "npz": tmp_path / "a.npz",
        "deflated": tmp_path / "c.npz",
        "pt": FIXTURES / "torch/state.pt",
    }


@pytest.mark.parametrize("look", LOOKS)
def test_a_read_that_fails_is_told_as_that(look, files, monkeypatch):
    kind, looks = LOOKS[look]
    opened: list[Failing] = []
    good = 0
    while True:

        def reader(path: Path, good: int = good) -> io.BufferedReader:
            opened.append(Failing(Path(path), good))
            return io.BufferedReader(opened[-1])

        monkeypatch.setattr(filesystem, "reader", reader)
        opened.clear()
        try:
            looks(files[kind])
        except CheckpointError as error:
            (problem,) = error.problems
            assert (problem.what, problem.why) == (
                f"'{files[kind]}' cannot be read",
                os.strerror(errno.EIO),
            )
        else:
            assert all(one.left >= 0 for one in opened)
            break
        good += 1
    assert good > 1
