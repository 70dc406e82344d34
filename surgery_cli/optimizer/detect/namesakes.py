"""Params without a state that have the leaves of a tree with one: an edit may have left their state behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from surgery_cli.optimizer.detect.mirrors import Branch, Node, path_of
from surgery_cli.optimizer.detect.params_root import descents, networks_in
from surgery_cli.tree.paths import LeafPath


def namesakes(
    trees: Iterable[Branch], roots: Collection[LeafPath], has_state: Callable[[LeafPath], bool]
) -> dict[LeafPath, list[LeafPath]]:
    """For trees with a state, the nodes of roots that have none, and leaves of the same names.

    An average has the shapes and names that its params had: where these were changed alone, the state of the params
    fits what is left of them beside, and nothing else.
    """
    every = list(trees)
    known = [tree for tree in every if path_of(tree) in roots]
    others = [tree for tree in every if path_of(tree) not in roots and has_state(path_of(tree))]
    nodes = {
        path: leaves for root in known for path, leaves in _networks(root) if not has_state(path)
    }
    found = {}
    for tree in others:
        names = _all_names(tree)
        if alike := [path for path, leaves in nodes.items() if leaves & names]:
            found[path_of(tree)] = alike
    return found


def _networks(root: Branch) -> Iterable[tuple[LeafPath, set[tuple[object, ...]]]]:
    """What may be a network of its own, with the names of its leaves: a root, and the networks in it.

    Of networks inside, names of one key tell nothing: many have a `scale`.
    """
    yield path_of(root), _all_names(root)
    for network in networks_in(root):
        yield network.path, {names for names in _names(network) if len(names) > 1}


def _all_names(tree: Branch) -> set[tuple[object, ...]]:
    """The names of a tree's leaves, from each node that may stand for it."""
    return {names for node in descents(tree) for names in _names(node)}


def _names(branch: Branch) -> set[tuple[object, ...]]:
    leaves = branch.leaves() if isinstance(branch, Node) else ()
    return {tuple(leaf[len(path_of(branch)) :]) for leaf in leaves}
