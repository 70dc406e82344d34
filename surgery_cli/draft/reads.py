"""Which parts of stored leaves a block of values is made of."""

from __future__ import annotations

from typing import Any

from surgery_cli.draft.expression import InputSpecs, LeafRef, Made, Recipe, Stored, moves_elements
from surgery_cli.draft.kernel import Measurement, Window


def reads(recipe: Recipe, window: Window) -> list[tuple[Stored, Window]]:
    """The windows of stored leaves that a block is made of, each once; what is measured of leaves is not among them."""
    if isinstance(recipe, Stored):
        return [(recipe, window)]
    if isinstance(recipe.kernel, Measurement):
        return []
    if len(recipe.inputs) == 1 and isinstance(leaf := recipe.inputs[0], Stored):
        out = made_at_once(recipe, window)
        places = [piece.read for piece in recipe.kernel.pieces(out, (leaf.spec,), recipe.spec)]
        if len(places) == 1:  # most of them, by far
            return [(leaf, places[0])]
    found: list[tuple[Stored, Window]] = []
    seen: set[tuple[Any, ...]] = set()
    pending: list[tuple[Recipe, Window]] = [(recipe, window)]
    while pending:
        part, out = pending.pop()
        key = (id(part), *((each.start, each.stop) for each in out))
        if key in seen:
            continue
        seen.add(key)
        if isinstance(part, Stored):
            found.append((part, out))
        elif not isinstance(part.kernel, Measurement):
            out = made_at_once(part, out)
            pieces = part.kernel.pieces(out, InputSpecs(part), part.spec)
            pending += reversed([(part.inputs[piece.input], piece.read) for piece in pieces])
    return found


def made_at_once(part: Made, window: Window) -> Window:
    """What is computed for a window of a part: all of it where the kernel cannot make blocks."""
    return tuple(slice(0, n) for n in part.spec.shape) if part.kernel.is_whole else window


def partly_read(recipe: Recipe) -> dict[LeafRef, bool]:
    """The stored leaves of which a leaf is made of a part; True for those of whose chunks it takes parts.

    What else such a chunk holds is decoded with it, and may be what another leaf is made of.
    """
    found: dict[LeafRef, bool] = {}
    if not moves_elements(recipe):  # most of them, by far
        return found
    for part, window in reads(recipe, tuple(slice(0, n) for n in recipe.spec.shape)):
        shape = part.spec.shape
        if part.spec.chunk_shape is None or window == tuple(slice(0, n) for n in shape):
            continue
        axes = zip(window, part.spec.chunk_shape, shape, strict=True)
        is_cut = any(
            one.start % max(n, 1) or (one.stop % max(n, 1) and one.stop < size)
            for one, n, size in axes
        )
        found[part.ref] = is_cut or found.get(part.ref, False)
    return found
