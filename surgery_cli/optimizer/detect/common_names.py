"""What the names of a state and of a tree say of whether they belong together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import takewhile
from typing import Final

from surgery_cli.optimizer.detect.params_root import OPTIMIZER_WORDS, words_of
from surgery_cli.optimizer.knowledge.kinds import KINDS
from surgery_cli.tree.paths import LeafPath

_ROLES: Final = {
    "params", "param", "model", "models", "state", "states", "tx", "variables", *OPTIMIZER_WORDS,
}  # fmt: skip
"""Words that say what something is, and not whose."""


def distance(one: LeafPath, other: LeafPath) -> int:
    """How many steps up and down lead from one node to another."""
    pairs = zip(one, other, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return len(one) + len(other) - 2 * common


def likeness(names: Iterable[object], tree: LeafPath) -> tuple[int, ...]:
    """How many keys, words and words without their numbers a state and a tree share, of those that say whose they are.

    >>> likeness(("opt_state", "critic2"), LeafPath(("target_critic2", "params")))
    (0, 1, 1)
    """
    return tuple(len(here & there) for here, there in zip(_said(names), _said(tree), strict=True))


def has_no_name(tree: LeafPath) -> bool:
    """True if all words say what a tree is, and none which of several.

    >>> [has_no_name(LeafPath((key, "params"))) for key in ("variables", "teacher")]
    [True, False]
    """
    return not _words(tree) - _ROLES


def is_named_as(names: Iterable[object], tree: LeafPath) -> bool:
    """True if a state has the very name of a tree, beside words for what either is.

    >>> tree = LeafPath(("critic", "params"))
    >>> [is_named_as(("critic_opt_state",), one) for one in (tree, LeafPath(("target_critic",)))]
    [True, False]
    """
    said = _words(names) - _telling_nothing()
    return bool(said) and said == _words(tree) - _ROLES


def _said(keys: Iterable[object]) -> list[set[str]]:
    texts = {str(key).lower() for key in keys}
    bare = {word for text in texts for word in words_of(text)}
    return [found - _telling_nothing() for found in (texts, _words(texts), bare)]


def _words(keys: Iterable[object]) -> set[str]:
    return {word for key in keys for word in str(key).lower().split("_")}


@cache
def _telling_nothing() -> frozenset[str]:
    """Words of what something is, among them those of kinds of states and their fields: `ema`, `mu`; no letters."""
    of_kinds = (name for kind in KINDS for name in (kind.name, *kind.signature))
    words = {word for name in of_kinds for word in (name, *words_of(name))}
    return frozenset(_ROLES | {word for word in words if len(word) > 1})
