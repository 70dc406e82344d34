"""What a command asks of a bucket before anything else, what it will read of what stands there, and with what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.bucket_listings import Listings
from surgery_cli.store.filesystem.object_service import Page, StoredObject
from surgery_cli.store.filesystem.protocol import Documents
from surgery_cli.store.filesystem.read_ahead import FETCHED_BYTES


def begin(
    path: BucketPath,
    listings: Listings,
    documents: Documents,
    read: Callable[[BucketPath, StoredObject], None],
) -> None:
    """Ask for what stands at a path and around it; then ``read`` those small files in it that are ``documents``."""
    in_background(_read_documents, path, listings.begin(path.key), documents, read)


def _read_documents(
    path: BucketPath,
    coming: Future[Page],
    documents: Documents,
    read: Callable[[BucketPath, StoredObject], None],
) -> None:
    read_among(path, coming.result().objects, documents, read)
    # TensorStore asks for parts of NumPy past its lock, which the main thread may be loading: all of it comes first
    import numpy  # noqa: F401, ICN001
    import tensorstore  # noqa: F401 - a fiftieth of a second, while nobody can go on before these documents are there


def read_among(
    path: BucketPath,
    standing: Iterable[StoredObject],
    documents: Documents,
    read: Callable[[BucketPath, StoredObject], None],
) -> None:
    """``read`` those small files in a folder that are ``documents`` among what stands in it."""
    below = f"{path.key}/"
    found = {one.key.removeprefix(below): one for one in standing if one.key.startswith(below)}
    for name in documents(list(found)):
        if 0 < found[name].size < FETCHED_BYTES:
            in_background(read, path / name, found[name])
