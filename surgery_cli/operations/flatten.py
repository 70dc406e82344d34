"""Join the keys below nodes to one key each."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded

Separator = Annotated[
    str, Meta(description="What stands between the keys: `.`, `/`, `_`.", min_length=1)
]


class Flatten(PlaceOperation, tag="flatten", kw_only=True, frozen=True):
    """Join the keys below nodes to one key each: `a` → `b` becomes `a.b`; `unflatten` is the exact way back.

    Twins in the optimizer state move along, and no values do.
    """

    separator: Separator

    example: ClassVar[str] = "op: flatten\nat: params\nseparator: '.'\n"
    refuses_torn_twins: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        relation: dict[LeafPath, tuple[LeafPath, ...]] = {}
        gathering = Gathering()
        for path, node in scene.select(self, draft).topmost().items():
            with gathering.catching(path=str(path)):
                relation[path] = (self._joined(path, node),)
        gathering.raise_if_any()
        if relation and all(news == (old,) for old, news in relation.items()):
            raise PlanError(
                f"'{self.summary}' changes nothing",
                why="each of these leaves has one key below the node that is named, or is named itself",
                fix="name a node above them",
                field="at",
            )
        return rekey(draft, relation, is_literal=self.follows_nothing)

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """Keys that were joined are parted again: none of them held the separator."""
        found = super().undo(before, after, home)
        moved = {p for p in after.leaves if p not in before.leaves and p not in after.slots}
        nodes = dict.fromkeys(path.parent for path in moved)
        others = (p for p in after.leaves if p not in moved and p not in after.slots)
        holds = any(
            self.separator in str(key) for p in others for n, key in enumerate(p) if p[:n] in nodes
        )
        if not nodes or holds or self.follows_nothing:
            return found
        at = [node.exact_pattern for node in nodes]
        return found._replace(instead=({"op": "unflatten", "at": at, "separator": self.separator},))

    def _joined(self, path: LeafPath, node: LeafPath) -> LeafPath:
        keys = path[len(node) :]
        for key in keys:
            if isinstance(key, int) and len(keys) > 1:
                raise PlanError(
                    f"'{path}' stands in a list",
                    why="an index among joined keys would come back as a name",
                    fix=worded(
                        "name the nodes of its elements with a pattern, or leave it out with {except}"
                    ),
                    field="at",
                )
            if self.separator in str(key):
                raise PlanError(
                    worded("'{}' has {separator: {}} in the key '{}'", path, self.separator, key),
                    why="it could not be told from those that are joined",
                    fix=worded(
                        "`unflatten` with {separator: {}} parts such keys first; or choose another separator",
                        self.separator,
                    ),
                    field="separator",
                )
        return node / (self.separator.join(map(str, keys)),) if len(keys) > 1 else path
