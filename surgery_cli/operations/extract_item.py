"""Take a subtree out as an item of its own."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.new_items import check_item_name, check_name, with_item
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.optimizer.follow.moved_slots import Paths
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class ExtractItem(PlaceOperation, tag="extract-item", kw_only=True, frozen=True):
    """Take params, or any subtree, out as an item of its own, with the subtree's own keys at its root.

    In a step with items (`CheckpointManager`, Composite, v1) the subtree moves to a new item beside the others, and
    paths then begin with the items' names; its twins stay with the optimizer. A checkpoint that is one tree without a
    name holds one item only: there the result is the subtree alone. `insert-item` puts it back.
    """

    as_: Annotated[
        str,
        Meta(
            description="The new item's name, by default the last key of `at`; only for steps with items."
        ),
    ] = msgspec.field(name="as", default="")
    keep: Annotated[
        bool, Meta(description="Leave the subtree where it was as well; only for steps with items.")
    ] = False

    example: ClassVar[str] = """\
op: extract-item
at: params
as: weights
"""

    if_torn: ClassVar[str] = worded(
        "{keep: true} leaves it where it is as well; or take out all params, or the whole state"
    )

    def check_values(self) -> None:
        super().check_values()
        if self.as_:
            check_item_name(self.as_)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        node = self._node(draft, scene)
        if not draft.items.names:
            return self._alone(draft, node)
        if draft.items.is_prefixed and len(node) == 1:
            raise PlanError(
                f"'{node}' is an item already",
                why="its whole tree would change its name, nothing would be taken out",
                fix="name a subtree below it",
                path=str(node),
                field="at",
            )
        name = self.as_ or str(node[-1])
        check_name(name, draft)
        if not self.keep:
            _refuse_broken(draft, node)
        if not draft.items.is_prefixed:
            (own,) = draft.items.names
            draft, node = draft.behind(own), LeafPath((own, *node))
        return self._beside(draft, node, name)

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """In a step with items, `insert-item` puts the new item back."""
        found = super().undo(before, after, home)
        made = [name for name in after.items.made if name not in before.items.made]
        if not made or self.keep:
            return found
        # copies in the item may be told to go back in each other's place; the node above them is one
        nodes = {LeafPath(new[: len(new) - len(old) + 1]) for old, new in found.moves.items()}
        if len(nodes) != 1:
            return found
        (node,) = nodes
        return found._replace(
            instead=({"op": "insert-item", "at": node.exact_pattern, "from": made[0]},)
        )

    def _node(self, draft: Draft, scene: Scene) -> LeafPath:
        """The one node that the edit names, with everything below it."""
        selected = scene.select(self, draft)
        nodes = selected.nodes()
        if len(nodes) != 1:
            raise PlanError(
                f"the edit names {len(nodes)} places" if nodes else "the edit names nothing",
                why=f"they are {quoted(nodes, 4)}; an item is one subtree" if nodes else "",
                fix="name one node, and give every other one an edit of its own",
                field="at",
            )
        (node,) = nodes
        if node in draft.leaves:
            raise PlanError(
                f"'{node}' is a leaf: {draft.leaves[node].spec.type_text}",
                why="an item is a tree: it has keys at its root",
                fix=f"name a node above it, such as '{node.parent}'" if node.parent else "",
                path=str(node),
                field="at",
            )
        left_out = [path for path in draft.leaves if path.is_below(node) and path not in selected]
        if left_out:
            raise PlanError(
                f"'{left_out[0]}' would stay behind",
                why=f"an item takes '{node}' as a whole",
                fix="take the conditions out of this edit, and `delete` what you do not want first",
                path=str(left_out[0]),
            )
        return node

    def _alone(self, draft: Draft, node: LeafPath) -> Draft:
        """The subtree and nothing else, at the root."""
        given = "as" if self.as_ else "keep"
        if self.as_ or self.keep:
            raise PlanError(
                worded("{} is for steps with items", FieldName(given)),
                why="this checkpoint is one tree without a name: the result holds the subtree alone",
                fix=worded("leave {} out; the source stays as it is", FieldName(given)),
                field=given,
            )
        relation: dict[LeafPath, Paths] = dict.fromkeys(draft.leaves, ())
        alone = rekey(draft, relation | subtree(draft, node, LeafPath()), is_literal=True)
        return alone.noting(
            Consequence(
                DocsPage.EXTRACT_ITEM,
                f"the result holds what stood in '{node}' alone: paths begin below it",
            )
        )

    def _beside(self, draft: Draft, node: LeafPath, name: str) -> Draft:
        """The draft with the subtree in an item of its own."""
        own, place = str(node[0]), LeafPath((name,))
        follow = _twins_elsewhere(draft, node)
        relation = subtree(draft, node, place)
        if self.keep:
            relation = {old: (old, *news) for old, news in relation.items()}
        after = rekey(draft, relation, is_literal=True)
        after, notes = with_item(after, name, own)
        if not self.keep:
            notes.append(
                Consequence(
                    DocsPage.EXTRACT_ITEM,
                    f"a restore of '{own}' takes a target without '{LeafPath(node[1:])}' now, whatever"
                    " class has that field; `--keep` leaves it there as well",
                )
            )
        if follow and self.keep:
            said = f"twins belong to the params in '{node}', not to their copy in '{name}'"
            notes.append(Consequence(DocsPage.EXTRACT_ITEM, said))
        elif follow:
            said = (
                f"{len(follow)} twins stay in '{own}'; their params stand in the item '{name}' now"
            )
            notes.append(Consequence(DocsPage.EXTRACT_ITEM, said))
            if name != "params":
                notes.append(
                    Consequence(
                        DocsPage.EXTRACT_ITEM, f"later edits find them with `--params {name}`"
                    )
                )
        return after.noting(*notes)


def subtree(draft: Draft, node: LeafPath, place: LeafPath) -> dict[LeafPath, Paths]:
    """The relation that puts everything below ``node`` below ``place``."""
    return {p: (place / p[len(node) :],) for p in draft.leaves if p.is_below(node)}


def _twins_elsewhere(draft: Draft, node: LeafPath) -> list[Slot]:
    """The slots of params below ``node`` that do not stand there themselves."""
    return [
        slot
        for slot in draft.slots.values()
        if slot.param.is_below(node) and not slot.path.is_below(node) and slot.relation != "hole"
    ]


def _refuse_broken(draft: Draft, node: LeafPath) -> None:
    """Refuse to move out an element of a list, or a part of the optimizer state."""
    fix = worded("{keep: true} leaves it where it is as well")
    if isinstance(node[-1], int):
        raise PlanError(
            f"'{node}' is an element of a list",
            why=f"'{node.parent}' would have a hole",
            fix=fix + "; or take out the whole list",
            path=str(node),
            field="at",
        )
    states = {slot.node for slot in draft.slots.values() if slot.in_optimizer}
    if any(map(is_optimizer_name, node.parent)) or any(node.is_below(state) for state in states):
        raise PlanError(
            f"'{node}' is a part of the optimizer state",
            why="the optimizer would not find it where it keeps it",
            fix=fix + "; or take out the whole state",
            path=str(node),
            field="at",
        )
