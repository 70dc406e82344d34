"""Make an axis of leaves longer or shorter: a vocabulary, its embeddings and its output rows together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.cut import Cut, Grow, Steps
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.filling import Filling
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.operations.slice import part_of
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded


class Resize(Filling, tag="resize", kw_only=True, frozen=True):
    """Make an axis of leaves longer or shorter: rows of a vocabulary, classes, neurons.

    Places in front stay, bit for bit; at the end are new ones, or some are dropped, which the preview names. With
    `old_size`, each leaf may have another axis: embeddings and output rows of a vocabulary in one edit.

    For a vocabulary the mean of the old rows, which is the default, does least: the odds among old tokens stay, and a
    new one gets at most the probability of an average one. Noise is not needed, as every token has gradients of its
    own; neurons need it (`noise: 1` makes new places as different as old ones are). In the optimizer's slots, first
    moments are 0 in new places, second moments what they are in the mean along the axis.

    Source: Hewitt, Initializing New Word Embeddings for Pretrained Language Models.
    """

    size: Annotated[
        Annotated[int, Meta(ge=1)], Meta(description="How many places the axis has afterwards.")
    ]
    axis: Annotated[
        int | None, Meta(description="The axis, the same one of all leaves; -1: the last.")
    ] = None
    old_size: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="In place of `axis`: how many places the axis has now; each leaf must have one such axis."
        ),
    ] = None

    example: ClassVar[str] = "- op: resize\n  at: params/Dense_0/kernel\n  axis: 0\n  size: 6\n"
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def check_values(self) -> None:
        super().check_values()
        if (self.axis is None) == (self.old_size is None):
            raise PlanError(
                worded("`resize` needs {axis} or {old_size}")
                if self.axis is None
                else worded("`resize` has both {axis} and {old_size}"),
                why="nothing says which axis gets another size" if self.axis is None else "",
                fix=worded("say {axis: 0}, or how long the axis is now: {old_size: 32000}"),
                field="axis",
            )
        self.check_filling()

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        return self.noting_fans_of(self.fill, after, draft).noting(*_dropped(draft, after))

    @property
    def along(self) -> int | None:
        return self.axis

    def map(self, leaf: LeafSpec) -> Arrangement:
        axis, sizes = self._axis(leaf), leaf.shape
        more = self.size - sizes[axis]
        if more > 0:
            return Grow(axis, 0, sizes[axis], more)
        return Cut(tuple(Steps(0, self.size if n == axis else s) for n, s in enumerate(sizes)))

    def undoing(self, leaf: LeafSpec) -> Rearranging | None:
        axis = self._axis(leaf)
        return part_of(leaf, axis, 0) if self.size >= leaf.shape[axis] else None

    def _axis(self, leaf: LeafSpec) -> int:
        if self.axis is not None:
            (axis,) = resolve_axes(self.axis, len(leaf.shape), "axis")
            return axis
        found = [n for n, size in enumerate(leaf.shape) if size == self.old_size]
        if len(found) == 1:
            return found[0]
        raise PlanError(
            worded("{old_size: {}} does not fit {}", self.old_size, leaf.type_text),
            why=f"axes {listed(found, word='and')} have it" if found else "it has no such axis",
            fix=worded("give it an edit of its own with {axis: {}}", found[0])
            if found
            else worded("leave it out with {except}, or say its axis with {axis: 0}"),
            field="old_size",
        )

    def output(self, spec: LeafSpec) -> LeafSpec:
        after, axis = super().output(spec), self._axis(spec)
        if after.shape[axis] > spec.shape[axis]:
            self.check_leaf(spec, axis, after)
        return after


def _dropped(before: Draft, after: Draft) -> Iterable[Consequence]:
    """What is not there any more of all leaves but slots, once for each range of places."""
    found: dict[tuple[int, int, int], list[str]] = {}
    for path, output in after.leaves.items():
        old, new = before.leaves[path].spec.shape, output.spec.shape
        if old is new or path in after.slots:
            continue
        for axis, (was, now) in enumerate(zip(old, new, strict=True)):
            if now < was:
                found.setdefault((axis, now, was - 1), []).append(str(path))
    return [
        Consequence(
            DocsPage.RESIZE,
            f"{'places' if first < last else 'place'} {first}{f'..{last}' * (first < last)} along axis {axis} of"
            f" {quoted(folded(paths), 3)} {'are' if first < last else 'is'} dropped",
        )
        for (axis, first, last), paths in found.items()
    ]
