"""Averages and targets of a part of the params: they follow where they stand at the very places of their originals."""

import jax.numpy as jnp
import optax
import pytest

from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.script.abstract_tree import abstract_tree


def layer(width):
    return {"bias": jnp.zeros(width), "kernel": jnp.zeros((4, width))}


PARAMS = {
    "embed": {"embedding": jnp.zeros((9, 4))},
    "encoder": {"Dense_0": layer(4), "Dense_1": layer(6)},
    "head": layer(9),
}


def copies_of(average, params=PARAMS):
    """Which params what stands in `ema` follows, by what the metadata tell."""
    tree = {"params": params, "opt_state": optax.adam(0.1).init(params), "ema": average}
    slots = survey(abstract_tree(lambda: tree).tree).slots
    return {str(s.path): str(s.param) for s in slots.values() if not s.in_optimizer}


PARTS = {
    "one layer": {"head": PARAMS["head"]},
    "one matrix": {"embed": PARAMS["embed"]},
    "all but one": {key: PARAMS[key] for key in ("encoder", "head")},
    "a layer inside": {"encoder": {"Dense_1": PARAMS["encoder"]["Dense_1"]}},
    "kernels alone": {"encoder": {"Dense_1": {"kernel": jnp.zeros((4, 6))}}},
}


@pytest.mark.parametrize("part", PARTS)
def test_each_leaf_follows_the_one_at_its_place(part):
    found = copies_of(PARTS[part])
    assert found
    assert all(param == path.replace("ema/", "params/") for path, param in found.items())


@pytest.mark.parametrize(
    "other",
    [{"head": layer(5)}, {"tail": layer(9)}, {"head": {"kernel": layer(9)["kernel"], "more": jnp.zeros(3)}}],
    ids=["another shape", "another name", "more than there is"],
)  # fmt: skip
def test_what_differs_is_nobodys(other):
    assert copies_of(other) == {}


def test_of_two_networks_the_targets_of_each_are_its_own():
    params = {"q1": PARAMS, "q2": PARAMS, "actor": {"Dense_0": layer(7)}}
    found = copies_of({"q1": PARAMS, "q2": PARAMS}, params)
    assert len(found) == 2 * 7
    assert all(param == path.replace("ema/", "params/") for path, param in found.items())
