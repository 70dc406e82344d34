"""How much a process must be allowed to map (`ulimit -v`, `-d`): with less, a library aborts it where it stands.

Known before any work: what the libraries map when they are loaded, and what their threads do that wait for a service.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from surgery_cli.errors import PlanError

_LEAST_ADDRESSES: Final = 320 << 20
_ADDRESSES_OF_A_CORE: Final = 40 << 20
_MOST_ADDRESSES: Final = 2 << 30
"""What the libraries map when they are loaded: below, they abort the process."""

_LEAST_DATA: Final = 96 << 20
_DATA_OF_A_CORE: Final = 32 << 20
_MOST_DATA: Final = 1 << 30
"""What of that counts as data."""

_OF_A_BUCKET: Final = 320 << 20
_THREADS_OF_A_BUCKET: Final = 48
_STACK: Final = 8 << 20
"""What comes with a bucket: an edit of 300 objects on two cores was seen with 50 threads, each with the stack that
`ulimit -s` says, and 905 MiB mapped. Where it cannot start one, TensorStore aborts the process, and what is half
written stays."""


def check_address_space(*, has_bucket: bool = False) -> None:
    """Refuse limits under which what a command does could not even begin.

    Raises:
        PlanError: so.
    """
    cores = os.cpu_count() or 1
    addresses = min(_LEAST_ADDRESSES + _ADDRESSES_OF_A_CORE * cores, _MOST_ADDRESSES)
    data = min(_LEAST_DATA + _DATA_OF_A_CORE * cores, _MOST_DATA)
    does, threads = "load the libraries that surgery needs", ""
    if has_bucket:
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        stack = _STACK if stack == resource.RLIM_INFINITY else stack
        more = _OF_A_BUCKET + _THREADS_OF_A_BUCKET * stack
        addresses, data = addresses + more, data + more
        does, threads = (
            "work with a bucket",
            ", with threads for what is asked of a service at once",
        )
    for kind, option, needed, what in (
        (resource.RLIMIT_AS, "-v", addresses, "addresses"),
        (resource.RLIMIT_DATA, "-d", data, "data"),
    ):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < needed:
            raise PlanError(
                f"`ulimit {option} {limit >> 10}` is not enough to {does}",
                why=f"they map about {needed >> 20:,} MiB of {what} on this machine{threads}",
                fix=f"`ulimit {option} {needed >> 10}`, or none",
            )
