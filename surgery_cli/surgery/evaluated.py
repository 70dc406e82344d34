"""A leaf of a draft computed at once, for what is said before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surgery_cli.draft.expression import Recipe, stored_in
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.reading import CountedSource, Values
from surgery_cli.proof.records import checked


def evaluated(recipe: Recipe, sources: Mapping[str, Any]) -> tuple[Values, int]:
    """The values of all of a leaf, rounded as they are written, and how many bytes were read for them."""
    from surgery_cli.compute.host import HostKit

    names = {one.ref.source for one in stored_in(recipe)}
    read = {name: CountedSource(checked(sources[name])) for name in names}
    window = tuple(slice(0, n) for n in recipe.spec.shape)
    values = Evaluation(recipe, read, HostKit(), recipe.spec.shape).block(window)
    return values, sum(source.read_bytes for source in read.values())
