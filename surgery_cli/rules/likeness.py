"""Whether nodes are alike, as the layers of a model are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from msgspec import Meta

from surgery_cli.rules.contract import Named, Rule, refuse_false, refuse_single_nodes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.quantities import counted

_SHOWN: Final = 3


class Alike(Rule, frozen=True):
    """Layers are alike: what one has, the others have, in the same shape and dtype."""

    alike: Annotated[
        bool,
        Meta(
            description="All nodes that a pattern matches have the same leaves below them, in the same shapes and"
            " dtypes: `params/layers_*`."
        ),
    ]

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "alike"

    def check_values(self, patterns: Sequence[str]) -> None:
        refuse_single_nodes(self, patterns)

    def breach_of_selection(self, named: Named) -> str:
        return listed((text for nodes in _nodes(named) for text in _differences(nodes)), _SHOWN)


def _nodes(named: Named) -> Iterator[dict[LeafPath, dict[LeafPath, str]]]:
    """For each pattern the nodes that it matches, with the type of every leaf below them."""
    for _, matches in named.leaves.by_pattern():
        nodes: dict[LeafPath, dict[LeafPath, str]] = {}
        for leaf, match in matches.items():
            types = nodes.setdefault(match.node, {})
            types[match.tail] = named.draft.leaves[leaf].spec.type_text
        yield nodes


def _differences(nodes: dict[LeafPath, dict[LeafPath, str]]) -> Iterator[str]:
    """What some nodes lack, and what is another array than in most of them."""
    tails = dict.fromkeys(tail for types in nodes.values() for tail in types)
    for tail in tails:
        there = {node: types[tail] for node, types in nodes.items() if tail in types}
        lacking = [str(node) for node in nodes if node not in there]
        if lacking:
            lack = "lack" if len(lacking) > 1 else "lacks"
            others = f"{counted(len(there), 'other')} {'has' if len(there) == 1 else 'have'} it"
            yield f"{quoted(lacking, 2)} {lack} '{tail}' ({others})"
        usual = Counter(there.values()).most_common(1)[0][0]
        odd = {str(node / tail): text for node, text in there.items() if text != usual}
        for leaf, text in odd.items():
            yield f"'{leaf}' is {text} ({usual} in most)"
