"""What `inspect` counts as parameters, on a state of Flax NNX that Orbax wrote."""

import jax
import optax
import orbax.checkpoint as ocp
from flax import nnx


class Model(nnx.Module):
    """A layer, a batch norm and a dropout with its own random stream: variables of four types."""

    def __init__(self, rngs):
        self.lin = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)


def plain(module):
    """The state as nested dicts of leaves called `value`, raw keys as numbers."""
    tree = {}
    for path, variable in nnx.to_flat_state(nnx.state(module)):
        value = variable.get_value()
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        node = tree
        for key in path:
            node = node.setdefault(str(key), {})
        node["value"] = value
    return tree


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def test_running_statistics_and_random_streams_of_nnx_are_no_parameters(surgery, tmp_path):
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
    trained = 3 * 4 + 4 + 4 + 4

    alone = save(tmp_path / "alone", plain(model))
    both = save(tmp_path / "both", {"model": plain(model), "optimizer": plain(optimizer)})

    assert surgery("inspect", alone, "--json").document["parameters"] == trained
    assert surgery("inspect", both, "--json").document["parameters"] == trained
    paths = {row["path"] for row in surgery("inspect", alone, "--json").document["leaves"]}
    assert {"norm/mean/value", "norm/var/value"} < paths
    assert any("key" in path for path in paths)


def test_outside_nnx_every_array_of_the_params_is_a_parameter(surgery, tmp_path):
    ones = jax.numpy.ones
    params = {"norm": {"mean": ones(4), "scale": ones(4)}, "quantized": ones(8, "int8")}

    source = save(
        tmp_path / "linen", {"params": params, "batch_stats": {"norm": {"mean": ones(4)}}}
    )

    assert surgery("inspect", source, "--json").document["parameters"] == 16
