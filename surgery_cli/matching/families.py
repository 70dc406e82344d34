"""Leaves of a tree in families: those of numbered layers that are one leaf but for the layer's number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from surgery_cli.matching.words import Meaning, meaning_of, words_of
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.tree.spelling import typed
from surgery_cli.tree.targets import target_text

DIGITS: Final = re.compile(r"\d+")
MARK: Final = "\0"
"""Stands for the number of the layer; no name holds it."""
_TYPED_MARK: Final = typed([MARK])

_AUTOMATIC: Final = re.compile(r"([A-Z][A-Za-z0-9]*?)_(\d+)")

Members: TypeAlias = tuple[LeafPath, ...]


class Family(msgspec.Struct, frozen=True, eq=False):
    """Leaves of one shape and dtype whose paths differ in one number, in its order; or a single leaf.

    ``template`` is their path with ``MARK`` in the place of that number, ``numbers`` how it is spelled in each.
    """

    members: tuple[LeafPath, ...]
    numbers: tuple[str, ...]
    template: LeafPath
    spec: LeafSpec
    meaning: Meaning

    @property
    def size(self) -> int:
        """Elements of all members."""
        return len(self.members) * self.spec.size

    def single(self) -> list[Family]:
        """Its members, each a family of its own."""
        if not self.numbers:
            return [self]
        words = [
            words_of(LeafPath(str(key).replace(MARK, f" {number} ") for key in self.template))
            for number in self.numbers
        ]
        return [
            Family((path,), (), path, self.spec, meaning_of(own))
            for path, own in zip(self.members, words, strict=True)
        ]

    def in_order(self, order: Sequence[int]) -> Family:
        """Its members in another order."""
        return msgspec.structs.replace(
            self,
            members=tuple(self.members[n] for n in order),
            numbers=tuple(self.numbers[n] for n in order),
        )

    @property
    def pattern(self) -> str:
        """What names its members in a plan, and nothing else."""
        return self.template.exact_pattern.replace(_TYPED_MARK, _span(self.numbers))

    def target(self, old: Family) -> str | None:
        """Where the members of another family go that become this one's, in order; None if no one text says it."""
        text = target_text(self.template)
        if not self.numbers or self.numbers == old.numbers:
            return text.replace(_TYPED_MARK, r"\1")
        spans = [_span(numbers) for numbers in (old.numbers, self.numbers)]
        return text.replace(_TYPED_MARK, spans[1]) if all(".." in span for span in spans) else None

    def __str__(self) -> str:
        return str(self.template).replace(_TYPED_MARK, _span(self.numbers))


def _span(texts: Sequence[str]) -> str:
    """The numbers as a range, or as a choice.

    >>> _span(["8", "9", "10"]), _span(["08", "09", "10"]), _span(["1", "3"])
    ('{8..10}', '{08..10}', '{1,3}')
    """
    if not texts:
        return ""
    first, last = texts[0], texts[-1]
    width = len(first) if first.startswith("0") and len(first) > 1 else 1
    is_row = list(texts) == [f"{int(first) + n:0{width}}" for n in range(len(texts))]
    return f"{{{first}..{last}}}" if is_row and len(texts) > 1 else f"{{{','.join(texts)}}}"


def families_of(leaves: Mapping[LeafPath, LeafSpec]) -> list[Family]:
    """The families of a tree: by the first number of the paths that several leaves of one shape differ in.

    Leaves without an array, such as None, are in none.
    """
    found: list[tuple[Members, tuple[str, ...], LeafPath, LeafSpec]] = []
    left = {path: spec for path, spec in leaves.items() if spec.has_array}
    most = max((len(_numbers(path)) for path in leaves), default=0)
    for column in range(most):
        groups: dict[object, dict[str, LeafPath]] = {}
        for path, spec in left.items():
            numbers = _numbers(path)
            if column < len(numbers):
                template = _without(path, column)
                key = (template, spec.shape, spec.dtype)
                groups.setdefault(key, {})[numbers[column]] = path
        for members in groups.values():
            if len(members) > 1:
                ordered = dict(sorted(members.items(), key=lambda item: (int(item[0]), item[0])))
                first = next(iter(ordered.values()))
                template = _without(first, column)
                found.append((tuple(ordered.values()), tuple(ordered), template, left[first]))
                for path in members.values():
                    del left[path]
    found += [((path,), (), path, spec) for path, spec in left.items()]
    orders = _orders_of_automatic_names(leaves)
    return [
        Family(members, numbers, template, spec, _meaning(template, members[0], orders))
        for members, numbers, template, spec in found
    ]


def bare_leaves(leaves: Mapping[LeafPath, LeafSpec]) -> list[Family]:
    """Each leaf without an array, as a family of its own."""
    return [
        Family((path,), (), path, spec, meaning_of(words_of(path)))
        for path, spec in leaves.items()
        if not spec.has_array
    ]


def _orders_of_automatic_names(leaves: Iterable[LeafPath]) -> dict[tuple[LeafPath, str], list[int]]:
    """The numbers that Flax gave to modules without names, `LayerNorm_0` and `LayerNorm_2`, in order."""
    found: dict[tuple[LeafPath, str], set[int]] = {}
    for path in leaves:
        for depth, key in enumerate(path):
            named = _AUTOMATIC.fullmatch(str(key))
            if named is not None:
                found.setdefault((LeafPath(path[:depth]), named[1]), set()).add(int(named[2]))
    return {key: sorted(numbers) for key, numbers in found.items()}


def _meaning(
    template: LeafPath, path: LeafPath, orders: Mapping[tuple[LeafPath, str], list[int]]
) -> Meaning:
    """What a path says; an automatic number is which one of its sort it is, and nothing if there is no other."""
    keys: list[Key] = []
    for depth, key in enumerate(template):
        named = _AUTOMATIC.fullmatch(str(key))
        if named is not None:
            order = orders[LeafPath(path[:depth]), named[1]]
            keys.append(f"{named[1]}_{order.index(int(named[2]))}" if len(order) > 1 else named[1])
        else:
            keys.append(key)
    return meaning_of(words_of(LeafPath(keys)))


def _numbers(path: LeafPath) -> list[str]:
    return [digits for key in path for digits in DIGITS.findall(str(key))]


def _without(path: LeafPath, column: int) -> LeafPath:
    """The path with the mark in the place of its number ``column``."""
    at = -1

    def marked(found: re.Match[str]) -> str:
        nonlocal at
        at += 1
        return MARK if at == column else found[0]

    return LeafPath(_marked(key, DIGITS.sub(marked, str(key))) for key in path)


def _marked(key: Key, text: str) -> Key:
    return key if str(key) == text else text
