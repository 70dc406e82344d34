"""What values are made of: an expression of stored leaves and kernels, of which equal parts are computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, cast, overload

import msgspec

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernel import Kernel, Measurement
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

_Fact = TypeVar("_Fact")


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


class InputSpecs(Sequence[LeafSpec]):
    """What the inputs of a part are: looked up, as a block of a few elements may ask for one of thousands."""

    def __init__(self, part: Made) -> None:
        self._inputs = part.inputs

    def __len__(self) -> int:
        return len(self._inputs)

    def __iter__(self) -> Iterator[LeafSpec]:
        return (one.spec for one in self._inputs)

    @overload
    def __getitem__(self, number: int) -> LeafSpec: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[LeafSpec]: ...
    def __getitem__(self, number: int | slice) -> LeafSpec | Sequence[LeafSpec]:
        if isinstance(number, slice):
            return [one.spec for one in self._inputs[number]]
        return self._inputs[number].spec


class Shared(Made, frozen=True, gc=True, dict=True):
    """What is made of many leaves and a part of as many: what follows from it is found out once."""


Recipe: TypeAlias = Stored | Made


def made(kernel: Kernel, inputs: tuple[Recipe, ...], spec: LeafSpec, path: LeafPath) -> Recipe:
    """What a kernel makes, in its normal form: kernels that compose are one, and what changes nothing is left out."""
    first = inputs[0] if inputs else None
    if isinstance(first, Made) and (one := kernel.after(first.kernel)) is not None:
        fills = not isinstance(one, Arrangement) or one.grows is not None
        return made(one, first.inputs if fills else first.inputs[:1], spec, path)
    same = first
    if first is None or not kernel.is_identity([recipe.spec for recipe in inputs], spec):
        same = _taken_apart(kernel, first) or _put_together(kernel, inputs, spec)
    if same is not None:
        return same if same.spec.agrees_with(spec) else with_spec(same, spec)
    return Made(kernel, inputs, spec, path)


def _taken_apart(kernel: Kernel, whole: Recipe | None) -> Recipe | None:
    """What ``kernel`` takes out of several leaves that were joined: one of them."""
    if not isinstance(whole, Made) or not isinstance(whole.kernel, Arrangement):
        return None
    number = whole.kernel.taking(kernel)
    return None if number is None else whole.inputs[number]


def _put_together(kernel: Kernel, inputs: tuple[Recipe, ...], spec: LeafSpec) -> Recipe | None:
    """What was taken apart and is joined by ``kernel``, as it was."""
    if not isinstance(kernel, Arrangement) or not kernel.regroups:
        return None
    wholes = [part.inputs[0] for part in inputs if isinstance(part, Made) and part.inputs]
    if len(wholes) < len(inputs) or wholes[0].spec.shape != spec.shape:
        return None
    is_one = all(
        kernel.taking(part.kernel) == number and _is_same(whole, wholes[0])
        for number, (part, whole) in enumerate(zip(inputs, wholes, strict=True))
        if isinstance(part, Made)
    )
    return wholes[0] if is_one else None


def _is_same(one: Recipe, other: Recipe) -> bool:
    return one is other or (isinstance(one, Stored) and one == other)


def once(part: Made, name: str, find: Callable[[], _Fact]) -> _Fact:
    """A fact about a part; of one that is shared, it is kept under its name for whoever asks next."""
    if not isinstance(part, Shared):
        return find()
    known: dict[str, Any] = part.__dict__
    if name not in known:
        known[name] = find()
    return cast("_Fact", known[name])


def with_spec(recipe: Recipe, spec: LeafSpec) -> Recipe:
    """The same values, held as another kind of leaf."""
    return recipe if recipe.spec == spec else msgspec.structs.replace(recipe, spec=spec)


def parts(recipe: Recipe, beyond: Callable[[Made], bool] = lambda _: True) -> list[Recipe]:
    """Every part of an expression once, inputs before what is made of them.

    ``beyond``: whether what a part is made of counts, too; a part that does not pass is left out itself.
    """
    if isinstance(recipe, Stored):
        return [recipe]
    if len(recipe.inputs) == 1 and isinstance(recipe.inputs[0], Stored):  # most of them, by far
        return [recipe.inputs[0], recipe] if beyond(recipe) else []
    found: dict[int, Recipe] = {}
    pending: list[tuple[Recipe, bool]] = [(recipe, False)]
    while pending:  # no recursion: a plan may edit one leaf a thousand times
        part, is_ready = pending.pop()
        if id(part) in found:
            continue
        if is_ready or isinstance(part, Stored):
            found[id(part)] = part
        elif not beyond(part):
            continue
        elif {*map(type, part.inputs)} == {Stored}:  # thousands of them, maybe
            found.update(zip(map(id, part.inputs), part.inputs, strict=True))
            found[id(part)] = part
        else:
            pending.append((part, True))
            pending += [(each, False) for each in reversed(part.inputs)]
    return list(found.values())


def is_computed(part: Made) -> bool:
    """True for what is computed block by block, not measured of leaves before."""
    return not isinstance(part.kernel, Measurement)


def moves_elements(recipe: Recipe) -> bool:
    """True if elements stand elsewhere than in what they are made of."""
    if isinstance(recipe, Made) and is_computed(recipe) and not recipe.kernel.keeps_places:
        return True  # whatever of how many others it is made of
    computed = parts(recipe, beyond=is_computed)
    return any(isinstance(p, Made) and not p.kernel.keeps_places for p in computed)


def is_repeatable(recipe: Recipe) -> bool:
    """True if the same values come out whenever they are made anew."""
    return all(part.kernel.is_repeatable for part in parts(recipe) if isinstance(part, Made))


def stored_in(*recipes: Recipe, beyond: Callable[[Made], bool] = lambda _: True) -> list[Stored]:
    """The stored leaves that values are made of, each once; see ``parts`` of what is ``beyond``."""
    known: set[int] = set()
    found: list[Stored] = []
    for recipe in recipes:
        for part in parts(recipe, beyond=lambda part: id(part) not in known and beyond(part)):
            if id(part) not in known:
                known.add(id(part))
                found += [part] if isinstance(part, Stored) else []
    return found
