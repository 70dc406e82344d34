"""The commands on real checkpoints: exit codes, JSON, and what stands where."""

import io
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from surgery_cli import surgery as use_cases

KERNEL = "params/Dense_1/kernel"


def test_inspect_prints_every_leaf_with_type_and_size(surgery, checkpoint):
    result = surgery("inspect", checkpoint, "params/Dense_*")

    assert result.code == 0
    assert result.err == ""
    assert result.out.splitlines()[-4:] == [
        "params/Dense_0/bias    float32[64]         256 B",
        "params/Dense_0/kernel  float32[128,64]  32.0 KiB",
        "params/Dense_1/bias    float32[10]          40 B",
        "params/Dense_1/kernel  float32[64,10]    2.5 KiB",
    ]


def test_inspect_folds_at_a_depth(surgery, checkpoint):
    result = surgery("inspect", checkpoint, "params", "--depth", "2")

    assert [line.split()[:2] for line in result.out.splitlines()[-4:]] == [
        ["params/Conv_0/", "2"],
        ["params/Conv_1/", "2"],
        ["params/Dense_0/", "2"],
        ["params/Dense_1/", "2"],
    ]


def test_json_is_one_document_and_nothing_else(surgery, checkpoint):
    result = surgery("inspect", checkpoint, "--json")

    assert result.document["schema_version"] == 1
    assert result.document["step"] == 500
    assert len(result.document["leaves"]) == 28
    assert result.err == ""


def test_json_says_how_leaves_are_stored(surgery, tmp_path):
    import orbax.checkpoint as ocp

    tree = {"w": np.ones((4, 8), np.float32), "n": np.float32(1), "none": None}
    arguments = {key: ocp.SaveArgs(chunk_byte_size=64) for key in tree}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=True)
    with ocp.Checkpointer(handler) as checkpointer:
        args = ocp.args.PyTreeSave(tree, save_args=arguments)
        checkpointer.save(tmp_path / "stored", args=args)

    def stored():
        leaves = surgery("inspect", tmp_path / "stored", "--json").document["leaves"]
        return {row["path"]: (row.get("chunk_shape"), row.get("write_shape")) for row in leaves}

    assert stored() == {"w": ([4, 4], [4, 4]), "n": ([], []), "none": (None, None)}
    document = tmp_path / "stored" / "w" / "zarr.json"
    fields = json.loads(document.read_text())
    fields["chunk_grid"]["configuration"]["chunk_shape"] = [4, 8]  # a shard of two chunks
    document.write_text(json.dumps(fields))
    assert stored()["w"] == ([4, 4], [4, 8])


def test_an_edit_is_previewed_applied_and_found_by_diff(surgery, checkpoint, tmp_path):
    new = tmp_path / "new"
    edit = ("rescale", checkpoint, new, KERNEL, "--by", "0.5")

    preview = surgery(*edit, "--dry-run", "--json")
    assert preview.code == 0
    assert not new.exists()

    report = surgery(*edit, "--json")
    assert report.code == 0
    assert report.document["verified"] is True
    assert report.document["draft"] == preview.document["draft"]
    assert KERNEL in report.document["digests"]

    difference = surgery("diff", checkpoint, new, "--json")
    assert difference.code == 1
    assert KERNEL in {change["path"] for change in difference.document["changed"]}
    assert surgery("diff", checkpoint, new, "--structure").code == 0
    assert surgery("diff", checkpoint, new, "params/Conv_0").code == 0


def test_a_draft_that_was_not_previewed_is_refused(surgery, checkpoint, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"edits:\n  - {{op: rescale, at: {KERNEL}, by: 0.5}}\n")
    previewed = surgery("plan", checkpoint, plan, "--json").document["draft"]

    plan.write_text(f"edits:\n  - {{op: rescale, at: {KERNEL}, by: 0.25}}\n")
    refused = surgery("apply", checkpoint, tmp_path / "new", plan, "--draft", previewed)

    assert refused.code == 2
    assert not (tmp_path / "new").exists()
    looked_at = surgery(
        "apply", checkpoint, tmp_path / "new", plan, "--draft", previewed, "--dry-run"
    )
    assert (looked_at.code, looked_at.err) == (refused.code, refused.err)


def test_what_is_no_digest_is_refused_as_such(surgery, checkpoint, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("edits: []\n")
    refused = surgery("apply", checkpoint, tmp_path / "new", plan, "--draft", "sha256:12ab")

    assert refused.code == 2
    assert refused.err.startswith("error: 'sha256:12ab' is not the digest of a draft\n")


@pytest.mark.parametrize("seed", ["-1", "9223372036854775808"])
def test_a_seed_that_a_plan_could_not_hold_is_refused_as_an_option_too(
    surgery, checkpoint, tmp_path, seed
):
    words = ("reinit", checkpoint, tmp_path / "new", KERNEL, "--init", "lecun_normal")
    refused = surgery(*words, "--seed", seed)

    assert refused.code == 2
    assert refused.err.startswith("error: `--seed` must be a whole number, at least 0")
    assert not (tmp_path / "new").exists()


def test_a_plan_comes_from_standard_input_with_variables(
    surgery, checkpoint, tmp_path, monkeypatch
):
    text = f'edits:\n  - {{op: rescale, at: {KERNEL}, by: "${{by}}"}}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    result = surgery("apply", checkpoint, tmp_path / "new", "-", "--set", "by=0.5", "--json")

    assert result.code == 0
    assert result.document["edits"][0]["summary"].endswith("by 0.5")


def test_verify_counts_unchecked_leaves_and_strict_makes_them_a_failure(
    surgery, checkpoint, tmp_path
):
    new = tmp_path / "new"
    surgery("rescale", checkpoint, new, KERNEL, "--by", "0.5", "--optimizer", "keep", "--quiet")

    plain, strict = surgery("verify", new), surgery("verify", new, "--strict")

    assert plain.code == 0
    assert plain.out.splitlines()[0] == "1 leaf checked, 27 of 28 leaves have no digest: agrees"
    assert strict.code == 1
    assert strict.out.splitlines()[0] == (
        "1 leaf checked, 27 of 28 leaves have no digest: unchecked leaves remain"
    )


def test_a_manifest_checks_every_leaf(surgery, checkpoint, tmp_path):
    manifest = tmp_path / "manifest.json"
    manifest.write_text(surgery("inspect", checkpoint, "--digests", "--json").out)

    result = surgery("verify", checkpoint, "--like-manifest", manifest, "--strict")

    assert result.code == 0
    assert not result.out.startswith("0 leaves checked")


def test_verify_like_and_like_manifest_exclude_each_other(surgery, checkpoint):
    result = surgery("verify", checkpoint, "--like", checkpoint, "--like-manifest", "m.json")

    assert result.code == 2
    assert result.err.startswith("error: `--like` and `--like-manifest` both say")


def test_quiet_prints_nothing_when_all_is_well(surgery, checkpoint, tmp_path):
    result = surgery("cast", checkpoint, tmp_path / "new", "--to", "bfloat16", "--quiet")

    assert result == (0, "", "")
    assert (tmp_path / "new" / "500").is_dir()


def test_a_pattern_without_match_is_exit_2_with_the_nearest_path(surgery, checkpoint, tmp_path):
    result = surgery("delete", checkpoint, tmp_path / "new", "params/Dnse_1")

    assert result.code == 2
    assert result.out == ""
    first, *rest = result.err.splitlines()
    assert first == "error: 'params/Dnse_1' matches nothing"
    assert "'params/Dense_1'" in " ".join(rest)
    assert len(rest) == 2


def test_all_problems_come_at_once_and_as_json_on_standard_output(surgery, checkpoint, tmp_path):
    result = surgery("delete", checkpoint, tmp_path / "new", "params/x", "params/y", "--json")

    assert result.code == 2
    assert [problem["what"] for problem in result.document["problems"]] == [
        "'params/x' matches nothing",
        "'params/y' matches nothing",
    ]
    assert result.document["schema_version"] == 1
    assert result.err == ""


def test_a_mistake_in_a_plan_names_file_and_line(surgery, checkpoint, tmp_path):
    plan = tmp_path / "head.yaml"
    plan.write_text("edits:\n  - op: rescale\n    at: params\n    bye: 2\n")

    result = surgery("plan", checkpoint, plan)

    assert result.code == 2
    assert f"error: {plan}:4:5: " in result.err


def test_what_is_no_checkpoint_is_exit_3(surgery, tmp_path):
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04K\x01.")

    result = surgery("inspect", tmp_path / "model.pkl", "--json")

    assert result.code == 3
    assert "pickle" in json.dumps(result.document["problems"])


def test_a_damaged_leaf_is_a_finding_not_a_crash(surgery, own_checkpoint, tmp_path):
    manifest = tmp_path / "manifest.json"
    manifest.write_text(surgery("inspect", own_checkpoint, "--digests", "--json").out)
    for file in (own_checkpoint / "ocdbt.process_0" / "d").iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 0xFF
        file.write_bytes(content)

    result = surgery("verify", own_checkpoint, "--like-manifest", manifest, "--json")

    assert result.code == 1
    assert result.document["agrees"] is False
    assert result.document["findings"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rescale", "a", "b", "c"), "missing option '--by'"),
        (("inspect",), "missing argument 'CKPT'"),
        (("rescal",), "there is no command 'rescal'"),
        (("inspect", "a", "--dept", "2"), "no such option: --dept"),
        (("inspect", "a", "--depth", "x"), "--depth"),
        (("cast", "a", "b", "--to", "bfloat16", "--link", "soft"), "--link"),
        (("cast", "a", "b", "--to", "bfloat16", "--memory", "much"), "'much' is not a size"),
        (("compact", "a", "b", "--compact", "never"), "`--compact never` forbids one"),
        (("operations", "rescal"), "there is no operation 'rescal'"),
        (("apply", "a", "b", "p.yaml", "--set", "by"), "`--set` takes NAME=VALUE, not 'by'"),
    ],
)
def test_a_wrong_command_is_exit_2_in_text_and_in_json(surgery, words, said):
    text, document = surgery(*words), surgery(*words, "--json")

    assert (text.code, text.out) == (2, "")
    assert text.err.startswith("error: ")
    assert said in text.err.splitlines()[0]
    assert (document.code, document.err) == (2, "")
    assert said in document.document["problems"][0]["what"]


@pytest.mark.parametrize(
    "words",
    [
        ("rescale", "a", "b", "c", "--by"),
        ("cast", "a", "b", "--to"),
        ("inspect", "a", "--json=3"),
        ("inspect", "a", "--dept", "2"),
        ("inspect",),
    ],
)
def test_a_wrong_command_names_its_own_help(surgery, words):
    assert f"`surgery {words[0]} --help` explains it" in surgery(*words).err


def test_surgery_alone_prints_its_help_as_an_error(surgery):
    result = surgery()

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: surgery ")


def test_schema_is_the_schema_of_the_plan_file(surgery):
    document = surgery("schema").document

    assert document["title"] == "surgery plan"
    assert document["properties"]["edits"]


def test_a_bug_keeps_its_traceback_and_exits_70(surgery, checkpoint, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(use_cases, "inspect", broken)
    text, document = surgery("inspect", checkpoint), surgery("inspect", checkpoint, "--json")

    assert (text.code, document.code) == (70, 70)
    assert "Traceback" in text.err
    assert "this is a bug in surgery" in text.err
    assert "Traceback" in document.err
    assert "ZeroDivisionError" in document.document["problems"][0]["what"]


def test_an_interrupt_exits_130_and_a_termination_143(surgery, checkpoint, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal was not raised as an exception")

    monkeypatch.setattr(use_cases, "inspect", interrupted)
    assert surgery("inspect", checkpoint).code == 130
    monkeypatch.setattr(use_cases, "inspect", terminated)
    assert surgery("inspect", checkpoint).code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_closed_pipe_is_quiet(checkpoint):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "surgery_cli", "inspect", os.fspath(checkpoint)],
        stdout=writer, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writer)

    assert process.returncode == 141
    assert process.stderr == b""


@pytest.mark.parametrize("words", [["inspect", "HERE"], ["--help"], ["rescale", "--help"]])
def test_a_full_disk_under_standard_output_is_no_bug(checkpoint, words):
    words = [os.fspath(checkpoint) if word == "HERE" else word for word in words]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "surgery_cli", *words],
            stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip

    assert process.returncode == 4
    assert process.stderr.startswith(b"error: standard output cannot be written\n")


@pytest.mark.parametrize(("options", "full"), [([], "stderr"), (["--json"], "stdout")])
def test_an_error_keeps_its_exit_code_where_nobody_can_read_it(options, full):
    with Path("/dev/full").open("w") as nowhere:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: nowhere}
        command = [sys.executable, "-m", "surgery_cli", "inspect", "not-there", *options]
        process = subprocess.run(command, **streams, check=False)

    assert process.returncode == 2
    assert full == "stderr" or b"not-there' does not exist" in process.stderr


def test_standard_streams_that_were_closed_neither_fail_nor_end_up_in_the_result(
    surgery, checkpoint, tmp_path
):
    words = ["rescale", os.fspath(checkpoint), os.fspath(tmp_path / "new"), KERNEL, "--by", "0.5"]
    command = shlex.join([sys.executable, "-m", "surgery_cli", *words])
    process = subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], check=False)

    assert process.returncode == 0
    assert surgery("diff", checkpoint, tmp_path / "new", KERNEL).code == 1
    process = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, check=False)
    assert process.returncode == 2
    assert b"exists" in process.stderr


def test_a_working_directory_that_is_gone_is_no_bug(surgery, checkpoint, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = surgery("inspect", checkpoint)
    monkeypatch.undo()

    assert result.code == 2
    assert result.err.startswith("error: the working directory cannot be read\n")


def test_an_argument_that_is_not_utf_8_is_refused_in_text_and_in_json(surgery, tmp_path):
    name = os.fsdecode(b"run\xff")
    text, document = surgery("inspect", name), surgery("inspect", name, "--json").document

    assert text.code == 2
    assert text.err.startswith("error: the argument 'run\\udcff' is not UTF-8\n")
    assert document["problems"][0]["what"] == f"the argument '{name}' is not UTF-8"


def test_the_shell_completes_commands_checkpoints_and_tree_paths_without_jax(checkpoint):
    def completed(*words):
        script = (
            "import sys\nfrom surgery_cli.cli.main import run\n"
            "try:\n    run([])\n"
            "finally:\n    assert not {'jax', 'orbax', 'flax'} & set(sys.modules)\n"
        )
        variables = {
            **os.environ,
            "_SURGERY_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["surgery", *words]),
            "COMP_CWORD": str(len(words)),
        }
        process = subprocess.run(
            [sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert process.stderr == ""
        return process.stdout.split()

    root = os.fspath(checkpoint)
    assert completed("insp") == ["inspect"]
    assert completed("inspect", root[:-3]) == [f"{root}/"]
    assert completed("inspect", root, "params/De") == ["params/Dense_0", "params/Dense_1"]
    assert completed("rescale", root, "new", "params/Conv_0/k") == ["params/Conv_0/kernel"]


def test_an_empty_pipe_is_no_plan_and_nothing_is_written(
    surgery, checkpoint, monkeypatch, tmp_path
):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    ended = surgery("apply", checkpoint, tmp_path / "new", "-")
    assert ended.code == 2
    assert "standard input: it holds no plan" in ended.err
    assert not (tmp_path / "new").exists()


def test_an_empty_plan_file_is_what_a_failed_command_left(surgery, checkpoint, tmp_path):
    """As `plan OUT --inverse > undo.yaml` leaves it where it is refused."""
    (tmp_path / "empty.yaml").write_text("")
    ended = surgery("apply", checkpoint, tmp_path / "new", tmp_path / "empty.yaml")
    assert ended.code == 2
    assert "empty.yaml: it holds no plan" in ended.err
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty.yaml").write_text("edits: []\n")
    assert surgery("plan", checkpoint, tmp_path / "empty.yaml").code == 0


def test_a_place_without_a_command_is_told_from_a_mistyped_command(surgery, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "se t").mkdir()
    for place, shown in (("se t", "'se t'"), (tmp_path, tmp_path)):
        ended = surgery(place)
        assert (ended.code, f"`surgery inspect {shown}`" in ended.err) == (2, True)
        assert "did you mean" not in ended.err


def test_a_mistyped_command_names_the_one_that_was_meant(surgery, checkpoint):
    ended = surgery("inpsect", checkpoint)
    assert ended.code == 2
    assert "there is no command 'inpsect'" in ended.err
    assert "did you mean `surgery inspect`?" in ended.err


@pytest.mark.parametrize(("option", "value"), [("--optimizer", "keeep"), ("--link", "sof")])
def test_a_value_that_is_no_choice_is_told_without_the_parsers_own_words(
    surgery, checkpoint, tmp_path, option, value
):
    ended = surgery("rescale", checkpoint, tmp_path / "new", "params", "--by", "2", option, value)
    assert ended.code == 2
    assert f"invalid value for '{option}': '{value}' is not one of" in ended.err


@pytest.mark.parametrize("command", ["inspect", "diff"])
def test_looking_at_what_is_not_there_names_the_nearest_for_every_pattern(
    surgery, checkpoint, command
):
    sides = [checkpoint] if command == "inspect" else [checkpoint, checkpoint]
    result = surgery(command, *sides, "params/Dense_2/kernel", "qqq", "re:(")

    assert result.code == 2
    assert result.err.splitlines()[:6] == [
        "error: 'params/Dense_2/kernel' matches nothing",
        "  no key is called 'Dense_2'; the nearest: 'Dense_1', 'Dense_0'",
        "  the nearest paths are 'params/Dense_1/kernel', 'params/Dense_0/kernel', 'params/Conv_1/kernel'",
        "error: 'qqq' matches nothing",
        "  no key is called 'qqq'",
        "  `surgery inspect` lists the paths",
    ]
    assert result.err.endswith("3 problems\n")


def test_an_interrupt_while_the_program_is_loaded_leaves_no_traceback():
    script = (
        "import os, signal, sys\n"
        "from surgery_cli.__main__ import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_difference_says_which_step_of_a_run_each_side_is(surgery, checkpoint):
    found = surgery("diff", f"{checkpoint}@250", f"{checkpoint}@500", "step")
    assert found.code == 1
    lines = found.out.splitlines()
    assert lines[0].startswith("a ")
    assert lines[1] == "  step 250 (as asked of 2), item 'default'"
    assert lines[3] == "  step 500 (as asked of 2), item 'default'"
    document = json.loads(surgery("diff", f"{checkpoint}@250", f"{checkpoint}@500", "--json").out)
    assert (document["step_a"], document["step_b"]) == (250, 500)
    assert document["a"] == document["b"] == str(checkpoint)


def test_the_totals_of_a_filtered_inspection_are_those_of_its_leaves(surgery, checkpoint):
    whole = surgery("inspect", checkpoint, "--json", "--optimizer").document
    parts = [["params/Dense_0"], ["opt_state/0/mu", "step"], ["params", "opt_state/0/nu/Conv_*"]]
    for patterns in parts:
        found = surgery("inspect", checkpoint, *patterns, "--json", "--optimizer").document
        rows = found["leaves"]
        assert found["all_leaves"] == whole["total_leaves"]
        assert found["total_leaves"] == len(rows)
        assert found["total_bytes"] == sum(row["bytes"] for row in rows)
        assert sum(found["by_dtype"].values()) == found["total_bytes"]
        sizes = [math.prod(row["shape"]) for row in rows if row["path"].startswith("params/")]
        assert found["parameters"] == sum(sizes)
        slots = [row["slot"] for row in rows if "slot" in row]
        counted = sum((Counter(state["slots"]) for state in found["optimizer"]), Counter())
        assert counted == Counter(slots)


def test_a_filtered_inspection_says_nothing_of_what_it_leaves_out(surgery, checkpoint):
    shown = surgery("inspect", checkpoint, "params/Dense_0", "--optimizer").out
    assert "2 of 28 leaves, 32.2 KiB" in shown
    assert "8,256 parameters" in shown
    assert "none among these leaves" in shown
    assert "no learning rate is stored" not in shown
    assert "no learning rate is stored" in surgery("inspect", checkpoint, "--optimizer").out


def test_a_draft_that_has_become_another_says_what_has_changed(surgery, checkpoint, tmp_path):
    """Exit code 3 only where a checkpoint is another than it was."""
    donors = [tmp_path / "one", tmp_path / "two"]
    for donor, factor in zip(donors, ("2", "3"), strict=True):
        surgery("rescale", checkpoint, donor, "params/Dense_0", "--by", factor)
    own = tmp_path / "own"
    shutil.copytree(checkpoint, own)

    plan = tmp_path / "plan.yaml"

    def apply(with_, *more):
        plan.write_text(f"edits: [{{op: replace, at: params/Dense_0/bias, with: {with_}}}]")
        return surgery("apply", own, tmp_path / "new", plan, "--dry-run", "--json", *more)

    draft = apply(donors[0]).document["draft"]
    assert apply(donors[0], "--draft", draft).code == 0
    for changed in (apply(donors[1], "--draft", draft), apply("0.5", "--draft", draft)):
        assert changed.code == 2
        assert (
            "the plan, the options or the version of surgery have changed"
            in changed.document["problems"][0]["why"]
        )
    stepped = apply(donors[0], "--draft", draft, "--step", "250")
    assert stepped.code == 2
    assert stepped.document["problems"][0]["what"].endswith("is one of step 500")
    shutil.rmtree(donors[0])
    surgery("rescale", checkpoint, donors[0], "params/Dense_0", "--by", "5")
    exchanged = apply(donors[0], "--draft", draft)
    assert exchanged.code == 3
    assert "a donor is not what was previewed" in exchanged.document["problems"][0]["what"]
    assert surgery("rescale", own, tmp_path / "other", "params/Conv_0", "--by", "2").code == 0
    shutil.rmtree(own)
    (tmp_path / "other").rename(own)
    changed = apply(donors[1], "--draft", draft)
    assert changed.code == 3
    assert f"'{own}' is not what was previewed" in changed.document["problems"][0]["what"]


def test_directories_above_the_destination_are_made_and_said(surgery, checkpoint, tmp_path):
    target = tmp_path / "not" / "there" / "new"
    edit = ("rescale", checkpoint, target, "params/Dense_0", "--by", "2", "--json")
    for more in (("--dry-run",), ()):
        notes = surgery(*edit, *more).document["notes"]
        assert f"there is no directory '{target.parent}': it is made" in notes
    again = surgery(*edit, "--force").document["notes"]
    assert not [note for note in again if "there is no directory" in note]


def test_the_totals_of_a_filtered_diff_are_the_filters(surgery, checkpoint, tmp_path):
    surgery("rescale", checkpoint, tmp_path / "new", "params/Dense_0", "--by", "2")
    document = surgery("diff", checkpoint, tmp_path / "new", "params/Dense_1", "--json").document
    assert (document["equal"], document["not_named"], document["changed"]) == (2, 26, [])
    result = surgery("diff", checkpoint, tmp_path / "new", "params/Dense_1")
    assert result.code == 0
    assert result.out.endswith("not compared: 26 leaves that no pattern names\n")
    assert "not_named" not in surgery("diff", checkpoint, tmp_path / "new", "--json").document
    assert "no pattern" not in surgery("diff", checkpoint, checkpoint, "**").out


@pytest.mark.parametrize("asked", ["keep", "drop"])
def test_what_becomes_of_metrics_is_said_where_there_are_none(surgery, tmp_path, asked):
    source = "sample_checkpoints/digits_standard"
    words = ("rescale", source, tmp_path / "new", "params", "--by", "2")
    said = f"`--metrics {asked}` changes nothing: the step has no metrics"
    assert said in surgery(*words, "--metrics", asked).out
    assert "--metrics" not in surgery(*words, "--dry-run", "--force").out
