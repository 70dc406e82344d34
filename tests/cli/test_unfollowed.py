"""A policy that was asked for, and that changes nothing as no slot follows what is edited, is said to."""

import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
import pytest

PARAMS = {"d0": {"kernel": jnp.ones((4, 4))}, "d1": {"kernel": jnp.ones((4, 2))}}
TREE = {
    "params": PARAMS,
    "stats": {"mean": jnp.ones(4), "var": jnp.ones(4)},
    "opt_state": optax.adam(1e-2).init(PARAMS),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("unfollowed") / "ck"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place, TREE)
    return place


@pytest.mark.parametrize(
    ("at", "policy", "is_said"),
    [
        ("stats/mean", "transform", True),
        ("stats", "reset", True),
        ("stats", "keep", False),
        ("stats", None, False),
        ("params/d0", "reset", False),
        ("opt_state/0/mu/d0", "keep", False),
    ],
)
def test_a_policy_that_nothing_goes_by_is_said_to(surgery, trained, tmp_path, at, policy, is_said):
    words = [] if policy is None else ["--optimizer", policy]
    seen = surgery("rescale", trained, tmp_path / "new", at, "--by", "2", "--dry-run", *words)
    assert seen.code == 0, seen
    said = f"nothing in the optimizer state follows '{'stats/mean' if at != 'params/d0' else at}'"
    assert (said in seen.out) == is_said
    assert ("and 1 more leaf" in seen.out) == (is_said and at == "stats")
