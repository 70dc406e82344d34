"""Places with numbers in them: `params/layers_{0..11}` as all that it stands for, and series of paths as such text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import LEAVES
from surgery_cli.tree.number_ranges import read_range
from surgery_cli.tree.paths import Key, LeafPath, Match, PathPattern
from surgery_cli.tree.targets import Places, Target, target_text
from surgery_cli.words.advice import worded

_RANGE = re.compile(r"\{([0-9]+\.\.[0-9]+(?:\.\.[0-9]+)?)\}")
_NAMES = re.compile(r"(?<!\[)\{([^{}/]*,[^{}/]*)\}")
_NO_COUNT = re.compile(r"(?<!\[)\{[^{}/]*\}|(?<!\[)\*+")
_LAST_NUMBER = re.compile(r"(.*?)(0|[1-9][0-9]*)(\D*)", re.DOTALL)


class Series:
    """The places of several parts: texts one by one, or one text with a range of numbers or with names in braces."""

    def __init__(
        self, to: str | Sequence[str], *, is_list: bool = False, counted: str = "{0..2}"
    ) -> None:
        """``is_list``: the numbers are indices of a list, not keys of a dict. ``counted``: what to write for them.

        Raises:
            PlanError: a text has several ranges or something else that is to count, or is no place; or no index is
                there.
        """
        self._counted = counted
        self._list_above: str | None = None
        texts: list[str] = []
        for text in [to] if isinstance(to, str) else to:
            texts += self._written_out(text, is_list=is_list)
        if is_list and self._list_above is None:
            raise PlanError(
                worded("{list: true} needs a range of numbers that is a whole key"),
                why=worded("{to} is '{}'", str(to)),
                fix=worded("write {to: params/layers/{{0..11}}}"),
                field="list",
            )
        self.targets = [Target(text) for text in texts]

    def __len__(self) -> int:
        return len(self.targets)

    def _written_out(self, text: str, *, is_list: bool) -> list[str]:
        if (found := _NAMES.search(text)) and not _RANGE.search(text):
            return [text[: found.start()] + n + text[found.end() :] for n in found[1].split(",")]
        ranges = [
            (found, numbers) for found in _RANGE.finditer(text) if (numbers := read_range(found[1]))
        ]
        if len(ranges) > 1:
            raise PlanError(
                worded("'{}' has {} ranges of numbers", text, len(ranges)),
                why="one range counts the parts",
                fix=r"write `\1` for a number that stands in the path already",
                field="to",
            )
        if not ranges:
            if found := _NO_COUNT.search(text):
                raise self._uncounted(text, found)
            return [text]
        found, numbers = ranges[0]
        head, tail = text[: found.start()], text[found.end() :]
        if is_list and head.endswith("/") and tail[:1] in ("", "/"):
            self._list_above = head[:-1]
        LEAVES.check(len(numbers.numbers), f"`{{{found[1]}}}`", PlanError)
        return [f"{head}{number}{tail}" for number in numbers.texts()]

    def _uncounted(self, text: str, found: re.Match[str]) -> PlanError:
        """The refusal of a text that has a placeholder where the number of each part goes: `layers_{i}`."""
        instead = text[: found.start()] + self._counted + text[found.end() :]
        return PlanError(
            f"'{text}' names no place for each part",
            why=f"'{found[0]}' is no range of numbers",
            fix=worded(
                r"write {to: {}}, a number for each part; `\1` stands for the first wildcard of {at}",
                instead,
            ),
            field="to",
        )

    def check(self, patterns: Iterable[str]) -> None:
        """See that what each pattern captures fills the places. Raises PlanError as ``Target.check``."""
        for pattern in map(PathPattern, patterns):
            for target in self.targets:
                target.check(pattern)

    def places(self, match: Match, pattern: PathPattern, places: Places) -> list[LeafPath]:
        """Where the parts of a node go, in order. Raises PlanError as ``Target.place``."""
        if self._list_above is not None:
            above = Target(self._list_above).place(match, pattern, places)
            places.is_sequence[above] = True
        return [target.place(match, pattern, places) for target in self.targets]


def numbered_places(paths: Sequence[LeafPath]) -> dict[str, Any]:
    """The ``to``, and ``list`` where it is one, that name these paths in their order.

    >>> numbered_places([LeafPath(("layers", 0)), LeafPath(("layers", 1))])
    {'to': 'layers/{0..1}', 'list': True}
    >>> numbered_places([LeafPath(("q",)), LeafPath(("k",))])
    {'to': ['q', 'k']}
    """
    series = _series(paths)
    if series is None:
        return {"to": [target_text(path) for path in paths]}
    text, is_list = series
    return {"to": text, "list": True} if is_list else {"to": text}


def numbered_patterns(paths: Sequence[LeafPath]) -> str | list[str]:
    """The ``at`` that names these paths in their order.

    >>> numbered_patterns([LeafPath(("l_8",)), LeafPath(("l_9",)), LeafPath(("l_10",))])
    'l_{8..10}'
    """
    series = _series(paths, as_pattern=True)
    return [path.exact_pattern for path in paths] if series is None else series[0]


def _series(paths: Sequence[LeafPath], *, as_pattern: bool = False) -> tuple[str, bool] | None:
    """The text whose range of numbers means these places, and whether these are indices; None if there is none."""
    if len({len(path) for path in paths}) > 1 or len(paths) < 2:
        return None
    depths = [n for n, keys in enumerate(zip(*paths, strict=True)) if len(set(keys)) > 1]
    if len(depths) != 1:
        return None
    (depth,) = depths
    parts = [_around(path[depth]) for path in paths]
    if None in parts or len({(head, tail) for head, _, tail in filter(None, parts)}) > 1:
        return None
    numbers = [part[1] for part in parts if part is not None]
    if numbers != [*range(numbers[0], numbers[0] + len(numbers))]:
        return None
    spell = (lambda path: path.exact_pattern) if as_pattern else target_text
    head, tail = LeafPath(paths[0][:depth]), LeafPath(paths[0][depth + 1 :])
    first, _, last = next(filter(None, parts))
    key = f"{spell(LeafPath((first,))) if first else ''}{{{numbers[0]}..{numbers[-1]}}}"
    key += spell(LeafPath((last,))) if last else ""
    texts = (spell(head) if head else "", key, spell(tail) if tail else "")
    return "/".join(filter(None, texts)), isinstance(paths[0][depth], int)


def _around(key: Key) -> tuple[str, int, str] | None:
    """What stands before the last number of a key, that number, and what stands behind it."""
    found = _LAST_NUMBER.fullmatch(str(key))
    return None if found is None else (found[1], int(found[2]), found[3])
