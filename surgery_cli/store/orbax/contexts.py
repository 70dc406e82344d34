"""In which contexts TensorStore reads and writes, and what it says where a service fails and no byte is damaged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from surgery_cli.errors import ServiceFails
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.amazon_settings import endpoint_by_variable
from surgery_cli.store.filesystem.driver_credentials import mend_of
from surgery_cli.store.filesystem.google_settings import endpoint_in_force
from surgery_cli.store.filesystem.object_service import ELSEWHERE, EXPIRED, UNKNOWN

if TYPE_CHECKING:
    import tensorstore as ts

CACHE_BYTES: Final = 64 << 20
"""Bound of TensorStore's own cache, in bytes, for the tree nodes of a store; tensor bytes are not cached."""

VALUES_POOL: Final = "cache_pool#values"
"""The cache of decoded chunks, which keeps nothing: a block is read once, and its bytes count against a budget."""

POOLS: Final = {
    "cache_pool": {"total_bytes_limit": CACHE_BYTES},
    VALUES_POOL: {"total_bytes_limit": 0},
}
_RETRIES: Final = {"max_retries": 8, "initial_delay": "250ms", "max_delay": "16s"}
"""A service that fails for most of a minute is said to fail; by itself TensorStore tries for a quarter of an hour."""

_OF_SERVICE: Final = re.compile(
    r"^(ABORTED|UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED)\b"
    r"|http_response_code='(301|400|401|403|429|5..)'"
)


_ENDPOINTS: Final = {"gs": endpoint_in_force, "s3": endpoint_by_variable}
"""What tells where a service is, if the environment says so."""


def new_context() -> ts.Context:
    """A TensorStore context of its own: one that outlives a replaced path would serve stale nodes."""
    import tensorstore as ts

    return ts.Context({**POOLS, "gcs_request_retries": _RETRIES, "s3_request_retries": _RETRIES})


def first_line(error: Exception) -> str:
    """What TensorStore says, without what it adds for its own developers."""
    return str(error).split("\n", 1)[0][:300]


def failure_of_service(directory: Path, error: Exception) -> ServiceFails | None:
    """The error for a store in a bucket whose service does not answer, or says no; None where it is another."""
    said = str(error).split("\n", 1)[0]
    if not isinstance(directory, BucketPath):
        return None
    if mend := mend_of(said):
        why = f"TensorStore, which reads arrays, takes no such credentials: {said[:300]}"
        return ServiceFails(f"'{directory}' cannot be read", why=why, fix=mend)
    if not _OF_SERVICE.search(said):
        return None
    why = "the service fails, or says no, after several tries"
    fix = "run the command again later, or with other credentials; nothing of it was taken for an answer"
    if any(code in said for code in EXPIRED):
        why = "the credentials have expired"
    elif any(code in said for code in UNKNOWN):
        why = f"{directory.scheme.upper()} does not know these credentials"
    elif endpoint := _ENDPOINTS[directory.scheme]():
        why, fix = f"{why} ({endpoint.told})", f"{fix}; or correct {endpoint.place}"
    if any(code in said for code in ELSEWHERE[1:]):
        why = "the bucket is in another region, or at another endpoint"
        fix = "set AWS_DEFAULT_REGION to the bucket's own; nothing of it was taken for an answer"
    return ServiceFails(f"'{directory}' cannot be read", why=f"{why}: {said[:300]}", fix=fix)
