"""A function of the user's, among what values are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeAlias

import msgspec

Hold: TypeAlias = Callable[[str, str, str, Any, Any], None]
"""Takes a function's text, the SHA-256 of its file, a leaf's path, the array that it was given and what it returned."""


class UserFunction(msgspec.Struct, frozen=True, dict=True):
    """A function that is known by how it is called and by the SHA-256 of its file; who loads it says what to run.

    >>> halve = UserFunction.of("edit.py:halve", "sha256:…", lambda array, path: array / 2)
    >>> halve(3.0, "w"), halve == UserFunction("edit.py:halve", "sha256:…")
    (1.5, True)
    """

    text: str
    sha256: str

    @classmethod
    def of(
        cls, text: str, sha256: str, call: Callable[[Any, str], Any], hold: Hold | None = None
    ) -> Self:
        """With what runs it, ``call(array, path)``, and what sees that equal calls give the same, if anybody does."""
        made = cls(text, sha256)
        made.__dict__.update(call=call, holding=hold)
        return made

    def __call__(self, array: Any, path: str) -> Any:
        """Run it.

        Raises:
            SurgeryError: it fails; the user's own line is shown.
        """
        return self.__dict__["call"](array, path)

    def hold(self, path: str, given: Any, returned: Any) -> None:
        """See that what it returned, of the given array, is what the same call gave before.

        Raises:
            ValueRefusal: it is not.
        """
        if (hold := self.__dict__["holding"]) is not None:
            hold(self.text, self.sha256, path, given, returned)
