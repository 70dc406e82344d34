"""The walk through a tree to its optimizer state, and the signal that reaches each part of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from surgery_cli.draft.slots import SAID, UNKNOWN
from surgery_cli.optimizer.detect.beside import copy_beside
from surgery_cli.optimizer.detect.findings import Findings
from surgery_cli.optimizer.detect.groups import Behind, Signal
from surgery_cli.optimizer.detect.mirrors import Branch, Mirror, Node, path_of
from surgery_cli.optimizer.detect.params_like import Matching
from surgery_cli.optimizer.detect.params_root import is_optimizer_name, is_step
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.detect.stated_kind import NamedKinds
from surgery_cli.optimizer.detect.states import States, looks_like_chain
from surgery_cli.optimizer.knowledge.kinds import BESIDE, Kind
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec

__all__ = ["Signal", "Walk"]


class Walk:
    """Goes through states in the order in which updates do, and gathers what it finds.

    ``top`` is the whole tree, ``root`` the params (None if there are none).
    """

    def __init__(
        self,
        tree: TreeSpec,
        top: Branch,
        root: Branch | None,
        named: NamedKinds,
        hints: Mapping[str, SlotHint],
        apart: Collection[LeafPath] = (),
    ) -> None:
        """``apart``: the nodes that are for the walks of other roots."""
        self.tree, self._apart = tree, apart
        self.found = Findings()
        self.matching = Matching(tree, top, root, hints)
        self._states = States(tree, self.matching, named, self.found)
        self._root = root
        self._with_holes = {
            path[: len(_below_optimizer(path)) - 1]
            for path, spec in tree.items()
            if spec.kind is LeafKind.EMPTY
        }
        self._strangers: dict[LeafPath, LeafPath] = {}

    def visit(self, branch: Branch, signal: Signal, *, inside: bool) -> Signal:
        """Look at a node of the tree; returns the signal behind it. ``inside``: within optimizer state."""
        if branch is self._root or path_of(branch) in self._apart:
            return signal
        hint = self.matching.hint(branch)
        if hint is not None:
            return self._hinted(branch, hint, signal)
        if isinstance(branch, LeafPath):
            return self._leaf(branch, signal, inside=inside)
        return self._node(branch, signal, inside=inside)

    def _node(self, branch: Node, signal: Signal, *, inside: bool) -> Signal:
        kinds, reaching = self._states.recognised(branch, signal, inside=inside)
        if kinds:
            return self._behind(branch, kinds, reaching)
        if branch.path[-1:] == ("param_states",) and self._states.under_params(branch):
            return Signal(None)
        if (
            branch.is_sequence
            and not self._is_around_params(branch)
            and (inside or looks_like_chain(branch))
        ):
            return self._chain(branch, signal)
        if self._copy(branch, inside=inside):
            return Signal(None) if inside else signal
        return self._side_by_side(branch, signal, inside=inside)

    def _leaf(self, leaf: LeafPath, signal: Signal, *, inside: bool) -> Signal:
        spec = self.tree[leaf]
        if spec.kind is LeafKind.EMPTY:
            # clipping, a trust ratio, a sign, nothing: all alike
            return Signal(None, signal.behind)
        if not leaf or not spec.has_array or spec.kind is LeafKind.KEY:
            return signal
        if not is_integer(spec.dtype):
            if inside and spec.size > 1:
                self._strangers.setdefault(_below_optimizer(leaf), leaf)
        elif spec.shape == () and is_step(leaf):
            self.found.add_clock(leaf.parent, leaf, "nothing")
        return signal

    def _chain(self, chain: Node, signal: Signal) -> Signal:
        """A sequence of states. Gaps are states without leaves, which Flax NNX leaves out."""
        current, expected = signal, 0
        for index, child in chain.in_order():
            reaching = current if index == expected else Signal(None, current.behind)
            if isinstance(child, Node) and child.is_sequence and reaching is not signal:
                reaching = Signal(None)  # a chain in a chain, or two optimizers in a tuple
            current = self.visit(child, reaching, inside=True)
            expected = index + 1
        if current is not signal and self._may_lack_states(chain):
            return Signal(None, current.behind)  # more states may have stood at its end
        return current

    def _is_around_params(self, node: Node) -> bool:
        return self._root is not None and self._root in node.children.values()

    def _may_lack_states(self, node: Node) -> bool:
        """True if states without leaves are not kept in this part of the tree (Flax NNX), as far as it shows."""
        optimizer = _below_optimizer(LeafPath((*node.path, "")))
        return optimizer[:-1] not in self._with_holes

    def _side_by_side(self, node: Node, signal: Signal, *, inside: bool) -> Signal:
        """A dict: several optimizers, or a named chain, whose order the disk does not keep."""
        reaching: list[tuple[Signal, bool]] = []
        is_beside_root = self._is_around_params(node)
        may_be_chain = inside and self._may_lack_states(node)
        for key, child in node.children.items():
            # in a list or tuple of params and state, no name says which is which
            within = inside or is_optimizer_name(key) or (is_beside_root and node.is_sequence)
            is_state = may_be_chain and not is_optimizer_name(key)
            value = None if is_state else signal.value
            start = Signal(value, is_per_leaf=signal.is_per_leaf)
            behind = self.visit(child, start, inside=within)
            reaching.append((start, within and behind is not start))
        changing = sum(changes for _, changes in reaching)
        for start, changes in reaching:
            if inside and changing > changes:  # one of the others, which may stand before it
                start.value = None
        return Signal(None) if changing else signal

    def _behind(self, node: Node, left: tuple[Kind, ...], signal: Signal) -> Signal:
        """Visit the states inside a state, which is of one of these kinds; the signal behind it."""
        kind, kinds = left[0], tuple(k.name for k in left)
        for name in kind.others:
            child = node.children.get(name)
            if name != "hyperparams" and isinstance(child, Node):
                self.visit(child, Signal(None), inside=True)
        inner = [node.children[name] for name in kind.inner if name in node.children]
        if kind.name == "partition":
            inner = list(inner[0].children.values()) if isinstance(inner[0], Node) else []
        behind = [self.visit(child, signal, inside=True) for child in inner]
        if kind.after == "unsure":
            return Signal(None, signal.behind)
        if kind.after != "same":
            after = kind.after if isinstance(kind.after, int) else None
            behind_it = Behind(node.path, kinds)
            return Signal(after, behind_it, is_per_leaf=bool(kind.over_leaf))
        if not behind or all(s is signal for s in behind):
            return signal
        values = {s.value for s in behind}
        if kind.name == "masked" or len(values) > 1:
            return Signal(None)  # some params pass by, others go through
        return Signal(values.pop(), behind[0].behind if len(behind) == 1 else None)

    # --- trees without a known state ---------------------------------------------------------------------

    def _copy(self, node: Node, *, inside: bool) -> bool:
        """A tree like the params under an unknown name: a slot to ask for, or a copy beside the optimizer."""
        match = self.matching.whole(node) if node.path else None
        if match is None:
            return False
        name = str(node.path[-1])
        if inside:
            group = self.found.add(match, name, None, Signal(None), UNKNOWN)
            group.hint = self.matching.hint(node)
        else:
            field = copy_beside(match)
            self.found.add(match, name, field, Signal(1), "copy", in_optimizer=False)
        return True

    def _hinted(self, branch: Branch, hint: SlotHint, signal: Signal) -> Signal:
        """A part of the state of which the user said what it is, or at least which params it belongs to."""
        if hint.ignore:
            return Signal(None)
        if not hint.says_what and isinstance(branch, Node):
            with self.matching.belonging_to(hint):
                return self._node(branch, signal, inside=True)
        match = self.matching.find(branch)
        if isinstance(match, Mirror) and match.pairs:
            name = str(match.node[-1])
            if hint.copy:
                group = self.found.add(match, name, BESIDE, Signal(1), "copy", in_optimizer=False)
            else:
                group = self.found.add(match, name, hint.field, signal, SAID)
            group.hint = hint
        else:
            self._ask(path_of(branch), [])
        return Signal(None)

    def ask_for_strangers(self) -> None:
        """Ask once for every part of the optimizer state in which arrays stand that nothing explains."""
        for node in self._strangers:
            self._ask(node, [])

    def _ask(self, path: LeafPath, candidates: list[LeafPath]) -> None:
        self.found.ask(path, candidates, self.matching.root, self.matching.odd_nodes(path))


def _below_optimizer(leaf: LeafPath) -> LeafPath:
    """The part of the optimizer state in which a leaf stands: the node below its root."""
    depth = next((d for d, key in enumerate(leaf) if is_optimizer_name(key)), len(leaf) - 2)
    return LeafPath(leaf[: max(depth, 0) + 2])
