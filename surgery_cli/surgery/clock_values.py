"""What the counters of a draft stand at: read where they are stored, computed where an edit makes a mean of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surgery_cli.draft.effect import Means
from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.reading import read_scalar
from surgery_cli.optimizer.follow.clocks import filled_with, standing
from surgery_cli.proof.records import checked
from surgery_cli.surgery.evaluated import evaluated
from surgery_cli.tree.dtypes import is_floating
from surgery_cli.tree.paths import LeafPath


class Numbers:
    """Numbers of sources, each read once, and what those of a draft become."""

    def __init__(self) -> None:
        self._read: dict[tuple[int, LeafPath], float | None] = {}
        self._made: dict[tuple[int, LeafPath], float | None] = {}
        self.bytes, self.has_settings = 0, False

    @property
    def sources(self) -> list[int]:
        """Of each number that was read, the identity of its source."""
        return [source for source, _ in self._read]

    def stored(self, source: Any, path: LeafPath) -> float | None:
        """The value of a leaf with one element; None if it is no number."""
        key = id(source), path
        if key not in self._read:
            value = read_scalar(checked(source), path)
            self.bytes += source.tree[path].bytes
            self.has_settings |= is_floating(source.tree[path].dtype)
            self._read[key] = float(value) if isinstance(value, int | float) else None
        return self._read[key]

    def becomes(self, path: LeafPath, draft: Draft, sources: Mapping[str, Any]) -> float | None:
        """What a leaf with one element stands at in the result; None if only the run can tell."""
        output = draft.leaves[path]
        if filled_with(output) is None and isinstance(output.recipe, Stored):
            ref = output.recipe.ref
            return self.stored(sources[ref.source], ref.path)
        if output.edits and isinstance(output.edits[-1].effect, Means):
            return self._mean(path, draft, sources)
        return standing(output, lambda ref: self.stored(sources[ref.source], ref.path))

    def _mean(self, path: LeafPath, draft: Draft, sources: Mapping[str, Any]) -> float | None:
        """A mean over several checkpoints, rounded as it is written."""
        key = id(draft), path
        if key not in self._made:
            recipe = draft.leaves[path].recipe
            made, count = evaluated(recipe, sources)
            self.bytes += count
            self._made[key] = float(made.reshape(-1)[0])
        return self._made[key]
