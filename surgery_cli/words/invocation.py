"""The command that is running, as it was typed: what an interrupted run names as the one that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_typed: Final[list[str]] = []
_exact: Final[dict[int, str]] = {}
_added: Final[list[str]] = []


def remember(arguments: Sequence[str]) -> None:
    """What was typed behind the name of the program."""
    _typed[:] = arguments
    _exact.clear()
    _added.clear()


def typed() -> tuple[str, ...]:
    """What was typed behind the name of the program; nothing where a program called."""
    return tuple(_typed)


def meaning(number: int, word: str) -> None:
    """What the word of that number has meant, where it may mean something else later: the newest step of a run."""
    _exact[number] = word


def meaning_with(*words: str) -> None:
    """What is to be added to what was typed, to mean the same later."""
    _added[:] = words


def the_same(*more: str) -> str:
    """How to do the same again, with ``more`` behind it: the command, to be pasted; where none was typed, the call."""
    import shlex  # not to print help

    if not _typed:
        return "the same call" + "".join(f" with `{one}`" for one in more)
    words = [_exact.get(number, word) for number, word in enumerate(_typed)]
    command = f"`surgery {shlex.join([*words, *_added, *more])}`"
    return f"{command}, with the same plan on standard input," if "-" in _typed else command
