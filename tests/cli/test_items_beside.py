"""Items that are no trees: what a verdict says nothing of, it names; and `verify` looks at their arrays."""

from __future__ import annotations

import html
import json
import xml.etree.ElementTree as ET

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest


@pytest.fixture
def step(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        items = ocp.args.Composite(
            state=ocp.args.StandardSave({"params": {"w": np.ones(3, np.float32)}}),
            arr=ocp.args.ArraySave(np.array([np.nan, 1, np.inf], np.float32)),
            key=ocp.args.JaxRandomKeySave(jax.random.key(0)),
        )
        manager.save(1, args=items)
        manager.wait_until_finished()
    return tmp_path / "run" / "1"


def test_nan_in_an_array_beside_the_trees_is_a_finding(surgery, step):
    found = surgery("verify", step, "--json")
    assert found.code == 1
    (finding,) = found.document["findings"]
    assert (finding["path"], finding["detail"]) == ("arr/checkpoint", "1 of 3 values are NaN")
    assert found.document["infinities"] == {"arr/checkpoint": 1}
    passed = surgery("verify", step, "--allow-non-finite", "--json")
    assert (passed.code, passed.document["findings"]) == (0, [])


@pytest.mark.parametrize(
    "words",
    [
        ("check", "STEP", "POLICY"),
        ("assert", "STEP", "--finite"),
        ("verify", "STEP", "--like", "STEP"),
    ],
    ids=lambda words: words[0],
)
def test_what_no_rule_is_about_is_named(surgery, step, tmp_path, words):
    (tmp_path / "policy.yaml").write_text("rules:\n- finite: true\n")
    places = {"STEP": step, "POLICY": tmp_path / "policy.yaml"}
    found = surgery(*(places.get(word, word) for word in words))
    assert found.code == 0
    assert "as they are no trees: arr, key" in found.out


def test_a_report_of_a_policy_has_a_case_for_each_that_is_passed_over(surgery, step, tmp_path):
    (tmp_path / "policy.yaml").write_text("rules:\n- {id: sound, finite: true}\n")
    report = tmp_path / "report.xml"
    surgery("check", step, tmp_path / "policy.yaml", "--output", f"junit={report}")
    cases = {case.get("name"): case.find("skipped") for case in ET.parse(report).iter("testcase")}
    assert {name for name, skipped in cases.items() if skipped is not None} == {"arr", "key"}
    assert cases["sound"] is None


def test_a_finding_names_its_leaf_in_every_format(surgery, tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", {"params": {"w": np.ones(3), "s": "text"}})
    (tmp_path / "policy.yaml").write_text("rules:\n- {at: params, norm: 0..9}\n")
    outputs = [tmp_path / name for name in ("junit", "markdown", "github")]
    words = [word for file in outputs for word in ("--output", f"{file.name}={file}")]
    found = surgery("check", tmp_path / "ck", tmp_path / "policy.yaml", *words)
    assert found.code == 1
    for text in (found.out, *(file.read_text() for file in outputs)):
        assert "params/s" in html.unescape(text)


@pytest.mark.parametrize("item", ["params", "opt"])
def test_however_a_step_is_spelled_one_item_of_it_is_edited(surgery, tmp_path, item):
    """Its other items are looked at, for twins of what is edited."""
    state = {"w": np.ones((4, 3), np.float32)}
    adam = optax.adam(1e-3).init(state)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        items = {"params": state, "opt": adam}
        saved = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(5, args=ocp.args.Composite(**saved))
    run = str(tmp_path / "run")
    drafts = set()
    for words in ([run], [f"{run}@5"], [f"{run}@latest"], [run, "--step", "5"]):
        source, *step = words
        said = ["cast", source, str(tmp_path / "out"), "--to", "bfloat16", "--item", item]
        looked = surgery(*said, *step, "--dry-run", "--json")
        assert looked.code == 0, (words, looked.err)
        document = json.loads(looked.out)
        drafts.add(json.dumps([document["draft"], document["leaves"], document["notes"]]))
    assert len(drafts) == 1


@pytest.fixture
def measured(tmp_path):
    """A run whose steps have metrics, as a manager saves them."""
    by_loss = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(tmp_path / "measured", options=by_loss) as manager:
        for number in (1, 2):
            state = {"params": {"w": np.full(3, number, np.float32)}}
            manager.save(number, args=ocp.args.StandardSave(state), metrics={"loss": 1.0})
        manager.wait_until_finished()
    return tmp_path / "measured"


@pytest.mark.parametrize("is_first", [True, False])
def test_diff_says_which_side_lacks_an_item(surgery, measured, tmp_path, is_first):
    """ "no difference", and nothing said that one of them had lost its metrics."""
    lacking = tmp_path / "lacking"
    done = surgery(
        "rescale", f"{measured}@2", lacking, "params/w", "--by", "1", "--metrics", "drop"
    )
    assert done.code == 0, done.err
    assert not (lacking / "2" / "metrics").exists()
    sides = (f"{measured}@2", lacking) if is_first else (lacking, f"{measured}@2")
    side, other = ("a", "b") if is_first else ("b", "a")
    told = surgery("diff", *sides, "--json")
    assert told.code == 0
    assert told.document[f"items_only_in_{side}"] == ["metrics"]
    assert told.document[f"items_only_in_{other}"] == []
    assert told.document["not_compared"] == ["metrics"]
    assert f"only {side} has metrics" in surgery("diff", *sides).out
    report = tmp_path / "report.xml"
    surgery("diff", *sides, "--output", f"junit={report}")
    assert f"not compared: only {side} has it" in report.read_text("utf-8")


@pytest.mark.parametrize("what", ["both have it", "an item itself", "patterns"])
def test_diff_names_no_item_where_none_is_lacking(surgery, measured, what):
    sides = (f"{measured}@1", f"{measured}@2")
    if what == "an item itself":
        sides = (measured / "1" / "default", f"{measured}@2")
    told = surgery("diff", *sides, *(["params"] if what == "patterns" else []), "--json")
    assert (told.document["items_only_in_a"], told.document["items_only_in_b"]) == ([], [])


@pytest.mark.parametrize("metrics", ["drop", "keep"])
def test_the_way_back_says_what_it_does_not_bring_back(surgery, measured, tmp_path, metrics):
    new = tmp_path / "new"
    surgery("rescale", f"{measured}@2", new, "params/w", "--by", "2", "--metrics", metrics)
    assert (new / "2" / "metrics").exists() == (metrics == "keep")
    lost = ["metrics"] if metrics == "drop" else []
    assert surgery("plan", new, "--inverse", "--json").document["not_brought_back"] == lost
    told = surgery("plan", new, "--inverse")
    assert told.code == 0
    assert ("does not bring back 'metrics'" in told.err) == bool(lost)
    assert "bring back" not in told.out
