"""States that are known by the names of their fields: which kinds they may be, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.draft.recipe import is_numeric
from surgery_cli.optimizer.detect.findings import Findings
from surgery_cli.optimizer.detect.groups import Group, Signal
from surgery_cli.optimizer.detect.mirrors import Branch, Mirror, Node, path_of
from surgery_cli.optimizer.detect.params_like import Matching
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.detect.stated_kind import NamedKinds
from surgery_cli.optimizer.knowledge.kinds import (
    UNDER_PARAM,
    VANISHING,
    Field,
    Kind,
    by_name,
    by_signature,
)
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec


class States:
    """Recognises states, and records the slots, clocks and numbers in them."""

    def __init__(
        self, tree: TreeSpec, matching: Matching, named: NamedKinds, findings: Findings
    ) -> None:
        self._tree, self._matching = tree, matching
        self._named, self._findings = named, findings

    def recognised(
        self, node: Node, signal: Signal, *, inside: bool
    ) -> tuple[tuple[Kind, ...], Signal]:
        """The kinds that a node may be by its names and shapes, recorded, and the signal that reaches it.

        No kinds if it is no state. Beside the optimizer state (not ``inside``) an average of anything looks like one
        of gradients, so that the signal is not known there.
        """
        kinds = by_signature().get(frozenset(node.children), ())
        if not kinds:
            return (), signal
        names = list(kinds[0].fields)
        matches = {
            name: self._matching.find(node.children[name])
            for name in names
            if name in node.children
        }
        fitting = {name: m for name, m in matches.items() if isinstance(m, Mirror)}
        if not inside and not (fitting and len(names) + len(kinds[0].clocks) > 1):
            return (), signal
        # what says more than where it keeps another state may keep any: `inject_hyperparams` of a masked one
        within = kinds[0].inner if kinds[0].clocks or kinds[0].others else ()
        own = (child for name, child in node.children.items() if name not in within)
        if not fitting and any(map(looks_like_state, own)):
            return (), signal  # a named chain, of which a state is called as a field is
        relations = {n: m.relation or "same" for n, m in fitting.items() if m.pairs}
        left = tuple(
            k for k in kinds if all(r in k.fields[n].relations for n, r in relations.items())
        )
        if not inside:
            if not left:
                return (), signal
            if left[0].after == "same":
                signal = Signal(None)
        self._record(node, left or kinds, signal, matches, relations if left else {})
        return left or kinds, signal

    def _record(
        self, node: Node, kinds: tuple[Kind, ...], signal: Signal,
        matches: Mapping[str, Mirror | list[LeafPath]], relations: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Record a state of one of ``kinds``, first what the user's word leaves of them."""
        kinds, forced = self._named.narrow(node.path, kinds, signal.behind)
        self._findings.family[node.path] = kinds[0].family
        for name, match in matches.items():
            hint = self._matching.hint(node.children[name])
            if hint is not None and hint.ignore:
                continue
            if not isinstance(match, Mirror) or (match.pairs and name not in relations):
                candidates = match if isinstance(match, list) else []
                where = path_of(node.children[name])
                odd = self._matching.odd_nodes(where)
                self._findings.ask(where, candidates, self._matching.root, odd)
                continue
            self._findings.groups.append(
                Group(
                    owner=node.path,
                    name=name,
                    family=kinds[0].family,
                    mirror=match,
                    fields={k.name: _said(hint, k.fields[name]) for k in kinds},
                    relation=relations.get(name, "same"),
                    signal=signal,
                    forced=forced,
                    hint=hint,
                )
            )
        self._record_numbers(node, kinds[0])

    def _record_numbers(self, node: Node, kind: Kind) -> None:
        """Record the clocks of a state, and the numbers in it that mean something."""
        is_older = any(field not in node.children for field in VANISHING.get(kind.name, ()))
        for name, usual in kind.clocks.items():
            leaf = node.children.get(name)
            if isinstance(leaf, LeafPath) and self._tree[leaf].shape == ():
                # what is empty is not there in Flax NNX, whatever the release
                older = kind.older_clocks if is_older and leaf[-1] != "value" else {}
                drives = older.get(name, usual)
                owner = leaf if name in kind.lone_clocks else node.path
                self._findings.add_clock(owner, leaf, drives, kind.clock_fresh.get(name, 0))
        for name, meaning in kind.numbers.items():
            leaf = node.children.get(name)
            if isinstance(leaf, LeafPath) and self._tree[leaf].kind is not LeafKind.EMPTY:
                self._findings.hyperparams[leaf] = meaning
        for name, fresh in kind.running.items():
            leaf = node.children.get(name)
            if isinstance(leaf, LeafPath) and is_numeric(self._tree[leaf]):
                self._findings.running[leaf] = fresh
        for name in (*kind.numbers, *kind.running, *kind.estimates):
            leaf = node.children.get(name)
            if isinstance(leaf, LeafPath) and is_numeric(self._tree[leaf]):
                # a state without slots, such as a plateau's, stands beside those that go by it
                self._findings.shared[leaf] = (
                    node.path if kind.fields or kind.inner else node.path.parent
                )
        own = (node.children.get(name) for name in kind.nonnegative)
        self._findings.nonnegative.update(leaf for leaf in own if isinstance(leaf, LeafPath))
        own = (node.children.get(name) for name in kind.infinite)
        self._findings.infinite.update(leaf for leaf in own if isinstance(leaf, LeafPath))
        hyperparams = node.children.get("hyperparams") if "hyperparams" in kind.others else None
        if isinstance(hyperparams, Node):
            for leaf in hyperparams.leaves():
                below = LeafPath(leaf[len(hyperparams.path) :])
                is_variable = len(below) == 2 and below[1] == "value"  # of Flax NNX
                self._findings.hyperparams[leaf] = str(below[0] if is_variable else below)
                if is_numeric(self._tree[leaf]):
                    self._findings.shared[leaf] = node.path

    def under_params(self, node: Node) -> bool:
        """Record slots that stand under the params' paths, as in T5X and ``flax.optim``; False if there are none."""
        match = self._matching.find(node, frozenset(UNDER_PARAM))
        if not isinstance(match, Mirror):
            return False
        parts = match.by_tail()
        if not parts or "" in parts:
            return False
        is_factored = "v_row" in parts
        family = "adafactor" if is_factored else "flax.optim"
        self._findings.family[node.path] = family
        self._named.narrow(node.path, (by_name()["factored" if is_factored else "adam"],))
        _, forced = self._named.narrow(node.path, (by_name()["ema"],))
        for name, part in parts.items():
            signal = Signal(None if name == "m" else -1)
            field = UNDER_PARAM[name]
            group = self._findings.add(part, name, field, signal, family, owner=node.path)
            group.forced = forced if name == "m" else None
        step = LeafPath((*node.path[:-1], "step"))
        if step in self._tree:
            corrects = "bias_correction" if "grad_ema" in parts else "nothing"
            self._findings.add_clock(node.path, step, "decay" if is_factored else corrects)
        return True


def looks_like_state(child: Branch) -> bool:
    """True for the names of the fields of a known state, be it one that is no more than its name says."""
    return isinstance(child, Node) and frozenset(child.children) in by_signature()


def looks_like_chain(node: Branch) -> bool:
    """True for a state with several known fields, and for a sequence in which one stands, or in a sequence in it.

    In a sequence a single field tells enough: params have no list of what is called ``trace`` or ``nu`` alone.
    """
    if not isinstance(node, Node):
        return False
    known = by_signature().get(frozenset(node.children))
    if known is not None and len(known[0].fields) + len(known[0].clocks) > 1:
        return True
    return node.is_sequence and any(map(_is_link, node.children.values()))


def _is_link(node: Branch) -> bool:
    known = by_signature().get(frozenset(node.children)) if isinstance(node, Node) else None
    return looks_like_chain(node) or (known is not None and bool(known[0].fields))


def _said(hint: SlotHint | None, known: Field) -> Field:
    """The field as the user says, where the user says something."""
    return (hint.instead_of(known) if hint else None) or known
