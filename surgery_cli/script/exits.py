"""Ways out of the program on which nothing is said, closed while a file of the user's runs and at the program's end."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

_REAL: Final = {name: getattr(os, name) for name in ("_exit", "abort")}


class EndedTheProgram(SystemExit):
    """User code asked for an end without any clean-up; ``how`` is its call."""

    def __init__(self, code: object, how: str) -> None:
        super().__init__(code)
        self.how = how


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """While the block runs, ``os._exit`` and ``os.abort`` raise, in this process and not in those that it forks.

    What the block leaves to be done at the program's end is done under the same rule: it changes no exit code, and
    prints on standard error.
    """
    register = atexit.register
    own = os.getpid()

    def leave(code: int = 0) -> NoReturn:
        if os.getpid() != own:
            _REAL["_exit"](code)
        raise EndedTheProgram(code, f"os._exit({code})")

    def abort() -> NoReturn:
        if os.getpid() != own:
            _REAL["abort"]()
        raise EndedTheProgram(134, "os.abort()")

    def later(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        register(_AtExit(function), *args, **kwargs)
        return function

    before = os._exit, os.abort
    os._exit, os.abort, atexit.register = leave, abort, later  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit, os.abort = before
        atexit.register = register


class _AtExit:
    """A function of the user's for the program's end; ``atexit.unregister`` finds it by the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with (
            closed(),
            contextlib.suppress(EndedTheProgram),
            contextlib.redirect_stdout(sys.stderr),
        ):
            self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._function

    def __hash__(self) -> int:
        return hash(self._function)
