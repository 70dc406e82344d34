"""Objects of a service as files: ranges are read, and what is written is there once it is whole."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from io import RawIOBase
from types import TracebackType
from typing import Any, Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.object_service import (
    STREAMED_BYTES,
    ObjectService,
    StoredObject,
)
from surgery_cli.store.filesystem.read_ahead import ReadAhead
from surgery_cli.store.filesystem.to_the_end import to_the_end

ASKED_AT_ONCE: Final = 8 << 20
"""What a reader asks for at most at once."""


def read_name(path: BucketPath, found: StoredObject) -> str:
    """What ``ReadAhead`` calls this version of an object."""
    return f"{path}\0{found.version}"


class ObjectReader(RawIOBase):
    """Reads ranges of an object."""

    def __init__(
        self, service: ObjectService, ahead: ReadAhead, path: BucketPath, found: StoredObject
    ) -> None:
        self._service = service
        self._ahead = ahead
        self._path = path
        self._found = found
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._found.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(ASKED_AT_ONCE) or b"", b""))

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._at + min(len(view), ASKED_AT_ONCE), self._found.size)
        if stop <= self._at:
            return 0
        try:
            name = read_name(self._path, self._found)
            got = self._ahead.read(name, self._found.size, self._at, stop, self._fetch)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), str(self._path)
            ) from None
        view[: len(got)] = got
        self._at += len(got)
        return len(got)

    def _fetch(self, start: int, stop: int) -> bytes:
        return self._service.read(self._path.bucket, self._found, start, stop)


def read_range(file: Any, count: int) -> bytes:
    """So many bytes from where a file stands, or all that there are."""
    pieces = []
    while count > 0 and (piece := file.read(count)):
        pieces.append(piece)
        count -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class NewObject(io.BytesIO):
    """An object in the making: it is there, whole, once this is closed; never if the writing failed.

    ``put`` makes it if it is small, and what is larger goes through ``stream`` in pieces of one length, each of them a
    request; ``changed`` is called then.
    """

    def __init__(
        self,
        path: BucketPath,
        put: Callable[[BucketPath, bytes, bool], str],
        stream: Callable[[BucketPath, bool], Any],
        changed: Callable[[BucketPath], None],
        *,
        exclusively: bool,
    ) -> None:
        super().__init__()
        self._path = path
        self._put = put
        self._begin = stream
        self._changed = changed
        self._exclusively = exclusively
        self._stream: Any = None

    def write(self, piece: Any) -> int:
        count = super().write(piece)
        if self.tell() >= STREAMED_BYTES:
            if self._stream is None:
                self._stream = self._begin(self._path, self._exclusively)
            with self.getbuffer() as held:
                whole = len(held) - len(held) % STREAMED_BYTES
                for start in range(0, whole, STREAMED_BYTES):
                    self._stream.write(bytes(held[start : start + STREAMED_BYTES]))
                rest = bytes(held[whole:])
            self.seek(0)
            self.truncate()
            super().write(rest)
        return count

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            if self._stream is not None:
                self._stream.discard()
            super().close()
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        if self._stream is not None:
            self._stream.write(content)
            to_the_end(self._stream.close)
        else:
            self._put(self._path, content, self._exclusively)
        self._changed(self._path)
