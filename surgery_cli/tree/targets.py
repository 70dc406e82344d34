"""Where `to` puts a leaf: text with captured parts becomes a path of typed keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from surgery_cli.errors import Gathering, PlanError
from surgery_cli.tree.number_ranges import read_range
from surgery_cli.tree.paths import Key, LeafPath, Match, PathPattern
from surgery_cli.tree.spelling import decode, is_spelled, printable, unescaped
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import counted

_RANGE = re.compile(r"\{([0-9]+\.\.[0-9]+(?:\.\.[0-9]+)?)\}")
_BRACE = re.compile(r"(?<!\[)\{(?![0-9]+\.\.[0-9]+(?:\.\.[0-9]+)?\})")
REFERENCE = re.compile(r"\\(?:(\d{1,2})|g<(\d{1,2})>)")
_FOREIGN = re.compile(r"\\[gk]<[A-Za-z_]\w*>|\$(?:\d|\{\w+\})")
"""A group as other tools write it: by its name, or with a dollar."""
_FILLED = re.compile(f"{REFERENCE.pattern}|{_RANGE.pattern}")


def with_number(match: Match, group: int, number: int) -> str:
    """The node that was matched, with another number in a group (from 0).

    >>> path = LeafPath(("layers_08", "w"))
    >>> with_number(PathPattern("layers_*/w").match(path), 0, 9)
    'layers_09/w'
    """
    text = match.node.spelling if match.is_spelled else match.node.text
    start, stop = match.spans[group]
    written = f"{number:0{stop - start if text[start] == '0' else 0}d}"
    return f"{text[:start]}{written}{text[stop:]}"


def referred(reference: re.Match[str], pattern: PathPattern, text: str, *, field: str) -> int:
    """Which part of a match of the pattern, from 0, a reference in ``text`` means.

    Raises:
        PlanError: the pattern captures no so many.
    """
    index = int(reference[1] or reference[2])
    if not 1 <= index <= pattern.captures:
        raise PlanError(
            f"'{text}' refers to part {index}",
            why=f"'{pattern.text}' captures {counted(pattern.captures, 'part')}",
            fix=r"`\1` is the first group, `\2` the second: put `(…)` around what it stands for"
            if pattern.is_regex
            else r"`\1` is the first wildcard, `\2` the second; groups `(…)` need `re:` in front of the pattern",
            field=field,
        )
    return index - 1


def check_references(text: str, patterns: Iterable[str], field: str) -> None:
    """See that each of the ``patterns`` captures what a text with references takes of it. Raises as ``referred``."""
    for reference in REFERENCE.finditer(text):
        for pattern in patterns:
            referred(reference, PathPattern(pattern), text, field=field)


def check_targets(targets: Mapping[str, str], field: str = "to") -> None:
    """See that what each pattern captures fills the text of its new path; PlanError lists all that does not."""
    gathering = Gathering()
    for pattern, text in targets.items():
        with gathering.catching():
            Target(text, field).check(PathPattern(pattern))
    gathering.raise_if_any()


def target_text(path: LeafPath) -> str:
    """A path as `to` takes it, in printable characters."""
    return re.sub(r"\*", "[*]", printable(path.spelling)).replace("{", "[{]")


class Part(NamedTuple):
    """A piece of a target between slashes; ``key`` is set if it was captured whole from a path."""

    text: str
    key: Key | None = None


class Places:
    """The leaves and nodes of a tree by their text, and which nodes are sequences."""

    def __init__(self, leaves: Iterable[LeafPath]) -> None:
        self.is_sequence: dict[LeafPath, bool] = {LeafPath(): False}
        self._leaves: list[LeafPath] = []
        self._known: dict[bool, dict[str, list[LeafPath]]] = {}
        for leaf in leaves:
            self._leaves.append(leaf)
            child = leaf
            while child:
                node = child.parent
                if node in self.is_sequence and node:
                    break
                self.is_sequence[node] = isinstance(child[-1], int)
                child = node

    def at(self, text: str, *, is_spelled: bool) -> list[LeafPath]:
        """The leaves and nodes with this text; several if keys contain slashes."""
        if is_spelled not in self._known:
            known: dict[str, list[LeafPath]] = {}
            for path in dict.fromkeys((*self.is_sequence, *self._leaves)):
                known.setdefault(path.spelling if is_spelled else path.text, []).append(path)
            self._known[is_spelled] = known
        return self._known[is_spelled].get(text, [])


class Target:
    r"""The text of `to`: ``\1``, ``\2`` (or ``\g<1>``) stand for what the pattern captured, in order.

    The numbers of a range ``{1..12}`` take the places of those of the pattern's range, one after the other.

    A segment that is nothing but ``\1`` takes the captured keys as they are: an index stays an index, a key with a
    slash stays one key, and ``**`` that stood for no key adds none.
    """

    def __init__(self, text: str, field: str = "to") -> None:
        """``field`` is the one that says it."""
        self.field = field
        self.text = unescaped(text).replace("[*]", "*")
        self._ranges = [found for part in _RANGE.findall(self.text) if (found := read_range(part))]
        self.is_spelled = is_spelled(text)
        if not text or "" in text.split("/"):
            raise PlanError(
                f"'{text}' is no place for a leaf",
                why="a key in it is empty",
                fix="write keys with single slashes between them: `params/head/kernel`",
                field=self.field,
            )
        is_wild = "*" in text.replace("[*]", "")
        if is_wild or _BRACE.search(text):
            raise PlanError(
                f"'{text}' is a pattern, not a place",
                why=worded("{} has no wildcards of its own", FieldName(field))
                if is_wild
                else worded(
                    "each leaf goes to one place, and {} has no alternatives", FieldName(field)
                ),
                fix=r"write `\1` for what the first wildcard stood for, `[*]` for a star in a name"
                if is_wild
                else r"write `\1` for what the first braces or wildcard stood for, `[{]` for a brace in a name",
                field=field,
            )

    def leaves_out(self, pattern: PathPattern, count: int) -> list[int]:
        """Which of the ``count`` groups that a pattern captures, from 0, have no part in the place."""
        said = {int(found[1] or found[2]) - 1 for found in REFERENCE.finditer(self.text)}
        taken = set(pattern.ranges) if self._ranges else set()
        return [group for group in range(count) if group not in said | taken]

    def check(self, pattern: PathPattern) -> None:
        """See that what the pattern captures fills the place.

        Raises:
            PlanError: a reference without its wildcard, or of another kind; ranges of other numbers.
        """
        foreign = _FOREIGN.search(self.text) if pattern.captures else None
        if foreign and (foreign[0][0] == "\\" or not REFERENCE.search(self.text)):
            raise PlanError(
                f"'{self.text}' has '{foreign[0]}', which stands for no part of '{pattern.text}'",
                why="wildcards and groups are counted, in the order in which they begin",
                fix=r"write `\1` for the first, `\2` for the second",
                field=self.field,
            )
        for reference in REFERENCE.finditer(self.text):
            self._group(reference, pattern)
        self._check_ranges(pattern)

    def place(self, match: Match, pattern: PathPattern, places: Places) -> LeafPath:
        """Where the node of ``match`` goes.

        Raises:
            PlanError: a reference without its wildcard, an ambiguous text, or a name in a list.
        """
        return _typed(self._parts(match, pattern), places, self)

    def _parts(self, match: Match, pattern: PathPattern) -> list[Part]:
        parts: list[Part] = []
        numbers = iter(self._numbers(match, pattern))
        for segment in self.text.split("/"):
            reference = REFERENCE.fullmatch(segment)
            keys = match.keys(self._group(reference, pattern)) if reference else None
            if keys is not None:
                parts += [Part(self._shown(str(key)), key) for key in keys]
                continue
            if _RANGE.fullmatch(segment):
                number, keys = next(numbers)
                is_index = keys is not None and len(keys) == 1 and isinstance(keys[0], int)
                parts.append(Part(number, int(number) if is_index else None))
                continue
            filled = _FILLED.sub(
                lambda found: (
                    self._captured(match, self._group(found, pattern))
                    if found[3] is None
                    else next(numbers)[0]
                ),
                segment,
            )
            parts += [Part(text) for text in filled.replace("[{]", "{").split("/")]
        return parts

    def _numbers(self, match: Match, pattern: PathPattern) -> list[tuple[str, LeafPath | None]]:
        """The number of each range, in the place of the pattern's, and the keys that this one covers."""
        self._check_ranges(pattern)
        ranges = pattern.ranges.items() if self._ranges else ()
        return [
            (new.text(new.numbers[old.numbers.index(int(match.groups[group]))]), match.keys(group))
            for new, (group, old) in zip(self._ranges, ranges, strict=True)
        ]

    def _check_ranges(self, pattern: PathPattern) -> None:
        there = pattern.ranges.values()
        counts = [len(numbers.numbers) for numbers in self._ranges]
        if counts and counts != [len(numbers.numbers) for numbers in there]:
            sizes = ", ".join(f"{len(numbers.numbers):,}" for numbers in there)
            raise PlanError(
                f"the ranges of '{self.text}' are not those of '{pattern.text}'",
                why=f"there stand {sizes} numbers, here {', '.join(f'{n:,}' for n in counts)}"
                if there
                else "it has no range of numbers of its own",
                fix=r"write as many numbers on both sides, or `\1` for the number as it is; `[{]` is a brace in a name",
                field=self.field,
            )

    def _group(self, reference: re.Match[str], pattern: PathPattern) -> int:
        return referred(reference, pattern, self.text, field=self.field)

    def _captured(self, match: Match, group: int) -> str:
        """The text of a group for use inside a segment."""
        keys = match.keys(group)
        if keys is not None and self.is_spelled:
            return "/".join(self._shown(str(key)) for key in keys)
        text = match.groups[group]
        return decode(text) if match.is_spelled and not self.is_spelled else text

    def _shown(self, key: str) -> str:
        return LeafPath((key,)).spelling if self.is_spelled else key


def _typed(parts: Sequence[Part], places: Places, target: Target) -> LeafPath:
    """Typed keys: the longest place that exists decides for its part, captured keys stay, the rest are dict keys."""
    known = LeafPath()
    for count in range(len(parts), 0, -1):
        text = "/".join(part.text for part in parts[:count])
        found = [
            path
            for path in places.at(text, is_spelled=target.is_spelled)
            if _agrees(path, parts[:count], target.is_spelled)
        ]
        if len(found) > 1:
            raise PlanError(
                worded("'{}' in {} means two places", text, FieldName(target.field)),
                why="it may be " + quoted((path.exact_pattern for path in found), word="or"),
                fix="a slash inside a key is written `%2F`",
                field=target.field,
            )
        if found:
            known = found[0]
            break
    else:
        count = 0
    for part in parts[count:]:
        known = known / (_key(part, places.is_sequence.get(known), known, target),)
    return known


def _key(part: Part, is_sequence: bool | None, node: LeafPath, target: Target) -> Key:
    """The key that ``part`` adds below ``node``: a node that exists decides its type."""
    if is_sequence:
        if not re.fullmatch("0|[1-9][0-9]*", part.text):
            raise PlanError(
                f"'{part.text}' in '{target.text}' cannot be a name",
                why=f"'{node}' is a list, its elements have indices",
                fix=f"write an index: `{target_text(node)}/0`",
                field=target.field,
            )
        return int(part.text)
    if part.key is not None:
        return part.key if is_sequence is None else str(part.key)
    return decode(part.text) if target.is_spelled else part.text


def _agrees(path: LeafPath, parts: Sequence[Part], is_spelled: bool) -> bool:
    """True unless a captured key would be joined with its neighbours or cut."""
    at = 0
    for key in path:
        printed = LeafPath((key,)).spelling if is_spelled else str(key)
        start, text = at, parts[at].text
        at += 1
        while len(text) < len(printed):
            text += "/" + parts[at].text
            at += 1
        if text != printed or (at - start > 1 and any(p.key is not None for p in parts[start:at])):
            return False
    return True
