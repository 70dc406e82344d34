"""`surgery check`: all rules of a policy are judged at once, and what is found is said in every format."""

import json
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.engine.reading import CountedSource
from surgery_cli.rules.table import RULES
from tests.cli.junit_schema import outcomes

POLICY = """\
rules:
  - id: no-nan
    at: params
    finite: true
  - id: head
    at: params/Dense_1/kernel
    shape: [64, 11]
    message: the head must have 11 classes
  - {id: calm, at: params, norm: ..10, severity: warning}
  - {id: gone, at: params/nothing, exists: true}
  - {id: matrices, at: params, where_ndim: 2, dtype: float32}
"""


@pytest.fixture
def policy(tmp_path):
    def written(text: str, name: str = "policy.yaml") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


def test_all_that_breaks_a_policy_is_said_at_once(surgery, checkpoint, policy):
    file = policy(POLICY)
    result = surgery("check", checkpoint, file)

    assert result.code == 1
    for said in (
        (
            f"{file}:5: broken head\n  the head must have 11 classes\n"
            "  'params/Dense_1/kernel' breaks `shape [64,11]`: it is float32[64,10]\n"
        ),
        f"{file}:9: warning calm\n  'params/Conv_1/kernel' breaks `norm ..10`: its norm is `14.52`\n",
        f"{file}:10: broken gone\n  'params/nothing' matches nothing",
        "broken: 5 rules, 2 errors and 1 warning; read 53.5 KiB",
    ):
        assert said in result.out, result.out
    document = surgery("check", checkpoint, file, "--json").document
    assert {rule["id"]: rule["holds"] for rule in document["rules"]} == {
        "no-nan": True,
        "head": False,
        "calm": False,
        "gone": False,
        "matrices": True,
    }
    assert [rule["line"] for rule in document["rules"]] == [2, 5, 9, 10, 11]
    assert document["holds"] is False


def test_what_only_warns_fails_nothing(surgery, checkpoint, policy):
    file = policy("- {id: calm, at: params, norm: ..10, severity: warning}\n")
    result = surgery("check", checkpoint, file)
    assert (result.code, "holds: 1 rule, 1 warning" in result.out) == (0, True)


def test_junit_has_a_case_for_every_rule(surgery, checkpoint, policy, tmp_path):
    file = tmp_path / "report.xml"
    surgery("check", checkpoint, policy(POLICY), "-q", "--output", f"junit={file}")
    assert outcomes(file) == {
        "no-nan": "passed",
        "head": "failure",
        "calm": "passed",
        "gone": "failure",
        "matrices": "passed",
    }
    assert "warning: 'params/Conv_1/kernel' breaks `norm ..10`, and 1 more" in file.read_text()


@pytest.mark.parametrize("there", ["nothing", "an empty directory"])
def test_junit_has_an_error_where_the_checkpoint_cannot_be_opened(surgery, policy, tmp_path, there):
    source = tmp_path / "source"
    if there != "nothing":
        source.mkdir()
    file = tmp_path / "report.xml"
    for words in (["check", source, policy(POLICY)], ["verify", source], ["diff", source, source]):
        result = surgery(*words, "--output", f"junit={file}")
        assert result.code == (2 if there == "nothing" else 3)
        assert list(outcomes(file).values()) == ["error"]
        file.unlink()


@pytest.mark.parametrize(
    "words", [["verify", "B"], ["diff", "A", "B"], ["verify", "A", "--like", "B"]]
)
def test_junit_of_other_verdicts_has_a_case_for_every_leaf(
    surgery, own_checkpoint, tmp_path, words
):
    edited = tmp_path / "edited"
    assert surgery("rescale", own_checkpoint, edited, "params/Dense_1", "--by", "2").code == 0
    typed = [{"A": own_checkpoint, "B": edited}.get(word, word) for word in words]
    file = tmp_path / "report.xml"

    document = surgery(*typed, "--json", "--output", f"junit={file}").document

    found = outcomes(file)
    leaves = surgery("inspect", own_checkpoint, "--json").document["leaves"]
    assert {leaf["path"] for leaf in leaves} <= found.keys()
    passed = {name for name, outcome in found.items() if outcome == "passed"}
    assert passed == set(document["agreeing"])
    assert passed
    assert ("failure" in found.values()) == ("diff" in words)


def test_names_that_xml_cannot_hold_are_escaped(surgery, policy, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"a\x1b<&>'\"": np.ones(3, np.float32)})
    file = tmp_path / "report.xml"
    surgery(
        "check",
        tmp_path / "source",
        policy('- {id: "]]>", dtype: int8}'),
        "--output",
        f"junit={file}",
    )
    assert outcomes(file) == {"]]>": "failure"}
    assert r"a\x1b&lt;&amp;&gt;" in file.read_text()


WRONG = """\
rules:
  - {id: a, at: params, finit: true}
  - {id: b, severity: bad, norm: ..1}
  - {id: c, norm: 3..1}
  - {id: d}
  - {id: e, allow: inf}
  - {id: f, finite: true}
  - {id: f, shape: 3}
  - 7
  - {id: h, finite: true}
  - {id: h, count: 3}
polices: 1
"""


def test_a_wrong_policy_is_refused_with_all_that_is_wrong(surgery, checkpoint, policy):
    result = surgery("check", checkpoint, policy(WRONG), "--json")
    assert result.code == 2
    found = {(problem["line"], problem["what"]) for problem in result.document["problems"]}
    assert found == {
        (2, "a rule has no key `finit`"),
        (3, '`severity` is one of `error` and `warning`, not "bad"'),
        (4, "no number lies within `norm: 3..1`"),
        (5, "`assert` states no rule"),
        (6, "`allow` belongs to `finite`"),
        (8, "`shape` must be a list of whole number, at least -1, not the number 3"),
        (9, "rule 8 must be a mapping, not 7"),
        (11, "two rules are called 'h'"),
        (12, "a policy has no key `polices`"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it holds no policy"),
        ("rules: 3", "`rules` must be a list of rules, not 3"),
        ("edits: []", "it holds no policy"),
        ("- {id: a, unchanged: true}", "`unchanged` would hold of every checkpoint here"),
        ("- {id: a, at: 'params/{', finite: true}", "has a `{` without"),
    ],
)
def test_what_is_no_policy_is_refused(surgery, checkpoint, policy, text, said):
    file = policy(text)
    result = surgery("check", checkpoint, file)
    assert result.code == 2
    assert said in result.err
    assert str(file) in result.err


def test_variables_and_every_format_of_plans(surgery, checkpoint, policy):
    yaml = policy("vars: {most: 1}\nrules:\n- {id: a, at: params, norm: '..${most}'}\n")
    toml = policy('[[rules]]\nid = "a"\nat = "params"\nnorm = "..${most}"\n', "policy.toml")
    listed = policy('[{"id": "a", "at": "params", "norm": "..${most}"}]', "policy.json")
    assert surgery("check", checkpoint, yaml).code == 1
    for file in (yaml, toml, listed):
        assert surgery("check", checkpoint, file, "--set", "most=100").code == 0


def test_metadata_rules_read_nothing_and_value_rules_read_once(
    surgery, checkpoint, policy, monkeypatch
):
    read = []
    before = CountedSource.read

    def counted(self, path, *window):
        read.append((str(path), *map(str, window)))
        return before(self, path, *window)

    monkeypatch.setattr(CountedSource, "read", counted)
    told = "- {id: a, at: params, dtype: float32}\n- {id: b, at: 'params/*', count: 4 nodes}\n"
    result = surgery("check", checkpoint, policy(told), "--json")
    assert (result.code, result.document["bytes_read"], read) == (0, 0, [])
    values = (
        "- {id: a, at: params, finite: true}\n- {id: b, at: params, norm: 0..}\n"
        "- {id: c, at: params, std: 0.., absmax: 0.., zeros: 0..1}\n"
    )
    result = surgery("check", checkpoint, policy(values), "--json")
    assert result.code == 0
    assert len(read) == len(set(read)) == 8


PLAN = """\
edits:
  - {op: rescale, at: params/Dense_0, by: 2}
check:
  - {id: loud, at: params, norm: ..20, severity: SEVERITY, message: see the page}
  - {id: head, at: params/Dense_1, unchanged: true}
"""


def test_a_policy_in_a_plan_is_judged_before_the_commit(surgery, checkpoint, policy, tmp_path):
    plan = policy(PLAN.replace("SEVERITY", "error"), "plan.yaml")
    result = surgery("apply", checkpoint, tmp_path / "new", plan)
    assert result.code == 1
    assert result.err == (
        f"error: {plan}:4: 'params/Dense_0/kernel' breaks `norm ..20`\n"
        "  its norm is `28.38`\n  see the page\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("is_file", [False, True])
def test_what_a_policy_in_a_plan_warns_of_is_said_and_recorded(
    surgery, checkpoint, policy, tmp_path, is_file
):
    text = PLAN.replace("SEVERITY", "warning")
    if is_file:
        edits, _, rules = text.partition("check:\n")
        policy(rules)
        text = f"{edits}check: policy.yaml\n"
    result = surgery("apply", checkpoint, tmp_path / "new", policy(text, "plan.yaml"))
    assert result.code == 0
    said = (
        "the rule 'loud' does not hold (see the page): 'params/Dense_0/kernel' breaks `norm ..20`:"
        " its norm is `28.38`"
    )
    assert said in result.out
    record = json.loads((tmp_path / "new" / "500" / "surgery.json").read_text())
    assert [(one["id"], one.get("holds", True)) for one in record["checks"]] == [
        ("loud", False),
        ("head", True),
    ]
    again = surgery(
        "apply", checkpoint, tmp_path / "again", tmp_path / "new/500/surgery.json", "-q"
    )
    assert (again.code, said in again.err) == (0, True)


def test_what_metadata_show_to_break_a_policy_is_said_by_the_preview(surgery, checkpoint, policy):
    plan = "edits: []\ncheck:\n- {id: half, at: params, dtype: bfloat16}\n"
    result = surgery("plan", checkpoint, policy(plan, "plan.yaml"))
    assert (result.code, "breaks `dtype bfloat16`" in result.err) == (1, True)
    plan = plan.replace("id: half", "id: half, severity: warning")
    result = surgery("plan", checkpoint, policy(plan, "plan.yaml"))
    assert (result.code, "the rule 'half' does not hold" in result.out) == (0, True)


def test_every_rule_that_assert_knows_can_stand_in_a_policy(surgery):
    schema = surgery("schema").document
    rule = schema["$defs"]["rule"]["properties"]
    fields = {field for kind in RULES for field in kind.__struct_encode_fields__}
    assert fields <= rule.keys()
    assert {"id", "severity", "message"} <= rule.keys()
