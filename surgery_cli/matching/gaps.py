"""What a plan leaves open: where the tree that it makes is not the one that is wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from surgery_cli.matching.containers import differing
from surgery_cli.matching.families import Family
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec, nodes_above


class Open(NamedTuple):
    """A leaf or node that is left over, or lacking, or not what it should be."""

    path: LeafPath
    what: str
    side: str
    leaves: tuple[LeafPath, ...]
    edit: dict[str, Any]
    """The rule that fails as long as it is open."""
    family: Family | None = None

    @property
    def text(self) -> str:
        """The family, the only leaf, or the node."""
        if self.family is not None:
            return str(self.family)
        return str(self.leaves[0] if len(self.leaves) == 1 else self.path)


OTHER_VALUES: Final = "has other values in B"


def open_values(family: Family, why: str) -> Open:
    """Leaves that are paired by their names, and hold something else in the new tree."""
    what = OTHER_VALUES + "".join(why.partition(": ")[1:])
    rule = {"op": "assert", "at": family.pattern, "exists": False}
    return Open(family.members[0], what, "b", family.members, rule, family)


def open_between(made: TreeSpec, wanted: TreeSpec) -> list[Open]:
    """Everything in which the two trees differ; whole nodes as one."""
    printed = {path.text: path for path in wanted}
    matched = {path: printed[path.text] for path in made if path.text in printed}
    extra = [path for path in made if path not in matched]
    reached = set(matched.values())
    missing = [path for path in wanted if path not in reached]
    found = [
        Open(node, "has no place in B", "a", leaves, _exists(node, is_there=False))
        for node, leaves in highest_nodes(extra, matched)
    ]
    found += [
        Open(node, "has no source in A", "b", leaves, _exists(node, is_there=True))
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
