"""Where the params stand, and which part of the tree is optimizer state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.mirrors import Branch, Node, Shapes, path_of
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.lists import quoted

OPTIMIZER_NAMES: Final = frozenset(
    {
        "opt",
        "opt_state",
        "opt_states",
        "optim",
        "optim_state",
        "optimizer",
        "optimizer_state",
        "optimizer_states",
        "optimizers",
        "param_states",
        "tx_state",
    }
)
"""Names of nodes below which everything is optimizer state."""

OPTIMIZER_WORDS: Final = frozenset({"opt", "optim", "optimizer", "optimizers"})


@lru_cache(maxsize=4096)  # a tree has few names, and asks for each of its leaves
def is_optimizer_name(key: object) -> bool:
    """True for a usual name of optimizer state, with a word before or behind it where there are several.

    >>> [is_optimizer_name(key) for key in ("opt_state", "opt_g", "critic_opt_state", "options", 0)]
    [True, True, True, False, False]
    """
    return key in OPTIMIZER_NAMES or bool(OPTIMIZER_WORDS & words_of(key))


def words_of(key: object) -> set[str]:
    """The words of a name, without numbers behind them.

    >>> sorted(words_of("Critic_opt_state2"))
    ['critic', 'opt', 'state']
    """
    return {word.rstrip("0123456789") or word for word in str(key).lower().split("_")}


def params_child(node: Node) -> str:
    """The child of a train state that is its params, where it has one of the names that say so; else an empty string.

    `target` is the name in a train state of T5X, and elsewhere that of a network that follows another.
    """
    children = node.children
    if "params" in children:
        return "params"
    if {"target", "state"} <= children.keys():
        return "target"
    return "model" if "model" in children and any(map(is_optimizer_name, children)) else ""


def scopes(top: Branch, params: str | None) -> list[tuple[Branch, Branch]]:
    """Every params root with the part of the tree in which its twins are looked for: (scope, root).

    Several roots stand in several train states (an actor's and a critic's), each with its own optimizer state.

    Raises:
        PlanError: ``params`` names no node of the tree.
    """
    if params is not None:
        return [(top, _named(top, params))]
    if not isinstance(top, Node):
        return []
    nested = [(node, node.children[params_child(node)]) for node in _train_states(top)]
    if name := params_child(top):
        with_state = [pair for pair in nested if any(map(is_optimizer_name, pair[0].children))]
        return [(top, top.children[name]), *with_state]
    if len(nested) == 1:
        return [(top, nested[0][1])]
    return [*nested] or _beside_optimizer(top) or _whole_model(top)


def _train_states(top: Node, depth: int = 4) -> Iterator[Node]:
    """The nodes below ``top`` in which params stand by their name, and not in other params or in a state."""
    for key, child in top.children.items():
        if not isinstance(child, Node) or is_optimizer_name(key) or key == params_child(top):
            continue
        if params_child(child):
            yield child
        if depth > 1:
            yield from _train_states(child, depth - 1)


def _whole_model(top: Node) -> list[tuple[Branch, Branch]]:
    """A tree that is a Flax NNX state of a model and nothing else: all leaves are called ``value``."""
    if any(map(is_optimizer_name, top.children)):
        return []
    return [(top, top)] if all(leaf[-1:] == ("value",) for leaf in top.leaves()) else []


def _beside_optimizer(top: Node) -> list[tuple[Branch, Branch]]:
    """A model beside its optimizer, as ``nnx.state`` of both gives it: the only other node."""
    if not any(map(is_optimizer_name, top.children)):
        return []
    others = [
        child
        for key, child in top.children.items()
        if isinstance(child, Node) and not is_optimizer_name(key)
    ]
    return [(top, others[0])] if len(others) == 1 else []


def _named(top: Branch, text: str) -> Branch:
    """The node or leaf whose path is ``text``, as it is shown or as its keys are."""
    wanted, waiting = text.strip("/"), [top]
    while waiting:
        branch = waiting.pop()
        path = path_of(branch)
        texts = (str(path), path.text)
        if wanted in texts:
            return branch
        if isinstance(branch, Node) and (
            not path or wanted.startswith(tuple(f"{one}/" for one in texts))
        ):
            waiting.extend(branch.children.values())
    known = [str(path_of(c)) for c in top.children.values()] if isinstance(top, Node) else []
    raise PlanError(
        f"there is no node '{text}' for `params`",
        why="the tree has " + quoted(known, 8),
        fix=f"did you mean '{(nearest(text, known, 1) or known[:1] or [''])[0]}'?",
    )


def descents(root: Branch) -> list[Branch]:
    """The root, and what stands below it as long as there is one child or a collection ``params``.

    Optimizers see the variables' dict or the collection in it: ``params/params/decoder`` or ``decoder``.
    """
    found = [root]
    while isinstance(root, Node):
        children = list(root.children.values())
        inner = root.children.get("params")
        if inner is None and len(children) == 1:
            inner = children[0]
        if not isinstance(inner, Node):
            break
        found.append(inner)
        root = inner
    return found


def networks_in(root: Branch) -> Iterator[Node]:
    """The nodes inside of params that may be networks of their own: those that are more than a layer."""
    inner = descents(root)[-1]
    waiting = list(inner.children.values()) if isinstance(inner, Node) else []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, Node) and any(isinstance(x, Node) for x in node.children.values()):
            yield node
            waiting[:0] = node.children.values()


def fast_and_slow(root: Branch, tree: TreeSpec) -> tuple[Node, Node] | None:
    """The two copies in ``optax.LookaheadParams``, or None if the params are something else."""
    if not isinstance(root, Node) or root.children.keys() != {"fast", "slow"}:
        return None
    fast, slow = root.children["fast"], root.children["slow"]
    if (
        isinstance(fast, Node)
        and isinstance(slow, Node)
        and slow in Shapes(root, tree).equal_to(fast)
    ):
        return fast, slow
    return None


def is_step(path: LeafPath) -> bool:
    """True for the names under which training loops count their steps."""
    name = path[-2] if len(path) > 1 and path[-1] == "value" else path[-1]
    return str(name) in ("step", "steps", "global_step", "iteration", "epoch", "num_steps")
