"""Put what another checkpoint has beside what this one has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.new_leaves import (
    Here,
    refuse_old_slots,
    with_new_leaves,
)
from surgery_cli.operations.new_places import (
    NAMES_A_PLACE,
    check_place,
    node_of,
    place_of,
)
from surgery_cli.operations.partners import OtherCheckpoint
from surgery_cli.operations.rekey import PlaceOperation
from surgery_cli.operations.replace import Replace
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, nodes_above
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.series import folded


class Merge(PlaceOperation, tag="merge", kw_only=True, frozen=True):
    """Make the union of a subtree with one of another checkpoint: what is missing here comes from there.

    Of leaves on both sides `both` says which stays; without a pattern, the whole trees meet. Slots of params that come
    are the donor's where kind and count agree, else as the optimizer starts them, as for `add` and `replace`.
    """

    with_: OtherCheckpoint = msgspec.field(name="with")
    from_: Annotated[str, Meta(description="The subtree there, the same path if left out.")] = (
        msgspec.field(name="from", default="")
    )
    both: Annotated[
        Literal["error", "ours", "theirs"],
        Meta(description="Leaves that stand on both sides: those here stay, or are replaced."),
    ] = "error"

    unused_fields: ClassVar[Mapping[str, str]] = NAMES_A_PLACE
    example: ClassVar[str] = "op: merge\nat: params\nwith: runs/other\nboth: theirs\n"
    selects_everything_without_at: ClassVar[bool] = True
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def check_values(self) -> None:
        super().check_values()
        refuse_old_slots(self)
        for pattern in self.patterns:
            check_place(pattern)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        name, source = scene.open(self.with_)
        new: dict[LeafPath, Output] = {}
        both: dict[LeafPath, LeafRef] = {}
        tree = Here(draft)
        for text in self.patterns or ("",):
            place = place_of(text, draft) if text else LeafPath()
            node = node_of(self.from_ or place.spelling, source.tree, f"'{self.with_}'", "from")
            for path, spec in source.tree.items():
                if not path.is_below(node):
                    continue
                here = place / path[len(node) :]
                if here in draft.leaves:
                    if spec.kind is not LeafKind.EMPTY or not draft.leaves[here].spec.empty:
                        both[here] = LeafRef(name, path)
                elif spec.kind is not LeafKind.EMPTY or here not in draft.tree.nodes:
                    new[here] = Output.of(LeafRef(name, path), tree.held(here, spec, source))
        filled = nodes_above(new)
        both = {
            path: ref
            for path, ref in both.items()
            if not (path in filled and draft.leaves[path].spec.empty)
        }
        if both and self.both == "error":
            raise _on_both_sides(list(both), self.with_)
        if not new and (self.both == "ours" or not both):
            raise PlanError(
                f"'{self.with_}' has nothing that is missing here",
                why="the merge would change nothing",
                fix="take this edit out, or name another subtree",
                field="with",
            )
        scene.name([*new, *(both if self.both == "theirs" else ())])
        if self.both == "theirs":
            draft = self._replaced(draft, both, scene)
        return with_new_leaves(self, draft, new, {}, scene) if new else draft

    def _replaced(self, draft: Draft, both: dict[LeafPath, LeafRef], scene: Scene) -> Draft:
        """The leaves of the donor in the place of those here; their twins follow as they do for `replace`."""
        edit = Replace(at="**", with_=self.with_, optimizer=self.optimizer, twins=self.twins)
        tree = scene.open(self.with_)[1].tree
        changed: dict[LeafPath, Output] = {}
        gathering = Gathering()
        for path, ref in both.items():
            with gathering.catching(path=str(path)):
                changed[path] = edit.grafted(path, draft.leaves[path].spec, ref, tree[ref.path])
        gathering.raise_if_any()
        scene.settle(changed, draft)
        return scene.carried(draft.with_leaves(changed), edit, list(changed), draft)


def _on_both_sides(paths: list[LeafPath], text: str) -> PlanError:
    return PlanError(
        f"{len(paths):,} leaves stand here and in '{text}': {quoted(folded(map(str, paths)), 3)}",
        why="nothing says which of them stay",
        fix=worded(
            "say {both: ours} or {both: theirs}, or name subtrees that only one of them has"
        ),
        field="both",
    )
