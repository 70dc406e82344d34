"""Errors and notes advise what their reader can write: options after a command, fields in a plan."""

import json
import re

import pytest

from surgery_cli.cli.rendering.spelling import in_options
from surgery_cli.operations.table import operations

BIAS = "params/Dense_0/bias"
MISTAKES = {
    "a twin beside its param": (
        ["rescale", "**/kernel", "--by", "2"],
        {"op": "rescale", "at": "**/kernel", "by": 2},
        "`--twins named`",
        "`twins: named`",
    ),
    "everything left out": (
        ["rescale", "params", "--except", "params", "--by", "2"],
        {"op": "rescale", "at": "params", "except": "params", "by": 2},
        "`--optional`",
        "`optional: true`",
    ),
    "no such dtype": (
        ["rescale", "params", "--where-dtype", "int*", "--by", "2"],
        {"op": "rescale", "at": "params", "where_dtype": "int*", "by": 2},
        "`--where-dtype 'int*'`",
        "`where_dtype: int*`",
    ),
    "an integer": (
        ["rescale", "step", "--by", "2"],
        {"op": "rescale", "at": "step", "by": 2},
        "`--where-dtype floating`",
        "`where_dtype: floating`",
    ),
    "another dtype": (
        ["replace", BIAS, "--with", "ZEROS"],
        {"op": "replace", "at": BIAS, "with": "ZEROS"},
        "`--cast`",
        "`cast: true`",
    ),
    "nowhere to go": (
        ["rename", "params/Dense_1"],
        {"op": "rename", "at": "params/Dense_1"},
        "`--move params/Dense_1=params/head`",
        "`moves: {params/Dense_1: params/head}`",
    ),
    "nothing to follow": (
        ["rescale", "params", "--by", "0", "--optimizer", "warm"],
        {"op": "rescale", "at": "params", "by": 0, "optimizer": "warm"},
        "`--optimizer reset`",
        "`optimizer: reset`",
    ),
    "one member": (
        ["average", "params"],
        {"op": "average", "at": "params"},
        "`--steps 100..500`",
        "`steps: 100..500`",
    ),
}


@pytest.fixture
def mistake(request, tmp_path):
    import numpy as np

    np.save(tmp_path / "zeros.npy", np.zeros(64))
    words, edit, *said = MISTAKES[request.param]
    zeros = str(tmp_path / "zeros.npy")
    edit = {key: zeros if value == "ZEROS" else value for key, value in edit.items()}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"edits": [edit]}))
    return [zeros if word == "ZEROS" else word for word in words], plan, *said


@pytest.mark.parametrize("mistake", MISTAKES, indirect=True)
def test_a_command_is_told_its_options_and_a_plan_its_fields(
    surgery, checkpoint, tmp_path, mistake
):
    (name, *words), plan, option, field = mistake

    by_command = surgery(name, checkpoint, tmp_path / "new", *words)
    by_plan = surgery("plan", checkpoint, plan)

    assert (by_command.code, by_plan.code) == (2, 2)
    assert option in by_command.err
    assert not re.search(r"`[a-z_]+: ", by_command.err)
    assert field in by_plan.err
    assert "`--" not in by_plan.err


def test_json_is_told_the_same(surgery, checkpoint, tmp_path):
    words = ("rescale", checkpoint, tmp_path / "new", "step", "--by", "2", "--json")

    (problem,) = surgery(*words).document["problems"]

    assert problem["fix"].startswith("add `--where-dtype floating` to skip")


def test_notes_of_a_command_name_options_too(surgery, checkpoint, tmp_path):
    count = "opt_state/0/count"
    edit = ("set", checkpoint, tmp_path / "new", count, "--to", "1", "--dry-run")

    notes = surgery(*edit).out

    assert "with `--clocks`" in notes.replace("\n", " ")
    assert "`clocks: true`" not in notes


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("add `at:` or `at: params/**`", "add `AT` or `'params/**'`"),
        ("add `by: …`: a factor", "add `--by …`: a factor"),
        ("write `weights: [3, 1]`", "write `--weights 3,1`"),
        ("add `optimizer_kind: {opt_state/1: adamw}`", "add `--optimizer-kind opt_state/1=adamw`"),
        ("`reset-optimizer` with `clocks: true`", "`reset-optimizer` with `--clocks`"),
        ("add `--x` (in a plan `optimizer_kind: adamw`) if so", "add `--x` if so"),
        ("`to: true` does not fit", "`--to true` does not fit"),
        (
            "add `slots: {opt_state/0: {power: 0}}` to the plan, behind a trust ratio",
            "add `slots: {opt_state/0: {power: 0}}` to a plan for `surgery apply`, behind a trust ratio",
        ),
        (
            "name it (`optimizer_kind: {opt_state/1: …}`)",
            "name it (`--optimizer-kind opt_state/1=…`)",
        ),
        ("`params` and `keep` may be words", None),
        ("did you mean `zeros`?", None),
    ],
)
def test_only_what_the_command_line_has_is_respelled(text, typed):
    assert in_options(text, operations()["average"]) == (typed or text)
