"""Give leaves and subtrees other paths."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.collisions import merge_notes
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.targets import Places, Target, check_targets
from surgery_cli.words.advice import worded


class Rename(PlaceOperation, tag="rename"):
    """Move leaves or subtrees to other paths; their twins in the optimizer state move along.

    All leaves move at once, so `moves` can exchange two subtrees. What stands below a named node keeps its keys.
    A node that goes where another stands joins it, and the preview says so. Lists that lost an element close the gap,
    except in the optimizer state.
    """

    to: Annotated[
        str,
        Meta(
            description=r"The new path; `\1`, `\2` stand for the wildcards of `at` in order, "
            "or for the groups of a regular expression; `{1..12}` takes the numbers of the range of `at` one by one."
        ),
    ] = ""
    moves: Annotated[
        dict[str, str],
        Meta(description="Several moves at once, old path to new; instead of `at` and `to`."),
    ] = msgspec.field(default_factory=dict)

    example: ClassVar[str] = """\
op: rename
at: params/Dense_1
to: params/head
"""
    instead_of_at: ClassVar[tuple[str, ...]] = ("moves",)
    target_fields: ClassVar[tuple[str, ...]] = ("to", "moves")
    refuses_torn_twins: ClassVar[bool] = True

    @property
    def patterns(self) -> tuple[str, ...]:
        return (*super().patterns, *self.moves)

    @property
    def _targets(self) -> dict[str, str]:
        return self.moves or dict.fromkeys(self.patterns, self.to)

    def check_values(self) -> None:
        super().check_values()
        if self.moves and (self.at or self.to):
            raise PlanError(
                worded("`rename` has both {moves} and {at} or {to}"),
                why=worded("{moves} says old and new paths by itself"),
                fix=worded("put all of them into {moves}"),
                field="moves",
            )
        if not self.moves and not self.to:
            raise PlanError(
                "`rename` does not say where to",
                fix=worded(
                    "add {to: params/head}, or use {moves: {{params/Dense_1: params/head}}}"
                ),
                field="to",
            )
        check_targets(self._targets)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        moves, nodes = new_places(scene.select(self, draft), self._targets, draft)
        if moves and all(old == new for old, new in moves.items()):
            raise PlanError(
                f"'{next(iter(moves))}' already stands there",
                why="the old and the new path are the same",
                fix="take this edit out of the plan",
                field="moves" if self.moves else "to",
            )
        notes = merge_notes(draft, nodes, leaving=moves)
        relation = {old: (new,) for old, new in moves.items()}
        return rekey(draft, relation, is_literal=self.follows_nothing).noting(*notes)


def new_places(
    selected: Selection, targets: dict[str, str], draft: Draft
) -> tuple[dict[LeafPath, LeafPath], dict[LeafPath, LeafPath]]:
    """Where each of the ``selected`` leaves goes, by ``targets`` (pattern to text of the new path); and each node.

    Raises:
        PlanError: every target that cannot be read, and every leaf with two of them.
    """
    places = Places(draft.leaves)
    found: dict[LeafPath, LeafPath] = {}
    named: dict[LeafPath, LeafPath] = {}
    gathering = Gathering()
    for pattern, matches in selected.by_pattern():
        nodes: dict[LeafPath, LeafPath] = {}
        with gathering.catching():
            target = Target(targets[pattern.text])
            for leaf, match in matches.items():
                if match.node not in nodes:
                    nodes[match.node] = target.place(match, pattern, places)
                new = nodes[match.node] / match.tail
                if found.setdefault(leaf, new) != new:
                    raise PlanError(
                        f"'{leaf}' would move to both '{found[leaf]}' and '{new}'",
                        why="two patterns of the edit name it",
                        fix="name it once, or split the edit in two",
                        path=str(leaf),
                    )
            named.update(nodes)
    gathering.raise_if_any()
    return {leaf: found[leaf] for leaf in selected}, named
