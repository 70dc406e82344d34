"""Keep what another checkpoint has as well."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.source_leaves import NoSuchLeaf, counterpart
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.partners import OtherCheckpoint, PartnerPath
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, TreeSpec, nodes_above
from surgery_cli.tree.targets import check_references
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_MOST_NAMED = 6


class Intersect(PlaceOperation, tag="intersect", kw_only=True, frozen=True):
    """Of the leaves that are named, keep those that another checkpoint has as well; the others go, with their twins.

    The preview says which go. Nodes of which nothing is left go as a whole.
    """

    with_: OtherCheckpoint = msgspec.field(name="with")
    from_: PartnerPath = msgspec.field(name="from", default="")
    by: Annotated[
        Literal["path", "shape"],
        Meta(description="What must be the same there: the path, or path and shape."),
    ] = "path"

    example: ClassVar[str] = "op: intersect\nat: params\nwith: runs/other\n"
    target_fields: ClassVar[tuple[str, ...]] = ()
    takes_twins_apart: ClassVar[bool] = True
    selects_everything_without_at: ClassVar[bool] = True
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def check_values(self) -> None:
        super().check_values()
        check_references(self.from_, self.patterns, "from")

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        selected = scene.select(self, draft)
        tree = scene.open(self.with_)[1].tree
        gone = [path for path in selected if not self._is_there(path, tree, selected, draft, scene)]
        if len(gone) == len(selected):
            raise PlanError(
                f"'{self.with_}' has none of the {len(gone):,} leaves",
                why="nothing that is named would be left",
                fix=worded("say where they stand there with {from}"),
                field="with",
            )
        scene.name(gone)
        kept = nodes_above(path for path in draft.leaves if path not in set(gone))
        whole = dict.fromkeys(str(_topmost(path, kept)) for path in gone)
        after = rekey(draft, dict.fromkeys(gone, ()), is_literal=self.follows_nothing)
        texts = quoted(folded(whole), _MOST_NAMED)
        return after.noting(
            *(
                [Consequence(DocsPage.INTERSECT, f"not in '{self.with_}', and gone: {texts}")]
                * bool(gone)
            )
        )

    def _is_there(
        self, path: LeafPath, tree: TreeSpec, named: Selection, draft: Draft, scene: Scene
    ) -> bool:
        spec = draft.leaves[path].spec
        if spec.kind is LeafKind.EMPTY and not self.from_:
            return path.text in tree.printed or path in tree.nodes
        try:
            found = counterpart(path, self.from_, self.with_, scene.open(self.with_)[1], named)
        except NoSuchLeaf:
            return False
        return self.by == "path" or tree[found].shape == spec.shape


def _topmost(path: LeafPath, kept: set[LeafPath]) -> LeafPath:
    """The topmost node above a leaf of which nothing is left."""
    nodes = (LeafPath(path[:depth]) for depth in range(1, len(path) + 1))
    return next(node for node in nodes if node not in kept)
