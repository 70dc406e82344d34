"""The practical limit: a bare loop of TensorStore over all arrays, without metadata, digests or verification.

`loop.py TASK SRC [DST] [--donor OTHER]`. Reads and writes every array, one transaction for every 32 MB, which commits
while the next one fills; `read` only reads.
"""

import argparse
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import tensorstore as ts

TRANSACTION_BYTES = 32e6


class Database:
    def __init__(self, directory: Path) -> None:
        base = {"driver": "file", "path": f"{directory.resolve()}/"}
        self.spec = {"driver": "ocdbt", "base": base}
        self.context = ts.Context(
            {"cache_pool": {"total_bytes_limit": 1 << 26}, "cache_pool#values": {}}
        )
        self.store = ts.KvStore.open(self.spec, context=self.context).result()

    def names(self) -> list[str]:
        suffix = b"/.zarray"
        keys = self.store.list().result()
        return sorted(key.removesuffix(suffix).decode() for key in keys if key.endswith(suffix))

    def open(self, name: str, **options: object) -> ts.TensorStore:
        spec = {
            "driver": "zarr",
            "cache_pool": "cache_pool#values",
            "kvstore": {**self.spec, "path": f"{name}/"},
        }
        metadata = options.pop("metadata", None)
        if metadata is not None:
            spec["metadata"] = metadata
            spec["store_data_equal_to_fill_value"] = True
        return ts.open(spec, context=self.context, **options).result()

    def read(self, name: str) -> np.ndarray:
        return self.open(name, open=True).read().result()


def edited(task: str, name: str, values: np.ndarray, donor: Database | None) -> np.ndarray:
    if values.dtype != np.float32:
        return values
    if task == "bfloat16":
        return values.astype(ml_dtypes.bfloat16)
    if task == "average":
        assert donor is not None
        return (values + donor.read(name)) / 2
    if task == "kernels" and name.startswith("params."):
        return values * np.float32(0.5)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["kernels", "bfloat16", "average", "read"])
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path, nargs="?")
    parser.add_argument("--donor", type=Path)
    arguments = parser.parse_args()

    source = Database(arguments.source)
    donor = Database(arguments.donor) if arguments.donor else None
    if arguments.task == "read":
        for name in source.names():
            source.read(name)
        return
    target = Database(arguments.destination)
    transaction, held, committing = ts.Transaction(atomic=True), 0, None
    for name in source.names():
        values = edited(arguments.task, name, source.read(name), donor)
        metadata = json.loads(source.store[f"{name}/.zarray"])
        if values.dtype == ml_dtypes.bfloat16:
            metadata["dtype"] = "bfloat16"
        array = target.open(name, metadata=metadata, create=True, transaction=transaction)
        array.write(values, can_reference_source_data_indefinitely=True).result()
        held += values.nbytes
        if held > TRANSACTION_BYTES:
            if committing is not None:
                committing.result()
            committing = transaction.commit_async()
            transaction, held = ts.Transaction(atomic=True), 0
    if committing is not None:
        committing.result()
    transaction.commit_async().result()


if __name__ == "__main__":
    main()
