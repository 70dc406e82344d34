"""How Orbax names the parts of a pytree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from surgery_cli.tree.paths import Key, LeafPath


def stored_leaves(pytree: Any, path: LeafPath = LeafPath()) -> Iterator[tuple[LeafPath, Any]]:
    """The leaves that are not empty, with their paths as Orbax stores them."""
    for key, child in children_of(pytree):
        if key is None:
            yield path, child
        else:
            yield from stored_leaves(child, path / (key,))


def children_of(node: Any) -> list[tuple[Key | None, Any]]:
    """The children of a pytree node with their keys as Orbax stores them; ``(None, node)`` for a leaf."""
    import jax

    found = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[0]
    return [((_stored_key(keys[0]) if keys else None), child) for keys, child in found]


def _stored_key(key: Any) -> Key:
    """A key of JAX as Orbax records it: attributes and dict keys as text, places in sequences as numbers."""
    from jax.tree_util import DictKey, GetAttrKey, SequenceKey

    if isinstance(key, SequenceKey):
        return int(key.idx)
    if isinstance(key, GetAttrKey):
        return str(key.name)
    return str(key.key) if isinstance(key, DictKey) else int(key.key)


def plain_path(path: LeafPath) -> LeafPath:
    """A path without what depends on how a script saves it: digits are text, the last key ``value`` of NNX goes.

    >>> str(plain_path(LeafPath((0, "mu", "kernel", "value"))))
    '0/mu/kernel'
    """
    texts = tuple(str(key) for key in path)
    return LeafPath(texts[:-1] if texts[-1:] == ("value",) else texts)


def param_of(slot: LeafPath, params: Mapping[LeafPath, object]) -> LeafPath | None:
    """The param whose path stands in that of a slot, the longest and last one; None if there is none.

    >>> param_of(LeafPath(("0", "mu", "a", "w")), {LeafPath(("a", "w")): 1, LeafPath(("w",)): 1})
    ('a', 'w')
    """
    best: LeafPath | None = None
    for end in range(len(slot), -1, -1):
        for start in range(end + 1):
            part = LeafPath(slot[start:end])
            if part in params and (best is None or len(part) > len(best)):
                best = part
    return best
