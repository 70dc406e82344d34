"""What a command asks of a bucket before anything else, and what it will read of what stands there."""

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
