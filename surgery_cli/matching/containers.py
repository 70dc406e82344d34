"""Lists and dicts that print alike: two things to a restore, so that a plan for the one makes the other of them."""

from __future__ import annotations

from collections.abc import Iterable

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec, lists_in, nodes_above


def differing(
    made: TreeSpec, wanted: TreeSpec, leaves: Iterable[LeafPath]
) -> dict[str, list[LeafPath]]:
    """Nodes of ``made`` that are a dict here and a list in ``wanted``, or the other way round, by what mends them.

    ``leaves`` are those of ``wanted`` above which nodes are looked at.
    """
    lists, goals = lists_in(made), {node.text for node in lists_in(wanted)}
    looked_at = {node.text for node in nodes_above(leaves) if node}
    nodes = [node for node in nodes_above(made) if node.text in looked_at]
    found = {
        "to-dict": [node for node in nodes if node in lists and node.text not in goals],
        "to-list": [node for node in nodes if node not in lists and node.text in goals],
    }
    return {operation: sorted(own, key=str) for operation, own in found.items() if own}
