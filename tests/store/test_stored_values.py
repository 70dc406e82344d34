"""Stored values are read, compared and copied in pieces."""

from pathlib import Path

import pytest

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.orbax import stored_values
from surgery_cli.store.orbax.stored_values import FileRange, are_same, pieces, whole

CONTENT = bytes(range(256)) * 50


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_values, "PIECE_BYTES", 1000)


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_range_of_a_file_is_the_bytes_that_stand_there(tmp_path: Path) -> None:
    value = FileRange(_file(tmp_path / "a", CONTENT), 700, 3001)
    assert whole(value) == CONTENT[700:3701]
    filesystem.write(tmp_path / "copy", pieces(value))
    assert (tmp_path / "copy").read_bytes() == CONTENT[700:3701]


@pytest.mark.parametrize("length", [0, 1, 1000, 2500])
def test_ranges_are_the_same_if_all_their_bytes_are(tmp_path: Path, length: int) -> None:
    a = FileRange(_file(tmp_path / "a", CONTENT), 512, length)
    b = FileRange(_file(tmp_path / "b", b"-" + CONTENT[512:]), 1, length)
    assert are_same(a, b)
    assert are_same(a, CONTENT[512 : 512 + length])
    assert not are_same(a, FileRange(b.path, 1, length + 1))


@pytest.mark.parametrize("place", [0, 999, 1000, 2499])
def test_one_byte_that_differs_is_seen(tmp_path: Path, place: int) -> None:
    other = bytearray(CONTENT)
    other[place] ^= 1
    a = FileRange(_file(tmp_path / "a", CONTENT), 0, 2500)
    b = FileRange(_file(tmp_path / "b", bytes(other)), 0, 2500)
    assert not are_same(a, b)


def test_a_file_that_ends_early_or_is_gone_is_damage(tmp_path: Path) -> None:
    short = FileRange(_file(tmp_path / "a", CONTENT[:2400]), 0, 2500)
    for use in (
        whole,
        lambda v: filesystem.write(tmp_path / "copy", pieces(v)),
        lambda v: are_same(v, v),
    ):
        with pytest.raises(CheckpointError, match="truncated"):
            use(short)
    with pytest.raises(CheckpointError, match="is gone"):
        whole(FileRange(tmp_path / "missing", 0, 1))
