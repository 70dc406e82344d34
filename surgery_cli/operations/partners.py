"""Edits that take something for every leaf from elsewhere, and what becomes of leaves for which nothing is there."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.source_leaves import NoSuchLeaf
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation, Scene
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted
from surgery_cli.words.series import folded

_MOST_NAMED = 3


OtherCheckpoint: TypeAlias = Annotated[
    str, Meta(description="The other checkpoint (`CKPT`, `CKPT@N`), or a name in `sources`.")
]
PartnerPath: TypeAlias = Annotated[
    str,
    Meta(
        description=r"Path there, the same one if left out; `\1`, `\2` stand for the wildcards of `at`. What"
        " follows the node that `at` names is appended."
    ),
]
Missing: TypeAlias = Annotated[
    Literal["error", "skip"],
    Meta(description="Leaves that are missing there: `skip` leaves them here as they are."),
]


class Partnered(LeafOperation):
    """An edit by which every leaf meets one of another checkpoint, or several; it has a field ``missing``."""

    @property
    def missing(self) -> str:
        """What becomes of leaves for which nothing is there."""
        raise NotImplementedError

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        """Look up what a leaf meets. Raises NoSuchLeaf if that is missing, or PlanError."""
        raise NotImplementedError

    def partnered(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> tuple[Selection, list[Consequence]]:
        """The leaves that are edited, and what is said of those that are skipped.

        Raises:
            PlanError: all of them would be.
        """
        if self.missing == "error":
            return named, []
        skipped = [path for path in named if self._lacks(path, named, draft, scene)]
        if not skipped:
            return named, []
        if len(skipped) == len(named):
            raise PlanError(
                f"all {counted(len(named), 'leaf', 'leaves')} of '{self.name}' are missing elsewhere",
                why=worded("{missing: skip} would leave all as they are"),
                fix=worded(
                    "say where they stand there with {from}, or take {missing} out to see each"
                ),
                field="missing",
            )
        left = named.narrowed(path for path in named if path not in set(skipped))
        scene.name(left)
        texts = quoted(folded(map(str, skipped)), _MOST_NAMED)
        are, stay = ("is", "stays") if len(skipped) == 1 else ("are", "stay")
        count = counted(len(skipped), "leaf", "leaves")
        said = f"{count} {are} missing elsewhere and {stay} as before: {texts}"
        return left, [Consequence(DocsPage.OPERATIONS, said)]

    def _lacks(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> bool:
        try:
            self.meet(path, named, draft, scene)
        except NoSuchLeaf:
            return True
        except PlanError:
            return False  # which the edit itself says
        return False
