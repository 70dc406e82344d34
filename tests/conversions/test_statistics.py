"""Running means and params, which NNX saves side by side: what the optimizer has moments of is a param."""

import re

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from tests.conversions.routes import PLANS, applied, surgery


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)


class Shifted(nnx.Module):
    """Trained params that are called as BatchNorm's running means are, beside these."""

    def __init__(self):
        self.shift = nnx.Dict(mean=nnx.Param(jnp.full(4, 2.0)), var=nnx.Param(jnp.full(4, 3.0)))
        self.norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))


ADAM, MOMENTUM = optax.adam(0.1), optax.sgd(0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("plan", "tx"),
    [
        ("nnx-to-linen.yaml", ADAM),
        ("nnx-to-linen.yaml", MOMENTUM),
        ("nnx-to-linen.yaml", None),
        ("nnx-to-linen-like.yaml", ADAM),
        ("nnx-to-linen-like.yaml", MOMENTUM),
    ],
)
def test_a_param_called_as_a_running_mean_is_no_statistic(tmp_path, plan, tx):
    model = Shifted()
    tree = {"model": nnx.state(model)}
    if tx:
        tree["optimizer"] = nnx.state(nnx.Optimizer(model, tx, wrt=nnx.Param))
    save(tmp_path / "nnx", tree)
    params = {
        "norm": {name: np.zeros(4, np.float32) for name in ("bias", "scale")},
        "shift": {name: np.zeros(4, np.float32) for name in ("mean", "var")},
    }
    stats = {"norm": {name: np.zeros(4, np.float32) for name in ("mean", "var")}}
    fresh = {"params": params, "batch_stats": stats}
    fresh |= {"opt_state": tx.init(params), "step": jnp.uint32(0)} if tx else {}
    save(tmp_path / "fresh", fresh)
    given = {"chain": 2} if plan == "nnx-to-linen.yaml" else {"like": tmp_path / "fresh"}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    text, code = surgery(
        "apply", tmp_path / "nnx", tmp_path / "no", PLANS / plan, *words, "-v", "--dry-run"
    )
    if tx:
        assert code == 2
        assert "there must be none, and there stand 'optimizer/opt_state/0/" in text
        assert "/shift/mean/value'" in text
    else:  # nothing tells, and what was taken is listed
        assert re.search("batch_stats/shift/mean .* from model/shift/mean/value", text), text
        assert (
            "note: taken for running means, as their names match `batch_stats=(.*/)?(mean|var)`"
            in text
        )
        assert (
            "moments of them: 'model/norm/mean/value', 'model/norm/var/value', 'model/shift/mean/value'"
            in text
        )
    new = applied(
        tmp_path / "nnx", tmp_path / "new", plan, **given, batch_stats="(.*/)?norm/(mean|var)"
    )
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(new, fresh)
    np.testing.assert_array_equal(found["params"]["shift"]["mean"], np.full(4, 2.0))
    np.testing.assert_array_equal(found["batch_stats"]["norm"]["var"], np.ones(4))
