"""Finds the model's variables in a checkpoint, by the paths and shapes that the model itself asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from surgery_cli.errors import Problem, SurgeryError
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.probing.model.calls import Collections, Expected, Path, Slot
from surgery_cli.probing.model.misfits import Misfit, as_expected, findings, fits, nowhere, unboxed
from surgery_cli.tree.nearness import suggested
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec

PARAMS: Final = ("params", "Param")
"""The collections that `--params` places: linen's and NNX's."""


class Binding(msgspec.Struct, frozen=True):
    """Which leaf of the checkpoint each variable of the model is.

    ``places`` says where each collection stands. ``made`` are optional variables that the checkpoint does not have.
    ``unused`` are leaves beside the bound ones that the model does not ask for.
    """

    places: dict[str, LeafPath]
    leaves: dict[Slot, LeafPath]
    made: list[Slot]
    unused: list[LeafPath]

    def as_stored(self, expected: Collections, tree: TreeSpec) -> Collections:
        """The variables with the dtypes that the checkpoint holds, as a restored state would have them."""
        return {
            name: {
                path: as_expected(tree[self.leaves[name, path]]) if (name, path) in self.leaves else wanted
                for path, wanted in paths.items()
            }
            for name, paths in expected.items()
        }  # fmt: skip


def bind(
    tree: TreeSpec, expected: Collections, named: Mapping[str, str], *, is_part: bool = False
) -> Binding:
    """Bind every variable of the model to a leaf.

    ``named`` gives printed paths of nodes for collections that the user places. ``is_part``: only a part of the model
    is run, so that leaves beside its own are no surprise.

    Raises:
        Misfit: variables are missing or have other shapes; every finding at once, with hints.
        SurgeryError: a named node or collection is not there, or several places fit equally well.
    """
    _check_names(tree, expected, named)
    votes = _Votes(tree, expected)
    places: dict[str, LeafPath] = {}
    problems: list[Problem] = []
    for name in sorted(expected, key=lambda name: name not in PARAMS):
        if name in named:
            places[name] = _node(tree, named[name])
            continue
        found = votes.winner(name, near=next(iter(places.values()), None))
        if found is not None:
            places[name] = found
        elif not all(e.is_optional for e in expected[name].values()):
            problems.append(nowhere(name, expected[name], tree))
    leaves: dict[Slot, LeafPath] = {}
    made: list[Slot] = []
    missing: dict[Slot, Expected] = {}
    shapes: list[tuple[LeafPath, LeafSpec, Expected]] = []
    for name, place in places.items():
        below = votes.below(place)
        for path, wanted in expected[name].items():
            leaf = below.get(path)
            if leaf is not None and fits(tree[leaf], wanted):
                leaves[name, path] = leaf
            elif wanted.is_optional:
                made.append((name, path))
            elif leaf is None:
                missing[name, path] = wanted
            else:
                shapes.append((leaf, tree[leaf], wanted))
    made += [(n, p) for n in expected if n not in places for p in expected[n]]
    known = set(leaves.values()) | {leaf for leaf, _, _ in shapes}
    unused = [] if is_part else _beside(tree, places, known)
    problems += findings(places, missing, shapes, unused, tree)
    if problems:
        raise Misfit.of(problems)
    return Binding(places, leaves, made, unused)


class _Votes:
    """For every collection, the nodes under which its paths are found, and how well they fit there."""

    def __init__(self, tree: TreeSpec, expected: Collections) -> None:
        self.tree = tree
        self.expected = expected
        self.keys = {path: unboxed(path) for path, spec in tree.items() if spec.has_array}
        found = survey(tree)
        self.twins = {node for path in found.slots for node in _nodes_above(path)}
        self.sizes = Counter(node for path in self.keys for node in _nodes_above(path))
        everything = {path for paths in expected.values() for path in paths}
        self.matched = Counter(place for _, place, _ in self._found(everything))

    def below(self, place: LeafPath) -> dict[Path, LeafPath]:
        """The leaves below a node, by their keys from there."""
        depth = len(place)
        return {keys[depth:]: path for path, keys in self.keys.items() if path.is_below(place)}

    def winner(self, name: str, near: LeafPath | None) -> LeafPath | None:
        """The node under which the collection fits best; None if nothing of it is anywhere."""
        wanted = self.expected[name]
        shapes: Counter[LeafPath] = Counter()
        paths: Counter[LeafPath] = Counter()
        for path, place, tail in self._found(wanted):
            paths[place] += 1
            shapes[place] += fits(self.tree[path], wanted[tail])
        if not paths:
            return None

        def rank(place: LeafPath) -> tuple[object, ...]:
            return (
                shapes[place],
                paths[place],
                self.matched[place] - self.sizes[place],  # leaves that no collection asks for
                not self._is_optimizer(place),
                place[-1:] in (("params",), (name,)),
                not any("ema" in str(key).lower() for key in place),
                _shared(place, near) if near is not None else 0,
                -len(place),
            )

        best = max(paths, key=rank)
        if name in PARAMS and self._is_optimizer(best):
            raise SurgeryError(
                f"the model's {name} fit only the optimizer state, at '{best}'",
                why="that is no parameters but their moments or a copy that an optimizer keeps",
                fix=f"if it is what you want to look at: `--params {best}`",
                field="params",
            )
        equal = [place for place in paths if rank(place) == rank(best)]
        if len(equal) > 1:
            raise SurgeryError(
                f"the model's {name} fit several places equally well",
                why=", ".join(f"'{place}'" for place in equal),
                fix=f"say which: `{_option(name)}{equal[0]}`",
                field="params",
            )
        return best

    def _found(self, wanted: Collection[Path]) -> Iterator[tuple[LeafPath, LeafPath, Path]]:
        """Every leaf whose last keys are one of the wanted paths: the leaf, the node above these keys, the keys."""
        lengths = {len(path) for path in wanted}
        for path, keys in self.keys.items():
            for length in lengths:
                tail = keys[len(keys) - length :]
                if length <= len(keys) and tail in wanted:
                    yield path, LeafPath(path[: len(keys) - length]), tail

    def _is_optimizer(self, place: LeafPath) -> bool:
        return place in self.twins or any(map(is_optimizer_name, place))


def _nodes_above(path: LeafPath) -> Iterator[LeafPath]:
    for length in range(len(path)):
        yield LeafPath(path[:length])


def _shared(a: LeafPath, b: LeafPath) -> int:
    return sum(1 for x, y in zip(a, b, strict=False) if x == y)


def _option(name: str) -> str:
    return "--params " if name in PARAMS else f"--bind {name}="


def _check_names(tree: TreeSpec, expected: Collections, named: Mapping[str, str]) -> None:
    for name, text in named.items():
        if name not in expected:
            raise SurgeryError(
                f"the model has no collection '{name}'",
                why="it has " + ", ".join(f"'{n}'" for n in expected),
                field="bind",
            )
        _node(tree, text)


def _node(tree: TreeSpec, text: str) -> LeafPath:
    """The node whose path is ``text``, as it is shown or as its keys are; ``.`` is the root."""
    wanted = text.strip("/")
    shown = {str(node): node for node in tree.nodes}
    known = {node.text: node for node in tree.nodes} | shown
    if wanted in (".", ""):
        return LeafPath()
    if wanted not in known:
        raise SurgeryError(
            f"there is no node '{text}' in the checkpoint",
            fix=suggested(wanted, shown),
            field="params",
        )
    return known[wanted]


def _beside(tree: TreeSpec, places: Mapping[str, LeafPath], known: set[LeafPath]) -> list[LeafPath]:
    """Leaves below the bound places that no variable is; those of a whole tree only where the model is the tree."""
    roots = [place for place in places.values() if place or len(set(places.values())) == 1]
    return [
        path
        for path, spec in tree.items()
        if spec.has_array and path not in known and any(path.is_below(root) for root in roots)
    ]
