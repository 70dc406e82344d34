"""Several networks in one tree, as those of an actor and a critic, and whose the states are that optimizers keep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.detect.common_names import distance, has_no_name, is_named_as, likeness
from surgery_cli.optimizer.detect.copies import Copies, Fit, Keys, arrays_of
from surgery_cli.optimizer.detect.findings import whose_state
from surgery_cli.optimizer.detect.mirrors import Branch, Node, path_of
from surgery_cli.optimizer.detect.namesakes import namesakes
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.detect.states import looks_like_state
from surgery_cli.optimizer.detect.trained import is_said, named_as, trees_and_states
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

Owners: TypeAlias = frozenset[LeafPath | None]
"""The networks of which a node of a state keeps copies; None where several may be the one."""


class Networks:
    """The trees that optimizers may train, the states that they keep, and which state is whose.

    A state belongs to the tree whose names and shapes it copies, all of them or a part. Of several it is the one that
    stands nearest, then the one of which the state has the name, as `critic_opt_state` and `opt_state/critic` have;
    else the root of the params that is known by its own name, and of others the one that is named as the state and no
    more. That one of them has nothing else than the copy tells nothing: so has an average of what is trained.
    """

    def __init__(
        self,
        tree: TreeSpec,
        top: Branch,
        roots: Sequence[Branch],
        hints: Mapping[str, SlotHint],
        *,
        are_said: bool,
    ) -> None:
        """``roots``: where params are known to stand, as the user said or by their names; ``hints``: of states."""
        self._tree, self._hints, self._are_said = tree, hints, are_said
        self._roots = [path_of(root) for root in roots]
        trees, self.states = trees_and_states(top, roots)
        self.trees = [one for one in trees if one in roots or not is_said(one, hints)]
        self._owners: dict[LeafPath, Owners] = {}
        self._undecided: dict[LeafPath, list[LeafPath]] = {}
        """The trees that a copy may be one of, where nothing tells which."""
        self._owned: dict[LeafPath, list[LeafPath]] = {}
        """By tree, or node of one, the copies that are its own, and the nodes that the user says are."""
        self._presumed: set[LeafPath] = set()
        """Of what copies are only as it is the root or has their name; where it has two states neither may be."""
        self._equal: set[LeafPath] = set()
        self._namesakes: dict[LeafPath, list[LeafPath]] = {}
        self._are_several = bool(self.states) and len(self.trees) > 1
        self._copies = Copies(tree, self.trees if self._are_several else [])
        if self._are_several:
            self._hold_against_each_other()

    def _hold_against_each_other(self) -> None:
        for state in self.states:
            self._copies.mark(state)
        self._look_at_states()
        self._equal = {one for one in self._presumed if self._differ(self._owned_around(one))}
        self._namesakes = namesakes(
            self.trees, self._roots, lambda path: bool(self._owned_around(path))
        )
        if self._equal or self._namesakes:
            self._owners, self._undecided = {}, {}
            self._look_at_states()

    def _owned_around(self, place: LeafPath) -> list[LeafPath]:
        return [
            copy
            for one, copies in self._owned.items()
            if one.is_below(place) or place.is_below(one)
            for copy in copies
        ]

    def _look_at_states(self) -> None:
        for state in self.states:
            self._look(state, state, tuple(state.path[-1:]), is_named=True)

    def _look(
        self, branch: Branch, state: Node, names: Keys, *, is_named: bool, is_field: bool = False
    ) -> Owners:
        """Record the owners of a node and of what stands below it; its owners.

        ``names``: the keys by which several states are told apart; no more come where it is not ``is_named``.
        ``is_field``: of a state that is known by its fields.
        """
        if isinstance(branch, LeafPath):
            return frozenset()
        if (hint := self._hints.get(str(branch.path))) is not None:
            owners = self._said_by(hint)
            self._copies.mirrored_by(branch, is_field=is_field)
            for tree in filter(None, owners):
                self._owned.setdefault(tree, []).append(branch.path)
        elif fits := self._copies.mirrored_by(branch, is_field=is_field):
            owners = frozenset([self._owner(branch, fits, state, names, is_field=is_field)])
        elif is_field and not self._hints and not self._copies.are_all_of(branch):
            return frozenset()
        else:
            of_state = looks_like_state(branch)
            goes_on = is_named and not (of_state or branch.is_sequence)
            inner = [
                self._look(
                    child,
                    state,
                    (*names, key) if goes_on else names,
                    is_named=goes_on,
                    is_field=of_state,
                )
                for key, child in branch.children.items()
            ]
            owners = frozenset().union(*inner)
            if not owners and is_named and not goes_on and self._untold(branch):
                owners = self._other_owners(branch, state, names)
        if owners:
            self._owners[branch.path] = owners
        return owners

    def _differ(self, fields: Collection[LeafPath]) -> bool:
        """True if fields are of several states: in different places, or one of the same name for the same params."""
        states = {s.path for s in self.states for field in fields if field.is_below(s.path)}
        whole = [path for path in fields if path not in self._copies.fields]  # of which it is said
        apart = any(not field.is_below(path) for path in whole for field in fields)
        return len(states) > 1 or apart or self._copies.overlap(fields)

    def _said_by(self, hint: SlotHint) -> Owners:
        """The tree in which the node stands that the user names; nobody's where that is none."""
        said = (hint.of or "").strip("/")
        paths = [path for path in map(path_of, self.trees) if f"{said}/".startswith(f"{path}/")]
        return frozenset(paths[:1])

    def _other_owners(self, branch: Node, state: Node, names: Keys) -> Owners:
        """Whose a state is that keeps no copy of any tree, if it may as well be that of a tree just like the root."""
        rivals = [
            trees
            for trees in self._copies.alike
            if len(trees) > 1 and (not self._roots or {*trees} & {*self._roots})
        ]
        owners = {
            self._owner(branch, [Fit(tree, tree) for tree in trees], state, names)
            for trees in rivals
        }
        return frozenset(owners - {*self._roots})

    def _owner(
        self, copy: Node, fits: list[Fit], state: Node, names: Keys, *, is_field: bool = False
    ) -> LeafPath | None:
        """The tree of one of ``fits``, all just like the copy, that it belongs to; None if it may be any."""
        distances = {fit.tree: self._distance(state, fit.tree) for fit in fits}
        near = [fit for fit in fits if distances[fit.tree] == min(distances.values())]
        shared = {fit: likeness(names, fit.place) for fit in near}
        best = [fit for fit in near if shared[fit] == max(shared.values())]
        if len({fit.tree for fit in best}) > 1:
            roots = [fit for fit in best if self._is_known(fit.tree, state)]
            named = [fit for fit in best if is_named_as(names, fit.place)]
            one = next(
                (some for some in (roots, named) if len({fit.tree for fit in some}) == 1), best
            )
            if (place := _common(one)) not in self._equal:
                best = one
                self._presumed |= {place} if len({fit.tree for fit in one}) == 1 else set()
        trees = list(dict.fromkeys(fit.tree for fit in best))
        alike = self._namesakes.get(trees[0], ()) if is_field else ()
        rivals = [one for one in alike if likeness(names, one) >= shared[best[0]]]
        trees = [root for root in self._roots if any(x.is_below(root) for x in rivals)] + trees
        if len(trees) == 1:
            self._owned.setdefault(_common(best), []).append(copy.path)
            return trees[0]
        self._undecided[copy.path] = trees
        return None

    def _is_known(self, tree: LeafPath, state: Node) -> bool:
        """True for a root that is told as such: by the user, or as the params of what the state stands in, too.

        In a node of another name, `params` may be those of an average.
        """
        is_around = state.path.is_below(tree.parent)
        return tree in self._roots and (self._are_said or is_around or has_no_name(tree))

    def _distance(self, state: Node, tree: LeafPath) -> int:
        """How far a state is from the smallest node around a tree in which any state stands."""
        around = (LeafPath(tree[:depth]) for depth in reversed(range(len(tree))))
        scope = next(x for x in around if any(one.path.is_below(x) for one in self.states))
        return distance(state.path.parent, scope)

    # --- what follows for the walks -----------------------------------------------------------------------

    def apart_from(self, root: LeafPath) -> set[LeafPath]:
        """The highest nodes of states that keep copies, and none of this root."""
        return {node.path for node in self._highest(lambda owners: root not in owners)}

    def scopes_besides(self, pairs: Sequence[tuple[Branch, Branch]]) -> list[tuple[Node, Branch]]:
        """The highest nodes of states with copies of one tree alone, with it, that no walk of ``pairs`` comes to."""
        seen = {path_of(root): path_of(scope) for scope, root in pairs}
        return [
            (state, tree)
            for tree in self.trees
            for state in self._states_of(path_of(tree))
            if not (path_of(tree) in seen and state.path.is_below(seen[path_of(tree)]))
            and not self._is_part(state)
        ]

    def _states_of(self, tree: LeafPath) -> list[Node]:
        return list(self._highest(lambda owners: owners == {tree}))

    def _is_part(self, node: Node) -> bool:
        """True for what is a copy itself, beside others in one state: what it is stands above it."""
        return node not in self.states and node.path in self._copies.fields

    def questions(self, slots: Iterable[Slot]) -> list[tuple[Problem, tuple[LeafPath, ...]]]:
        """What only the user can say, and which trees' edits need it; ``slots``: those that the walks have found."""
        found: list[tuple[Node, set[LeafPath]]] = []
        for node in self._highest(lambda owners: owners == {None}):
            found += self._units(node)
        for tree in map(path_of, self.trees):
            found += [(part, {tree}) for part in self._states_of(tree) if self._is_part(part)]
        slots = list(slots)
        paths = {slot.path for slot in slots}
        for state in self.states if self._are_several else ():
            if state.path not in self._owners and str(state.path) not in self._hints:
                trained = self._trained(s for s in slots if not s.path.is_below(state.path))
                left = [leaf for leaf in self._untold(state) if leaf not in paths]
                found.append(
                    (
                        state,
                        named_as(left, self.trees, self._tree) - trained - self._roots_and_copies(),
                    )
                )
        is_one = not self._roots and len(found) == 1
        return [
            (whose_state(state.path, concerned, needs_root=needs_root), concerned)
            for state, trees in found
            if (concerned := tuple(path for path in map(path_of, self.trees) if path in trees))
            # a root that has a state of its own would not settle whose this one is
            for needs_root in [is_one and not any(map(self._owned_around, trees))]
        ]

    def _units(self, node: Branch) -> Iterator[tuple[Node, set[LeafPath]]]:
        """The highest nodes with undecided copies of no field twice, and the trees that these may be of."""
        copies = [path for path in self._undecided if path.is_below(path_of(node))]
        if not isinstance(node, Node) or not copies:
            return
        if self._differ(copies):
            for child in node.children.values():
                yield from self._units(child)
        else:
            yield node, {tree for copy in copies for tree in self._undecided[copy]}

    def _roots_and_copies(self) -> set[LeafPath]:
        """Of what a state of theirs does not explain the walk asks that looks for slots of the roots."""
        alike = (trees for trees in self._copies.alike if {*trees} & {*self._roots})
        return {*self._roots}.union(*alike)

    def _untold(self, branch: Node) -> list[LeafPath]:
        """Its arrays of which the user says nothing."""
        arrays = arrays_of(self._tree, branch)
        if not self._hints:
            return arrays
        above = {leaf: (leaf[:depth] for depth in range(1, len(leaf) + 1)) for leaf in arrays}
        return [x for x in arrays if not any(str(LeafPath(n)) in self._hints for n in above[x])]

    def _trained(self, slots: Iterable[Slot]) -> set[LeafPath]:
        """The trees of which a state of an optimizer keeps slots."""
        roots = {slot.root for slot in slots if slot.in_optimizer}
        paths = map(path_of, self.trees)
        return {path for path in paths if any(r.is_below(path) or path.is_below(r) for r in roots)}

    def without_copies_of_trained(self, slots: dict[LeafPath, Slot]) -> dict[LeafPath, Slot]:
        """``slots`` but for copies of params that are trained by an optimizer of their own: they are none."""
        if not self._are_several:
            return slots
        trained = self._trained(slots.values())
        return {
            path: slot
            for path, slot in slots.items()
            if slot.in_optimizer or not any(map(path.is_below, trained - {slot.root}))
        }

    def _highest(self, holds: Callable[[Owners], bool]) -> Iterator[Node]:
        waiting: list[Branch] = list(self.states)
        while waiting:
            node = waiting.pop(0)
            owners = self._owners.get(path_of(node))
            if not isinstance(node, Node) or owners is None:
                continue
            if holds(owners):
                yield node
            else:
                waiting[:0] = node.children.values()


def _common(fits: Sequence[Fit]) -> LeafPath:
    """The place of fits of one tree: the tree itself where there are several."""
    return fits[0].place if len(fits) == 1 else fits[0].tree
