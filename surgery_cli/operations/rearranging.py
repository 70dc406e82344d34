"""What operations that give leaves other shapes have in common: each says its map, and all else follows."""

from __future__ import annotations

from typing import Final

import msgspec

from surgery_cli.draft.arrangement import Arrangement, ShapeMap
from surgery_cli.draft.effect import Effect, Rearranges
from surgery_cli.draft.expression import Recipe, Stored, made
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.undo import Homes, Undo, difference
from surgery_cli.errors import PlanError
from surgery_cli.operations.axis_notes import axis_notes
from surgery_cli.operations.base import LeafOperation, Scene
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import Text, worded

ARRAYS: Final = (LeafKind.ARRAY, LeafKind.NUMPY)
"""The kinds of leaves that have axes of their own."""

_LEFT_OUT: Final = worded("leave it out with {except}, or name the leaves more closely")
_AS_ARRAY: Final = worded(
    "leave it out with {except}; or make it an array first, in a plan: `delete` it, and `add` it {with} the checkpoint"
    " itself and {kind: array}"
)


class ShapeEdit(LeafOperation):
    """Same path, perhaps another shape. Subclasses give ``map`` and the effect."""

    def map(self, leaf: LeafSpec) -> ShapeMap:
        """What becomes of such a leaf.

        Raises:
            PlanError: it has no such shape.
        """
        raise NotImplementedError

    def output(self, spec: LeafSpec) -> LeafSpec:
        if spec.kind not in ARRAYS:
            raise PlanError(
                f"{self.name} does not apply to {spec.type_text}",
                why="it is about the axes of arrays",
                fix=_AS_ARRAY if spec.kind is LeafKind.SCALAR else _LEFT_OUT,
            )
        return self.map(spec).output(spec)

    def made(
        self, path: LeafPath, recipe: Recipe, scene: States, like: Recipe | None = None
    ) -> Recipe:
        try:
            return super().made(path, recipe, scene)
        except PlanError as error:  # of many leaves, which is meant
            error.problems = tuple(
                msgspec.structs.replace(problem, what=Text(f"'{path}': ", problem.what))
                for problem in error.problems
            )
            raise

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return self.map(spec)


class Rearranging(ShapeEdit):
    """Elements in other places; what fills new places stands in ``inputs``."""

    def map(self, leaf: LeafSpec) -> Arrangement:
        """Where the elements of such a leaf go. Raises as any ``map``."""
        raise NotImplementedError

    @property
    def along(self) -> int | None:
        """The axis whose places get other neighbours, or more or fewer of them; None if there is none."""
        return None

    @property
    def filling(self) -> Effect | None:
        """What happens to values in new places, of operations that make some."""
        return None

    @property
    def effect(self) -> Effect:
        return Rearranges(fill=self.filling)

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        return Rearranges(self.map(before), self.filling)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        if self.along is None:
            return after
        return after.noting(*axis_notes(self.along, scene.select(self, draft), draft))

    def undoing(self, leaf: LeafSpec) -> Rearranging | None:
        """The edit that makes of such a leaf what it was, once this one has rearranged it; None if there is none."""
        return None

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """The inverse edit, of every leaf that was rearranged; where its values are others, those of the source.

        What has no inverse, such as slots that follow otherwise, is told by comparison.
        """
        changed = {p: out for p, out in before.leaves.items() if after.leaves.get(p) is not out}
        edits: dict[bytes, tuple[Rearranging, list[str]]] = {}
        undone: dict[LeafPath, Output] = {}
        lost: list[LeafPath] = []
        for path, old in changed.items():
            edit, recipe = self._undone(old.spec, path, after)
            if edit is None or recipe is None or not recipe.spec.agrees_with(old.spec):
                continue
            undone[path] = old
            if not _is_same(recipe, old.recipe):
                lost.append(path)
            _, at = edits.setdefault(msgspec.json.encode(edit), (edit, []))
            at.append(path.exact_pattern)
        entries = (
            msgspec.structs.replace(edit, at=tuple(at), twins="literal")
            for edit, at in edits.values()
        )
        rest = difference(before, after.with_leaves(undone), home)
        said = tuple(map(msgspec.to_builtins, entries))
        return rest._replace(lost=(*lost, *rest.lost), edits=said)

    def _undone(
        self, old: LeafSpec, path: LeafPath, after: Draft
    ) -> tuple[Rearranging | None, Recipe | None]:
        """What undoes the edit of a leaf that was ``old``, and what that makes of it, in normal form."""
        recipe = after.leaves[path].recipe if path in after.leaves else None
        if recipe is None or recipe.spec.kind not in ARRAYS or old.kind not in ARRAYS:
            return None, None
        try:
            edit = self.undoing(old)
            kernel = None if edit is None else edit.map(recipe.spec)
        except PlanError:  # slots have shapes of their own
            return None, None
        if kernel is None:
            return None, None
        return edit, made(kernel, (recipe,), kernel.output(recipe.spec), path)


def _is_same(one: Recipe, other: Recipe) -> bool:
    """True if both hold the same values, as far as their normal forms tell."""
    if isinstance(one, Stored) or isinstance(other, Stored):
        return isinstance(one, Stored) and isinstance(other, Stored) and one.ref == other.ref
    if one is other:
        return True
    are_alike = one.kernel == other.kernel and len(one.inputs) == len(other.inputs)
    return are_alike and all(a is b for a, b in zip(one.inputs, other.inputs, strict=True))
