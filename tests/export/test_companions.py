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


RESIZE = {"op": "resize", "at": ["model.embed_tokens.weight", "lm_head.weight"]}


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (
            {**RESIZE, "old_size": VOCABULARY, "size": VOCABULARY + 7},
            f"`vocab_size: {VOCABULARY}`, and may be untrue",
        ),
        ({"op": "delete", "at": "model.layers.1.*"}, "leaves are not the source's, by name"),
        ({"op": "cast", "to": "bfloat16"}, "`dtype: float32`, and weights are 'bfloat16' now"),
    ],
)
def test_what_may_be_untrue_by_now_is_said_by_name(surgery, source, tmp_path, edit, wanted):
    (one,) = said(surgery, source, tmp_path, edit)
    assert wanted in one
    assert np.array_equal(json.loads((tmp_path / "new/config.json").read_text()), CONFIG)
