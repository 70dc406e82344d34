"""What a plan leaves open: where the tree that it makes is not the one that is wanted."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from surgery_cli.matching.arrangements import Arrangement
from surgery_cli.matching.containers import differing
from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import Family, families_of
from surgery_cli.matching.forms import Form
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec, nodes_above
from surgery_cli.words.series import folded, in_series


class Open(NamedTuple):
    """A leaf or node that is left over, or lacking, or not what it should be."""

    path: LeafPath
    what: str
    side: str
    leaves: tuple[LeafPath, ...]
    edit: dict[str, Any]
    """The rule that fails as long as it is open."""
    family: Family | None = None
    nodes: tuple[LeafPath, ...] = ()
    """All of which the same is said, where ``path`` is the first of several."""

    @property
    def text(self) -> str:
        """The family, the only leaf, or the node; several by a pattern."""
        if self.family is not None:
            return str(self.family)
        nodes = self.nodes or (self.path,)
        return ", ".join(folded(map(str, self.leaves if len(self.leaves) == len(nodes) else nodes)))


NO_SOURCE: Final = "has no source in A"
OTHER_VALUES: Final = "has other values in B"


def open_values(family: Family, why: str) -> Open:
    """Leaves that are paired by their names, and hold something else in the new tree."""
    what = OTHER_VALUES + "".join(why.partition(": ")[1:])
    rule = {"op": "assert", "at": family.pattern, "exists": False}
    return Open(family.members[0], what, "b", family.members, rule, family)


def open_in_place(
    here: Mapping[LeafPath, LeafSpec],
    unplaced: Mapping[LeafPath, LeafSpec],
    made: TreeSpec,
    holdings: Holdings,
) -> list[Open]:
    """Leaves of the new tree that are in no pair, and whose names have other values in what is made of the old one."""
    olds, stay = ({tuple(map(str, path)): path for path in tree} for tree in (here, made))
    found = []
    for new in (one for family in families_of(unplaced) for one in family.single()):
        keys = tuple(map(str, new.members[0]))
        if keys not in olds or keys not in stay or _difference(made[stay[keys]], new.spec):
            continue
        (old,) = families_of({olds[keys]: here[olds[keys]]})
        if not holdings.fitting(old, new, [Form(Arrangement())]):
            found.append(open_values(new, ""))
    return found


def open_between(made: TreeSpec, wanted: TreeSpec) -> list[Open]:
    """Everything in which the two trees differ; whole nodes as one."""
    by_keys = {tuple(map(str, path)): path for path in wanted}  # a key may have slashes
    matched = {path: by_keys[keys] for path in made if (keys := tuple(map(str, path))) in by_keys}
    extra = [path for path in made if path not in matched]
    reached = set(matched.values())
    missing = [path for path in wanted if path not in reached]
    found = [
        Open(node, "has no place in B", "a", leaves, _exists(node, is_there=False))
        for node, leaves in highest_nodes(extra, matched)
    ]
    found += [
        Open(node, NO_SOURCE, "b", leaves, _exists(node, is_there=True))
        for node, leaves in highest_nodes(missing, reached)
    ]
    for path, there in matched.items():
        what = _difference(made[path], wanted[there])
        if what:
            spec = wanted[there]
            rule = (
                {
                    "op": "assert",
                    "at": path.exact_pattern,
                    "shape": list(spec.shape),
                    "dtype": spec.dtype,
                }
                if spec.has_array
                else _exists(path, is_there=False)
            )
            found.append(Open(path, what, "b", (path,), rule))
    return found


def in_rows(left: Iterable[Open]) -> list[Open]:
    """Of numbered layers of which the same is open, one for all of them: what is left is to be read by a person."""
    rows: list[Open] = []
    for pattern, members in in_series(left, lambda one: one.path.exact_pattern, _said):
        first: Open = members[0]
        if len(members) > 1:
            leaves = tuple(leaf for one in members for leaf in one.leaves)
            rule = {**first.edit, "at": pattern}
            if rule.get("exists", "shape" in rule):
                # each of them: that one is there would be enough for `exists`, and for a shape
                rule.pop("exists", None)
                rule["count"] = f"{len(members)} nodes"
            nodes = tuple(one.path for one in members)
            first = first._replace(leaves=leaves, edit=rule, nodes=nodes)
        rows.append(first)
    return rows


def _said(one: Open) -> Hashable:
    """What is said of it, but for where it stands; of families nothing is that of others."""
    if one.family is not None:
        return id(one)
    rule = str({name: value for name, value in one.edit.items() if name != "at"})
    return one.what, one.side, rule, frozenset(leaf[len(one.path) :] for leaf in one.leaves)


def open_containers(made: TreeSpec, wanted: TreeSpec, leaves: Iterable[LeafPath]) -> list[Open]:
    """Lists that are dicts in the other tree, and dicts that are lists, above these of its leaves."""
    return [
        Open(
            node,
            "is a dict, and a list in B"
            if operation == "to-list"
            else "is a list, and a dict in B",
            "b",
            (node,),
            _exists(node, is_there=False),
        )
        for operation, nodes in differing(made, wanted, leaves).items()
        for node in nodes
    ]


def _exists(path: LeafPath, *, is_there: bool) -> dict[str, Any]:
    return {"op": "assert", "at": path.exact_pattern, "exists": is_there}


def _difference(made: LeafSpec, wanted: LeafSpec) -> str:
    if made.has_array and wanted.has_array:
        if made.shape != wanted.shape:
            return f"is {made.type_text}, and {wanted.type_text} in B"
        is_same = made.dtype == wanted.dtype
        return "" if is_same else f"is {made.type_text}, and {wanted.type_text} in B"
    if (
        made.has_array == wanted.has_array
        and made.kind is wanted.kind
        and made.empty == wanted.empty
    ):
        return ""
    return f"is {made.type_text}, and {wanted.type_text} in B"


def highest_nodes(
    leaves: Iterable[LeafPath], others: Collection[LeafPath]
) -> Iterator[tuple[LeafPath, tuple[LeafPath, ...]]]:
    """The highest nodes below which there is nothing else, with their leaves."""
    kept = nodes_above(others) if others else {LeafPath()}
    groups: dict[LeafPath, list[LeafPath]] = {}
    for leaf in leaves:
        depth = next((n for n in range(1, len(leaf)) if LeafPath(leaf[:n]) not in kept), len(leaf))
        groups.setdefault(LeafPath(leaf[:depth]), []).append(leaf)
    for node, members in groups.items():
        yield node, tuple(members)
