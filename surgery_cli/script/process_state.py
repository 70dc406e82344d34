"""What a file of the user's changes of the process while it runs: given back to us when it has run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from surgery_cli.inputs.ending_signals import ENDING
from surgery_cli.script import exits
from surgery_cli.store.filesystem.modes import umask

_SIGNALS: Final = (*ENDING, signal.SIGALRM)
"""Those by which a command ends, or says that it will."""

_CHECKS: Final[dict[str, Any]] = {
    "jax_debug_nans": False,
    "jax_debug_infs": False,
    "jax_numpy_rank_promotion": "allow",
    "jax_numpy_dtype_promotion": "standard",
    "jax_transfer_guard": None,
    "jax_transfer_guard_host_to_device": None,
    "jax_transfer_guard_device_to_host": None,
    "jax_transfer_guard_device_to_device": None,
}
"""Settings of JAX that refuse what is right elsewhere, and their defaults."""


class ProcessState:
    """The working directory, the standard streams, and settings that code after the block would feel.

    Training scripts go to their own folder, turn warnings into errors, catch SIGTERM. Paths that come after would
    name other files, and edits that only round would fail. A file finds its own directory again in its next block.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._checks: dict[str, Any] = {}
        self._streams: tuple[TextIO, TextIO] | None = None

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """While the block runs: what it changes holds; what it prints, and what it starts prints, on standard error."""
        with contextlib.ExitStack() as kept:
            kept.enter_context(_descriptor_aside())
            kept.enter_context(self._streams_aside())
            kept.enter_context(self._own_directory())
            kept.enter_context(self._own_checks())
            kept.enter_context(_numeric_errors())
            kept.enter_context(warnings.catch_warnings())
            kept.enter_context(_signals())
            kept.enter_context(exits.closed())
            kept.callback(os.umask, umask())
            yield

    @contextlib.contextmanager
    def _own_directory(self) -> Iterator[None]:
        before = Path.cwd()
        if self._directory is not None:
            os.chdir(self._directory)
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):  # it removed the one in which it stood
                self._directory = Path.cwd()
            os.chdir(before)

    @contextlib.contextmanager
    def _own_checks(self) -> Iterator[None]:
        before = _checks() or _CHECKS
        _set_checks(self._checks)
        try:
            yield
        finally:
            self._checks = _checks()
            _set_checks(before)

    @contextlib.contextmanager
    def _streams_aside(self) -> Iterator[None]:
        """Streams of the block's own, which it may close or replace, both to standard error."""
        before = sys.stdout, sys.stderr
        if self._streams is None or any(stream.closed for stream in self._streams):
            self._streams = _double(sys.stderr), _double(sys.stderr)  # loggers keep them
        sys.stdout, sys.stderr = self._streams
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def _double(stream: TextIO) -> TextIO:
    """Another stream to the same file; the stream itself where no file is behind it, as in a notebook."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return stream
    return open(
        number,
        "w",
        buffering=1,
        encoding=stream.encoding,
        errors=stream.errors,
        closefd=False,
    )


def _checks() -> dict[str, Any]:
    """The checks of JAX as they are now; none where it is not loaded."""
    jax = sys.modules.get("jax")
    return {name: getattr(jax.config, name) for name in _CHECKS} if jax is not None else {}


def _set_checks(wanted: Mapping[str, Any]) -> None:
    now = _checks()
    for name in wanted.keys() & now.keys():
        if now[name] != wanted[name]:
            sys.modules["jax"].config.update(name, wanted[name])


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """While the block runs, JAX refuses nothing that the user's settings would: for measuring among their code."""
    before = _checks()
    _set_checks(_CHECKS)
    try:
        yield
    finally:
        _set_checks(before)


@contextlib.contextmanager
def _descriptor_aside() -> Iterator[None]:
    """Descriptor 1 is standard error: programs that the block starts, and libraries in C, know no ``sys.stdout``."""
    try:
        sys.stdout.flush()
        real = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError):  # a host program without them
        yield
        return
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(real, 1)
        os.close(real)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)


@contextlib.contextmanager
def _numeric_errors() -> Iterator[None]:
    import numpy as np

    with np.errstate():
        yield


class SearchPath:
    """The folders of a file, and what the file itself puts on ``sys.path``: a function may import when it is called."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._own = list(dict.fromkeys(folders))
        self._first: list[str] = []
        self._last: list[str] = []

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Have it on ``sys.path`` while the block runs, and note what the block adds before or behind all else."""
        before = sys.path[:]
        sys.path[:] = [*self._first, *self._own, *before, *self._last]
        try:
            yield
        finally:
            after, sys.path[:] = sys.path[:], before
            others = {*before} - {*self._own}
            start = next((n for n, entry in enumerate(after) if entry in others), len(after))
            known = {*before, *self._own}
            self._first = [entry for entry in after[:start] if entry not in known]
            known |= {*self._first}
            self._last = [entry for entry in after[start:] if entry not in known]

    def holds(self, path: Path) -> bool:
        """True for what stands below a folder that the file put there."""
        added = (Path(entry).resolve() for entry in (*self._first, *self._last) if entry)
        return any(path.is_relative_to(folder) for folder in added)
