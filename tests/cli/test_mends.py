"""What `--like-init` advises is done as it stands there; Orbax's own restore of the script's target is the judge."""

import json
import runpy
import shlex
import textwrap

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

SCRIPT = """
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from flax.training.train_state import TrainState


def layers(names, width=4):
    return {name: {"kernel": jnp.ones((width, width)), "bias": jnp.zeros(width)} for name in names}


def series(name, numbers=range(12)):
    return layers(name.format(number) for number in numbers)


def state(params, tx=None):
    return TrainState.create(apply_fn=None, params=params, tx=tx or optax.adamw(1e-3))


def schedule():
    return optax.linear_schedule(1e-3, 0.0, 100)


class Boxed(nn.Module):
    @nn.compact
    def __call__(self, x):
        init = nn.initializers.lecun_normal()
        x = nn.Dense(4, kernel_init=nn.with_partitioning(init, (None, "model")))(x)
        return nn.Dense(2, kernel_init=nn.with_logical_partitioning(init, ("a", "b")))(x)


def boxed(all_of_them=True):
    made = Boxed().init(jax.random.key(0), jnp.ones((1, 3)))["params"]
    if not all_of_them:
        made["Dense_1"] = nn.meta.unbox(made["Dense_1"])
    return state(made)


def partly_boxed():
    return boxed(all_of_them=False)


def bare():
    return state(nn.meta.unbox(boxed().params))


def layers_of():
    return state(series("layers_{}"))


def blocks_of():
    return state(series("blocks_{}"))


def padded_layers_of():
    return state(series("layers_{:02}"))


def padded_blocks_of():
    return state(series("blocks_{:02}"))


def padded_names_of():
    made = series("layers_{:02}")
    return state({name: {"kernels" if name == "layers_01" else k: v for k, v in layer.items() if k == "kernel"}
                  | {"bias": layer["bias"]} for name, layer in made.items()})


def numbers_of():
    return state({"blocks": series("{}")})


def layers_beside():
    return state({**series("layers_{}"), **layers(["layers_norm"])})


def blocks_beside():
    return state({**series("blocks_{}"), **layers(["layers_norm"])})


def two_series():
    return state({"encoder": series("layers_{}", range(3)), "decoder": series("layers_{}", range(3))})


def two_series_renamed():
    return state({"encoder": series("b{}", range(3)), "decoder": series("b{}", range(3))})


def nested():
    return state(series("stage{}", range(3)))


def adam():
    return state(layers("ab"), optax.adam(1e-3))


def adamw():
    return state(layers("ab"))


def adam_on_schedule():
    return state(layers("ab"), optax.adam(schedule()))


def adamw_on_schedule():
    return state(layers("ab"), optax.adamw(schedule()))


def renamed_on_schedule():
    return state(layers("xb"), optax.adamw(schedule()))


def lion():
    return state(layers("ab"), optax.lion(1e-3))


def adafactor():
    return state(layers("ab"), optax.adafactor(1e-3))


def momentum():
    return state(layers("ab"), optax.sgd(1e-3, momentum=0.9))


def xy():
    return state(layers("xy"))


def projections():
    return state({"attn": layers(["q_proj", "k_proj", "v_proj", "o_proj"])})


def queries():
    return state({"attention": layers(["query", "key", "value", "out"])})


def shifted():
    return state(series("layers_{}", range(1, 13)))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return lambda name: f"{path}:{name}"


@pytest.fixture
def stored(tmp_path, script):
    """The checkpoint that a function of the script saves."""

    def stored(name):
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, made_by(script(name)))
        return tmp_path / name

    return stored


def made_by(spec):
    file, name = spec.rsplit(":", 1)
    return runpy.run_path(file)[name]()


def restored(path, spec):
    """What Orbax makes of a checkpoint for the script, leaf for leaf of the script's own structure."""
    target = made_by(spec)
    with ocp.StandardCheckpointer() as checkpointer:
        back = checkpointer.restore(path, jax.tree.map(ocp.utils.to_shape_dtype_struct, target))
    assert jax.tree.structure(back) == jax.tree.structure(target)
    return back


MENDED = [
    ("layers_of", "blocks_of"),
    ("layers_of", "numbers_of"),
    ("numbers_of", "layers_of"),
    ("padded_layers_of", "blocks_of"),
    ("padded_layers_of", "layers_of"),
    ("padded_layers_of", "padded_blocks_of"),
    ("layers_of", "padded_layers_of"),
    ("layers_beside", "blocks_beside"),
    ("two_series", "two_series_renamed"),
    ("boxed", "bare"),
    ("bare", "boxed"),
    ("partly_boxed", "bare"),
    ("bare", "partly_boxed"),
    ("adam", "adamw"),
    ("adamw", "adam"),
    ("adam_on_schedule", "adam"),
    ("adam_on_schedule", "adamw"),
    ("adam", "adam_on_schedule"),
    ("adamw", "adamw_on_schedule"),
    ("adam_on_schedule", "adamw_on_schedule"),
    ("adamw_on_schedule", "adam_on_schedule"),
    ("adamw_on_schedule", "adamw"),
    ("adamw", "renamed_on_schedule"),
    ("projections", "queries"),
    ("queries", "projections"),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("before", "after"), MENDED)
def test_what_is_advised_makes_the_check_agree_and_orbax_restore(
    surgery, stored, script, tmp_path, before, after
):
    source, like = stored(before), ["--like-init", script(after)]
    found = surgery("verify", source, *like, "--json")
    assert found.code == 1
    findings = found.document["findings"]
    for number, finding in enumerate(findings):  # one after the other, as a person would paste them
        target = tmp_path / f"mended{number}"
        if finding["fix"].startswith("`surgery"):
            words = shlex.split(finding["fix"].split("`")[1])[1:]
            places = {str(tmp_path / before): source, "DST": target}
            assert surgery(*[places.get(word, word) for word in words]).code == 0
        else:
            plan = tmp_path / f"{number}.json"
            plan.write_text(json.dumps({"edits": finding["edits"]}))
            assert surgery("apply", source, target, plan).code == 0
        source = target

    assert surgery("verify", source, *like).code == 0
    back = restored(source, script(after))
    arrays = sorted(np.asarray(x).tobytes() for x in jax.tree.leaves(back) if np.size(x) > 1)
    saved = jax.tree.leaves(made_by(script(before)))
    assert arrays == sorted(np.asarray(x).tobytes() for x in saved if np.size(x) > 1)


def test_a_numbered_series_is_one_finding_with_one_command(surgery, stored, script):
    source = stored("layers_of")
    found = surgery("verify", source, "--like-init", script("blocks_of"), "--json")
    (finding,) = found.document["findings"]
    assert (finding["path"], finding["there"]) == ("params/layers_{0..11}", "params/blocks_{0..11}")
    assert finding["leaves"] == 72
    assert (
        finding["fix"]
        == rf"`surgery rename {source} DST 'params/layers_*' --to 'params/blocks_\1'`"
    )


def test_layers_of_one_shape_are_told_by_names_that_mean_one_thing(surgery, stored, script):
    found = surgery("verify", stored("projections"), "--like-init", script("queries"), "--json")
    moves = [(row["here"], row["there"]) for row in found.document["findings"]]
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
    assert sorted(moves) == sorted(
        (f"params/attn/{old}", f"params/attention/{new}") for old, new in names.items()
    )


@pytest.mark.parametrize(
    ("after", "path", "there"),
    [
        ("padded_blocks_of", "params/layers_{00..11}", "params/blocks_{00..11}"),
        ("blocks_of", "params/layers_{00..11}", "params/blocks_{0..11}"),
        ("padded_names_of", "params/layers_01/kernel", "params/layers_01/kernels"),
    ],
)
def test_names_are_shown_with_the_zeros_that_they_have(surgery, stored, script, after, path, there):
    source = stored("padded_layers_of")
    found = surgery("verify", source, "--like-init", script(after), "--json").document
    (finding,) = found["findings"]
    assert (finding["path"], finding["here"], finding["there"]) == (path, path, there)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", ["xy", "shifted", "blocks_of", "numbers_of"])
@pytest.mark.parametrize("before", ["adamw", "layers_of", "two_series"])
def test_what_may_have_another_name_is_never_advised_to_be_deleted(
    surgery, stored, script, before, after
):
    """Twelve layers of which one end is missing are not closed up by moving the other end there either."""
    found = surgery("verify", stored(before), "--like-init", script(after), "--json").document
    for finding in found["findings"]:
        assert "delete" not in [edit["op"] for edit in finding.get("edits", [])]
        assert "surgery delete" not in finding.get("fix", "")
        ends = [(edit.get("at"), edit.get("to")) for edit in finding.get("edits", [])]
        assert ("params/layers_0", "params/layers_12") not in ends


@pytest.mark.parametrize("after", ["lion", "adafactor", "momentum"])
def test_another_optimizer_is_said_beside_what_would_make_the_trees_agree(
    surgery, stored, script, after
):
    run = surgery("verify", stored("adamw"), "--like-init", script(after), "--json")
    assert run.code == 1
    said = f"by its fields 'opt_state/0' is adam-family here and {after} there"
    assert any(said in note for note in run.document["notes"])
    run = surgery("verify", stored("adam"), "--like-init", script("adamw"), "--json")
    assert not any("optimizer is another" in note for note in run.document["notes"])


def test_a_rename_on_record_tells_its_way_back(surgery, stored, script, tmp_path):
    """Of two equal layers only the record says which is which, through two runs."""
    moves = ["--move", "params/a=params/y", "--move", "params/b=params/x"]
    assert surgery("rename", stored("adamw"), tmp_path / "one", *moves).code == 0
    assert (
        surgery("rename", tmp_path / "one", tmp_path / "two", "params/x", "--to", "params/z").code
        == 0
    )
    like = ["--like-init", script("adamw"), "--json"]
    for name, there in (("one", "params/x"), ("two", "params/z")):
        found = surgery("verify", tmp_path / name, *like).document
        assert [edit for row in found["findings"] for edit in row["edits"]] == [
            {"op": "rename", "at": "params/y", "to": "params/a"},
            {"op": "rename", "at": there, "to": "params/b"},
        ]
        (note,) = found["notes"]
        assert note.startswith("one plan mends all: `edits: [")


def test_an_edit_that_renames_is_told_that_the_source_fits_and_not_its_own_way_back(
    surgery, stored, script, tmp_path
):
    moves = ["--move", "params/a=params/y", "--move", "params/b=params/x"]
    like = ["--like-init", script("adamw")]
    found = surgery("rename", stored("adamw"), tmp_path / "new", *moves, *like)
    assert found.code == 1
    assert found.err.count("the source fits there: let the function return") == 2
    assert '"op":"rename"' not in found.err
