"""How long what services are asked for takes: an estimate, for the preview."""

from __future__ import annotations

from typing import Final

from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.filesystem.request_counts import Requests

_SECONDS: Final = 0.05
"""What a request takes beside its bytes, where it waits for the one before."""

_WAITING: Final = 64
"""So many requests around everything are taken to wait for one another."""

_AT_ONCE: Final = 8
"""Of thousands, for values and their documents, as many are under way at once, by servers' logs."""


def minutes(requests: Requests, bytes_per_second: int) -> float:
    """How long requests take: bytes that pass through this machine at the rate, and 50 ms for each that is waited for.

    >>> from surgery_cli.store.filesystem.request_counts import Asked
    >>> thousands = Requests(read=Asked(4000, 10**6), copied=Asked(2000, 0), other=40)
    >>> round(60 * minutes(thousands, 10**8))
    31
    """
    beside = requests.total - requests.copied.requests
    waits = min(beside, _WAITING) + requests.copied.requests / Buckets.at_once
    waits += max(beside - _WAITING, 0) / _AT_ONCE
    moved = requests.read.bytes + requests.written.bytes
    return (moved / bytes_per_second + _SECONDS * waits) / 60
