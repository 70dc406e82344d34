"""What the record says of LoRAs in kernels: merged again, or taken out otherwise than they were merged."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

AT = "layers.*.w"
TWICE = "by an earlier run, too, as the record says"
UNKNOWN = "nothing on record says that the LoRA"


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)

    def array(*shape):
        return rng.normal(size=shape).astype("f4")

    base = {f"layers.{n}.{name}": array(6, 4) for n in range(2) for name in "wv"}
    save_file(base, tmp_path / "base.safetensors")
    for age, name in enumerate(("lora", "other")):
        parts = {f"layers.{n}.a": array(2, 4) for n in range(2)}
        parts |= {f"layers.{n}.b": array(6, 2) for n in range(2)}
        save_file(parts, tmp_path / f"{name}.safetensors")
        os.utime(tmp_path / f"{name}.safetensors", (age, age))  # by which files are told apart
    return tmp_path


@pytest.fixture
def run(surgery, place):
    """Apply edits to a checkpoint; a result gets the name that is given, and none is written without."""

    def call(source, *edits, to=None, **fields):
        plan = place / "plan.json"
        plan.write_text(json.dumps({"edits": edits, **fields}))
        words = ["plan", place / source, plan]
        if to:
            words = ["apply", place / source, place / to, plan]
        return surgery(*words)

    return call


def lora(place, op="merge-lora", donor="lora", at=AT, **fields):
    edit = {"op": op, "at": at, "with": str(place / f"{donor}.safetensors")}
    a, b = (at.rpartition(".")[0].replace("*", r"\1") + f".{part}" for part in "ab")
    return {**edit, "a": a, "b": b, "layout": "peft", **({"alpha": 4} | fields)}


def on(place, result):
    """What stands on record of layer 0 as it is called there."""
    record = json.loads((place / result / "surgery.json").read_text())
    return {
        leaf["path"]: [held.get("by", []) for held in leaf["loras"]]
        for leaf in record["leaves"]
        if "loras" in leaf
    }


@pytest.fixture
def once(run, place):
    assert run("base.safetensors", lora(place), to="once").code == 0
    return "once"


def test_the_scale_of_every_kernel_is_on_record(place, once):
    assert on(place, once) == {"layers.0.w": [[2.0]], "layers.1.w": [[2.0]]}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"alpha": 8}, "merged multiplied by 2; here it is multiplied by 4"),
        (
            {"donor": "other", "alpha": 8},
            "lora.safetensors' multiplied by 2; here it is multiplied by 4",
        ),
    ],
)
def test_what_is_taken_out_otherwise_than_it_was_merged_is_refused(run, place, once, fields, said):
    result = run(once, lora(place, "unmerge-lora", **fields))

    assert result.code == 2
    assert said in result.err
    assert "as this edit takes it out" in result.err


def test_a_lora_is_taken_out_once(run, place, once):
    out = run(once, lora(place, "unmerge-lora"), to="out")

    assert out.code == 0, out.err
    assert UNKNOWN not in out.out
    assert on(place, "out") == {"layers.0.w": [[]], "layers.1.w": [[]]}
    again = run("out", lora(place, "unmerge-lora"))
    assert again.code == 2
    assert "merged, and taken out again" in again.err
    assert TWICE not in run("out", lora(place)).out


def test_the_same_scale_may_be_said_otherwise(run, place, once):
    same = {"alpha": 2.0 * 2**0.5, "rslora": True}
    assert run(once, lora(place, "unmerge-lora", **same)).code == 0


def test_of_what_was_never_merged_nothing_is_on_record(run, place):
    result = run("base.safetensors", lora(place, "unmerge-lora"))

    assert result.code == 0, result.err
    assert UNKNOWN in result.out
    both = run("base.safetensors", lora(place), lora(place, "unmerge-lora"))
    assert UNKNOWN not in both.out
    wrong = run("base.safetensors", lora(place), lora(place, "unmerge-lora", alpha=8))
    assert wrong.code == 2


def test_what_was_merged_twice_is_taken_out_twice_or_at_once(run, place, once):
    assert run(once, lora(place), to="twice").code == 0
    assert on(place, "twice")["layers.0.w"] == [[2.0, 2.0]]
    assert run("twice", lora(place, "unmerge-lora", alpha=8)).code == 0
    assert run("twice", lora(place, "unmerge-lora"), to="half").code == 0
    assert on(place, "half")["layers.0.w"] == [[2.0]]
    assert run("half", lora(place, "unmerge-lora")).code == 0


def test_what_is_subtracted_in_any_case_is_added_with_a_negative_scale(run, place, once):
    result = run(once, lora(place, alpha=None, scale=-4.0))
    assert result.code == 0, result.err


KEEPS = {
    "renamed": [{"op": "rename", "at": "layers.*.w", "to": r"blocks.\1.w"}],
    "cast": [{"op": "cast", "at": AT, "to": "bfloat16"}],
    "replaced by a merged one": [{"op": "replace", "at": "layers.*.v", "with": "ONCE", "from": r"layers.\1.w"}],
    "averaged with itself": [{"op": "average", "with": ["BASE"], "at": AT}],
    "scaled": [{"op": "rescale", "at": AT, "by": 0.5}],
    "turned there and back": [{"op": "transpose", "at": AT, "axes": [1, 0]}] * 2,
}  # fmt: skip
DROPS = {
    "drawn anew": [{"op": "reinit", "at": AT, "init": "normal"}],
    "filled": [{"op": "replace", "at": AT, "with": 0.0}],
    "replaced by the base": [{"op": "replace", "at": AT, "with": "BASE"}],
    "replaced by another leaf": [{"op": "replace", "at": AT, "with": "BASE", "from": r"layers.\1.v"}],
}  # fmt: skip


def spelled(edits, place):
    names = {"ONCE": "once", "BASE": "base.safetensors"}
    text = json.dumps(edits)
    for name, file in names.items():
        text = text.replace(name, str(place / file))
    return json.loads(text)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", KEEPS)
def test_a_lora_is_noted_wherever_the_values_went(run, place, once, name, runs):
    edits = spelled(KEEPS[name], place)
    at = {"renamed": "blocks.*.w", "replaced by a merged one": "layers.*.v"}.get(name, AT)
    again = lora(place, at=at) | {"a": r"layers.\1.a", "b": r"layers.\1.b"}
    source = "base.safetensors" if "a merged one" in name else once
    if runs == 2:
        made = run(source, *edits, to="made")
        assert made.code == 0, made.err
        source, edits = "made", []

    result = run(source, *edits, again)

    assert result.code == 0, result.err
    assert TWICE in result.out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", DROPS)
def test_a_lora_goes_with_the_values(run, place, once, name, runs):
    edits, source = spelled(DROPS[name], place), once
    if runs == 2:
        made = run(source, *edits, to="made")
        assert made.code == 0, made.err
        source, edits = "made", []

    assert TWICE not in run(source, *edits, lora(place)).out
    out = run(source, *edits, lora(place, "unmerge-lora"))
    assert out.code == 0, out.err
    assert UNKNOWN in out.out


def test_a_copy_of_an_adapter_is_not_refused_and_said_to_be_perhaps_another(run, place, once):
    (place / "copy.safetensors").write_bytes((place / "lora.safetensors").read_bytes())

    result = run(once, lora(place, "unmerge-lora", donor="copy"))

    assert result.code == 0, result.err
    assert "copy.safetensors', which is taken out, is a copy of it is not known" in result.out


def test_a_merge_that_was_undone_is_none(surgery, run, place):
    assert run("base.safetensors", {"op": "cast", "at": AT, "to": "float32"}, to="own").code == 0
    assert run("own", lora(place), to="merged").code == 0
    inverse = surgery("plan", place / "merged", "--inverse")
    (place / "inverse.yaml").write_text(inverse.out)
    undone = surgery("apply", place / "merged", place / "undone", place / "inverse.yaml")
    assert undone.code == 0, undone.err

    assert TWICE not in run("undone", lora(place)).out


def test_kernels_that_were_computed_with_are_not_held_against_the_record(run, place, once):
    assert run(once, {"op": "rescale", "at": AT, "by": 0.5}, to="half").code == 0

    result = run("half", lora(place, "unmerge-lora", alpha=2))

    assert result.code == 0, result.err
    assert "and not by how much it is in them now" in result.out


@pytest.mark.parametrize("then", ["", "rename", "reinit", "unmerge-lora"])
def test_records_of_before_are_followed_by_their_edits(run, place, once, then):
    edits = {
        "rename": [{"op": "rename", "at": "layers.*.w", "to": r"blocks.\1.w"}],
        "reinit": [{"op": "reinit", "at": AT, "init": "normal"}],
        "unmerge-lora": [lora(place, "unmerge-lora")],
    }.get(then, [])
    if edits:
        assert run(once, *edits, to="then").code == 0
    file = place / ("then" if edits else once) / "surgery.json"
    record = json.loads(file.read_text())
    for part in (record, *record["history"]):
        for leaf in part["leaves"]:
            leaf.pop("loras", None)
    record.pop("content")
    file.write_text(json.dumps(record))
    at = "blocks.*.w" if then == "rename" else AT
    again = lora(place, at=at) | {"a": r"layers.\1.a", "b": r"layers.\1.b"}

    result = run(file.parent.name, again)

    assert result.code == 0, result.err
    assert (TWICE in result.out) is (then in ("", "rename"))
