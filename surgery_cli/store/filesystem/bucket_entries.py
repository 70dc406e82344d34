"""What is told of objects and folders of a bucket, as a disk tells it of files."""

from __future__ import annotations

import hashlib
import stat
from typing import Final

import msgspec

from surgery_cli.inputs.buckets import BucketPath, ServiceRefusal
from surgery_cli.store.filesystem.bucket_listings import Folder
from surgery_cli.store.filesystem.object_service import StoredObject
from surgery_cli.store.filesystem.protocol import Entry

_NO_NAMES: Final = frozenset({"", ".", ".."})
"""Between slashes of an object's name they are names like others; in a path they are nothing, or a way."""


class BucketStatus(msgspec.Struct, frozen=True):
    """What is known of an object or folder, by the names of ``os.stat_result``."""

    st_mode: int
    st_size: int
    st_mtime_ns: int
    st_dev: int
    st_ino: int
    st_nlink: int = 1
    digest: str = ""
    """Of what an object holds, as its copies have it; '' if the service does not tell."""


class BucketEntry(msgspec.Struct, frozen=True):
    """Something that stands in a folder of a bucket, as its listing tells."""

    name: str
    place: str
    size: int
    is_folder: bool
    is_link: bool = False
    digest: str = ""
    """See ``BucketStatus``."""

    @property
    def is_file(self) -> bool:
        return not self.is_folder


def entries_of(folder: str, standing: Folder) -> list[Entry]:
    """What stands in a folder, by name.

    Raises:
        ServiceRefusal: objects there have names that no path has: by any path, others would be looked at.
    """
    for odd in _NO_NAMES & standing.keys():
        raise ServiceRefusal(
            f"objects there have names that no path has, such as '{folder}/{odd}/…'",
            folder,
            "give them other names, or remove them, with the service's own tools",
        )
    return [
        BucketEntry(name, f"{folder}/{name}", 0, is_folder=True)
        if found is None
        else BucketEntry(name, f"{folder}/{name}", found.size, False, digest=found.digest)
        for name, found in sorted(standing.items())
    ]


def status_of(path: BucketPath, found: StoredObject | None) -> BucketStatus:
    """What is known of the object at a path; None is a folder."""
    device = number_at(f"{path.scheme}://{path.bucket}")
    if found is None:
        return BucketStatus(stat.S_IFDIR | 0o755, 0, 0, device, number_at(f"{path.key}/"))
    number, mode = number_of(found.key, found.version), stat.S_IFREG | 0o644
    return BucketStatus(mode, found.size, found.mtime_ns, device, number, digest=found.digest)


def number_of(key: str, version: str) -> int:
    """Every new object has a version of its own, and another key is another object."""
    return number_at(f"{key}\0{version}")


def number_at(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
