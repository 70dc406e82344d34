"""The digest that a service tells of what a file holds, with each listing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.protocol import Entry, Status

MD5: Final = "md5:"
_TELL_MD5: Final = frozenset({"gs"})
"""S3's tags of what it has encrypted look like an MD5, and are none."""
_LETTERS_OF_MD5: Final = 24
"""In base 64. Of what was put together from parts another digest is told, which its copies lack."""


def told_md5(place: Path, seen: Entry | Status) -> str:
    """The MD5 of what a file holds, if a service tells it; '' elsewhere, on a disk, too."""
    digest: str = getattr(seen, "digest", "")
    tells = isinstance(place, BucketPath) and place.scheme in _TELL_MD5
    return f"{MD5}{digest}" if tells and len(digest) == _LETTERS_OF_MD5 else ""
