"""The services that keep buckets, each once: what is asked of it is counted."""

from __future__ import annotations

from typing import Final

from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.filesystem.google_storage import GoogleStorage
from surgery_cli.store.filesystem.request_counts import CountedService

SERVICES: Final[dict[str, CountedService]] = {
    service.scheme: CountedService(service) for service in (GoogleStorage(), AmazonS3())
}
"""By what addresses begin with, before ``://``."""
