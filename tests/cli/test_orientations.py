"""What no shape can show is said, and what something else contradicts is refused: axes of one size, and layouts."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from surgery_cli.operations.lora_layout import NAMED
from surgery_cli.operations.table import operations

LORA = Path(__file__).parents[1] / "fixtures" / "peft" / "lora"
TAKES_A_LAYOUT = [
    name
    for name, kind in operations().items()
    if "layout" in {field.encode_name for field in msgspec.structs.fields(kind)}
]
UNSHOWN = "no shape shows that"


def words_of(op, folder, layout, modules="*"):
    """The edit of all kernels ``{module}.weight`` of a file, and the parts of a LoRA beside it."""
    place = "base_model.model.{}.lora_{}.weight"
    words = [op, folder / "base.safetensors", folder / "new", f"{modules}.weight"]
    for part in "ab":
        words += [f"--{part}", place.format(r"\1", part.upper())]
    words += ["--layout", layout, "--dry-run"]
    if op == "extract-lora":
        return [*words, "--with", folder / "tuned.safetensors", "--rank", "2"]
    return [*words, "--with", folder / "lora.safetensors", "--scale", "1"]


def lay_out(folder, layout, sizes):
    """A base, a fine-tune of it and a LoRA, of kernels that have ``sizes`` inputs and outputs, by module."""
    draw = np.random.default_rng(0)
    sides = NAMED[layout].replace(",", "").replace("->", "").split()
    base, lora = {}, {}
    for module, (inputs, outputs) in sizes.items():
        letters = {"in": inputs, "out": outputs, "r": 2}
        a, b, kernel = (
            draw.normal(size=[letters[x] for x in sides[n : n + 2]]).astype("f4") for n in (0, 2, 4)
        )
        base[f"{module}.weight"] = kernel
        lora |= {
            f"base_model.model.{module}.lora_{part}.weight": x for part, x in (("A", a), ("B", b))
        }
    save_file(base, folder / "base.safetensors")
    save_file({key: value + 1 for key, value in base.items()}, folder / "tuned.safetensors")
    save_file(lora, folder / "lora.safetensors")


@pytest.mark.parametrize("layout", NAMED)
@pytest.mark.parametrize("op", TAKES_A_LAYOUT)
def test_a_layout_that_no_shape_shows_is_said_to_be_taken_as_it_is(surgery, tmp_path, op, layout):
    lay_out(tmp_path, layout, {"q": (8, 8), "o": (8, 8)})
    result = surgery(*words_of(op, tmp_path, layout), "--quiet")
    assert result.code == 0, result.err
    assert f"{UNSHOWN} `--layout` is right for 2 of 2 kernels" in result.out + result.err
    assert "'o.weight' float32[8,8] and others" in result.out + result.err

    lay_out(tmp_path, layout, {"q": (8, 8), "up": (8, 12)})
    result = surgery(*words_of(op, tmp_path, layout))
    assert "is right for 1 of 2 kernels, which have axes of one size: 'q.weight'" in result.out
    assert ("fit no other" in result.out) == (op != "extract-lora")

    lay_out(tmp_path, layout, {"q": (8, 6), "up": (8, 12)})
    result = surgery(*words_of(op, tmp_path, layout))
    assert (result.code, UNSHOWN in result.out) == (0, False), result.err


@pytest.fixture
def adapter(tmp_path):
    """What PEFT saved, of kernels (outputs, inputs) of which ``mix`` is square, beside its base."""
    shutil.copytree(LORA, tmp_path / "lora")
    return tmp_path / "lora"


def adapted(adapter, modules, layout, base="base.safetensors"):
    """An edit of some kernels by the adapter, without a word about its scale."""
    module = r"\2" if "{" in modules else modules
    place = rf"base_model.model.layers.\1.{module}.lora_{{}}.weight"
    return [
        "merge-lora", adapter / base, adapter / "new", f"layers.*.{modules}.weight",
        "--with", adapter / "adapter", "--layout", layout, "--rest", "leave",
        "--a", place.format("A"), "--b", place.format("B"),
    ]  # fmt: skip


@pytest.mark.parametrize("op", ["merge-lora", "unmerge-lora"])
def test_other_kernels_of_an_adapter_contradict_a_layout_that_square_ones_do_not_show(
    surgery, adapter, op
):
    wrong = [op, *adapted(adapter, "mix", "peft-transposed")[1:]]
    result = surgery(*wrong)
    assert result.code == 2
    assert "`--layout peft-transposed` is not how these kernels stand to" in result.err
    assert "goes with 'peft' alone" in result.err
    assert "say `--layout peft`; or, if these alone have their axes so" in result.err
    assert not (adapter / "new").exists()
    others = "layers.*.{up,down}.weight"
    excepted = [*adapted(adapter, "{up,down,mix}", "peft-transposed"), "--except", others]
    assert surgery(*excepted).code == 2

    result = surgery(*adapted(adapter, "mix", "peft"), "--dry-run")
    assert result.code == 0, result.err
    assert "; this does: 'layers.0.down.weight' float32[12,20] goes with 'peft' alone" in result.out


def test_an_adapters_own_file_contradicts_a_layout_where_all_its_kernels_are_square(
    surgery, adapter
):
    base = load_file(adapter / "base.safetensors")
    save_file({k: v for k, v in base.items() if "mix" in k}, adapter / "mix.safetensors")
    result = surgery(*adapted(adapter, "mix", "peft-transposed", "mix.safetensors"))
    assert result.code == 2
    assert "`adapter_config.json` says `fan_in_fan_out: false`" in result.err

    config = json.loads((adapter / "adapter/adapter_config.json").read_text())
    (adapter / "adapter/adapter_config.json").write_text(
        json.dumps({**config, "fan_in_fan_out": True})
    )
    result = surgery(*adapted(adapter, "mix", "peft-transposed", "mix.safetensors"), "--dry-run")
    assert result.code == 0, result.err
    assert "; this does: `adapter_config.json` says `fan_in_fan_out: true`" in result.out


def test_kernels_that_something_else_speaks_against_may_be_said_axis_by_axis(surgery, adapter):
    result = surgery(*adapted(adapter, "mix", "r in, out r -> in out"), "--json")
    assert result.code == 0, result.err
    assert any(UNSHOWN in note for note in json.loads(result.out)["notes"])


def test_kernels_that_the_plan_has_turned_are_no_longer_how_the_adapter_has_them(surgery, adapter):
    plan = adapter / "plan.yaml"
    place = r"base_model.model.layers.\1.mix.lora_{}.weight"
    plan.write_text(
        "edits:\n"
        "  - {op: transpose, at: 'layers.*.mix.weight'}\n"
        "  - {op: merge-lora, at: 'layers.*.mix.weight', with: adapter, layout: peft-transposed, rest: leave,\n"
        f"     a: '{place.format('A')}', b: '{place.format('B')}'}}\n"
        "  - {op: transpose, at: 'layers.*.mix.weight'}\n"
        "output: {format: safetensors}\n"
    )
    result = surgery("apply", adapter / "base.safetensors", adapter / "new.safetensors", plan)
    assert result.code == 0, result.err
    assert "of 2 of 2 leaves the shape is the same afterwards" in result.out
    found, wanted = (load_file(adapter / f"{name}.safetensors") for name in ("new", "merged"))
    for n in range(2):
        key = f"layers.{n}.mix.weight"
        np.testing.assert_allclose(found[key], wanted[key], atol=3e-7)


@pytest.mark.parametrize(
    ("shape", "axes", "said"),
    [((4, 4), "1,0", True), ((4, 3), "1,0", False), ((4, 1, 4), "2,1,0", True),
     ((2, 4, 4), "0,2,1", True), ((1, 1), "1,0", False), ((4, 1), "0,1", False)],
)  # fmt: skip
def test_a_turn_that_a_shape_does_not_show_is_said(surgery, tmp_path, shape, axes, said):
    save_file({"w": np.zeros(shape, "f4")}, tmp_path / "a.safetensors")
    result = surgery(
        "transpose", tmp_path / "a.safetensors", tmp_path / "b", "w", "--axes", axes, "--dry-run"
    )
    assert result.code == 0, result.err
    assert ("1 of 1 leaf" in result.out and "the shape is the same" in result.out) == said
