"""Leaves that stand at one printed place in two trees, in a list in the one and in a dict in the other."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


def alike_but_for_containers(here: TreeSpec, there: TreeSpec) -> dict[LeafPath, LeafPath]:
    """Leaves of ``here`` that ``there`` has below other containers, each with the one there.

    >>> from surgery_cli.tree.specs import LeafKind, LeafSpec
    >>> spec = LeafSpec(kind=LeafKind.ARRAY)
    >>> trees = [TreeSpec({LeafPath(("layers", key)): spec}) for key in (0, "0")]
    >>> [(path[-1], other[-1]) for path, other in alike_but_for_containers(*trees).items()]
    [(0, '0')]
    """
    others = {path.spelling: path for path in there if path not in here}
    if not others:
        return {}
    own = ((path, others.get(path.spelling)) for path in here if path not in there)
    return {path: other for path, other in own if other is not None}


def unlike_containers(pairs: Mapping[LeafPath, LeafPath]) -> dict[LeafPath, tuple[str, str]]:
    """The nodes above such leaves that are a list in one tree and a dict in the other, with what they are in both."""
    return {
        LeafPath(path[:depth]): ("list", "dict") if isinstance(key, int) else ("dict", "list")
        for path, other in pairs.items()
        for depth, key in enumerate(path)
        if isinstance(key, int) != isinstance(other[depth], int)
    }
