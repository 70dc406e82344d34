"""What functions of the user's gave, call by call: whoever reads a leaf again calls again, and must get the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from surgery_cli.engine.digests import checksum
from surgery_cli.errors import ValueRefusal


class Call(NamedTuple):
    """A call by all that a function may depend on: itself, the leaf's path, and the array that it is given.

    Files of the same bytes are two where they lie in two folders: each may import what lies beside it.
    """

    file: str
    function: str
    sha256: str
    path: str
    given: str
    """The array's dtype and shape, and a checksum of its values."""


class Calls:
    """The calls of one run, each with a checksum of what it gave; the values are not kept."""

    def __init__(self) -> None:
        self._gave: dict[Call, str] = {}

    def hold(
        self, file: str, function: str, sha256: str, path: str, given: Any, returned: Any
    ) -> None:
        """See that a call gave what the same one gave before; ``file`` is where the function was loaded from.

        Raises:
            ValueRefusal: it did not.
        """
        self._hold(Call(file, function, sha256, path, _mark(given)), _mark(returned))

    def seen(self) -> list[tuple[Call, str]]:
        """All of them, for another process."""
        return list(self._gave.items())

    def take_over(self, seen: Iterable[tuple[Call, str]]) -> None:
        """Those of another process, which made another share of the same leaves.

        Raises:
            ValueRefusal: one of them gave something else there.
        """
        for call, gave in seen:
            self._hold(call, gave)

    def _hold(self, call: Call, gave: str) -> None:
        if self._gave.setdefault(call, gave) != gave:
            raise ValueRefusal(
                f"'{call.function}' on '{call.path}' gave something else when it was called again",
                why="whatever reads the leaf calls it, be it a later edit, a rule or a pass that measures, and each"
                " must see the same values",
                fix="let it depend on its arguments alone, without a counter or a draw of its own:"
                " `np.random.default_rng([7, *path.encode()])` draws the same for the same path, as the operations"
                " `noise` and `reinit` do",
                path=call.path,
            )


def _mark(values: Any) -> str:
    return f"{values.dtype.name}{list(values.shape)} {checksum(values).hex()}"
