"""What stands in the repository for pipelines: the action, the workflow of the docs and the hook, run as they stand."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import surgery_cli
from surgery_cli.errors import SurgeryError
from tests.browser.chromium import NAMES as BROWSERS
from tests.cli.junit_schema import outcomes

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLE = REPOSITORY / "sample_checkpoints" / "digits_standard"
POLICY = """\
rules:
- {id: calm, at: params, norm: "..${most}"}
- {id: twins, optimizer_mirrors_params: true}
"""
RUNNERS = ("actions/checkout@v4", "actions/setup-python@v5", "actions/upload-artifact@v4")
"""Actions of GitHub's own, which a test does not run."""


def read(name):
    return YAML(typ="safe").load((REPOSITORY / name).read_text())


class Runner:
    """Runs steps in a folder that has a checkpoint and a policy, as GitHub's runner does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "runs").mkdir()
        (folder / "policies").mkdir()
        (folder / "runs" / "mnist").symlink_to(SAMPLE)
        (folder / "policies" / "release.yaml").write_text(POLICY)
        command = f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m surgery_cli "$@"\n'
        (folder / "bin" / "surgery").write_text(command)
        (folder / "bin" / "surgery").chmod(0o755)
        self.log, self.code = "", 0

    def step(self, step, inputs):
        """Run a step that is a script; its expressions are those of ``inputs``."""
        env = {name: _filled(text, inputs) for name, text in step.get("env", {}).items()}
        files = {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "outputs"}
        env |= {name: str(self.folder / file) for name, file in files.items()}
        env |= {"GITHUB_WORKSPACE": str(self.folder)}
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder, env=os.environ | env | {"PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.log += done.stdout + done.stderr
        self.code = self.code or done.returncode

    def action(self, given):
        """Run the action of the repository; what it installs is there."""
        made = read("action.yml")
        assert {name for name, one in made["inputs"].items() if one.get("required")} <= given.keys()
        assert given.keys() <= made["inputs"].keys()
        inputs = {name: one.get("default", "") for name, one in made["inputs"].items()} | given
        install, *steps = made["runs"]["steps"]
        assert "pip install" in install["run"]
        for step in steps:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # what is given is never code
            self.step(step, inputs)


def _filled(text, inputs):
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)


def test_the_workflow_of_the_docs_runs_step_by_step(tmp_path):
    runner = Runner(tmp_path)
    for step in read("docs/github-workflow.yml")["jobs"]["check"]["steps"]:
        if step.get("uses") == "./":
            runner.action(step["with"])
        elif "run" in step:
            runner.step(step, {})
        else:
            assert step["uses"] in RUNNERS
    assert runner.code == 0, runner.log
    assert "holds: 2 rules" in runner.log
    assert "release.yaml: policy of 2 rules" in runner.log
    assert outcomes(tmp_path / "surgery-report.xml") == {"calm": "passed", "twins": "passed"}
    assert "2 cases: 2 ✅ holds" in (tmp_path / "summary.md").read_text()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"set": "most=1"}, 1, "::error file=policies/release.yaml,line=2,title=check%3A calm::"),
        ({}, 2, "::error file=policies/release.yaml,line=2,"),
        ({"set": "most=1", "checkpoint": "policies"}, 3, "::error title=check::"),
        ({"set": "most=1", "checkpoint": "none"}, 2, "::error title=check::"),
        ({"set": "most=1", "checkpoint": "--help"}, 2, "::error title=check::"),
        ({"set": "most=1", "policy": "--help"}, 2, "--help"),
    ],
)
def test_the_action_fails_with_the_exit_code_and_says_why(tmp_path, given, code, said):
    runner = Runner(tmp_path)
    runner.action({"checkpoint": "runs/mnist", "policy": "policies/release.yaml"} | given)
    assert (runner.code, said in runner.log) == (code, True), runner.log
    assert (tmp_path / "outputs").read_text() == f"exit-code={code}\n"
    assert set(outcomes(tmp_path / "surgery-report.xml").values()) & {"failure", "error"}
    assert "❌" in (tmp_path / "summary.md").read_text()


def _targets(line):
    """What make would run, with nothing run; none for what is no call of make."""
    if not line.startswith("make "):
        return None
    dry = ["make", "--no-print-directory", "--dry-run", *shlex.split(line)[1:]]
    return subprocess.run(dry, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (REPOSITORY / ".github" / "workflows").iterdir())
)
def test_the_workflows_of_the_repository_name_what_there_is(name):
    workflow = read(f".github/workflows/{name}")
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "uses" in step:
                assert step["uses"] in RUNNERS
                for file in (step.get("with") or {}).get("cache-dependency-path", "").split():
                    assert (REPOSITORY / file).is_file()
            elif _targets(step["run"]) is None:
                assert shutil.which(REPOSITORY / step["run"]) or step["run"].startswith(
                    ("command -v ", "sudo apt-get ")
                )


def test_every_night_everything_is_tried_with_the_programs_that_it_needs():
    workflow = read(".github/workflows/nightly.yml")
    assert "schedule" in workflow["on"]
    job = workflow["jobs"]["check-all"]
    lines = [step["run"] for step in job["steps"] if "run" in step]
    made = _targets(lines[-1])
    every = (REPOSITORY / "Makefile").read_text().partition("\ncheck-all:")[2].partition("\n\n")[0]
    for words in re.findall(r"-m (pytest tests/\S+)", every):
        assert words in made
    oracle = workflow["jobs"]["oracle"]
    parts = oracle["strategy"]["matrix"]["part"]
    command = oracle["steps"][-1]["run"].replace("${{ matrix.part }}", "{}")
    tried = [_targets(command.format(part)) for part in parts]
    assert parts == [*range(1, len(parts) + 1)]
    assert all(
        f"--part {part}/{len(parts)}" in tests for part, tests in zip(parts, tried, strict=True)
    )
    browsers = {line.split()[-1] for line in lines if line.startswith("command -v ")}
    assert browsers & set(BROWSERS)


def test_the_hook_runs_on_the_plans_of_a_repository():
    (hook,) = read(".pre-commit-hooks.yaml")
    files = [
        path.relative_to(REPOSITORY) for path in sorted((REPOSITORY / "plans").rglob("*.y*ml"))
    ]
    named = [str(file) for file in files if re.search(hook["files"], str(file))]
    assert len(named) == len(files) > 3
    script = "import sys; from surgery_cli.cli.main import run\ntry: run(sys.argv[1:])\nfinally: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, *hook["entry"].split()[1:], *named],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    heavy = {"flax", "jax", "jaxlib", "ml_dtypes", "numpy", "optax", "orbax", "rich", "tensorstore"}
    assert loaded & heavy == set()


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("vars: {by: 1}\nedits: []\n", "nothing uses the variable `by`", 1),
        ("edits:\n- {op: rescale, at: 'params/{', by: 1}\n", "'params/{' has a `{`", 2),
        ("edits:\n- {op: rescal, at: params, by: 1}\n", "unknown operation 'rescal'", 2),
        ("edits:\n- {op: rescale, at: a, by: 2, expect: x}\n", "`expect` must be", 2),
        ("rules:\n- {at: params, finte: true}\n", "a rule has no key `finte`", 2),
        ("- {at: params, norm: ..1}\n- {at: params, norm: ..1}\n", "two rules are called", 2),
    ],
)
def test_what_is_wrong_with_a_plan_by_itself_is_found(surgery, tmp_path, text, what, line):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    result = surgery("lint", file, "--json")
    assert result.code == 2
    (problem,) = result.document["problems"]
    assert (problem["what"].startswith(what), problem["line"]) == (True, line)


@pytest.mark.parametrize(
    ("command", "text", "what"),
    [
        ("plan", "edits:\n- {op: rescale, at: params, by: 2, where_dtype: bflot16}", "where_dtype"),
        ("plan", "edits:\n- {op: cast, to: bfloat16, where_dtype: 'flaot*'}", "where_dtype"),
        ("plan", "edits:\n- {op: assert, at: params, dtype: 'flaot*'}", "dtype"),
        ("plan", "edits:\n- {op: assert, at: params}", "states no rule"),
        ("plan", "edits: []\ncheck:\n- {at: params, dtype: f32}", "dtype"),
        ("plan", "{}", "it holds "),
        (
            "plan",
            "optimizer_kind: adamm\nedits: [{op: cast, to: bfloat16}]",
            "did you mean `adam`?",
        ),
        (
            "plan",
            "optimizer_kind: {opt_state: clip}\nedits: [{op: cast, to: bfloat16}]",
            "`optimizer_kind: clip`",
        ),
        (
            "plan",
            "optimizer_kind: masked\nedits: [{op: cast, to: bfloat16}]",
            "it wraps other optimizers",
        ),
        ("check", "rules:\n- {at: params, dtype: bflot16}", "`dtype: bflot16` names no dtype"),
        ("check", "- {at: params, finite: true, where_dtype: 'key<'}", None),
        ("check", "- {at: params, finite: true, where_dtype: 'key'}", "where_dtype"),
        ("check", "rules:\n- {at: params}", "states no rule"),
        ("check", "check:\n- {at: params, finite: true}", "`rules:` in place of `check:`"),
        ("check", "{}", "it holds "),
    ],
)
def test_lint_refuses_by_itself_what_the_commands_would(
    surgery, checkpoint, tmp_path, command, text, what
):
    file = tmp_path / "wrong.yaml"
    file.write_text(text + "\n")
    alone, used = surgery("lint", file), surgery(command, checkpoint, file)
    if what is None:  # of keys of another make nothing is known
        assert alone.code == 0
        return
    assert (alone.code, used.code) == (2, 2)
    assert what.strip("`:") in alone.err
    assert what in used.err


def test_lint_reads_plans_and_policies_in_buckets(surgery, service):
    service.put("bkt", "p.yaml", b"edits:\n- {op: delete, at: x}\n")
    service.put("bkt", "rules.yaml", b"rules:\n- {id: a, at: x, finite: true}\n")
    service.put("bkt", "wrong.yaml", b"edits:\n- {op: rescale, at: x, bye: 2}\n")
    plan, policy, wrong = (f"{service.root}/{name}.yaml" for name in ("p", "rules", "wrong"))
    read = surgery("lint", plan, policy)
    assert read == (0, f"{plan}: plan of 1 edit\n{policy}: policy of 1 rule\n", "")
    refused = surgery("lint", wrong, f"{service.root}/none.yaml")
    assert refused.code == 2
    assert f"{wrong}:2" in refused.err
    assert f"there is no plan '{service.root}/none.yaml'" in refused.err


KERNEL = "at: params/Dense_1/kernel"
IMPOSSIBLE = [
    f"op: reinit, {KERNEL}, init: nosuch",
    f"op: cast, {KERNEL}, to: floaty",
    f"op: prune, {KERNEL}, sparsity: 3",
    f"op: prune, {KERNEL}, pattern: '2:4'",
    f"op: transpose, {KERNEL}, axes: [0, 0]",
    f"op: expand, {KERNEL}, axis: [0, 0]",
    f"op: squeeze, {KERNEL}, axis: [1, 1]",
    f"op: normalize, {KERNEL}, axis: [1, 1]",
    f"op: normalize, {KERNEL}, to: 0",
    f"op: reshape, {KERNEL}, shape: [-1, -1]",
    f"op: reshape, {KERNEL}, shape: [-2]",
    f"op: pad, {KERNEL}, axis: 0",
    f"op: slice, {KERNEL}, slices: '0:2:0'",
    f"op: slice, {KERNEL}, slices: 'a'",
    f"op: repeat, {KERNEL}, axis: 0, times: 2, new_axis: true, order: tiled",
    f"op: resize, {KERNEL}",
    f"op: interpolate-positions, {KERNEL}, size: 0",
    f"op: clip, {KERNEL}, min: 3, max: 1",
    f"op: clip, {KERNEL}",
    f"op: clip, {KERNEL}, norm: 1, axis: [0, 0]",
    f"op: noise, {KERNEL}, std: 0",
    f"op: add-scaled, {KERNEL}, with: .nan",
    f"op: map, {KERNEL}, with: 'f.py:f', spec: 'floaty[2]'",
    f"op: shrink-and-perturb, {KERNEL}, shrink: 3, std: 0.1",
    "op: ema, at: params, steps: '250,500', decay: 3",
    "op: interpolate, at: params, with: other, t: .inf",
    "op: ties, at: params, with: [other], density: 3",
    "op: breadcrumbs, at: params, with: [other], density: 0.5, outliers: 3",
    "op: task-arithmetic, at: params, with: [other], scale: 0",
    "op: karcher, at: params, with: [other], weights: [1, -1]",
    "op: model-stock, at: params, with: [other, third], axis: [0, 0]",
    "op: rename, at: 'params/Dense_{0..1}', to: 'params/D_{0..2}'",
    "op: rename, at: 'params/*', to: 'params/D_\\2'",
    "op: rename, at: 'params/*', to: 'params/*'",
    "op: rename, at: params/Dense_1",
    "op: rename, moves: {params/Dense_1: 'params/\\1'}",
    "op: copy, at: 'params/Dense_{0..1}', to: 'params/D_{0..2}'",
    "op: delete, at: params/Dense_1, optimizer: reset",
    "op: reset-optimizer, at: opt_state, optimizer: keep",
    "op: assert, at: params, finite: true, optimizer: keep",
]


@pytest.mark.parametrize("edit", IMPOSSIBLE)
def test_lint_refuses_values_that_no_checkpoint_takes_in_the_words_of_plan(
    surgery, checkpoint, tmp_path, edit
):
    file = tmp_path / "wrong.yaml"
    file.write_text(f"edits:\n- {{{edit}}}\n")
    alone, used = (
        surgery(*words, "--json") for words in (["lint", file], ["plan", checkpoint, file])
    )
    assert (alone.code, used.code) == (2, 2), alone.out
    said = [
        [(problem["what"], problem["fix"], problem["line"]) for problem in one.document["problems"]]
        for one in (alone, used)
    ]
    assert said[0] == said[1]


USES = {
    "from": "edits: [{op: replace, at: params, with: donor}]",
    "a list": "edits: [{op: average, at: params, with: [donor, runs/b]}]",
    "a rule": "edits: [{op: assert, at: params, equal_in: donor}]",
    "the policy": "edits: []\ncheck: [{at: params, same_structure_as: donor}]",
    "an open variable": "edits: [{op: replace, at: params, with: '${which}'}]",
    "a variable": "vars: {which: donor}\nedits: [{op: replace, at: params, with: '${which}'}]",
}


@pytest.mark.parametrize("text", USES.values(), ids=USES)
def test_lint_names_sources_that_nothing_uses_and_no_others(surgery, tmp_path, text):
    file = tmp_path / "plan.yaml"
    file.write_text(f"sources: {{donor: runs/a}}\n{text}\n")
    assert surgery("lint", file).code == 0
    file.write_text(f"sources: {{donor: runs/a, donors: runs/b}}\n{text}\n")
    problems = surgery("lint", file, "--json").document.get("problems", [])
    said = [(problem["what"], problem["line"], problem["field"]) for problem in problems]
    is_open = text == USES["an open variable"]
    assert said == ([] if is_open else [("nothing uses the source `donors`", 1, "donors")])


@pytest.mark.parametrize("text", ["adamw", "'adamw(1e-3)'", "{opt_state/0: adamw}", "'${kind}'"])
def test_lint_takes_optimizers_calls_of_them_and_what_stands_open(surgery, tmp_path, text):
    (tmp_path / "plan.yaml").write_text(f"optimizer_kind: {text}\nedits: []\n")
    assert surgery("lint", tmp_path / "plan.yaml").code == 0


def test_lint_lets_pass_what_some_checkpoint_takes(surgery, checkpoint, tmp_path):
    """A wildcard may match one node, which a place without a reference is enough for; ranges count down, too."""
    for edit in (
        "op: rename, at: 'params/*_1/kernel', to: params/x",
        "op: rescale, at: 'params/Dense_{1..0}', by: 2",
    ):
        file = tmp_path / "plan.yaml"
        file.write_text(f"edits: [{{{edit}}}]\n")
        assert surgery("lint", file).code == 0
    assert surgery("plan", checkpoint, file).code == 0
    file.write_text("edits: [{op: rename, at: 'params/Dense_[1]', to: params/x}]\n")
    assert surgery("plan", checkpoint, file).code == 0


def test_lint_looks_at_no_value_that_stands_open(surgery, tmp_path):
    file = tmp_path / "open.yaml"
    file.write_text(
        "edits:\n- {op: prune, at: a, sparsity: '${s}'}\n- {op: prune, at: a, sparsity: 3}\n"
    )
    (problem,) = surgery("lint", file, "--json").document["problems"]
    assert (problem["line"], problem["field"]) == (3, "sparsity")


@pytest.mark.parametrize(
    "wanted", ["floating", "integer", "bool", "int*", "*", "float8_*", "[bf]*16", "key<*>", "key*"]
)
def test_lint_takes_every_name_and_glob_of_dtypes(surgery, tmp_path, wanted):
    file = tmp_path / "right.yaml"
    file.write_text(f"edits:\n- {{op: cast, to: float32, where_dtype: '{wanted}'}}\n")
    assert surgery("lint", file).code == 0


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("value", ["inf", "Infinity", "1e400", "nan", "-1", "-inf"])
def test_a_tolerance_that_lets_everything_through_is_refused(surgery, checkpoint, name, value):
    a, b = f"{checkpoint}@250", f"{checkpoint}@500"
    ended = surgery("diff", a, b, f"--{name}={value}")
    assert (ended.code, name in ended.err, ended.out) == (2, True, "")
    with pytest.raises(SurgeryError, match=name):
        surgery_cli.diff(a, b, **{name: float(value)})


def test_what_is_given_when_a_plan_is_used_is_nothing_wrong_with_it(surgery, tmp_path):
    file = tmp_path / "open.yaml"
    file.write_text(
        "vars: {by: 1}\nsources: {donor: '${donor}'}\nseed: ${seed}\nedits:\n"
        "- {op: rescale, at: 'params/${layer}', by: '${by}'}\n- {op: replace, at: a, with: donor}\n"
    )
    assert surgery("lint", file) == (0, f"{file}: plan of 2 edits\n", "")
