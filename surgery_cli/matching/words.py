"""Paths as words, words as what they mean, and how alike two paths are in that."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from surgery_cli.matching.vocabulary import CONCEPTS, ROLES, WRAPPERS
from surgery_cli.tree.paths import LeafPath

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LONGEST: Final = 6
_ROLE_WEIGHT: Final = 1.5
"""What the role counts, in units of a word that tells two leaves of ten apart."""


def words_of(path: LeafPath) -> tuple[str, ...]:
    """The words of a path, in lower case.

    >>> words_of(LeafPath(("h_0", "LayerNorm_1", "scale")))
    ('h', '0', 'layer', 'norm', '1', 'scale')
    """
    return tuple(word.lower() for key in path for word in _WORDS.findall(str(key)))


@cache
def _phrases(table: str) -> Mapping[tuple[str, ...], str]:
    known = CONCEPTS if table == "concepts" else ROLES
    return {
        tuple(word.lower() for word in _WORDS.findall(phrase)): meaning
        for meaning, phrases in known.items()
        for phrase in phrases.split(",")
    }


class Meaning(msgspec.Struct, frozen=True):
    """What a path says: what the leaf is to its layer, how that is spelled, and everything else in words."""

    role: str
    last: str
    words: tuple[str, ...]

    def says_as(self, other: Meaning) -> bool:
        """True if it says the same, in whatever words."""
        return self.role == other.role and Counter(self.words) == Counter(other.words)

    def does_not_contradict(self, other: Meaning) -> bool:
        """True unless each says a word that the other does not: `encoder` and `decoder`, `fc` `1` and `fc` `2`.

        One of them may say more: `params`, `model`, the name of the whole.
        """
        left, right = Counter(self.words), Counter(other.words)
        return not (left - right) or not (right - left)


def meaning_of(words: Sequence[str]) -> Meaning:
    """What the words of a path say by the vocabulary; those that it does not have stay as they are.

    >>> meaning_of(words_of(LeafPath(("model.layers.self_attn.q_proj.weight",))))
    Meaning(role='weight', last='weight', words=('transformer', 'layers', 'attention', 'query'))
    """
    for wrapper in WRAPPERS:
        parts = tuple(wrapper.split())
        if tuple(words[-len(parts) :]) == parts and len(words) > len(parts) + 1:
            words = words[: -len(parts)]
    for size in (2, 1):
        role = _phrases("roles").get(tuple(words[-size:])) if len(words) > size else None
        is_name = size == 1 and tuple(words[-2:]) in _phrases("concepts")
        if role is not None and not is_name:
            return Meaning(role, " ".join(words[-size:]), tuple(_meanings(words[:-size])))
    return Meaning("weight", "", tuple(_meanings(words)))


def _meanings(words: Sequence[str]) -> Iterable[str]:
    known = _phrases("concepts")
    at = 0
    while at < len(words):
        for size in range(min(_LONGEST, len(words) - at), 0, -1):
            found = known.get(tuple(words[at : at + size]))
            if found is not None:
                yield from found.split("+")
                break
        else:
            size = 1
            yield words[at]
        at += size


class Likeness:
    """How alike paths of two trees are: rare words count more than those that most paths have."""

    def __init__(self, meanings: Iterable[Meaning]) -> None:
        every = [frozenset(one.words) for one in meanings]
        seen = Counter(word for words in every for word in words)
        self._weights = {word: math.log((1 + len(every)) / count) for word, count in seen.items()}
        self._role = _ROLE_WEIGHT

    def of(self, one: Meaning, other: Meaning) -> float:
        """From 0, nothing in common, to 1, the same words."""
        left, right = Counter(one.words), Counter(other.words)
        common = self._sum(left & right)
        total = self._sum(left) + self._sum(right)
        if one.role or other.role:
            total += 2 * self._role
            common += self._role if one.role == other.role else 0
        return 2 * common / total if total else 1.0

    def _sum(self, words: Counter[str]) -> float:
        return sum(self._weights[word] * count for word, count in words.items())
