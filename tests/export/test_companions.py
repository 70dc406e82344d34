"""Files beside the weights of a Hugging Face folder: they come along, or are named, and what they say is looked at."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli.conftest import surgery
from tests.conversions.parts import FIXTURES

__all__ = ["surgery"]

VOCABULARY, WIDTH = load_file(FIXTURES / "llama/model.safetensors")[
    "model.embed_tokens.weight"
].shape
CONFIG = {"vocab_size": VOCABULARY, "text": {"hidden_size": WIDTH}, "dtype": "float32", "x": None}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    shutil.copy(FIXTURES / "llama/model.safetensors", folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "optimizer.pt").write_bytes(b"not ours")
    (folder / "NOTES.md").write_text("mine")
    return folder


def said(surgery, source, tmp_path, *edits):
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps({"edits": list(edits), "output": {"format": "safetensors"}}))
    shown = surgery("plan", source, plan, "--json")
    assert shown.code == 0, shown.err
    assert surgery("apply", source, tmp_path / "new", plan).code == 0
    return [note for note in shown.document["consequences"] if "config.json" in note]


def test_they_come_along_into_such_a_folder(surgery, source, tmp_path):
    done = surgery("export", source, tmp_path / "new", "--to", "safetensors", "--json")
    assert done.code == 0, done.err
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"model.safetensors", "config.json", "tokenizer.json", "surgery.json"}
    for name in ("config.json", "tokenizer.json"):
        assert (tmp_path / "new" / name).read_bytes() == (source / name).read_bytes()
    assert {file["name"] for file in done.document["exported"]["files"]} == names - {"surgery.json"}
    beside = sum((source / name).stat().st_size for name in ("config.json", "tokenizer.json"))
    assert done.document["bytes_copied"] == beside
    notes = " ".join(done.document["notes"])
    assert "as they are: 'config.json', 'tokenizer.json'" in notes
    assert "left behind: 'NOTES.md', 'optimizer.pt'" in notes
    assert surgery("verify", tmp_path / "new").code == 0


def test_of_a_single_file_they_are_named(surgery, source, tmp_path):
    done = surgery("export", source, tmp_path / "new.safetensors", "--to", "safetensors", "--json")
    assert done.code == 0, done.err
    named = "left behind: 'NOTES.md', 'config.json', 'optimizer.pt', 'tokenizer.json'"
    assert any(named in note for note in done.document["consequences"])


def test_nothing_is_said_of_what_is_true_still(surgery, source, tmp_path):
    edit = {"op": "rescale", "at": "model.norm.weight", "by": 0.5}
    assert said(surgery, source, tmp_path, edit) == []


def resized(at, size, axis=0):
    return {"op": "resize", "at": at, "axis": axis, "size": size, "fill": "zeros"}


def test_a_dtype_that_is_another_is_said(surgery, source, tmp_path):
    (one,) = said(surgery, source, tmp_path, {"op": "cast", "to": "bfloat16"})
    assert "`dtype: float32`, and weights are 'bfloat16' now" in one
    assert np.array_equal(json.loads((tmp_path / "new/config.json").read_text()), CONFIG)


LLAMA = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
}
"""24 is the width of this model and that of its queries: fewer of these leave `hidden_size` true."""
EMBEDDINGS = ["model.embed_tokens.weight", "lm_head.weight"]
UNTRUE = {
    "more tokens": ([resized(EMBEDDINGS, 47)], {"vocab_size": 47}),
    "one matrix of two has more tokens": ([resized(EMBEDDINGS[0], 47)], {}),
    "a smaller MLP": (
        [
            resized("model.layers.*.mlp.{gate,up}_proj.weight", 32),
            resized("model.layers.*.mlp.down_proj.weight", 32, axis=1),
        ],
        {"intermediate_size": 32},
    ),
    "a layer less": ([{"op": "delete", "at": "model.layers.1.*"}], {"num_hidden_layers": 2}),
    "fewer heads": (
        [
            resized("model.layers.*.self_attn.q_proj.weight", 8),
            resized("model.layers.*.self_attn.{k,v}_proj.weight", 4),
            resized("model.layers.*.self_attn.o_proj.weight", 8, axis=1),
        ],
        {"num_attention_heads": 2, "num_key_value_heads": 1},
    ),
    "no head": ([{"op": "delete", "at": "lm_head.weight"}], {"tie_word_embeddings": True}),
    "other names": ([{"op": "rename", "at": "model.layers.*", "to": "model.block.\\1"}], {}),
}


@pytest.mark.parametrize("case", UNTRUE)
@pytest.mark.parametrize("part", [None, "text_config"])
def test_what_is_untrue_by_now_is_named_and_nothing_else_is(surgery, source, tmp_path, case, part):
    config = LLAMA if part is None else {part: LLAMA, "vocab_size": 1}
    (source / "config.json").write_text(json.dumps(config))
    edits, wanted = UNTRUE[case]
    *named, rest = said(surgery, source, tmp_path, *edits)
    prefix = "" if part is None else f"{part}."
    assert [
        note.partition("; ")[0].partition(": '")[0].partition(": so")[0].partition(": there")[0]
        for note in named
    ] == [
        f"`config.json` says `{prefix}{key}: {json.dumps(LLAMA[key])}`, and it is {json.dumps(now)} now"
        for key, now in wanted.items()
    ]
    assert rest.startswith("`config.json` is as in the source, and ")
    assert f" are not: no {'more ' * bool(wanted)}key of it is known to be untrue" in rest


def test_what_was_untrue_before_is_not_told_by_weights(surgery, source, tmp_path):
    (source / "config.json").write_text(json.dumps({"vocab_size": 39}))
    (rest,) = said(surgery, source, tmp_path, resized(EMBEDDINGS, 47))
    assert "no key of it is known to be untrue" in rest
