"""Expressions in their normal form: shorter, of no more leaves than needed, and with the same values as without it."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.digest import draft_digest
from surgery_cli.draft.expression import (
    LeafRef,
    Made,
    Recipe,
    Shared,
    Stored,
    made,
    once,
    parts,
    stored_in,
)
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.draft.kernels.cut import Cut, Grow, Steps
from surgery_cli.draft.kernels.join import Concat, Stack, Unstack
from surgery_cli.draft.kernels.scale import Scale
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from tests.draft.maps_by_numpy import MAPS, by_numpy, drawn_map
from tests.operations.value_edits import computed, spec_of

HERE = LeafPath(("here",))
ARRAYS = {
    LeafPath((name,)): np.random.default_rng(n).normal(size=(4, 6)).astype(np.float32)
    for n, name in enumerate("abc")
}
A, B, C = (Stored(LeafRef("", path), spec_of(array)) for path, array in ARRAYS.items())
WITHOUT_FILL = [kind for kind in MAPS if kind is not Grow]


def mapped(kernel: Any, *inputs: Recipe) -> Recipe:
    spec = inputs[0].spec
    return made(
        kernel, inputs, kernel.output(spec) if isinstance(kernel, Arrangement) else spec, HERE
    )


def joined(chance: Random, pool: list[tuple[Recipe, Any]]) -> tuple[Recipe, Any] | None:
    """Some of the pool that are of one shape, as one leaf."""
    shape = chance.choice(pool)[1].shape
    some = [one for one in pool if one[1].shape == shape and shape]
    if not some:
        return None
    chosen = chance.choices(some, k=chance.randint(2, 3))
    axis = chance.randrange(len(shape))
    arrays = [array for _, array in chosen]
    if chance.random() < 0.5:
        stack = Stack(axis, len(chosen))
        return mapped(stack, *(recipe for recipe, _ in chosen)), np.stack(arrays, axis)
    concat = Concat(axis, tuple(array.shape[axis] for array in arrays))
    return mapped(concat, *(recipe for recipe, _ in chosen)), np.concatenate(arrays, axis)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_follows_each_other_has_the_values_that_numpy_finds(seed: int) -> None:
    chance = Random(seed)
    pool: list[tuple[Recipe, Any]] = [(leaf, ARRAYS[leaf.ref.path]) for leaf in (A, B)]
    for _ in range(14):
        recipe, array = chance.choice(pool)
        if chance.random() < 0.35:
            if (one := joined(chance, pool)) is not None and one[1].size < 5000:
                pool.append(one)
        elif array.size and array.ndim:
            kernel = drawn_map(chance.choice(WITHOUT_FILL), array.shape, chance)
            pool.append((mapped(kernel, recipe), by_numpy(kernel, array)))
    for recipe, array in pool:
        assert recipe.spec.shape == array.shape
        if array.size:
            np.testing.assert_array_equal(computed(recipe, ARRAYS), array)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_taken_apart_and_joined_as_it_was_is_the_leaf_and_in_any_other_way_is_not(
    axis: int,
) -> None:
    count = A.spec.shape[axis]
    slices = [mapped(Unstack(axis, n), A) for n in range(count)]
    assert mapped(Stack(axis, count), *slices) is A
    others = {
        "another order": [slices[1], slices[0], *slices[2:]],
        "one of another leaf": [*slices[:-1], mapped(Unstack(axis, count - 1), B)],
        "all but the first of another": [
            slices[0],
            *(mapped(Unstack(axis, n), B) for n in range(1, count)),
        ],
        "one less": slices[:-1],
        "one twice": [slices[0], *slices[:-1]],
    }
    for what, chosen in others.items():
        assert isinstance(mapped(Stack(axis, len(chosen)), *chosen), Made), what
    line = mapped(Cut((Steps(0, 1), Steps(0, 1))), A)
    assert mapped(Stack(axis, 1), mapped(Unstack(axis, 0), line)) == line
    whole = mapped(Stack(axis, 3), A, B, C)
    assert [mapped(Unstack(axis, n), whole) for n in range(3)] == [A, B, C]


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_are_put_side_by_side_as_they_were_are_the_leaf(axis: int) -> None:
    half = A.spec.shape[axis] // 2
    concat = Concat(axis, (half, half))
    first, second = (mapped(part, A) for part in concat.parts)
    assert mapped(concat, first, second) is A
    assert isinstance(mapped(concat, second, first), Made)
    assert isinstance(mapped(concat, first, mapped(concat.parts[1], B)), Made)


def test_what_changes_nothing_is_the_leaf_itself_held_as_it_was_asked_for() -> None:
    coarse = msgspec.structs.replace(A.spec, chunk_shape=(2, 6), write_shape=(2, 6))
    assert made(Scale(1.0), (A,), coarse, HERE) is A
    scalar = msgspec.structs.replace(A.spec, kind=LeafKind.NUMPY)
    found = made(Scale(1.0), (A,), scalar, HERE)
    assert (found.spec.kind, found) == (LeafKind.NUMPY, Stored(A.ref, scalar))


def test_places_that_were_filled_and_are_cut_off_again_need_no_fill() -> None:
    grown = mapped(Grow(0, 0, 4, 2), A, B)
    cut = mapped(Cut((Steps(1, 3), Steps(0, 6))), grown)
    assert [*stored_in(cut)] == [A]
    np.testing.assert_array_equal(computed(cut, ARRAYS), ARRAYS[A.ref.path][1:4])
    kept = mapped(Cut((Steps(3, 2), Steps(0, 6))), grown)
    assert {part.ref for part in stored_in(kept)} == {A.ref, B.ref}


def test_a_fact_is_found_once_of_what_is_shared_and_anew_of_all_else() -> None:
    asked: list[str] = []

    def find() -> int:
        asked.append("")
        return len(asked)

    shared = Shared(Scale(2.0), (A,), A.spec, HERE)
    assert [once(shared, name, find) for name in ("x", "x", "y", "x")] == [1, 1, 2, 1]
    alone = Made(Scale(2.0), (A,), A.spec, HERE)
    assert [once(alone, "x", find) for _ in range(2)] == [3, 4]


def test_what_lies_beyond_a_part_that_does_not_count_is_not_looked_for() -> None:
    inner = Made(Scale(2.0), (A,), A.spec, HERE)
    outer = Made(Stack(0, 2), (inner, B), Stack(0, 2).output(A.spec), HERE)
    assert stored_in(outer) == [A, B]
    assert stored_in(outer, beyond=lambda part: part is not inner) == [B]
    assert stored_in(outer, outer, inner, C, C) == [A, B, C]
    assert parts(inner, beyond=lambda part: False) == []


def test_a_digest_tells_apart_what_is_made_in_another_way_and_nothing_else() -> None:
    def digest(recipe: Recipe | None, source: str = "s", **donors: str) -> str:
        return draft_digest({HERE: recipe}, source, donors)

    again = mapped(Scale(2.0), Stored(LeafRef("", LeafPath(("a",))), spec_of(ARRAYS[A.ref.path])))
    assert digest(again) == digest(mapped(Scale(2.0), A))
    weighed = msgspec.structs.replace(A.spec, stored_bytes=7)
    assert digest(Stored(A.ref, weighed)) == digest(A)
    different = [
        *(None, A, B, mapped(Scale(2.0), A), mapped(Scale(3.0), A), mapped(Scale(2.0), B)),
        *(mapped(Stack(0, 2), A, B), mapped(Stack(0, 2), B, A), mapped(Concat(0, (4, 4)), A, B)),
        made(Scale(2.0), (A,), A.spec, LeafPath(("there",))),
        made(Convert(), (A,), msgspec.structs.replace(A.spec, dtype="float16"), HERE),
    ]
    assert len({digest(one) for one in different}) == len(different)
    assert (
        len({digest(A), digest(A, "t"), digest(A, d="1"), digest(A, d="2"), digest(A, e="1")}) == 5
    )
