"""Transactions of TensorStore that are over when they are left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def atomic() -> Iterator[Any]:
    """An atomic transaction, which is committed at the end of the block, and given up where that fails."""
    import tensorstore as ts

    transaction = ts.Transaction(atomic=True)
    try:
        yield transaction
    except BaseException:
        transaction.abort()
        raise
    commit(transaction)


def commit(transaction: Any) -> None:
    """Commit a transaction. A signal ends the command only once that is over.

    What is written later would stand where all was removed.
    """
    committing = transaction.commit_async()
    try:
        committing.result()
    except BaseException:
        with suppress(Exception):
            committing.result()
        raise
