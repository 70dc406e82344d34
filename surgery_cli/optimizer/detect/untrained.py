"""Trees that no optimizer trains and that copy what one trains: averages and targets, wherever they stand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.beside import copy_beside
from surgery_cli.optimizer.detect.common_names import likeness
from surgery_cli.optimizer.detect.findings import Findings
from surgery_cli.optimizer.detect.groups import Signal
from surgery_cli.optimizer.detect.mirrors import Branch, Mirror, Node, Shapes, mirror, path_of
from surgery_cli.optimizer.detect.params_root import descents
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


def copies_of_trained(
    tree: TreeSpec, trees: Iterable[Branch], slots: Mapping[LeafPath, Slot]
) -> Findings:
    """The copies among ``trees`` of params with ``slots``; of several that one may copy, those of its name.

    A copy has every param that is trained of a tree, whatever else stands there, or is just like a network in it; or
    it has some of its params and nothing else, each at its very place.
    """
    params = {
        slot.param for slot in slots.values() if slot.in_optimizer and slot.relation != "hole"
    }
    known = {path for path, slot in slots.items() if not slot.in_optimizer}
    trained: list[tuple[Branch, Shapes]] = []
    others: list[Node] = []
    for one in trees:
        if _stand_below(one, params):
            trained.append((one, Shapes(one, tree)))
        elif isinstance(one, Node) and not _stand_below(one, known):
            others.append(one)
    found = Findings()
    for copy in others:
        fits = [fit for one, shapes in trained for fit in _fits(tree, one, shapes, copy, params)]
        shared = {fit.root: likeness(fit.node, fit.root) for fit in fits}
        best = [fit for fit in fits if shared[fit.root] == max(shared.values())]
        if len(best) == 1:
            name = next((str(key) for key in reversed(copy.path) if key != "params"), "copy")
            left = [
                pair for pair in best[0].pairs if pair.leaf not in slots
            ]  # the user's word has it
            field = copy_beside(best[0], needs_of=True)
            found.add(
                best[0]._replace(pairs=left), name, field, Signal(1), "copy", in_optimizer=False
            )
    return found


def _fits(
    tree: TreeSpec, trained: Branch, shapes: Shapes, copy: Node, params: Collection[LeafPath]
) -> Iterator[Mirror]:
    wholes = [fit for node in descents(trained) if (fit := _like(tree, node, copy)) is not None]
    for fit in wholes:
        has = {pair.param for pair in fit.pairs}
        if all(param in has for param in params if param.is_below(path_of(trained))):
            yield fit
            return
    networks = [
        fit
        for state in descents(copy)
        # of one layer alone there are many by chance
        if isinstance(state, Node) and any(map(_is_node, state.children.values()))
        for node in shapes.equal_to(state)
        if (fit := mirror(node, state, tree)) is not None and fit.pairs
    ]
    yield from networks or wholes[:1]


def _like(tree: TreeSpec, params: Branch, copy: Node) -> Mirror | None:
    """The copy as one of params, or of some of them, by their very keys and shapes."""
    fit = mirror(params, copy, tree)
    return fit if fit is not None and fit.pairs and fit.relation == "same" else None


def _is_node(branch: Branch) -> bool:
    return isinstance(branch, Node)


def _stand_below(branch: Branch, paths: Collection[LeafPath]) -> bool:
    leaves = branch.leaves() if isinstance(branch, Node) else (branch,)
    return any(leaf in paths for leaf in leaves)
