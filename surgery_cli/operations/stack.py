"""Put the leaves of numbered layers on top of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels import join
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import Gathering
from surgery_cli.operations.joining import groups_of
from surgery_cli.operations.numbered import numbered_places
from surgery_cli.operations.regrouping import Regrouping, alike, axes_of, check_joinable
from surgery_cli.optimizer.follow.origins import Origin
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind

_WHY = "what is stacked has one shape and dtype in every layer"


class Stack(Regrouping, tag="stack", kw_only=True, frozen=True):
    """Make one scanned leaf of the leaves of numbered layers, as `nn.scan` keeps them; `unstack` takes them apart.

    Their twins in the optimizer state are stacked with them. The layers have the order of their numbers; those that a
    list of patterns names, that of the list.
    """

    to: Annotated[
        str,
        Meta(
            description=r"Where the stacked leaf or subtree stands; `\1`, `\2` stand for the wildcards of `at` in"
            " order. The number that it does not repeat counts the layers."
        ),
    ]
    axis: Annotated[
        int, Meta(description="Where the axis of the layers stands in the result; -1: last.")
    ] = 0

    example: ClassVar[str] = "- op: stack\n  at: params/Dense_{0..1}\n  to: params/layers\n"

    def origins(self, selected: Selection, draft: Draft) -> Mapping[LeafPath, Origin]:
        found: dict[LeafPath, Origin] = {}
        gathering = Gathering()
        for new, paths in groups_of(selected, self.to, draft).items():
            with gathering.catching(path=str(new)):
                found[new] = Origin(paths, self._map(new, paths, draft, gathering))
        gathering.raise_if_any()
        return found

    def _map(
        self, new: LeafPath, paths: tuple[LeafPath, ...], draft: Draft, gathering: Gathering
    ) -> Arrangement | None:
        specs = [draft.leaves[path].spec for path in paths]
        unlike = alike(paths, specs, _WHY)
        gathering.problems += unlike
        if unlike or specs[0].kind is LeafKind.EMPTY:
            return None
        check_joinable(paths[0], specs[0], self.name)
        (axis,) = resolve_axes(self.axis, axes_of(specs[0]) + 1, "axis")
        return join.Stack(axis, len(paths))

    def undo_entry(
        self, here: tuple[LeafPath, ...], there: tuple[LeafPath, ...], by: Arrangement
    ) -> dict[str, Any]:
        return {
            "op": "unstack",
            "at": here[0].exact_pattern,
            "axis": self.axis,
            **numbered_places(there),
        }
