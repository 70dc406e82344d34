"""A LoRA and a kernel whose elements stand in another order within an axis: no shape shows it, a note does.

What the values should be is said by NumPy: the LoRA is merged first, and the sum is rearranged.
"""

import json

import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

PEFT, TURNED = "r in, out r -> out in", "peft-transposed"
HEADS = "r in, (heads dim) r -> heads dim in"
MAPS = {
    "rotary halves become neighbours": (PEFT, [(3, 2, 4, 4), "0213", (24, 4)]),
    "with the axes turned, too": (TURNED, ["10", (4, 3, 2, 4), "0132", (4, 24)]),
    "rows in another order": (PEFT, ["permute"]),
    "rows in another order, then turned": (TURNED, ["permute", "10"]),
    "axes turned": (TURNED, ["10"]),
    "an axis in two": (HEADS, [(6, 4, 4)]),
    "halves of which there is one": (PEFT, [(3, 1, 8, 4), "0213", (24, 4)]),
    "there and back": (PEFT, [(3, 2, 4, 4), "0213", "0213", (24, 4)]),
    "turned and split": (TURNED, ["10", (4, 6, 4)]),
}
INDEX = [*range(1, 24), 0]


def edit_of(step):
    if step == "permute":
        return {"op": "permute", "at": "w", "index": INDEX, "axis": 0}
    if isinstance(step, str):
        return {"op": "transpose", "at": "w", "axes": [*map(int, step)]}
    return {"op": "reshape", "at": "w", "shape": step}


def in_numpy(array, steps):
    for step in steps:
        if step == "permute":
            array = array[INDEX]
        else:
            array = (
                array.transpose([*map(int, step)]) if isinstance(step, str) else array.reshape(step)
            )
    return array


@pytest.fixture
def leaves(tmp_path):
    rng = np.random.default_rng(0)
    w, a, b = (rng.normal(size=size).astype("f4") for size in ((24, 4), (2, 4), (24, 2)))
    save_file({"w": w, "v": w}, tmp_path / "model.safetensors")
    save_file({"w_a": a, "w_b": b}, tmp_path / "lora.safetensors")
    return w, a, b


@pytest.mark.sampled(2)
@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", MAPS)
def test_a_lora_is_said_to_be_for_another_order_where_its_values_are(
    surgery, tmp_path, leaves, name, runs
):
    layout, steps = MAPS[name]
    merge = {"op": "merge-lora", "at": "{w}", "with": str(tmp_path / "lora.safetensors")}
    merge |= {"a": r"\1_a", "b": r"\1_b", "layout": layout, "scale": 1}
    edits = [edit_of(step) for step in steps]
    source = tmp_path / "model.safetensors"
    said = ""
    for n, part in enumerate([[*edits, merge]] if runs == 1 else [edits, [merge]]):
        plan = tmp_path / f"{n}.json"
        plan.write_text(json.dumps({"edits": part}))
        result = surgery("apply", source, tmp_path / f"new{n}", plan)
        assert result.code == 0, result.err
        source, said = tmp_path / f"new{n}", result.out

    w, a, b = (leaf.astype("f8") for leaf in leaves)
    with ocp.StandardCheckpointer() as checkpointer:
        made = checkpointer.restore(source)["w"]
    is_right = np.allclose(made, in_numpy(w + b @ a, steps), atol=1e-5)
    assert ("the order within an axis of 'w' was changed by" in said) is not is_right


def test_what_is_extracted_of_such_a_kernel_is_said_to_be_in_its_order(surgery, tmp_path, leaves):
    for n, seed in enumerate((1, 2)):
        w = np.random.default_rng(seed).normal(size=(24, 4)).astype("f4")
        save_file({"w": w}, tmp_path / f"m{n}.safetensors")
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"edits": [edit_of(s) for s in next(iter(MAPS.values()))[1]]}))
        assert surgery("apply", tmp_path / f"m{n}.safetensors", tmp_path / f"c{n}", plan).code == 0
    words = ["--with", tmp_path / "c1", "--a", "a", "--b", "b", "--rank", "2", "--layout", "peft"]

    result = surgery("extract-lora", tmp_path / "c0", tmp_path / "new", "w", *words)

    assert result.code == 0, result.err
    by = "`reshape`, `transpose`, `reshape` of an earlier run"
    assert f"the order within an axis of 'w' was changed by {by}" in result.out
