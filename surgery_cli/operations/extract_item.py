"""Take a subtree out as an item of its own."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.places import PlaceOperation, slots_among
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark

_UNNAMED = "default"
"""The item of a manager that saves one tree without a name; a step that has it is taken to have no others."""

_TREES = "the step has the trees"
_BESIDE = f"beside '{_UNNAMED}'"

_ITEM_NAME = re.compile(r"[A-Za-z_][\w.-]*")


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

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        self.refuse_policy()
        node = self._node(draft, scene)
        if not draft.items.names:
            return self._alone(draft, node)
        if draft.items.is_partial:
            raise PlanError(
                "the step has more trees than the one that `--item` chose",
                why="a new item stands beside all of them",
                fix="leave `--item` out, and begin paths with the item's name",
            )
        if draft.items.is_prefixed and len(node) == 1:
            raise PlanError(
                f"'{node}' is an item already",
                why="its whole tree would change its name, nothing would be taken out",
                fix="name a subtree below it",
                path=str(node),
                field="at",
            )
        name = self._name(draft, node)
        if not self.keep:
            _refuse_broken(draft, node)
        if not draft.items.is_prefixed:
            (own,) = draft.items.names
            draft, node = draft.behind(own), LeafPath((own, *node))
        return self._beside(draft, node, name)

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
        leaves = {path: recipe for path, recipe in draft.leaves.items() if path.is_below(node)}
        alone = draft.replaced(leaves=leaves, slots=slots_among(draft, leaves))
        return relocated(alone, node, LeafPath()).noting(
            Consequence(f"the result holds what stood in '{node}' alone: paths begin below it")
        )

    def _name(self, draft: Draft, node: LeafPath) -> str:
        """The new item's name, checked."""
        name = self.as_ or str(node[-1])
        if not _ITEM_NAME.fullmatch(name) or ".orbax" in name:
            raise PlanError(
                f"'{name}' cannot be the name of an item",
                why="an item is a directory of the step; names begin with a letter and have no slash",
                fix=worded("choose one with {as}"),
                field="as",
            )
        if name in draft.items.taken or name in draft.items.names or name in draft.items.made:
            raise PlanError(
                f"the step holds '{name}' already",
                why="everything in a step has a name of its own",
                fix=worded("choose another name with {as}"),
                field="as",
            )
        return name

    def _beside(self, draft: Draft, node: LeafPath, name: str) -> Draft:
        """The draft with the subtree in an item of its own."""
        own, place = str(node[0]), LeafPath((name,))
        copies = {
            place / path[len(node) :]: recipe
            for path, recipe in draft.leaves.items()
            if path.is_below(node)
        }
        follow = _twins_elsewhere(draft, node)
        after = (
            draft.replaced(leaves={**draft.leaves, **copies})
            if self.keep
            else relocated(draft, node, place)
        )
        items = draft.items
        like = items.made.get(own, own)
        after = after.replaced(
            items=msgspec.structs.replace(items, made={**items.made, name: like})
        )
        keys = ", ".join(f"'{key}'" for key in after.items.first_keys)
        notes: list[Note] = [Remark(f"{_TREES} {keys}: paths begin with their names")]
        if _UNNAMED in after.items.first_keys:
            notes.append(
                Consequence(
                    f"{_BESIDE}, a `CheckpointManager` restores other items only if it is made with"
                    f" `item_names=({keys})`"
                )
            )
        if not self.keep:
            notes.append(
                Consequence(
                    f"a restore of '{own}' takes a target without '{LeafPath(node[1:])}' now, whatever"
                    " class has that field; `--keep` leaves it there as well"
                )
            )
        if follow and self.keep:
            said = f"twins belong to the params in '{node}', not to their copy in '{name}'"
            notes.append(Consequence(said))
        elif follow:
            said = (
                f"{len(follow)} twins stay in '{own}'; their params stand in the item '{name}' now"
            )
            notes.append(Consequence(said))
            if name != "params":
                notes.append(Consequence(f"later edits find them with `--params {name}`"))
        told = tuple(note for note in after.notes if not note.startswith((_TREES, _BESIDE)))
        return after.replaced(notes=told).noting(*notes)


def relocated(draft: Draft, node: LeafPath, place: LeafPath) -> Draft:
    """The draft with everything below ``node`` below ``place``, slots included; nothing else changes.

    The caller has seen to it that ``place`` is free.
    """

    def move(path: LeafPath) -> LeafPath:
        return place / path[len(node) :] if path.is_below(node) else path

    slots = [
        msgspec.structs.replace(
            slot,
            path=move(slot.path),
            param=move(slot.param),
            node=move(slot.node),
            root=move(slot.root),
            clocks=tuple(move(clock) for clock in slot.clocks),
        )
        for slot in draft.slots.values()
    ]
    return draft.replaced(
        leaves={move(path): recipe for path, recipe in draft.leaves.items()},
        slots={slot.path: slot for slot in slots},
    )


def _twins_elsewhere(draft: Draft, node: LeafPath) -> list[Slot]:
    """The slots of params below ``node`` that do not stand there themselves."""
    return [
        slot
        for slot in draft.slots.values()
        if slot.param.is_below(node) and not slot.path.is_below(node) and slot.relation != "hole"
    ]


def _refuse_broken(draft: Draft, node: LeafPath) -> None:
    """Refuse to move out what leaves a hole: an element of a list, a part of params or of optimizer state."""
    fix = worded("{keep: true} leaves it where it is as well")
    if isinstance(node[-1], int):
        raise PlanError(
            f"'{node}' is an element of a list",
            why=f"'{node.parent}' would have a hole",
            fix=fix + "; or take out the whole list",
            path=str(node),
            field="at",
        )
    for slot in draft.slots.values():
        if slot.param.is_below(node) and slot.root != node and node.is_below(slot.root):
            raise PlanError(
                f"'{node}' is a part of the params in '{slot.root}'",
                why=f"'{slot.node}' in the optimizer state would still have all of them",
                fix=fix + f"; or take out '{slot.root}'",
                path=str(node),
                field="at",
            )
        if slot.path.is_below(node) and node.is_below(slot.node) and slot.in_optimizer:
            _refuse_state(node, fix)
        if slot.path.is_below(node) and slot.node != node and node.is_below(slot.node):
            raise PlanError(
                f"'{node}' is a part of the copy of params in '{slot.node}'",
                why=f"'{slot.root}' would still have all of them",
                fix=f"{fix}; or take out '{slot.node}'",
                path=str(node),
                field="at",
            )
    if any(map(is_optimizer_name, node.parent)):
        _refuse_state(node, fix)


def _refuse_state(node: LeafPath, fix: str) -> None:
    raise PlanError(
        f"'{node}' is a part of the optimizer state",
        why="the optimizer would not find it where it keeps it",
        fix=fix + "; or take out the whole state",
        path=str(node),
        field="at",
    )
