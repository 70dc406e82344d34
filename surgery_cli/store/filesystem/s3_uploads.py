"""Objects that S3 is given in parts; known for the own where the answer that they are whole by then was lost.

Whoever asks again whether an upload is whole is told by Amazon that it is, by others that there is no such upload
(`NoSuchUpload`), or that something stands there (412), if that was a condition.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.object_service import code_of

_MOST_PARTS: Final = 10_000
_PARTS_AT_ONCE: Final = 8
_CONDITION_FAILED: Final = ("412", "PreconditionFailed")


@contextmanager
def conditions_told() -> Iterator[None]:
    """FileExistsError where the condition of a request does not hold, whoever speaks S3 there."""
    try:
        yield
    except OSError as error:
        if code_of(error) in _CONDITION_FAILED:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        raise


class Upload:
    """s3fs's upload of a large object, piece by piece; ``tag``: asks for the ETag of what stands there."""

    def __init__(self, stream: Any, tag: Callable[[], str]) -> None:
        self._stream = stream
        self._tag = tag

    def write(self, piece: bytes) -> None:
        self._stream.write(piece)

    def discard(self) -> None:
        self._stream.discard()

    def close(self) -> None:
        """End it; where that fails, none of its parts stays."""
        try:
            with conditions_told():
                self._stream.close()
        except BaseException as error:
            is_refused = isinstance(error, FileExistsError | FileNotFoundError)
            if is_refused and self._tag() == _tag_of(self._stream.parts):
                return
            with suppress(OSError):
                self.discard()
            raise


def part_bytes(size: int, least: int) -> int:
    """How large the parts of an object are: as said, or larger where it would have too many."""
    return max(least, -(-size // _MOST_PARTS))


def made_in_parts(
    call: Callable[..., dict[str, Any]],
    place: dict[str, str],
    size: int,
    step: int,
    part: Callable[[int, int], tuple[str, dict[str, Any]]],
    condition: dict[str, Any],
) -> str:
    """Make an object that is larger than one request may make, ``step`` bytes at once; ``part``: the request that makes
    a range of it.

    It is there once all parts are, whole; if one of them fails, none of it stays. ``call`` asks the service. Gives the
    ETag.
    """
    upload = call("create_multipart_upload", **place)["UploadId"]

    def make(number: int) -> dict[str, Any]:
        start = (number - 1) * step
        method, asked = part(start, min(start + step, size))
        got = call(method, **place, UploadId=upload, PartNumber=number, **asked)
        found = got.get("CopyPartResult", got)
        return {"PartNumber": number, "ETag": found["ETag"]}

    try:
        with Threads(_PARTS_AT_ONCE, thread_name_prefix="surgery-part") as pool:
            made = list(pool.map(make, range(1, -(-size // step) + 1)))
        done = {"UploadId": upload, "MultipartUpload": {"Parts": made}}
        try:
            version = quoted(call("complete_multipart_upload", **place, **done, **condition))
        except (FileExistsError, FileNotFoundError):
            version = quoted(call("head_object", **place))
            if version != _tag_of(made):
                raise
    except BaseException:
        with suppress(OSError):
            call("abort_multipart_upload", **place, UploadId=upload)
        raise
    return version


def quoted(found: dict[str, Any]) -> str:
    """The ETag in an answer, in its quotes: services that speak S3 leave them out of some.

    >>> quoted({"ETag": "abc-2"}), quoted({"ETag": '"abc-2"'})
    ('"abc-2"', '"abc-2"')
    """
    return f'"{found["ETag"].strip(chr(34))}"'


def _tag_of(parts: Iterable[dict[str, Any]]) -> str | None:
    """The ETag of what is made of these: the MD5 of theirs, and how many; None where theirs are no MD5s."""
    digests = [part["ETag"].strip('"') for part in parts]
    try:
        of_all = hashlib.md5(b"".join(map(bytes.fromhex, digests)), usedforsecurity=False)
    except ValueError:
        return None
    return f'"{of_all.hexdigest()}-{len(digests)}"'
