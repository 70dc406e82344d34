"""Transactions of TensorStore that are over when they are left, and the order in which they come to an end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
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


class Turns:
    """Lets several threads do what was begun in an order in that order."""

    def __init__(self) -> None:
        self._last: Future[None] | None = None

    def take(self) -> Turn:
        """The turn after the one that was taken last; of all of them it must come to an end."""
        turn = Turn(self._last)
        self._last = turn.over
        return turn


class Turn:
    """One of them. One that fails fails those that wait for it."""

    def __init__(self, before: Future[None] | None) -> None:
        self._before = before
        self.over: Future[None] = Future()

    @contextmanager
    def taken(self, *, waits: bool = True) -> Iterator[None]:
        """Once the one before is over, unless this one need not wait; it is over at the end of the block."""
        try:
            if waits and self._before is not None:
                self._before.result()
            yield
        except BaseException as error:
            self.fail(error)
            raise
        self.over.set_result(None)

    def fail(self, error: BaseException) -> None:
        """It will not come."""
        self.over.set_exception(error)
