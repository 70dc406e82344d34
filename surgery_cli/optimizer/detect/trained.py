"""The trees that optimizers may train, and the states that optimizers keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from surgery_cli.optimizer.detect.copies import arrays_of
from surgery_cli.optimizer.detect.mirrors import Branch, Node, path_of
from surgery_cli.optimizer.detect.params_root import descents, is_optimizer_name, params_child
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.detect.states import looks_like_chain, looks_like_state
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


def trees_and_states(top: Branch, roots: Sequence[Branch]) -> tuple[list[Branch], list[Node]]:
    """The trees below ``top`` that may be trained, first the ``roots`` that are known, and the highest nodes of states.

    Where the root is all that there is, there is nothing beside it.
    """
    paths = [path_of(root) for root in roots]
    others: list[Branch] = []
    states: list[Node] = []
    if isinstance(top, Node) and all(paths):
        _sort_out(top, others, states)
    return [*roots, *(tree for one in others for tree in _besides(one, paths))], states


def is_said(tree: Branch, hints: Mapping[str, SlotHint]) -> bool:
    """True for what the user says to be slots, or nobody's twin: it is neither trained nor a copy of what is."""
    path = path_of(tree)
    above = (hints.get(str(LeafPath(path[:depth]))) for depth in range(1, len(path)))
    own = any(str(path_of(node)) in hints for node in descents(tree))
    return own or any(hint is not None and hint.ignore for hint in above)


def named_as(left: Sequence[LeafPath], trees: Sequence[Branch], tree: TreeSpec) -> set[LeafPath]:
    """Which of ``trees`` have some leaf under the keys in which one of ``left`` ends."""
    found = set()
    for one in trees:
        inner = [path_of(node) for node in descents(one)]
        keys = {
            tuple(leaf[len(node) :])
            for leaf in arrays_of(tree, one)
            for node in inner
            if leaf.is_below(node)
        }
        lengths = {len(key) for key in keys} - {0}
        if any(tuple(leaf[-n:]) in keys for leaf in left for n in lengths):
            found.add(path_of(one))
    return found


def _besides(branch: Branch, roots: Sequence[LeafPath]) -> Iterator[Branch]:
    """A tree, or what stands in it beside a root that is a part of it."""
    path = path_of(branch)
    if any(map(path.is_below, roots)):
        return
    if not any(root.is_below(path) for root in roots):
        yield branch
    elif isinstance(branch, Node):
        for child in branch.children.values():
            if isinstance(child, Node):
                yield from _besides(child, roots)


def _sort_out(top: Node, trees: list[Branch], states: list[Node]) -> None:
    """The trees that optimizers may train, and the highest nodes of optimizer state, below ``top``."""
    for key, child in top.children.items():
        if not isinstance(child, Node):
            continue
        if is_optimizer_name(key) or looks_like_state(child) or looks_like_chain(child):
            states.append(child)
        elif key != params_child(top) and _has_parts(child):
            _sort_out(child, trees, states)
        else:
            trees.append(child)


def _has_parts(node: Node, depth: int = 4) -> bool:
    """True for a node in which params or states of optimizers stand, by their usual names or those of their fields."""
    if params_child(node) or any(map(is_optimizer_name, node.children)):
        return True
    inner = [child for child in node.children.values() if isinstance(child, Node)]
    if any(map(looks_like_chain, inner)):
        return True
    return depth > 1 and any(_has_parts(child, depth - 1) for child in inner)
