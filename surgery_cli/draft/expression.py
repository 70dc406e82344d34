"""What values are made of: an expression of stored leaves and kernels, of which equal parts are computed once."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from surgery_cli.draft.kernel import Kernel
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class LeafRef(msgspec.Struct, frozen=True, gc=False):
    """A stored leaf: the name of a source ('' for the one that is edited) and the path in it."""

    source: str
    path: LeafPath


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A stored leaf as it is; ``spec`` is what it will be held as."""

    ref: LeafRef
    spec: LeafSpec


class Made(msgspec.Struct, frozen=True, gc=False):
    """What a kernel makes of its inputs.

    ``path`` is where the leaf stood that an edit named: for messages, and the key of its random values. A part that
    several outputs share is one object, and is measured and digested once.
    """

    kernel: Kernel
    inputs: tuple[Recipe, ...]
    spec: LeafSpec
    path: LeafPath


Recipe: TypeAlias = Stored | Made


def made(kernel: Kernel, inputs: tuple[Recipe, ...], spec: LeafSpec, path: LeafPath) -> Recipe:
    """What a kernel makes, in its normal form: kernels that compose are one, and what changes nothing is left out."""
    first = inputs[0] if inputs else None
    if isinstance(first, Made) and (one := kernel.after(first.kernel)) is not None:
        return made(one, first.inputs, spec, path)
    if first is not None and kernel.is_identity([recipe.spec for recipe in inputs], spec):
        return first if first.spec.agrees_with(spec) else with_spec(first, spec)
    return Made(kernel, inputs, spec, path)


def with_spec(recipe: Recipe, spec: LeafSpec) -> Recipe:
    """The same values, held as another kind of leaf."""
    return recipe if recipe.spec == spec else msgspec.structs.replace(recipe, spec=spec)


def parts(recipe: Recipe) -> list[Recipe]:
    """Every part of an expression once, inputs before what is made of them."""
    if isinstance(recipe, Stored):
        return [recipe]
    if len(recipe.inputs) == 1 and isinstance(recipe.inputs[0], Stored):  # most of them, by far
        return [recipe.inputs[0], recipe]
    found: dict[int, Recipe] = {}
    _gather(recipe, found)
    return list(found.values())


def _gather(part: Recipe, found: dict[int, Recipe]) -> None:
    if id(part) not in found:
        if isinstance(part, Made):
            for each in part.inputs:
                _gather(each, found)
        found[id(part)] = part


def stored_in(recipe: Recipe) -> list[Stored]:
    """The stored leaves that values are made of, each once."""
    return [part for part in parts(recipe) if isinstance(part, Stored)]
