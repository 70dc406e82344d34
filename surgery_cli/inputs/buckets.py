"""Paths of objects in buckets: a type of their own, so that nobody has to guess from text where something lies."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path, PosixPath
from shlex import quote
from typing import Final, Self

SCHEMES: Final = ("gs", "s3")
"""The services whose addresses are paths: Google Cloud Storage, and what speaks Amazon's S3."""

STARTS: Final = tuple(f"{scheme}://" for scheme in SCHEMES)
_FIRST_PARTS: Final = tuple(f"{scheme}:" for scheme in SCHEMES)
_LONGEST: Final = {"gs": 222, "s3": 255}
_LABEL: Final = {
    "gs": re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"),
    "s3": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"),
}
"""What stands between the dots of a bucket's name; on `s3://` with what old buckets are called."""
_RESERVED: Final = re.compile(r"(?:xn--|sthree-).*|.*(?:-s3alias|--ol-s3)|\d+(?:\.\d+){3}")


def is_bucket_name(scheme: str, name: str) -> bool:
    """True if a service lets a bucket be called so, as TensorStore's drivers see it.

    >>> [is_bucket_name("gs", name) for name in ("runs-7", "Runs", "a..b", "my runs")]
    [True, False, False, False]
    """
    if not 3 <= len(name) <= _LONGEST[scheme] or not (name[0] + name[-1]).isalnum():
        return False
    if scheme == "s3" and _RESERVED.fullmatch(name):
        return False
    return all(_LABEL[scheme].fullmatch(label) for label in name.split("."))


class BucketPath(PosixPath):
    """``gs://bucket/folder/object``: lexically a path like any other, and always written with its two slashes.

    Two slashes never stand in the text of a path on a disk, so that the text alone tells the one from the other. Only
    the words of ``store.filesystem`` look at what stands there; ``Path``'s own questions are about disks.

    >>> path = BucketPath("gs://bucket/runs/") / "big"
    >>> str(path), str(path.parent), path.bucket, path.key, str(path.relative_to("gs://bucket"))
    ('gs://bucket/runs/big', 'gs://bucket/runs', 'bucket', 'runs/big', 'runs/big')
    >>> str(BucketPath("gs://bucket").parent), [str(above) for above in path.parents]
    ('gs://bucket', ['gs://bucket/runs', 'gs://bucket'])
    """

    def __str__(self) -> str:
        parts = self.parts
        if self._is_address:
            return f"{parts[0]}//{'/'.join(parts[1:])}"
        return "/".join(parts)  # what is relative to one

    @property
    def parent(self) -> Self:
        return self if self._is_top else super().parent

    @property
    def parents(self) -> Sequence[Self]:
        if self._is_top:
            return ()
        return tuple(
            path for path in super().parents if len(path.parts) > 1 or not self._is_address
        )

    @property
    def _is_address(self) -> bool:
        return bool(self.parts) and self.parts[0] in _FIRST_PARTS

    @property
    def _is_top(self) -> bool:
        """True for a bucket itself: as the root of a disk, it has nothing above it."""
        return self._is_address and len(self.parts) <= 2

    @property
    def scheme(self) -> str:
        return self.parts[0][:-1]

    @property
    def bucket(self) -> str:
        return self.parts[1] if len(self.parts) > 1 else ""

    @property
    def key(self) -> str:
        """The object's name in its bucket."""
        return "/".join(self.parts[2:])

    @property
    def prefix(self) -> str:
        """What the names of all in it begin with, as a folder."""
        return f"{self.key}/" if self.key else ""

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> Self:
        return self

    def expanduser(self) -> Self:
        return self

    def resolve(self, strict: bool = False) -> Self:
        return self


class ServiceRefusal(OSError):
    """A service does not give what was asked for, and how that can be mended; ``filename`` is the address."""

    def __init__(self, why: str, address: str, fix: str, *, is_answered: bool = False) -> None:
        """``is_answered``: it said so itself, before it did anything; else it may still do what was asked for."""
        super().__init__(errno.EIO, why, address)
        self.fix = fix
        self.is_answered = is_answered


class NoBucket(ServiceRefusal):
    """There is no such bucket, as far as is to be seen."""


class NothingThere(FileNotFoundError):
    """There is no object of that name; ``beside``: what its folder has."""

    def __init__(self, address: str, beside: list[str]) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), address)
        self.beside = beside


class Replaced(ServiceRefusal):
    """An object is no longer the one that was found under its name: nothing of the new one was read."""

    def __init__(self, address: str) -> None:
        super().__init__(
            "it was replaced or removed while it was read",
            address,
            "wait until whatever writes to it has ended, then run the command again",
        )


class StoredOtherwise(ServiceRefusal):
    """A service tells of what it was sent another digest than that has; ``version``: of the object that it has made."""

    def __init__(self, address: str, version: str) -> None:
        fix = "run the command again; where it comes again, ask who keeps the service"
        super().__init__("what it holds is not what was sent", address, fix)
        self.version = version


def removal(path: Path, *, is_object: bool = False) -> str:
    """The command that removes what stands at a path: all below it, or one object, of which `aws` takes no other."""
    if not isinstance(path, BucketPath):
        return f"{'rm' if is_object else 'rm -r'} {quote(str(path))}"
    command = {"gs": "gcloud storage rm", "s3": "aws s3 rm"}[path.scheme]
    if not is_object:
        command += {"gs": " -r", "s3": " --recursive"}[path.scheme]
    return f"{command} {quote(str(path))}"


def renaming(path: Path, to: Path) -> str:
    """The command that gives a file, or an object, another name, where nothing stands."""
    scheme = path.scheme if isinstance(path, BucketPath) else ""
    command = {"": "mv -n", "gs": "gcloud storage mv -n", "s3": "aws s3 mv"}[scheme]
    return f"{command} {quote(str(path))} {quote(str(to))}"


def path_at(text: str) -> Path:
    """The path that the text of an address names, on a disk or in a bucket; ``~`` is whose it says.

    Raises:
        RuntimeError: ``~name``, where nobody has that name.
    """
    return BucketPath(text) if text.startswith(STARTS) else Path(text).expanduser()
