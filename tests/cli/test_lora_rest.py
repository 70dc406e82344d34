"""An adapter is merged as a whole, by however many edits, unless a plan says that the rest is left out."""

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file

FIXTURES = Path(__file__).parents[1] / "fixtures" / "peft"
ADAPTER = FIXTURES / "lora" / "adapter"
BASE = FIXTURES / "lora" / "base.safetensors"
UP, DOWN, MIX = (f"layers.*.{name}.weight" for name in ("up", "down", "mix"))
FLAX = {"layout": "flax", "alpha": 4}


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def peft(at, op="merge-lora", **fields):
    name = at.split(".")[2]
    a, b = (rf"base_model.model.layers.\1.{name}.lora_{part}.weight" for part in "AB")
    return {"op": op, "at": at, "with": str(ADAPTER), "a": a, "b": b, "layout": "peft", **fields}


def flax(name, donor, **fields):
    a, b = (rf"params/layers_\1/{name}/lora_{part}" for part in "ab")
    at = f"params/layers_*/{name}/kernel"
    return {"op": "merge-lora", "at": at, "with": str(donor), "a": a, "b": b, **FLAX, **fields}


@pytest.fixture
def planned(surgery, tmp_path):
    """What `surgery plan` says of edits of a checkpoint."""

    def call(source, *edits, **fields):
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"edits": edits, **fields}))
        return surgery("plan", source, plan)

    return call


@pytest.fixture
def kernels(tmp_path):
    """A model whose LoRA stands in another checkpoint, some of it in a layer of another name."""
    layer = {"qkv": {"kernel": np.ones((8, 6), "f4")}, "up": {"kernel": np.ones((8, 4), "f4")}}
    save(tmp_path / "own", {"params": {"layers_0": layer, "layers_1": layer}})

    def lora(out):
        return {"lora_a": np.ones((8, 2), "f4"), "lora_b": np.ones((2, out), "f4")}

    tree = {"layers_0": {"qkv": lora(6), "up": lora(4)}, "layers_1": {"qkv": lora(6)}}
    return tmp_path / "own", tree


@pytest.mark.parametrize("op", ["merge-lora", "unmerge-lora"])
def test_tensors_of_an_adapter_that_no_edit_takes_are_refused_by_name(planned, op):
    result = planned(BASE, peft(UP, op), peft(DOWN, op))

    assert result.code == 2
    for layer, part in product("01", "AB"):
        name = f"base_model.model.layers.{layer}.mix.lora_{part}.weight"
        assert f"'{name}' of '{ADAPTER}' belongs to no kernel that is named" in result.err
    assert ".up." not in result.err
    assert ".down." not in result.err
    assert "all that is left with `rest: leave`" in result.err


def test_several_edits_merge_an_adapter_each_a_part(planned):
    result = planned(BASE, peft(UP), peft(DOWN), peft(MIX))

    assert result.code == 0, result.err
    assert "left out" not in result.out


def test_one_adapter_by_two_names_is_one(planned):
    other = peft(MIX, **{"with": "adapter"})

    result = planned(BASE, peft(UP), peft(DOWN), other, sources={"adapter": str(ADAPTER)})

    assert result.code == 0, result.err


def test_what_one_edit_merges_another_does_not_take_out(planned):
    result = planned(BASE, peft(UP), peft(DOWN), peft(MIX), peft(UP, "unmerge-lora"))

    assert result.code == 2
    assert ".down." in result.err
    assert ".up." not in result.err


def test_what_is_left_out_on_purpose_is_said(planned):
    result = planned(BASE, peft(UP, rest="leave"), peft(DOWN))

    assert result.code == 0, result.err
    assert f"4 leaves of '{ADAPTER}' are left out, as `rest: leave` says" in result.out
    excepted = {**peft(UP), "at": "layers.*.{up,down,mix}.weight", "except": [DOWN, MIX]}
    excepted |= {key: excepted[key].replace("up", r"\2") for key in "ab"}
    assert planned(BASE, excepted).code == 0


def test_a_lora_of_flax_is_merged_as_a_whole(planned, kernels, tmp_path):
    own, tree = kernels
    donor = save(tmp_path / "lora", {"params": tree})

    result = planned(own, flax("qkv", donor))

    assert result.code == 2
    for part in "ab":
        assert f"'params/layers_0/up/lora_{part}' of '{donor}' belongs to no kernel" in result.err
        assert f"it is called like what `{part}` says" in result.err
    both = planned(own, flax("qkv", donor), flax("up", donor, missing="skip"))
    assert both.code == 0, both.err
    left = planned(own, flax("qkv", donor, rest="leave"))
    assert f"2 leaves of '{donor}' are left out" in left.out


def test_variables_of_nnx_are_told_by_the_key_above(planned, kernels, tmp_path):
    own, tree = kernels
    boxed = {
        layer: {
            name: {key: {"value": leaf} for key, leaf in parts.items()}
            for name, parts in modules.items()
        }
        for layer, modules in tree.items()
    }
    boxed["layers_0"]["norm"] = {"scale": {"value": np.ones(3, "f4")}}
    donor = save(tmp_path / "lora", {"params": boxed})
    edit = flax("qkv", donor)
    edit |= {key: f"{edit[key]}/value" for key in "ab"}

    result = planned(own, edit)

    assert result.code == 2
    assert "'params/layers_0/up/lora_a/value'" in result.err
    assert "norm" not in result.err


def test_moments_of_a_lora_are_no_parts_of_it(planned, kernels, tmp_path):
    own, tree = kernels
    del tree["layers_0"]["up"]
    state = optax.adam(0.1).init(tree)
    donor = save(tmp_path / "lora", {"params": tree, "opt_state": state})

    result = planned(own, flax("qkv", donor))

    assert result.code == 0, result.err


def test_of_a_lora_in_the_checkpoint_itself_what_is_not_merged_stays(planned, kernels, tmp_path):
    _, tree = kernels
    for modules in tree.values():
        for parts in modules.values():
            parts["kernel"] = parts["lora_a"] @ parts["lora_b"]
    own = save(tmp_path / "both", {"params": tree})
    edit = flax("qkv", "")
    del edit["with"]

    assert planned(own, edit).code == 0
    spared = {**edit, "at": "params/layers_*/{qkv}/kernel"} | {
        key: edit[key].replace("qkv", r"\2") for key in "ab"
    }
    result = planned(own, spared)
    assert result.code == 2
    assert "'params/layers_0/up/lora_a' of 'this checkpoint' belongs to no kernel" in result.err
    gone = {"op": "delete", "at": "params/layers_0/up/lora_*"}
    assert planned(own, spared, gone).code == 0


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (["up", "down", "mix", "head"], "'head'"),
        (["up", "own", "mix"], "'own'"),
        (["layers.0.up", "1.down", "mix"], ""),
        (r".*\.(up|gate)", ""),
        (r".*\.gate", r"'.*\.gate'"),
        ("all-linear", ""),
        (None, ""),
    ],
)
def test_modules_that_an_adapter_names_and_has_no_tensors_of_are_said(
    planned, tmp_path, modules, said
):
    shutil.copytree(ADAPTER, tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "target_modules": modules}))
    edits = [peft(at, **{"with": str(tmp_path / "adapter")}) for at in (UP, DOWN, MIX)]

    result = planned(BASE, *edits)

    assert result.code == 0, result.err
    assert ("and there is no tensor of it" in result.out) is bool(said)
    assert f"says that {said} had a LoRA" in result.out or not said


def test_what_is_merged_by_parts_is_what_is_merged_at_once(surgery, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"edits": [peft(UP), peft(DOWN), peft(MIX)]}))

    result = surgery("apply", BASE, tmp_path / "new", plan)

    assert result.code == 0, result.err
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")
    for key, value in load_file(FIXTURES / "lora" / "merged.safetensors").items():
        np.testing.assert_allclose(found[key], value, rtol=3e-7, atol=3e-7)
