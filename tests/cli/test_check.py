"""`surgery check`: all rules of a policy are judged at once, and what is found is said in every format."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.engine.reading import CountedSource
from surgery_cli.rules.measures import Measure
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


@pytest.mark.parametrize(
    "text", ["rules: []\n", "[]\n", "rules: # later\n", "vars: {a: 1}\nrules: []\n"]
)
def test_a_policy_that_checks_nothing_is_never_green(surgery, checkpoint, policy, tmp_path, text):
    given = policy(text)
    for command in (["check", checkpoint, given], ["lint", given]):
        result = surgery(*command)
        assert (result.code, "rules" in result.err) == (2, True)
    if "vars" not in text:
        inside = text.strip().removesuffix("# later").replace("rules:", "{rules:") + "}" * (
            "r" in text
        )
        plan = policy(f"edits: []\ncheck: {inside}\n", "plan.yaml")
        for command in (["plan", checkpoint, plan], ["lint", plan]):
            assert surgery(*command).code == 2


def test_lint_counts_and_calls_things_by_their_names(surgery, policy):
    one = policy("rules:\n- {at: params, norm: '..${most}'}\n")
    assert surgery("lint", one).out == f"{one}: policy of 1 rule\n"
    assert "neither a plan nor a policy" in surgery("lint", policy("")).err
    missing = one.parent / "missing.yaml"
    assert f"there is no policy '{missing}'" in surgery("check", one.parent, missing).err


def test_a_setting_that_no_policy_uses_is_said_of_a_policy(surgery, checkpoint, policy):
    ended = surgery("check", checkpoint, policy("- {at: params, finite: true}\n"), "--set", "x=1")
    assert (ended.code, "nothing in the policy uses `${x}`" in ended.err) == (2, True)


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
        "metrics": "skipped",  # no tree: no rule is about it
    }
    said = "warning: 'params/Conv_1/kernel' breaks `norm ..10`: its norm is `14.52`, and 1 more"
    assert said in file.read_text()


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
    assert r"a%1B&lt;&amp;&gt;" in file.read_text()


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
        (
            8,
            "`shape` must be a list of whole number, at least -1 or text like `10..40`, not the number 3",
        ),
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


def test_what_no_checkpoint_could_break_is_refused_by_check_and_by_lint(
    surgery, checkpoint, policy
):
    """Rules about several nodes over one, and a `\\1` that no wildcard fills."""
    text = (
        "rules:\n"
        "- {id: a, at: params/Dense_0, alike: true}\n"
        "- {id: b, at: params, consecutive: true}\n"
        "- {id: c, at: params/Dense_0/kernel, equal_to: 'params/\\1/kernel'}\n"
    )
    for words in (["check", checkpoint, policy(text)], ["lint", policy(text)]):
        result = surgery(*words)
        assert result.code == 2
        found = [line for line in result.err.splitlines() if line.startswith("error: ")]
        assert [line.partition("policy.yaml:")[2][:2] for line in found] == ["2:", "3:", "4:"]


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


def test_a_plan_takes_a_whole_policy_in_the_place_of_its_rules(
    surgery, checkpoint, policy, tmp_path
):
    edits, _, rules = PLAN.replace("SEVERITY", "error").partition("check:\n")
    listed = surgery(
        "apply", checkpoint, tmp_path / "new", policy(f"{edits}check:\n{rules}", "plan.yaml")
    )
    whole = f"{edits}check:\n  rules:\n{rules}"
    result = surgery("apply", checkpoint, tmp_path / "new", policy(whole, "plan.yaml"))
    assert (result.code, result.err) == (1, listed.err.replace(":4:", ":5:"))
    strange = policy(f"{whole}  vars: {{a: 1}}\n  sverity: 1\n", "plan.yaml")
    result = surgery("plan", checkpoint, strange)
    assert result.code == 2
    assert "variables of a plan stand in the `vars` beside its edits" in result.err
    assert "a policy has no key `sverity`" in result.err


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


def test_github_is_told_at_most_ten_at_their_lines_and_errors_first(
    surgery, checkpoint, policy, tmp_path, monkeypatch
):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    severities = ["warning", *["error"] * 8, "warning", "error", "error"]
    rules = [
        f'- {{id: "r:{number}, 100%", at: params/Dense_1, shape: [1], severity: {severity}}}\n'
        for number, severity in enumerate(severities)
    ]
    file = tmp_path / "annotations.txt"
    for count in (10, 12):
        given = policy("".join(rules[:count]))
        surgery("check", checkpoint, given, "-q", "--output", f"github={file}")
        lines = file.read_text().splitlines()
        assert len(lines) == 10
        assert lines[0].startswith(
            "::error file=policy.yaml,line=2,title=check%3A r%3A1%2C 100%25::"
            "'params/Dense_1/bias' breaks `shape [1]`: it is float32[10], and 1 more finding%0A"
        )
        errors = [line for line in lines if line.startswith("::error ")]
        assert lines[: len(errors)] == errors
    assert lines[-1] == "::error title=surgery::and 3 more: see the report"


def test_markdown_says_all_that_is_wrong_and_nothing_in_it_is_markup(surgery, policy, tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"<b>|`*": np.ones(3, np.float32)})
    file = tmp_path / "page.md"
    given = policy("- {id: half, dtype: bfloat16}\n- {id: good, finite: true}\n")
    surgery("check", tmp_path / "source", given, "--output", f"markdown={file}")
    page = file.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "| |" not in line]
    assert [row.split(" | ")[0] for row in rows] == ["| ❌ broken", "| ✅ holds"]
    assert "<b>" not in page
    assert "2 cases: 1 ❌ broken, 1 ✅ holds" in page


def test_markdown_is_never_more_than_a_step_takes(surgery, tmp_path):
    for name in "ab":
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, {f"{name}{'x' * 500}{n}": 1 for n in range(1500)})
    file = tmp_path / "page.md"
    found = surgery("diff", tmp_path / "a", tmp_path / "b", "-q", "--output", f"markdown={file}")
    assert found.code == 1
    assert 900_000 < file.stat().st_size <= 1_000_000
    assert file.read_text().endswith("more: `--output json=FILE` has all of them\n")


def _state(**params):
    state = optax.adam(1e-3).init({name: jnp.ones(shape) for name, shape in params.items()})
    return {"mu": state[0].mu, "nu": state[0].nu, "count": state[0].count}


WHOLE = {"params": {"a": jnp.ones((3, 4)), "b": jnp.ones(4)}, "opt_state": _state(a=(3, 4), b=(4,))}


@pytest.mark.parametrize(
    ("tree", "paths", "said"),
    [
        (WHOLE, [], ""),
        (WHOLE | {"opt_state": _state(a=(3, 5), b=(4,))}, ["params"] * 2, "do not follow those"),
        (WHOLE | {"opt_state": _state(a=(3, 4))}, ["params/b"], "no optimizer state has anything"),
        (
            WHOLE | {"opt_state": _state(a=(3, 4), b=(4,)) | {"mu": {"a": jnp.ones((3, 4))}}},
            ["params/b"],
            "it has no twin in 'opt_state/mu'",
        ),
        (WHOLE | {"opt_state": {}}, [None], "there is no optimizer state"),
    ],
    ids=["whole", "another shape", "a param more", "a twin less", "no state"],
)
def test_an_optimizer_that_does_not_mirror_its_params_is_found(
    surgery, policy, tmp_path, tree, paths, said
):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", tree)
    given = policy("- {id: twins, at: params, optimizer_mirrors_params: true}\n")
    result = surgery("check", tmp_path / "source", given, "--json")
    assert result.code == (1 if paths else 0)
    (rule,) = result.document["rules"]
    findings = rule.get("findings", [])
    assert [found.get("path") for found in findings] == paths
    assert all(said in found["why"] for found in findings)
    assert result.document["bytes_read"] == 0


def test_what_differs_from_the_structure_of_another_is_found_on_both_sides(
    surgery, policy, tmp_path
):
    other = WHOLE | {
        "params": {"a": np.ones((3, 5), np.float32), "c": jnp.ones(4, jnp.bfloat16), "e": {}}
    }
    for name, tree in (("source", WHOLE), ("other", other)):
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, tree)
    given = policy(
        "- {id: params, at: params, same_structure_as: other}\n"
        "- {id: state, at: opt_state, same_structure_as: other}\n"
        "- {id: half, at: '**', where_dtype: bfloat16, same_structure_as: other}\n"
    )
    document = surgery("check", tmp_path / "source", given, "--json").document
    found = {
        rule["id"]: [one["path"] for one in rule.get("findings", [])] for rule in document["rules"]
    }
    assert {name: sorted(paths) for name, paths in found.items()} == {
        "params": ["params/a", "params/b", "params/c", "params/e"],
        "state": [],
        "half": ["params/c"],
    }
    assert document["bytes_read"] == 0


def test_every_format_names_the_step_that_was_judged_however_it_was_named(
    surgery, checkpoint, policy, tmp_path
):
    """A result on file says of which step it is, when the run has long gone on.

    What keeps results by their class takes two steps that were named for two things; the newest stays the run's own.
    """
    rules = policy("- {id: calm, at: params, finite: true}\n- {id: tiny, at: params, shape: [7]}\n")
    files = {form: tmp_path / f"report.{form}" for form in ("junit", "json", "github", "markdown")}
    written = [word for form in files.items() for word in ("--output", "{}={}".format(*form))]
    run = checkpoint.resolve()
    whole = run / "500"
    for words, about, subject in (
        (["check", f"{run}@250", rules], f"{run}@250", f"{run}@250"),
        (["check", run, rules, "--step", "250"], f"{run}@250", f"{run}@250"),
        (["check", run, rules], f"{run}@500", f"{run}"),
        (["check", f"{run}@latest", rules], f"{run}@500", f"{run}"),
        (["check", whole, rules], f"{whole}", f"{whole}"),
        (["verify", run], f"{run}@500", f"{run}"),
        (["verify", f"{run}@250", "--like", run], f"{run}@250", f"{run}@250"),
        (
            ["diff", f"{run}@250", f"{run}@latest", "step"],
            f"{run}@250 {run}@500",
            f"{run}@250 {run}",
        ),
        (["diff", f"{run}@250", run, "step"], f"{run}@250 {run}@500", f"{run}@250 {run}"),
    ):
        surgery(*words, "-q", *written)
        suite = ET.parse(files["junit"])
        assert [one.get("value") for one in suite.iter("property")] == [about]
        named = {case.get("classname") for case in suite.iter("testcase")}
        assert named == {f"surgery {words[0]} {subject}"}
        document = json.loads(files["json"].read_text())
        addresses = [
            document[key] for key in ("address", "address_a", "address_b") if key in document
        ]
        assert " ".join(addresses) == about
        markdown = re.sub(
            r"&#(\d+);", lambda found: chr(int(found[1])), files["markdown"].read_text()
        )
        assert markdown.splitlines()[2] == about
        annotations = files["github"].read_text().splitlines()
        assert bool(annotations) == (words[0] != "verify")
        assert all(line.endswith(f"%0Ain {about}") for line in annotations)


BY_NUMPY = {
    "norm": np.linalg.norm,
    "std": np.std,
    "absmax": lambda value: np.abs(value).max(),
    "zeros": lambda value: (value == 0).mean(),
}


def test_each_measure_has_a_line_of_numpy():
    assert {rule.__name__.lower() for rule in RULES if issubclass(rule, Measure)} == set(BY_NUMPY)


@pytest.mark.parametrize("rule", BY_NUMPY)
def test_many_findings_of_one_rule_say_between_which_numbers_they_lie(
    surgery, tmp_path, policy, rule
):
    layers = {
        f"layer_{n}": {"bias": np.float32([0.1 * n + 0.0321] * 9 + [0.0] * (n + 1))}
        for n in range(9)
    }
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "run", {"params": layers})
    file = policy(f"rules:\n  - {{id: small, at: params, {rule}: 0..0.000001}}\n")
    found = [float(BY_NUMPY[rule](leaf["bias"].astype(np.float64))) for leaf in layers.values()]

    said = surgery("check", tmp_path / "run", file).out

    assert "'params/layer_{0..8}/bias' breaks" in said
    between = f"its {rule} is `{min(found):.4g} to {max(found):.4g}`; so it is with all 9\n"
    assert between in said
