"""Tasks of a few threads within a budget of bytes, and the transactions that they fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from surgery_cli.engine.budget import WORKERS, Budget
from surgery_cli.store.filesystem.interruptions import Threads

COMMITS = 2
"""Transactions on their way at once: one is encoded while the disk or the service takes the other."""

BATCH_BYTES = 128 << 20
"""A transaction holds no more than this, whatever the budget: larger ones only delay what overlaps with them."""


def batch_bytes(memory_bytes: int) -> int:
    """What a transaction holds when it is committed."""
    return max(min(memory_bytes // 6, BATCH_BYTES), 1)


class _Batch:
    """A transaction: its blocks in the making, and the bytes that it holds until it is committed."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.opened = context.__enter__()
        self.tasks: list[Future[None]] = []
        self.held_bytes = 0


class _AtOnce(Executor):
    """Does what it is given at once, in the thread that gives it."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            done.set_exception(error)
        return done


class Stream:
    """Blocks are worked on by a few threads, in order; others commit transactions while the next one fills.

    A block counts against the budget from before it is read until its transaction is committed. ``is_alone``: one after
    the other, in this thread; for code of the user's, which may change the whole process while it runs. ``commits``: so
    many are on their way at once; what of them must come in an order is for who commits them to see to.
    """

    def __init__(
        self, memory_bytes: int, *, is_alone: bool = False, commits: int = COMMITS
    ) -> None:
        self.is_alone = is_alone
        self._count_commits = commits
        self.budget = Budget(max(memory_bytes, 1))
        # one transaction fills while others are committed, and blocks are in the making beside them
        self._batch_bytes = batch_bytes(memory_bytes)
        self._batch: _Batch | None = None
        self._running: set[Future[Any]] = set()
        self._commits: set[Future[Any]] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._pool = stack.enter_context(self._threads(WORKERS, "surgery"))
            self._committer = stack.enter_context(
                self._threads(self._count_commits, "surgery-commit")
            )
            self._stack = stack.pop_all()
        return self

    @contextmanager
    def working(self) -> Iterator[None]:
        """As entering it; what fails inside lets nothing be begun, and nothing be committed that is not on its way."""
        with self:
            try:
                yield
            except BaseException as error:
                self.abandon(error)
                raise

    def _threads(self, count: int, name: str) -> Executor:
        return _AtOnce() if self.is_alone else Threads(count, thread_name_prefix=name)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, held: int, work: Callable[..., Any], *given: Any) -> Future[Any]:
        """Let ``work`` be done once there is room for what it holds meanwhile, ``held`` bytes."""
        self._take(held)
        return self._submitted(self._pool.submit(self._within, held, work, given))

    def fill(
        self,
        held: int,
        pending: int,
        batch: Callable[[], Any],
        work: Callable[..., Any],
        *given: Any,
        begin: Callable[[Any], None] | None = None,
    ) -> None:
        """As ``start``, with the open transaction in front of what is ``given``; ``batch`` opens one if there is none.

        ``pending`` bytes more are held until it is committed. ``begin`` is done with it first.
        """
        self._take(held + pending)
        if self._batch is None:
            self._batch = _Batch(batch())
        if begin is not None:
            begin(self._batch.opened)
        self._batch.held_bytes += pending
        task = self._pool.submit(self._within, held, work, (self._batch.opened, *given))
        self._batch.tasks.append(task)
        self._submitted(task)
        if self._batch.held_bytes >= self._batch_bytes:
            self._close()

    def hold(self, held: int) -> None:
        """Wait until there is room for ``held`` bytes more, which stay until they are given back to the budget."""
        self._take(held)

    def finish(self) -> None:
        """Commit what is open, and wait for everything."""
        self._close()
        self._wait()

    def abandon(self, error: BaseException) -> None:
        """Start nothing more, wait for what runs, and drop the filling transaction."""
        for task in self._running - self._commits:
            task.cancel()
        wait(self._running)
        if self._batch is not None:
            self._batch.context.__exit__(type(error), error, error.__traceback__)

    def _within(self, held: int, work: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        try:
            return work(*given)
        finally:
            self.budget.give(held)

    def _take(self, count: int) -> None:
        """Wait until the budget has room for ``count`` bytes; what is larger than all of it goes alone."""
        while not self.budget.take(count):
            if not self._running:
                self._close()  # only what waits for its commit is still held
            self._wait(until=FIRST_COMPLETED)

    def _submitted(self, task: Future[Any]) -> Future[Any]:
        self._running.add(task)
        if len(self._running) > 8 * WORKERS:
            self._wait(until=FIRST_COMPLETED)
        return task

    def _wait(self, until: str = "ALL_COMPLETED") -> None:
        done, self._running = wait(self._running, return_when=until)
        for task in done:
            task.result()

    def _close(self) -> None:
        """Let the filling transaction be committed, once its blocks are there."""
        if self._batch is not None:
            commit = self._committer.submit(self._commit, self._batch)
            self._commits.add(commit)
            self._submitted(commit)
            self._batch = None

    def _commit(self, batch: _Batch) -> None:
        wait(batch.tasks)  # one that is still written would fail once the transaction is gone
        try:
            for task in batch.tasks:
                task.result()
        except BaseException as error:
            batch.context.__exit__(type(error), error, error.__traceback__)
            raise
        batch.context.__exit__(None, None, None)
        self.budget.give(batch.held_bytes)
