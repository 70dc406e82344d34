"""Which subtree stands under another name: by the record of earlier edits, or as the only one of its structure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from surgery_cli.matching.former_names import by_former_names
from surgery_cli.matching.pairs import Certainty
from surgery_cli.matching.structures import Node, Numbers, Structures, Template, numbered
from surgery_cli.matching.vocabulary import CUSTOMS
from surgery_cli.matching.words import meaning_of, words_of
from surgery_cli.matching.wrapped_subtrees import filled, shared_keys
from surgery_cli.tree.nested import Branch, nested
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.quantities import leaves_text

Former: TypeAlias = Sequence[Mapping[str, str]]
"""Where leaves stood before earlier edits, by their path now, the latest edits first."""

ON_RECORD: Final = "the record says that it stood there"


class Moved(NamedTuple):
    """A node or leaf of the old tree, and where it stands in the new one."""

    old: LeafPath
    new: LeafPath
    certainty: Certainty
    why: str


class _Unit(NamedTuple):
    """A node, or the nodes of a series, by the numbers in their paths."""

    path: tuple[Key, ...]
    structure: Hashable
    nodes: tuple[Node, ...]

    @property
    def elements(self) -> int:
        return sum(node.elements for node in self.nodes)

    @property
    def leaves(self) -> int:
        return sum(node.leaves for node in self.nodes)


_Fits: TypeAlias = Callable[[_Unit, _Unit, int], bool]


def moved_subtrees(
    old: Mapping[LeafPath, LeafSpec], new: Mapping[LeafPath, LeafSpec], former: Former = ()
) -> list[Moved]:
    """Subtrees of equal structure and shapes, dtypes aside, of which there is only one way to pair them.

    First those whose ``former`` name the new tree has, or that a library called otherwise once, then whole nodes that
    moved one level down or up (a chain around the optimizer, a module around the model), numbered layers as a series,
    what is alone in its structure near its place (a renamed layer, another order of a chain), and parts that were
    wrapped or unwrapped. Where two could be one there is no pair, as a guess could swap two layers.
    """
    here, there = nested(old), nested(new)
    if not isinstance(here, Branch) or not isinstance(there, Branch):
        return []
    work = _Work(Structures(here, there), there)
    for names in former:
        work.as_before(names)
    work.by_former_names()
    work.pair(_singles, _is_level, "the same subtree, a level apart")
    work.pair(_series, _is_series, "")
    work.pair(_singles, work.is_renamed, "")
    work.wrapped()
    return work.found


class _Work:
    """What has no pair yet of both sides, and the pairs that there are."""

    def __init__(self, structures: Structures, there: Branch[LeafSpec]) -> None:
        self.structures = structures
        self.there = there
        self.here, self.theres = list(structures.old), list(structures.new)
        self.found: list[Moved] = []
        self._taken: tuple[set[LeafPath], set[LeafPath]] = (set(), set())
        self._above: tuple[set[LeafPath], set[LeafPath]] = (set(), set())

    def _take(self, old: Node, new: Node, certainty: Certainty, why: str) -> None:
        self.found.append(Moved(old.path, new.path, certainty, why))
        for side, path in enumerate((old.path, new.path)):
            self._taken[side].add(path)
            self._above[side].update(LeafPath(path[:n]) for n in range(1, len(path)))

    def _is_free(self, side: int, path: LeafPath) -> bool:
        taken = self._taken[side]
        return path not in self._above[side] and not any(
            path[:n] in taken for n in range(1, len(path) + 1)
        )

    def _drop_taken(self) -> None:
        self.here = [node for node in self.here if self._is_free(0, node.path)]
        self.theres = [node for node in self.theres if self._is_free(1, node.path)]

    def as_before(self, names: Mapping[str, str]) -> None:
        """Pair nodes of which a record says that they stood where the new tree has something alike."""
        goals = {str(node.path): node for node in self.theres}
        before: dict[LeafPath, set[str]] = defaultdict(set)
        for path in (node.path for node in self.here if node.is_leaf):
            text = names.get(str(path), "")
            for depth in range(1, len(path) + 1):
                before[LeafPath(path[:depth])].add(_node_before(text, LeafPath(path[depth:])))
        for node in self.here:
            places = before[node.path]
            goal = goals.get(next(iter(places))) if len(places) == 1 else None
            is_alike = goal is not None and goal.structure == node.structure
            if goal is not None and is_alike and self._is_free(0, node.path):
                self._take(node, goal, Certainty.SURE, ON_RECORD)
        self._drop_taken()

    def by_former_names(self) -> None:
        """Pair leaves that a library has another name for by now."""
        for old, new, why in by_former_names(self.here, self.theres):
            if self._is_free(0, old.path) and self._is_free(1, new.path):
                self._take(old, new, Certainty.LIKELY, why)
        self._drop_taken()

    def pair(self, units: Callable[[Iterable[Node]], list[_Unit]], fits: _Fits, why: str) -> None:
        """Pair what is the only one of its structure below a node, of the lowest nodes first."""
        here, there = units(self.here), units(self.theres)
        deepest = max((len(unit.path) for unit in (*here, *there)), default=0)
        for depth in range(deepest, -1, -1):
            while found := sorted(_alone(here, there, fits, depth), key=lambda two: -two[0].leaves):
                for one, other in found:
                    pairs = [*zip(one.nodes, other.nodes, strict=True)]
                    if all(self._is_free(0, a.path) and self._is_free(1, b.path) for a, b in pairs):
                        certainty, said = self._reason(one, other)
                        for a, b in pairs:
                            self._take(a, b, certainty, ", ".join(filter(None, (why, said))))
                here = [one for one in here if self._are_free(0, one)]
                there = [one for one in there if self._are_free(1, one)]
        self._drop_taken()

    def _are_free(self, side: int, unit: _Unit) -> bool:
        return all(self._is_free(side, node.path) for node in unit.nodes)

    def _reason(self, one: _Unit, other: _Unit) -> tuple[Certainty, str]:
        """How sure a pair is, and why."""
        old, new = one.nodes[0], other.nodes[0]
        what = "shape" if old.is_leaf else f"structure ({leaves_text(old.leaves)})"
        if len(one.nodes) > 1:
            what = f"numbers and {what}"
        names = [
            meaning_of(words_of(node.path if node.is_leaf else node.path / ("kernel",)))
            for node in (old, new)
        ]
        if all(self.structures.is_only(node.structure) for node in (*one.nodes, *other.nodes)):
            is_sure = names[0].does_not_contradict(names[1]) and (
                old.leaves > 1 or old.path[-1] == new.path[-1]
            )
            said = f"no other on either side has its {what}"
            return (Certainty.SURE if is_sure else Certainty.LIKELY), said
        shared = shared_keys(old.path, new.path)
        where = f" below '{LeafPath(old.path[:shared])}'" if shared else ""
        return Certainty.LIKELY, f"the only one left of its {what}{where}"

    def is_renamed(self, one: _Unit, other: _Unit, depth: int) -> bool:
        """True for a whole node under another name beside its old place, or near it; not the end of a series."""
        (a,), (b,) = one.nodes, other.nodes
        is_beside = a.path.parent == b.path.parent
        is_telling = a.elements > 1 or (is_beside and a.is_top and b.is_top)
        if a.path == b.path or not (a.is_whole and b.is_whole and is_telling):
            return False
        if not is_beside and not depth:
            return False
        siblings = [a.path.parent / (key,) for key in _keys_at(self.there, a.path.parent)]
        return not (_is_out_of_order(a.path, b.path, siblings) or _may_be_turned(a, b))

    def wrapped(self) -> None:
        """Pair the parts of a node that are, by their last keys, nodes of the other side, if all of them are."""
        for inner, outer in ((0, 1), (1, 0)):
            sides = (self.here, self.theres)
            for top, parts in [*filled(sides[inner], sides[outer])]:
                is_free = self._is_free(outer, top.path)
                if is_free and all(self._is_free(inner, part.path) for part, _ in parts):
                    for part, place in parts:
                        old, new = (place, part) if inner else (part, place)
                        said = "all parts of the node have their names and structures there"
                        self._take(old, new, Certainty.LIKELY, said)
            self._drop_taken()


def _alone(
    here: Sequence[_Unit], there: Sequence[_Unit], fits: _Fits, depth: int
) -> Iterator[tuple[_Unit, _Unit]]:
    """The pairs of what is the only one of its structure below one node of this depth, on both sides."""
    groups: dict[Hashable, tuple[list[_Unit], list[_Unit]]] = {}
    for side, units in enumerate((here, there)):
        for unit in units:
            if len(unit.path) >= depth:
                key = unit.structure, unit.path[:depth]
                groups.setdefault(key, ([], []))[side].append(unit)
    for ours, theirs in groups.values():
        if len(ours) == len(theirs) == 1 and fits(ours[0], theirs[0], depth):
            yield ours[0], theirs[0]


def _singles(nodes: Iterable[Node]) -> list[_Unit]:
    return [_Unit(node.path, node.structure, (node,)) for node in nodes]


def _series(nodes: Iterable[Node]) -> list[_Unit]:
    """The nodes whose paths differ in numbers only."""
    found: dict[Template, dict[Numbers, Node]] = defaultdict(dict)
    for node in nodes:
        template, numbers = numbered(node.path)
        found[template].setdefault(numbers, node)
    return [
        _Unit(
            template,
            frozenset((numbers, node.structure) for numbers, node in members.items()),
            tuple(members[numbers] for numbers in sorted(members)),
        )
        for template, members in found.items()
        if len(members) > 1
    ]


def _is_level(one: _Unit, other: _Unit, _: int) -> bool:
    """True for a node that stands whole at a child of itself, or the other way round."""
    (a,), (b,) = one.nodes, other.nodes
    if a.path == b.path.parent:
        return a.is_whole
    return b.is_whole and b.path == a.path.parent


def _is_series(one: _Unit, other: _Unit, depth: int) -> bool:
    is_near = depth > 0 or one.path[:-1] == other.path[:-1]
    return is_near and all(
        a.path.text != b.path.text for a, b in zip(one.nodes, other.nodes, strict=True)
    )


def _node_before(text: str, tail: LeafPath) -> str:
    """The node that a leaf stood below, if it kept the keys ``tail``."""
    return text.removesuffix(f"/{tail}") if tail and text.endswith(f"/{tail}") else text


def _is_out_of_order(old: LeafPath, new: LeafPath, others: Iterable[LeafPath]) -> bool:
    """True if two paths are of one series, and others of it, which keep their numbers, stand between them.

    A layer more at the one end and less at the other is a shift of all of them, no move of the one.
    """
    template, before = numbered(old)
    if numbered(new)[0] != template:
        return False
    after = numbered(new)[1]
    low, high = min(before, after), max(before, after)
    return any(numbered(path)[0] == template and low < numbered(path)[1] < high for path in others)


def _may_be_turned(old: Node, new: Node) -> bool:
    """True for leaves whose names say that axes stand in another order there, as `weight` and `kernel` do."""
    if old.leaves > 1 or old.path[-1] == new.path[-1]:
        return False
    last = [meaning_of(words_of(node.path)).last for node in (old, new)]
    return any((sort[0], sort[1]) == (last[0], last[1]) for sort in CUSTOMS)


def _keys_at(tree: Branch[LeafSpec], path: LeafPath) -> Collection[Key]:
    node: Branch[LeafSpec] | LeafSpec | None = tree
    for key in path:
        node = node.get(key) if isinstance(node, Branch) else None
    return node.keys() if isinstance(node, Branch) else ()
