"""The command `export`, and `output:` in a plan: what is chosen, what comes before, and what is wrong with it."""

import json
import re
from pathlib import Path

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from safetensors import safe_open

from surgery_cli.errors import PlanError
from surgery_cli.planning import read_plan
from surgery_cli.planning.schema import schema
from surgery_cli.settings.export import Export
from surgery_cli.store.export.table import FORMATS
from tests.cli.conftest import surgery

__all__ = ["surgery"]

TREE = {
    "params": {"a": {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}, "b": {"kernel": np.ones(2)}},
    "step": 3,
}


@pytest.fixture
def source(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", TREE)
    return tmp_path / "source"


def names(file):
    with safe_open(file, "np") as opened:
        return set(opened.keys())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"params.a.kernel", "params.a.bias", "params.b.kernel", "step"}),
        (["params"], {"params.a.kernel", "params.a.bias", "params.b.kernel"}),
        (["params", "--except", "**/bias"], {"params.a.kernel", "params.b.kernel"}),
        (["--except", "params/a", "--except", "step"], {"params.b.kernel"}),
        (["**/bias", "step"], {"params.a.bias", "step"}),
    ],
)
def test_leaves_are_chosen_by_patterns(surgery, source, tmp_path, words, expected):
    done = surgery("export", source, tmp_path / "out.safetensors", *words, "--to", "safetensors")
    assert done.code == 0, done.err
    assert names(tmp_path / "out.safetensors") == expected


def test_the_edits_of_a_plan_come_first(surgery, source, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("edits: [{op: rename, at: 'params/*/kernel', to: 'model.${tail}.\\1'}]\n")
    words = ["--plan", plan, "--set", "tail=w", "re:model.*", "--to", "safetensors"]
    ended = surgery("export", source, tmp_path / "out.safetensors", *words, "--json")
    document = ended.document
    assert names(tmp_path / "out.safetensors") == {"model.w.a", "model.w.b"}
    assert document["exported"]["files"][0]["leaves"] == 2
    assert [edit["operation"] for edit in document["edits"]] == ["rename", "keep"]


def test_a_record_is_the_plan_of_an_export(surgery, source, tmp_path):
    words = ["params", "--to", "safetensors", "--shard", "1kB"]
    assert surgery("export", source, tmp_path / "out", *words).code == 0
    record = tmp_path / "out/surgery.json"
    assert json.loads(record.read_text())["plan"]["output"] == {
        "format": "safetensors",
        "shard": 1000,
    }
    assert surgery("apply", source, tmp_path / "again", record).code == 0
    one, other = (tmp_path / name / "model.safetensors" for name in ("out", "again"))
    assert one.read_bytes() == other.read_bytes()


def test_a_sealed_export_agrees_with_its_seal(surgery, source, tmp_path):
    words = ["params", "--to", "safetensors", "--shard", "40", "--seal"]
    assert surgery("export", source, tmp_path / "out", *words).code == 0
    assert surgery("verify", tmp_path / "out", "--strict").code == 0


def test_force_replaces_an_export_whole(surgery, source, tmp_path):
    words = [source, tmp_path / "out", "--to", "safetensors"]
    assert surgery("export", *words, "--shard", "40").code == 0
    assert surgery("export", *words).code == 2
    assert surgery("export", *words, "--force").code == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model.safetensors", "surgery.json"}


def test_a_pattern_that_names_nothing_is_refused(surgery, source, tmp_path):
    ended = surgery("export", source, tmp_path / "out", "parms", "--to", "safetensors")
    assert ended.code == 2
    assert "params" in ended.err


def test_a_plan_that_says_a_format_itself_is_not_told_another(surgery, source, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("output: {format: npz}\n")
    words = [source, tmp_path / "out", "--plan", plan, "--to", "safetensors"]
    ended = surgery("export", *words)
    assert ended.code == 2
    assert "says by itself" in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("output:\n  format: parquet\n", "plan.yaml:2:3: `format` must be one of"),
        ("output:\n  shard: 5GB\n", "plan.yaml:1:1: `output` needs `format`"),
        ("output:\n  format: npz\n  shards: 3\n", "plan.yaml:3:3: `output` has no key `shards`"),
        ("output: npz\n", "plan.yaml:1:1: `output` must be a mapping"),
    ],
)
def test_what_is_wrong_with_an_output_is_said_at_its_line(tmp_path, text, said):
    plan: Path = tmp_path / "plan.yaml"
    plan.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_plan(str(plan))
    assert said in str(caught.value)


def test_a_size_that_is_none_is_refused_before_anything_is_opened(surgery, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("output: {format: safetensors, shard: many}\n")
    ended = surgery("plan", tmp_path / "nothing", plan)
    assert "'many' is not a size" in ended.err


def test_every_format_has_a_row_and_a_name() -> None:
    assert set(schema()["$defs"]["Export"]["properties"]["format"]["enum"]) == set(FORMATS)
    assert all(form.name == name for name, form in FORMATS.items())
    assert Export(format="npz").shard_bytes == 5 * 1000**3


def test_leaves_of_a_step_with_items_may_leave_them(surgery, tmp_path):
    """In a file of arrays no name need begin with that of an item."""
    with ocp.CheckpointManager(tmp_path / "run", item_names=("a", "b")) as manager:
        items = {name: ocp.args.PyTreeSave({"w": np.ones(2)}) for name in "ab"}
        manager.save(0, args=ocp.args.Composite(**items))
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "edits: [{op: rename, at: '*/w', to: 'model.\\1'}]\noutput: {format: safetensors}\n"
    )
    ended = surgery("apply", tmp_path / "run", tmp_path / "out.safetensors", plan)
    assert ended.code == 0, ended.err
    assert names(tmp_path / "out.safetensors") == {"model.a", "model.b"}


def test_leaves_that_are_not_chosen_are_not_exported_and_nothing_is_removed(surgery, tmp_path):
    """The checkpoint keeps them: it is no edit of it."""
    params = {"a": np.ones((2, 3), np.float32)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        state = {"params": params, "opt_state": optax.adam(0.1).init(params), "step": 3}
        checkpointer.save(tmp_path / "source", state)
    words = ("export", tmp_path / "source", tmp_path / "out.npz", "params", "--to", "npz")
    said = surgery(*words).out
    assert "twins: 2 not exported" in said
    assert re.search(r"^  does not export \d leaves$", said, re.MULTILINE)
    assert "deleted" not in said
    assert "removes" not in said
