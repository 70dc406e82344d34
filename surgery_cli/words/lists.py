"""Several things said in one sentence: `a, b and 3 more`, `a, b or c`."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[object], most: int = 0, *, word: str = "", mark: str = "") -> str:
    """The names with commas, each between ``mark``s; of more than ``most``, the first and how many more there are.

    ``word`` stands before the last of them, where all are said.

    >>> listed(["a", "b", "c"], 2), listed(["a", "b", "c"], word="or"), listed(["a"], 3, mark="'")
    ('a, b and 1 more', 'a, b or c', "'a'")
    """
    texts = [f"{mark}{name}{mark}" for name in names]
    if most and len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most:,} more"
    if word and len(texts) > 1:
        return f"{', '.join(texts[:-1])} {word} {texts[-1]}"
    return ", ".join(texts)


def quoted(names: Iterable[object], most: int = 0, *, word: str = "") -> str:
    """As ``listed``, each name in quotes: what comes from a checkpoint."""
    return listed(names, most, word=word, mark="'")


def shortened(text: str, most: int = 60) -> str:
    """The text in a sentence, or the begin of one that is too long for that."""
    return text if len(text) <= most else f"{text[: most - 3]}…"


def no_leaf_in_both(items: Iterable[object]) -> str:
    """Why nothing is in both of two checkpoints, and what of them can be compared all the same.

    >>> no_leaf_in_both(["run/5/state", "run/5/ema"])
    "no leaf is in both, as paths begin with the names of items: name one by its own path, 'run/5/state' or 'run/5/ema'"
    """
    named = quoted(items, 4, word="or")
    return f"no leaf is in both, as paths begin with the names of items: name one by its own path, {named}"
