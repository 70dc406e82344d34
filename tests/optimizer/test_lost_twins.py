"""A twin that is lost from one tree of an optimizer breaks `optimizer_mirrors_params`, whatever other trees hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.library import calls as library
from tests.optimizer.optax_registry import OPTIMIZERS, params_for, state_of

STATELESS = {"fromage", "noisy_sgd", "polyak_sgd", "sgd", "sign_sgd"}
ASKED_ABOUT = {"galore", "flatten_adam"}
"""Their slots do not follow the shapes of params, so that the rule asks whose they are."""
WITHOUT_EMPTY_PLACES = {"named_chain"}
"""Nothing in it is empty, and its states go by names: whether a param was left out cannot be told."""
RULE = {"rules": [{"at": "params", "optimizer_mirrors_params": True}]}


def parts(tree: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(tree, Mapping):
        return iter(tree.items())
    fields = getattr(tree, "_fields", None)
    if fields is not None:
        return zip(fields, tree, strict=True)
    return enumerate(tree) if isinstance(tree, list | tuple) else iter(())


def trees_like(params: Any, state: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where a state has a tree with the very keys of the params."""
    if isinstance(state, Mapping) and state.keys() == params.keys():
        yield path
        return
    for key, part in parts(state):
        yield from trees_like(params, part, (*path, key))


def at(tree: Any, path: tuple) -> Any:
    for key in path:
        tree = dict(parts(tree))[key]
    return tree


def without(tree: Any, path: tuple) -> Any:
    """The tree without the one key at the end of a path."""
    first, *rest = path
    if not rest:
        return {key: part for key, part in tree.items() if key != first}
    new = {key: without(part, tuple(rest)) if key == first else part for key, part in parts(tree)}
    if isinstance(tree, Mapping):
        return new
    return tree._replace(**new) if hasattr(tree, "_fields") else type(tree)(new.values())


def kept(params: Any, tree: Any, path: tuple = ()) -> Iterator[tuple]:
    """The params of which a tree has something."""
    for key, part in params.items():
        there = tree[key] if isinstance(tree, Mapping) else optax.MaskedNode()
        if isinstance(part, Mapping):
            yield from kept(part, there, (*path, key))
        elif jax.tree.leaves(there):
            yield (*path, key)


def cuts(params: Any, state: Any) -> Iterator[tuple[tuple, tuple]]:
    """For each tree of twins, a param to take out of it: another one in each."""
    for place, path in enumerate(trees_like(params, state)):
        there = list(kept(params, at(state, path)))
        if there:
            yield path, there[place % len(there)]


def saved(params: Any, state: Any, to: Path) -> str:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(to, {"params": params, "opt_state": state})
    return str(to)


def verdict(checkpoint: str) -> Any:
    return library.check(checkpoint, RULE).rules[0]


def restores(checkpoint: str, params: Any, state: Any) -> bool:
    """Whether Orbax restores it into what the training script makes."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        try:
            checkpointer.restore(checkpoint, item={"params": params, "opt_state": state})
        except (ValueError, KeyError):
            return False
    return True


@pytest.mark.sampled(32)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - STATELESS - ASKED_ABOUT))
def test_each_tree_of_an_optimizer_must_have_its_twin(name: str, tmp_path: Path) -> None:
    params, state = params_for(name), state_of(name)
    whole = saved(params, state, tmp_path / "whole")
    assert verdict(whole).holds
    found = list(cuts(params, state))
    assert found
    for place, (tree, param) in enumerate(found):
        less = saved(params, without(state, (*tree, *param)), tmp_path / f"less{place}")
        judged = verdict(less)
        where, path = ("/".join(map(str, keys)) for keys in (("opt_state", *tree), param))
        if judged.holds:
            assert name in WITHOUT_EMPTY_PLACES
            (apart,) = judged.apart
            assert f"without a twin in '{where}'" in apart.what
            assert apart.leaves == [f"params/{path}"]
        else:
            (said,) = judged.findings
            # of a tree that no kind of state is known to keep, it is asked whose it is
            assert said.path in (f"params/{path}", "params")
            asked = ("no optimizer state has anything", "cannot tell which params")
            assert f"'{where}" in said.why or said.why.startswith(asked)
        if place == 0:
            assert restores(whole, params, state)
            assert not restores(less, params, state)


ABC = {name: {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)} for name in "abc"}


def test_optimizers_of_other_params_each_need_only_their_own(tmp_path: Path) -> None:
    adam = optax.adam(0.1)
    first, second = ({k: ABC[k] for k in keys} for keys in ("ab", "c"))
    state = {"first": adam.init(first), "second": adam.init(second)}
    assert verdict(saved(ABC, state, tmp_path / "a")).holds


def test_trees_that_both_lack_a_param_are_each_named(tmp_path: Path) -> None:
    optimizer = optax.chain(optax.adam(0.1), optax.ema(0.9))
    state = optimizer.init(ABC)
    for field in ("mu", "nu"):
        state = without(state, (0, 0, field, "c"))
    judged = verdict(saved(ABC, state, tmp_path / "a"))
    assert {said.path: said.why for said in judged.findings} == {
        f"params/c/{part}": "it has no twin in 'opt_state/0/0/mu', 'opt_state/0/0/nu'"
        for part in "bw"
    }


def test_a_lost_twin_beside_masked_ones_is_no_masked_one(tmp_path: Path) -> None:
    optimizer = optax.masked(optax.adam(0.1), {"a": True, "b": False, "c": True})
    state = optimizer.init(ABC)
    for field in ("mu", "nu"):
        state = without(state, ("inner_state", 0, field, "c", "w"))
    judged = verdict(saved(ABC, state, tmp_path / "a"))
    assert [said.path for said in judged.findings] == ["params/c/w"]
    assert [one.leaves for one in judged.apart] == [["params/b/b", "params/b/w"]]
