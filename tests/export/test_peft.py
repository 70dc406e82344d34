"""A LoRA as PEFT loads it, held against folders that PEFT wrote and what it made of them.

The folders that these commands write were loaded by PEFT 0.21.2 under the models of `fixtures/peft/make.py`: what the
models gave differed by 1e-5 (`--error 1e-5`) and by nothing from what they gave under PEFT's own.
"""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.conftest import surgery
from tests.conversions.parts import FIXTURES

__all__ = ["surgery"]

PEFT = FIXTURES.parent / "peft"
KERNELS = ["{layers.*.*,head}.weight"]
NAMES = ["--a", r"base_model.model.\1.lora_A.weight", "--b", r"base_model.model.\1.lora_B.weight"]


def scaled(folder):
    """What an adapter adds to each module, by the rules of PEFT (`tuners/lora/model.py`, `utils/other.py`)."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")

    def own(module, pattern, usual):
        keys = [key for key in pattern if re.match(rf"(.*\.)?({key})$", module)]
        return pattern[keys[0]] if keys else usual

    for module in config["target_modules"]:
        a, b = (
            tensors.pop(f"base_model.model.{module}.lora_{x}.weight").astype("f8") for x in "AB"
        )
        rank = own(module, config["rank_pattern"], config["r"])
        assert (len(a), b.shape[1]) == (rank, rank)
        yield module, b @ a * own(module, config["alpha_pattern"], config["lora_alpha"]) / rank
    assert not tensors


@pytest.mark.parametrize(
    ("fixture", "words", "turned"),
    [
        ("patterns", ["--layout", "peft", "--error", "1e-5"], False),
        ("patterns", ["--layout", "peft", "--error", "1e-5", "--scale", "2.5"], False),
        ("conv1d", ["--layout", "peft-transposed", "--rank", "4"], True),
    ],
)
def test_what_was_learnt_is_extracted_as_an_adapter(surgery, tmp_path, fixture, words, turned):
    base, merged = (PEFT / fixture / f"{name}.safetensors" for name in ("base", "merged"))
    kernels = KERNELS if fixture == "patterns" else ["{layers.*.*}.weight"]
    command = ["extract-lora", base, tmp_path / "new", *kernels, "--with", merged, *NAMES, *words]
    done = surgery(*command, "--to", "peft")
    assert done.code == 0, done.err
    assert "leaves stay behind, no part of peft" in done.out
    found = dict(scaled(tmp_path / "new"))
    before, after = load_file(base), load_file(merged)
    assert found
    for module, added in found.items():
        learnt = after[f"{module}.weight"].astype("f8") - before[f"{module}.weight"]
        left = np.linalg.norm((added.T if turned else added) - learnt)
        assert left <= 2e-5 * np.linalg.norm(learnt), module


def test_an_adapter_says_what_peft_itself_says(surgery, tmp_path):
    own = PEFT / "lora/adapter"
    done = surgery("export", own, tmp_path / "new", "--to", "peft", "--alpha", "6")
    assert done.code == 0, done.err
    wanted, found = (
        json.loads((folder / "adapter_config.json").read_text())
        for folder in (own, tmp_path / "new")
    )
    modules = found.pop("target_modules")
    assert {module.split(".")[-1] for module in modules} == set(wanted.pop("target_modules"))
    assert found == {key: wanted[key] for key in found}
    one, other = (
        load_file(folder / "adapter_model.safetensors") for folder in (own, tmp_path / "new")
    )
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(other[name], values, strict=True)
    again = surgery("inspect", tmp_path / "new")
    assert again.code == 0, again.err


A, B = (f"base_model.model.x.lora_{name}.weight" for name in "AB")
GOOD = {A: np.ones((2, 3), "f4"), B: np.ones((4, 2), "f4")}


@pytest.mark.parametrize(
    ("tensors", "words", "said"),
    [
        (GOOD, [], "nothing says by what A·B is multiplied"),
        (GOOD, ["--scale", "1", "--alpha", "2"], "both say"),
        (GOOD, ["--scale", "nan"], "`--scale` is nan"),
        (GOOD, ["--scale", "1", "--shard", "1GB"], "`shard` says nothing of peft"),
        ({A: GOOD[A]}, ["--scale", "1"], f"there is no '{B}'"),
        ({**GOOD, A: GOOD[A].T}, ["--scale", "1"], "[rank, inputs] and [outputs, rank]"),
        ({**GOOD, A: np.ones((2, 3, 1), "f4")}, ["--scale", "1"], "PEFT has [rank, inputs]"),
        (
            {**GOOD, "base_model.model.x.lora_magnitude_vector": np.ones(4, "f4")},
            ["--scale", "1"],
            "lora_magnitude_vector' cannot be stored in peft",
        ),
        ({"x.weight": np.ones(2, "f4")}, ["--scale", "1"], "none is a part of peft: 'x.weight'"),
    ],
)
def test_what_is_no_adapter_is_refused(surgery, tmp_path, tensors, words, said):
    save_file({n: np.ascontiguousarray(x) for n, x in tensors.items()}, tmp_path / "x.safetensors")
    ended = surgery("export", tmp_path / "x.safetensors", tmp_path / "out", "--to", "peft", *words)
    assert ended.code == 2
    assert said in ended.err
    assert not (tmp_path / "out").exists()


def test_a_scale_that_the_factors_were_not_made_for_is_refused(surgery, tmp_path):
    """Left alone, the adapter would add another product than was learnt."""
    base, merged = (PEFT / "lora" / f"{name}.safetensors" for name in ("base", "merged"))
    plan = tmp_path / "plan.yaml"
    edit = {"op": "extract-lora", "at": KERNELS[0], "with": str(merged), "layout": "peft"}
    edit |= {"a": NAMES[1], "b": NAMES[3], "rank": 1, "scale": 2}
    elsewhere = edit | {"a": r"a.\1", "b": r"b.\1"}
    moved = [{"op": "rename", "at": f"{x}.*", "to": NAMES[n]} for x, n in (("a", 1), ("b", 3))]
    for output, edits in (
        ({"scale": 1}, [edit]),
        ({"alpha": 4}, [edit]),
        ({"scale": 1}, [elsewhere, *moved]),
    ):
        said = {"edits": edits, "output": {"format": "peft", **output}}
        plan.write_text(json.dumps(said))
        ended = surgery("apply", base, tmp_path / "new", plan)
        assert ended.code == 2
        assert "for a scale of 2" in ended.err
    for output in ({"scale": 2}, {"alpha": 2}):  # PEFT multiplies by alpha / rank
        plan.write_text(json.dumps({"edits": [edit], "output": {"format": "peft", **output}}))
        assert surgery("plan", base, plan).code == 0
    ended = surgery("extract-lora", base, tmp_path / "new", *KERNELS, "--with", merged, *NAMES,
                    "--layout", "peft", "--rank", "1", "--to", "npz")  # fmt: skip
    assert ended.code == 2
    assert "no format that 'extract-lora' writes" in ended.err


LAYOUTS = {
    "peft": True,
    "peft-transposed": True,
    "r ins, outs r -> ins outs": True,
    "flax": False,
    "embed r, r heads -> embed heads": False,
    "r in, r out -> in out": False,
    "in r, out r -> in out": False,
}


@pytest.mark.parametrize(("layout", "is_pefts"), LAYOUTS.items())
@pytest.mark.parametrize(("shape", "rank"), [((8, 8), 8), ((8, 6), 6), ((8, 8), 2)])
def test_of_whatever_size_a_and_b_have_pefts_axes_or_are_refused(
    surgery, tmp_path, layout, is_pefts, shape, rank
):
    draw = np.random.default_rng(0)
    base, tuned = (draw.normal(size=shape).astype("f4") for _ in range(2))
    for name, kernel in (("base", base), ("tuned", tuned)):
        save_file({"q.weight": kernel}, tmp_path / f"{name}.safetensors")
    command = ["extract-lora", tmp_path / "base.safetensors", tmp_path / "new", "*.weight"]
    command += ["--with", tmp_path / "tuned.safetensors", *NAMES, "--layout", layout]
    done = surgery(*command, "--rank", str(rank), "--to", "peft", "--quiet")
    assert (done.code == 0) is is_pefts, done.err
    if not is_pefts:
        assert "is no part of an adapter as PEFT has it" in done.err
        return
    tensors = load_file(tmp_path / "new/adapter_model.safetensors")
    a, b = (tensors[f"base_model.model.q.lora_{x}.weight"] for x in "AB")
    inputs, outputs = shape[::-1] if layout == "peft" else shape
    assert (a.shape, b.shape) == ((rank, inputs), (outputs, rank))
    assert f"{inputs:,} inputs and {outputs:,} outputs" in done.out + done.err
    if rank == min(shape):
        learnt = (tuned - base).T if layout != "peft" else tuned - base
        np.testing.assert_allclose(b @ a, learnt, atol=1e-5)
