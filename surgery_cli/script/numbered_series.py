"""Numbered layers under another name: `layers_0` to `layers_11` that are `blocks_0` to `blocks_11` elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from surgery_cli.script.contract import Subtree
from surgery_cli.tree.nested import Branch
from surgery_cli.tree.paths import LeafPath

DIGITS: Final = re.compile(r"\d+")

Template: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = tuple[int, ...]
Alike: TypeAlias = Callable[[Subtree, Subtree], bool]
Nodes: TypeAlias = Mapping[LeafPath, Subtree]


class Series(msgspec.Struct):
    """Nodes whose paths differ in numbers only, by these numbers."""

    template: Template
    nodes: dict[Numbers, tuple[LeafPath, Subtree]] = {}


def numbered(path: LeafPath) -> tuple[Template, Numbers]:
    """A path without its numbers, and the numbers.

    >>> numbered(LeafPath(("params", "layers_3", "mlp")))
    (('params', 'layers_#', 'mlp'), (3,))
    """
    texts = [str(key) for key in path]
    numbers = tuple(int(digits) for text in texts for digits in DIGITS.findall(text))
    return tuple(DIGITS.sub("#", text) for text in texts), numbers


def paired_series(heres: Nodes, theres: Nodes, are_alike: Alike) -> dict[LeafPath, LeafPath]:
    """Old path to new of the members of series that have the same numbers, and only one counterpart.

    First of those below the same parents, then of those that share most keys: an encoder and a decoder stay apart, and
    so do two fields of the optimizer state.
    """
    found: dict[LeafPath, LeafPath] = {}
    here, there = _series(heres), _series(theres)
    deepest = max((len(template) for template in here), default=0)
    for shared in (None, *range(deepest - 1, 0, -1)):
        fitting = {
            one: [
                other
                for other in there
                if _share(one, other, shared) and _fits(here[one], there[other], are_alike)
            ]
            for one in here
        }
        claims = [other for others in fitting.values() for other in others]
        for one, others in fitting.items():
            if len(others) != 1 or claims.count(others[0]) != 1:
                continue
            pairs = {p: there[others[0]].nodes[n][0] for n, (p, _) in here[one].nodes.items()}
            if not any(str(old) == str(new) for old, new in pairs.items()) and not any(
                path.is_below(old) for path in pairs for old in found
            ):
                found.update(pairs)
        here = {key: s for key, s in here.items() if not _are_done(s, found)}
        there = {key: s for key, s in there.items() if not _are_done(s, found.values())}
    return found


def _share(one: Template, other: Template, keys: int | None) -> bool:
    """True if two templates share so many first keys; None: all but their last."""
    return one[:-1] == other[:-1] if keys is None else one[:keys] == other[:keys]


def _series(nodes: Nodes) -> dict[Template, Series]:
    """The series at and below these nodes, from the top."""
    found: dict[Template, Series] = {}
    level = dict(nodes)
    while level:
        for path, subtree in level.items():
            template, numbers = numbered(path)
            found.setdefault(template, Series(template)).nodes[numbers] = path, subtree
        level = {
            path / (key,): child
            for path, subtree in level.items()
            if isinstance(subtree, Branch)
            for key, child in subtree.items()
        }
    return {key: series for key, series in found.items() if len(series.nodes) > 1}


def _fits(one: Series, other: Series, are_alike: Alike) -> bool:
    if one.nodes.keys() != other.nodes.keys():
        return False
    return all(are_alike(subtree, other.nodes[n][1]) for n, (_, subtree) in one.nodes.items())


def _are_done(series: Series, nodes: Collection[LeafPath]) -> bool:
    return any(path.is_below(node) for path, _ in series.nodes.values() for node in nodes)


def is_out_of_order(old: LeafPath, new: LeafPath, others: Iterable[LeafPath]) -> bool:
    """True if two paths are of one series, and others of it, which keep their numbers, stand between them.

    A layer more at the one end and less at the other is a shift of all of them, no move of the one.
    """
    template, before = numbered(old)
    if numbered(new)[0] != template:
        return False
    after = numbered(new)[1]
    low, high = min(before, after), max(before, after)
    return any(numbered(path)[0] == template and low < numbered(path)[1] < high for path in others)
