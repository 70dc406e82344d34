"""Which part of the params a part of the optimizer state mirrors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from surgery_cli.optimizer.detect.mirrors import (
    Branch,
    Mirror,
    Node,
    Shapes,
    mirror,
    path_of,
)
from surgery_cli.optimizer.detect.params_root import (
    descents,
    fast_and_slow,
    networks_in,
    scopes,
)
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


class Matching:
    """Finds what mirrors the params below ``root`` (None if there are none) of the tree ``top``."""

    def __init__(
        self, tree: TreeSpec, top: Branch, root: Branch | None, hints: Mapping[str, SlotHint]
    ) -> None:
        self._tree, self._top, self._hints = tree, top, hints
        double = fast_and_slow(root, tree) if root is not None else None
        self.candidates = [] if root is None else descents(double[0] if double else root)
        self._shapes: Shapes | None = None

    @property
    def root(self) -> LeafPath | None:
        """Where the params stand, of which a part may be mirrored; None if there are none."""
        return path_of(self.candidates[0]) if self.candidates else None

    def odd_nodes(self, path: LeafPath) -> list[tuple[LeafPath, LeafPath]]:
        """Where the state at ``path`` and the params have different keys: the one node of each side without the other.

        The pairs stand at one place each; where a side has several such nodes, nothing says which is which.
        """
        state, params = _at(self._top, path), self.candidates[0] if self.candidates else None
        return [] if state is None or params is None else list(_odd(state, params))

    def find(self, state: Branch, names: frozenset[str] = frozenset()) -> Mirror | list[LeafPath]:
        """The part of the params that ``state`` mirrors; else the nodes that it might mirror (none, or several)."""
        partial: list[Mirror] = []
        hint = self.hint(state)
        for params in self._said(hint):
            found = mirror(params, state, self._tree, names)
            if found is None or not self._fits(found, names):
                continue
            if found.missing == 0:
                return found
            partial.append(found)
        if hint is None or hint.of is None:
            partial += self._equal_parts(state)
        if len(partial) == 1:
            return partial[0]
        return [found.root for found in partial]

    def _said(self, hint: SlotHint | None) -> list[Branch]:
        """The nodes of params that may be mirrored: where the user says so, that one."""
        if hint is None or hint.of is None:
            return self.candidates
        return descents(scopes(self._top, hint.of)[0][1])

    def _fits(self, found: Mirror, names: frozenset[str]) -> bool:
        """True if one rule relates all shapes (slots under the params' paths: one for each name)."""
        if not names:
            return not found.pairs or found.relation is not None
        return all(part.relation is not None for part in found.by_tail().values())

    def _equal_parts(self, state: Branch) -> list[Mirror]:
        """Mirrors of parts of the params with the very names and shapes of ``state``, or of networks that have more."""
        if not self.candidates or isinstance(state, LeafPath):
            return []
        if self._shapes is None:
            self._shapes = Shapes(self.candidates[0], self._tree)
        equal = (mirror(params, state, self._tree) for params in self._shapes.equal_to(state))
        found = [one for one in equal if one is not None and one.pairs]
        if found:
            return found
        within = (mirror(params, state, self._tree) for params in networks_in(self.candidates[0]))
        return [one for one in within if one is not None and one.pairs and one.relation == "same"]

    def whole(self, state: Node) -> Mirror | None:
        """The mirror of all params, shape for shape, that ``state`` is; None if it is none."""
        return next(filter(None, (self._copy(params, state) for params in self.candidates)), None)

    def _copy(self, params: Branch, state: Node) -> Mirror | None:
        """The mirror of all of ``params``, shape for shape, that ``state`` is; None if it is none."""
        found = mirror(params, state, self._tree)
        if found is None or found.missing or not found.pairs:
            return None
        return found if found.relation == "same" else None

    def hint(self, state: Branch) -> SlotHint | None:
        """What the user says of a part of the tree."""
        return self._hints.get(str(path_of(state))) if self._hints else None

    @contextmanager
    def belonging_to(self, hint: SlotHint) -> Iterator[None]:
        """Within, only the params that the user named are candidates."""
        before = self.candidates, self._shapes
        self.candidates, self._shapes = self._said(hint), None
        try:
            yield
        finally:
            self.candidates, self._shapes = before


def _at(branch: Branch, path: LeafPath) -> Branch | None:
    for key in path:
        child = branch.children.get(str(key)) if isinstance(branch, Node) else None
        if child is None:
            return None
        branch = child
    return branch


def _odd(state: Branch, params: Branch) -> Iterator[tuple[LeafPath, LeafPath]]:
    if not isinstance(state, Node) or not isinstance(params, Node):
        return
    here = [child for key, child in state.children.items() if key not in params.children]
    there = [child for key, child in params.children.items() if key not in state.children]
    if len(here) == len(there) == 1:
        yield path_of(here[0]), path_of(there[0])
    for key, child in state.children.items():
        if key in params.children:
            yield from _odd(child, params.children[key])
