"""The walk through the part of a tree that holds optimizer state."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.errors import Problem
from surgery_cli.optimizer.groups import Behind, Group, Signal, SlotHint
from surgery_cli.optimizer.kinds import BESIDE, UNDER_PARAM, Field, Kind, by_name, by_signature
from surgery_cli.optimizer.matching import Matching, by_tail
from surgery_cli.optimizer.mirrors import (
    Branch,
    Mirror,
    Node,
    path_of,
    relation,
)
from surgery_cli.optimizer.named import NamedKinds
from surgery_cli.optimizer.roots import is_optimizer_name, is_step
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec, is_integer

__all__ = ["Signal", "Walk"]


class Walk:
    """Collects groups of slots, clocks, hyperparameters and questions, state by state.

    ``top`` is the whole tree, ``root`` the params (None if there are none).
    """

    def __init__(
        self,
        tree: TreeSpec,
        top: Branch,
        root: Branch | None,
        named: NamedKinds,
        hints: Mapping[str, SlotHint],
    ) -> None:
        self.tree = tree
        self.groups: list[Group] = []
        self.clocks: dict[LeafPath, dict[LeafPath, tuple[str, int]]] = {}
        self.hyperparams: dict[LeafPath, str] = {}
        self.family: dict[LeafPath, str] = {}
        self.questions: list[tuple[Problem, tuple[LeafPath, ...]]] = []
        self.matching = Matching(tree, top, root, hints)
        self._named, self._root = named, root
        self._has_holes = any(spec.kind is LeafKind.EMPTY for spec in tree.values())
        self._strangers: dict[LeafPath, LeafPath] = {}

    def add(
        self, match: Mirror, name: str, field: Field | None, signal: Signal, family: str,
        *, owner: LeafPath | None = None, in_optimizer: bool = True, group: str | None = None,
    ) -> None:  # fmt: skip
        """Add a group of one field whose meaning does not depend on a choice of kinds."""
        self.groups.append(
            Group(
                owner=match.node if owner is None else owner,
                name=name,
                family=family,
                mirror=match,
                fields={family: field},
                relation=group or relation(match.pairs, self.tree) or "same",
                signal=signal,
                in_optimizer=in_optimizer,
            )
        )

    # --- the walk ----------------------------------------------------------------------------------------

    def visit(self, branch: Branch, signal: Signal, *, inside: bool) -> Signal:
        """Look at a node of the tree; returns the signal behind it. ``inside``: within optimizer state."""
        if branch is self._root:
            return signal
        hint = self.matching.hint(branch)
        if hint is not None:
            return self._hinted(branch, hint, signal)
        if isinstance(branch, LeafPath):
            return self._leaf(branch, signal, inside=inside)
        return self._node(branch, signal, inside=inside)

    def _node(self, branch: Node, signal: Signal, *, inside: bool) -> Signal:
        known = by_signature().get(frozenset(branch.children))
        if known is not None:
            behind = self._state(branch, known, signal, inside=inside)
            if behind is not None:
                return behind
        if branch.path[-1:] == ("param_states",) and self._under_params(branch):
            return Signal(None)
        if branch.is_sequence and (inside or _looks_like_chain(branch)):
            return self._chain(branch, signal)
        if self._copy(branch, inside=inside):
            return Signal(None) if inside else signal
        return self._side_by_side(branch, signal, inside=inside)

    def ask_for_strangers(self) -> None:
        """Ask once for every part of the optimizer state in which arrays stand that nothing explains."""
        for node in self._strangers:
            self._ask(node, [])

    def _leaf(self, leaf: LeafPath, signal: Signal, *, inside: bool) -> Signal:
        spec = self.tree[leaf]
        if spec.kind is LeafKind.EMPTY:
            return Signal(
                None, signal.behind
            )  # clipping, a trust ratio, a sign, nothing: all alike
        if not leaf or not spec.has_array:
            return signal
        if spec.shape == () and is_integer(spec.dtype):
            if is_step(leaf):
                self.clocks.setdefault(leaf.parent, {})[leaf] = ("nothing", 0)
        elif (
            inside
            and spec.size > 1
            and not is_integer(spec.dtype)
            and spec.kind is not LeafKind.KEY
        ):
            self._strangers.setdefault(_below_optimizer(leaf), leaf)
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
        if current is not signal and not self._has_holes:
            return Signal(None, current.behind)  # more states may have stood at its end
        return current

    def _side_by_side(self, node: Node, signal: Signal, *, inside: bool) -> Signal:
        """A dict: several optimizers, or a named chain, whose order the disk does not keep."""
        reaching: list[tuple[Signal, bool]] = []
        others = self._of_others(node)
        for key, child in node.children.items():
            if key in others:
                continue
            within = inside or is_optimizer_name(key)
            start = Signal(signal.value)
            behind = self.visit(child, start, inside=within)
            reaching.append((start, within and behind is not start))
        changing = sum(changes for _, changes in reaching)
        for start, changes in reaching:
            if inside and changing > changes:  # one of the others, which may stand before it
                start.value = None
        return Signal(None) if changing else signal

    def _of_others(self, node: Node) -> set[str]:
        """Children of the root that are states of other trees than the params; asked for where no name tells."""
        if node.path:
            return set()
        states = {
            key: child
            for key, child in node.children.items()
            if is_optimizer_name(key) and self.matching.hint(child) is None
        }
        owners = self.matching.owners(states)
        for key, trees in owners.items():
            if len(trees) > 1:
                self._ask(path_of(states[key]), trees)
        return set(owners)

    def _state(
        self, node: Node, kinds: tuple[Kind, ...], signal: Signal, *, inside: bool
    ) -> Signal | None:
        """A state with known field names; None if it is none after all."""
        names = list(kinds[0].fields)
        matches = {
            name: self.matching.find(node.children[name]) for name in names if name in node.children
        }
        fitting = {name: m for name, m in matches.items() if isinstance(m, Mirror)}
        if not inside and not (fitting and len(names) + len(kinds[0].clocks) > 1):
            return None
        relations = {
            n: relation(m.pairs, self.tree) or "same" for n, m in fitting.items() if m.pairs
        }
        left = tuple(
            k for k in kinds if all(_allowed(k.fields[n], r) for n, r in relations.items())
        )
        if not inside:
            if not left:
                return None
            if left[0].after == "same":
                signal = Signal(None)  # an average beside the optimizer is not one of gradients
        self._emit(node, left or kinds, signal, matches, relations if left else {})
        return self._behind(node, left or kinds, signal)

    def _emit(
        self, node: Node, kinds: tuple[Kind, ...], signal: Signal,
        matches: Mapping[str, Mirror | list[LeafPath]], relations: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Record the slots, clocks and numbers of a state."""
        kinds, forced = self._named.narrow(node.path, kinds, signal.behind)
        kind = kinds[0]
        self.family[node.path] = kind.family
        moments = [m for m in matches.values() if isinstance(m, Mirror) and m.pairs]
        pair = self.matching.telling_pair(*moments) if len(moments) == 2 else None
        for name, match in matches.items():
            hint = self.matching.hint(node.children[name])
            if hint is not None and hint.ignore:
                continue
            if match == [] and self.matching.belongs_elsewhere(node.children[name]):
                continue
            if not isinstance(match, Mirror) or (match.pairs and name not in relations):
                self._ask(path_of(node.children[name]), match if isinstance(match, list) else [])
                continue
            self.groups.append(
                Group(
                    owner=node.path,
                    name=name,
                    family=kind.family,
                    mirror=match,
                    fields={k.name: _said(hint, k.fields[name]) for k in kinds},
                    relation=relations.get(name, "same"),
                    signal=signal,
                    forced=forced,
                    hint=hint,
                    pair=pair,
                )
            )
        for name, drives in kind.clocks.items():
            leaf = node.children.get(name)
            if isinstance(leaf, LeafPath) and self.tree[leaf].shape == ():
                fresh = kind.clock_fresh.get(name, 0)
                self.clocks.setdefault(node.path, {})[leaf] = (drives, fresh)
        for name, meaning in kind.numbers.items():
            leaf = node.children.get(name)
            if isinstance(leaf, LeafPath) and self.tree[leaf].kind is not LeafKind.EMPTY:
                self.hyperparams[leaf] = meaning

    def _behind(self, node: Node, left: tuple[Kind, ...], signal: Signal) -> Signal:
        """Visit the states inside a state, which is of one of these kinds; the signal behind it."""
        kind, kinds = left[0], tuple(k.name for k in left)
        for name in kind.others:
            child = node.children.get(name)
            if name == "hyperparams" and isinstance(child, Node):
                for leaf in child.leaves():
                    self.hyperparams[leaf] = str(LeafPath(leaf[len(child.path) :]))
            elif isinstance(child, Node):
                self.visit(child, Signal(None), inside=True)
        inner = [node.children[name] for name in kind.inner if name in node.children]
        if kind.name == "partition":
            inner = list(inner[0].children.values()) if isinstance(inner[0], Node) else []
        behind = [self.visit(child, signal, inside=True) for child in inner]
        if kind.after != "same":
            after = kind.after if isinstance(kind.after, int) else None
            return Signal(after, Behind(node.path, kinds))
        if not behind or all(s is signal for s in behind):
            return signal
        values = {s.value for s in behind}
        if kind.name == "masked" or len(values) > 1:
            return Signal(None)  # some params pass by, others go through
        return Signal(values.pop(), behind[0].behind if len(behind) == 1 else None)

    # --- trees without a known state ---------------------------------------------------------------------

    def _under_params(self, node: Node) -> bool:
        """Slots that stand under the params' paths, as in T5X and ``flax.optim``; False if there are none."""
        match = self.matching.find(node, frozenset(UNDER_PARAM))
        if not isinstance(match, Mirror):
            return False
        parts = by_tail(match)
        if not parts or "" in parts:
            return False
        family = "adafactor" if "v_row" in parts else "flax.optim"
        self.family[node.path] = family
        self._named.narrow(node.path, (by_name()["factored" if "v_row" in parts else "adam"],))
        _, forced = self._named.narrow(node.path, (by_name()["ema"],))
        for place, (name, pairs) in enumerate(parts.items()):
            part = match._replace(pairs=pairs, holes=match.holes if place == 0 else [])
            signal = Signal(None if name == "m" else -1)
            group = relation(pairs, self.tree)
            self.add(part, name, UNDER_PARAM[name], signal, family, owner=node.path, group=group)
            self.groups[-1].forced = forced if name == "m" else None
        step = LeafPath((*node.path[:-1], "step"))
        if step in self.tree:
            drives = (
                "decay"
                if "v_row" in parts
                else "bias_correction"
                if "grad_ema" in parts
                else "nothing"
            )
            self.clocks.setdefault(node.path, {})[step] = (drives, 0)
        return True

    def _copy(self, node: Node, *, inside: bool) -> bool:
        """A tree like the params under an unknown name: a slot to ask for, or a copy beside the optimizer."""
        match = self.matching.whole(node) if node.path else None
        if match is None:
            return False
        name = str(node.path[-1])
        if inside:
            self.add(match, name, None, Signal(None), "unknown")
            self.groups[-1].hint = self.matching.hint(node)
        else:
            self.add(match, name, BESIDE, Signal(1), "copy", in_optimizer=False)
        return True

    def _hinted(self, branch: Branch, hint: SlotHint, signal: Signal) -> Signal:
        """A part of the state of which the user said what it is, or at least which params it belongs to."""
        if hint.ignore:
            return Signal(None)
        if hint.field is None and isinstance(branch, Node):
            with self.matching.belonging_to(hint):
                return self._node(branch, signal, inside=True)
        match = self.matching.find(branch)
        if isinstance(match, Mirror) and match.pairs:
            self.add(match, str(match.node[-1]), hint.field, signal, "named in `slots:`")
            self.groups[-1].hint = hint
        else:
            self._ask(path_of(branch), [])
        return Signal(None)

    def _ask(self, path: LeafPath, candidates: list[LeafPath]) -> None:
        """Keep a question for the user, once for each node."""
        asked = candidates or [path_of(c) for c in self.matching.candidates[:1]]
        if not asked:
            return
        if candidates:
            why = "these have its structure and shapes: " + ", ".join(
                f"'{c}'" for c in candidates[:4]
            )
            nearest = max(candidates, key=lambda tree: len({*tree} & {*path}))
            fix = f"add `slots: {{{path}: {{of: {nearest}}}}}` to the plan, with the one that it belongs to"
        else:
            why = "its names and shapes do not follow those of the params"
            fix = f"add `slots: {{{path}: {{of: NODE, power: K}}}}`, or `{{ignore: true}}`"
        self.questions.append(
            (
                Problem(f"cannot tell which params '{path}' belongs to", why, fix, str(path)),
                tuple(asked),
            )
        )


def _said(hint: SlotHint | None, known: Field) -> Field:
    """The field as the user says, where the user says something."""
    return (hint.instead_of(known) if hint else None) or known


def _allowed(field: Field, group: str) -> bool:
    """True if a field may have this relation; a factored field may also look whole or unused."""
    return group in field.relations


def _below_optimizer(leaf: LeafPath) -> LeafPath:
    """The part of the optimizer state in which a leaf stands: the node below its root."""
    depth = next((d for d, key in enumerate(leaf) if is_optimizer_name(key)), len(leaf) - 2)
    return LeafPath(leaf[: max(depth, 0) + 2])


def _looks_like_chain(sequence: Node) -> bool:
    """True if a state with several known fields stands in the sequence, or in a sequence in it."""
    for child in sequence.children.values():
        if isinstance(child, Node):
            known = by_signature().get(frozenset(child.children))
            if known is not None and len(known[0].fields) + len(known[0].clocks) > 1:
                return True
            if child.is_sequence and _looks_like_chain(child):
                return True
    return False
