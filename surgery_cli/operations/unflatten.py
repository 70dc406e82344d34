"""Part joined keys into nested ones."""

from __future__ import annotations

from typing import ClassVar

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.flatten import Separator
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.words.advice import worded


class Unflatten(PlaceOperation, tag="unflatten", kw_only=True, frozen=True):
    """Part the keys right below nodes at a separator: `a.b` becomes `a` → `b`; the way back of `flatten`.

    Numbers become names, not places in a list. Twins in the optimizer state move along, and no values do.
    """

    separator: Separator

    example: ClassVar[str] = "op: unflatten\nat: params\nseparator: _\n"
    refuses_torn_twins: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        relation: dict[LeafPath, tuple[LeafPath, ...]] = {}
        whole: set[tuple[LeafPath, Key]] = set()
        first: dict[tuple[LeafPath, Key], LeafPath] = {}
        gathering = Gathering()
        for path, node in scene.select(self, draft).topmost().items():
            with gathering.catching(path=str(path)):
                keys = self._parted(path, node)
                relation[path] = (node / (*keys, *path[len(node) + 1 :]),)
                if len(keys) == 1:
                    whole.add((node, keys[0]))
                elif keys:
                    first.setdefault((node, keys[0]), path)
        for place in whole & first.keys():
            with gathering.catching(path=str(first[place])):
                raise _beside(first[place], place[0] / (place[1],))
        gathering.raise_if_any()
        if relation and all(news == (old,) for old, news in relation.items()):
            raise PlanError(
                f"no key right below what is named holds '{self.separator}'",
                why=f"'{self.summary}' would change nothing",
                fix="name the node right above such keys, or another separator",
                field="separator",
            )
        return rekey(draft, relation, is_literal=self.follows_nothing)

    def _parted(self, path: LeafPath, node: LeafPath) -> tuple[Key, ...]:
        """What the key right below the node becomes."""
        if len(path) == len(node):
            return ()
        key = path[len(node)]
        parts = (key,) if isinstance(key, int) else tuple(key.split(self.separator))
        if "" in parts and len(parts) > 1:
            raise PlanError(
                worded("'{}' has nothing on one side of {separator: {}}", path, self.separator),
                why="a key would be empty",
                fix=worded("rename it first, or leave it out with {except}"),
                field="separator",
            )
        return parts


def _beside(path: LeafPath, place: LeafPath) -> PlanError:
    return PlanError(
        f"'{path}' would come to stand in '{place}', which is there already",
        why="`flatten` could not tell the two apart again",
        fix=worded("rename '{}' first, or leave one of them out with {except}", place),
        path=str(path),
        field="at",
    )
