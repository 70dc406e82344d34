"""Every operation's example under every policy, on states that hold their slots in every way there is.

What the table of effects and policies says is written down here once more; optax's own state of the new params says
which slots there are, and in which shapes, and trains on. An operation that is new in the table is swept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import optax.contrib
import pytest
from ruamel.yaml import YAML

from surgery_cli.compute.host import HostKit
from surgery_cli.draft import effect as effects
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.table import operations
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import example_on
from tests.optimizer.optax_registry import leaves_of
from tests.oracle.editing import InMemory, values_of

SHAPE = (4, 3)
POLICIES = ("keep", "transform", "reset", "warm")


class Row(NamedTuple):
    """What becomes of a first and of a second moment: as it "is", at its "mean", "moved" with its param, or refused.

    "averaged" over the members of an average, where these tell by themselves that they are of one kind.

    ``reset`` is fresh in every row, and so are first moments under ``warm``; None: what another checkpoint has, if it
    agrees.
    """

    keep: str
    transform: str | None
    warm_second: str | None


TABLE: Mapping[type, Row] = {
    effects.Keeps: Row("is", "is", "is"),
    effects.Scales: Row("is", "moved", None),
    effects.Sets: Row("is", "refused", "mean"),
    effects.Draws: Row("is", "refused", "mean"),
    effects.Masks: Row("is", None, None),
    effects.Takes: Row("is", None, "mean"),
    effects.Means: Row("is", "averaged", "is"),
    effects.Shifts: Row("is", "refused", "is"),
    effects.Rearranges: Row("moved", "moved", "moved"),
    effects.Resamples: Row("refused", "moved", "moved"),
}


def _kernels(params: Any) -> Any:
    return {layer: {key: key == "kernel" for key in leaves} for layer, leaves in params.items()}


class Relation(NamedTuple):
    """An optimizer, the kind that settles what its slots are, and params that show from where on it factors."""

    tx: Any
    kind: str | None = None
    shown: Mapping[str, tuple[int, int]] = {}


def _adafactor(least: int) -> Relation:
    tx = optax.adafactor(1e-2, min_dim_size_to_factor=least, multiply_by_parameter_scale=False)
    shown = {"factored": (least, least), "whole": (least - 1, 9)}
    return Relation(tx, "adafactor-without-parameter-scale", shown)


RELATIONS: Mapping[str, Relation] = {
    "same": Relation(optax.adam(1e-2), "adam"),
    "first moments alone": Relation(optax.sgd(1e-2, momentum=0.9)),
    "stacked": Relation(optax.scale_by_lbfgs(memory_size=2)),
    "scalar": Relation(optax.novograd(1e-2)),
    "factored": _adafactor(3),
    "not factored": _adafactor(4),
    "holes": Relation(optax.masked(optax.adam(1e-2), _kernels), "adam"),
    "a copy of the params": Relation(optax.contrib.schedule_free_sgd(1e-2)),
}
SQUARES = {"nu", "v", "v_row", "v_col"}
COPIES = {"z", "params"}
"""Fields that hold params, and get their edits."""

TRAINED = {"same", "first moments alone", "holes"}
"""Take a step with what came out, which for others takes long to compile (``test_rearranged_slots`` trains them)."""

WITHOUT_A_STATE = {"keep", "extract-item", "to-dict", "to-list"}
"""Operations whose result has no optimizer, one without its params, or one of a framework with other containers."""

ONE_NUMBER = {"stack", "unstack", "split", "concat"}
"""Operations under which one number a leaf means nothing, unless the slots are reset."""

NOT_AVERAGED = {"same", "holes", "factored", "not factored", "stacked", "scalar"}
"""Relations whose slots take no part in an average: nobody says of the members what keeps them or how far it has
counted; or they are of past steps."""

FIRST = LeafPath(("params", "Dense_0", "kernel"))


@cache
def state_of(relation: str, seed: int) -> Any:
    """Params and a state whose slots all have values of their own; what an optimizer has no use for stays 0."""
    tx, _, shown = RELATIONS[relation]
    draws = np.random.default_rng(seed)
    shapes = {layer: dict.fromkeys(("bias", "kernel"), SHAPE) for layer in ("Dense_0", "Dense_1")}
    if shown:
        shapes["shown"] = dict(shown)
    params = {
        layer: {key: draws.normal(size=shape).astype(np.float32) for key, shape in keys.items()}
        for layer, keys in shapes.items()
    }

    def filled(leaf: Any) -> Any:
        is_moment = leaf.dtype == np.float32 and leaf.shape != (1,)
        return draws.uniform(0.1, 1.0, leaf.shape).astype(np.float32) if is_moment else leaf

    state = jax.tree.map(filled, tx.init(params))
    return {"params": params, "opt_state": state, "step": np.int32(3)}


class Done(NamedTuple):
    """A draft, and the values of all leaves before and after."""

    draft: Draft
    before: Mapping[LeafPath, Any]
    after: Mapping[LeafPath, Any]


def done(kind: type[Operation], relation: str, **fields: Any) -> Done:
    own, other = InMemory(state_of(relation, 0)), InMemory(state_of(relation, 1))
    told = RELATIONS[relation].kind
    draft, sources = example_on(
        kind, own, other, other.values[FIRST], optimizer_kind=told, **fields
    )

    def value(recipe: Recipe) -> Any:
        evaluation = Evaluation(recipe, sources, HostKit(), recipe.spec.shape)
        return evaluation.block(tuple(slice(0, n) for n in recipe.spec.shape))

    arrays = {path: leaf.recipe for path, leaf in draft.leaves.items() if leaf.spec.has_array}
    return Done(draft, own.values, {path: value(recipe) for path, recipe in arrays.items()})


def fresh(relation: str, values: Mapping[LeafPath, Any]) -> Any:
    """The params among some values, and the state with which the optimizer would start on them."""
    tree: dict[Any, Any] = {}
    for path, value in values.items():
        if path[0] != "params":
            continue
        node = tree
        for key in path[1:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = jnp.asarray(value)
    return tree, RELATIONS[relation].tx.init(tree)


def check_state(found: Done, relation: str, *, dtypes: bool = True) -> dict[LeafPath, Any]:
    """Paths, shapes and dtypes are those of optax's own state, which is returned."""
    _, state = fresh(relation, found.after)
    wanted = {LeafPath(("opt_state", *path)): spec for path, spec in leaves_of(state).items()}
    leaves = {p: leaf.spec for p, leaf in found.draft.leaves.items() if p[0] == "opt_state"}
    assert leaves.keys() == wanted.keys()
    for path, spec in wanted.items():
        assert leaves[path].shape == spec.shape, path
        assert leaves[path].dtype == spec.dtype or not dtypes, path
    for path in wanted.keys() & found.after.keys():
        assert not SQUARES.intersection(path) or (found.after[path] >= 0).all(), path
    return {LeafPath(("opt_state", *path)): leaf for path, leaf in values_of(state).items()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every operation meets factored slots and two other kinds; with the option, all."""
    if "relation" not in metafunc.fixturenames:
        return
    kinds = {name: kind for name, kind in operations().items() if name not in WITHOUT_A_STATE}
    if "policy" in metafunc.function.__name__:
        kinds = {name: kind for name, kind in kinds.items() if issubclass(kind, LeafOperation)}
    every = metafunc.config.getoption("--every-combination")
    pairs = [
        (name, relation)
        for number, name in enumerate(kinds)
        for other, relation in enumerate(RELATIONS)
        if every or relation == "factored" or (number + other) % 4 == 0
    ]
    metafunc.parametrize(("name", "relation"), pairs)


@pytest.mark.sampled(6)
def test_the_state_is_one_that_optax_would_have_and_trains_on(name: str, relation: str) -> None:
    kind = operations()[name]
    if relation == "holes" and not issubclass(kind, LeafOperation):
        pytest.skip("which params this state leaves out goes by their names")
    if relation == "scalar" and name in ONE_NUMBER:
        with pytest.raises(PlanError, match="one number for a whole leaf"):
            done(kind, relation)
        return
    if relation in ("factored", "not factored") and name == "insert-item":
        pytest.skip(
            "the other checkpoint lacks the params that show from where on this one factors"
        )
    found = done(kind, relation)
    check_state(found, relation, dtypes=name != "cast")
    if relation not in TRAINED:
        return
    params, state = fresh(relation, found.after)
    order = [path for path, _ in leaves_of({"opt_state": state}).items() if path in found.after]
    values = [jnp.asarray(found.after[path]) for path in order]
    restored = jax.tree.unflatten(jax.tree.structure(state), values)
    updates, _ = RELATIONS[relation].tx.update(params, restored, params)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(updates))


@pytest.mark.sampled(6)
def test_every_policy_does_what_the_table_says(name: str, relation: str) -> None:
    kind = operations()[name]
    assert issubclass(kind, LeafOperation)
    usual = done(kind, relation)
    edited = {path for path in usual.draft.leaves if usual.draft.leaves[path].edits} - {
        *usual.draft.slots
    }
    twins = [
        slot
        for slot in usual.draft.slots.values()
        if slot.param in edited and slot.relation != "hole"
    ]
    (edit,) = msgspec.convert(YAML(typ="safe").load(kind.example), list[kind])  # type: ignore[valid-type]
    row = TABLE[type(edit.effect)]
    for policy in POLICIES if twins else ():
        if answer(row, policy, is_square=True) == answer(row, policy, is_square=False) == "refused":
            with pytest.raises(PlanError):
                done(kind, relation, optimizer=policy)
            continue
        is_masked = isinstance(edit.effect, effects.Masks)
        if is_masked and policy == "reset" and relation in ("scalar", "factored"):
            with pytest.raises(PlanError, match="cannot follow"):
                done(kind, relation, optimizer=policy)
            continue
        if row.transform == "averaged" and policy == "transform" and relation in NOT_AVERAGED:
            with pytest.raises(PlanError, match=r"cannot be averaged|cannot follow"):
                done(kind, relation, optimizer=policy)
            continue
        found = done(kind, relation, optimizer=policy)
        start = check_state(found, relation, dtypes=name != "cast")
        for slot in found.draft.slots.values():
            if (
                slot.relation == "hole"
                or COPIES.intersection(slot.path) - {"params"}
                or slot.node[-1] in COPIES
            ):
                continue
            own, new = found.before[slot.path], found.after[slot.path]
            wanted = answer(row, policy, is_square=bool(SQUARES.intersection(slot.path)))
            said = f"{policy}: {slot.path}"
            if slot.param not in edited or wanted == "is":
                np.testing.assert_array_equal(new, own, said)
            elif wanted == "averaged":
                other = InMemory(state_of(relation, 1)).values[slot.path].astype(np.float64)
                mean = own + share_of_other(found, slot.param, relation) * (
                    other - own.astype(np.float64)
                )
                np.testing.assert_allclose(new, mean, 1e-5, err_msg=said)
            elif wanted == "mean":
                np.testing.assert_allclose(new, own.mean(), 1e-6, err_msg=said)
            elif wanted == "fresh" and not is_masked:
                np.testing.assert_array_equal(new, start[slot.path], said)
            elif wanted == "fresh":
                assert ((new == own) | (new == start[slot.path])).all(), said


def share_of_other(found: Done, param: LeafPath, relation: str) -> float:
    """What part of the mean of a param is the other checkpoint's, told by the element that tells it best."""
    own, new = (np.float64(values[param]) for values in (found.before, found.after))
    apart = np.float64(InMemory(state_of(relation, 1)).values[param]) - own
    best = np.abs(apart).argmax()
    return float((new - own).flat[best] / apart.flat[best])


def answer(row: Row, policy: str, *, is_square: bool) -> str | None:
    """What becomes of a slot."""
    match policy:
        case "keep":
            return row.keep
        case "transform":
            return row.transform
        case "warm" if is_square:
            return row.warm_second
    return "fresh"
