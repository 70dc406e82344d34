"""What one host reads of stored arrays, as TensorStore counts it: run as a process of its own.

No chunk is kept, but where several devices of the host need one.
"""

import json
import sys
from typing import Any

import tensorstore as ts

READ = "/tensorstore/kvstore/file/bytes_read"


def bytes_read() -> int:
    return sum(
        value["value"]
        for metric in ts.experimental_collect_matching_metrics(READ)
        for value in metric["values"]
    )


def windows_read(
    path: str, driver: str, arrays: dict[str, list[Any]], *, ocdbt: bool, kept: int
) -> int:
    """Bytes of chunks that reading these windows takes; what leads to the chunks is known before."""
    pools = {
        "cache_pool": {"total_bytes_limit": 1 << 28},
        "cache_pool#values": {"total_bytes_limit": kept},
    }
    context = ts.Context(pools)
    base = {"driver": "file", "path": f"{path}/"}
    store = ts.KvStore.open(
        {"driver": "ocdbt", "base": base} if ocdbt else base, context=context
    ).result()
    opened = {}
    for name in arrays:
        spec = {
            "driver": driver,
            "kvstore": (store / f"{name}/").spec().to_json(),
            "cache_pool": "cache_pool#values",
            "recheck_cached_metadata": False,
        }
        opened[name] = ts.open(spec, open=True, read=True, context=context).result()
    if ocdbt:
        store.list().result()
    before = bytes_read()
    for name, windows in arrays.items():
        for window in windows:
            opened[name][tuple(slice(*ends) for ends in window)].read().result()
    return bytes_read() - before


if __name__ == "__main__":
    json.dump([windows_read(**each) for each in json.load(sys.stdin)], sys.stdout)
