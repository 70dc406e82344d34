"""`--quiet` keeps the report to itself, and nothing that changes what happens: that is said on standard error."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.store.filesystem.owners import OWNER_FILE, make_owned
from surgery_cli.store.filesystem.processes import Owner

SAMPLES = Path(__file__).resolve().parents[2] / "sample_checkpoints"
SOURCES = Path(__file__).resolve().parents[2] / "surgery_cli"
FLAT, ROOT = SAMPLES / "digits_standard", SAMPLES / "digits_manager"
KERNEL = "params/Dense_1/kernel"
CAST = ("--to", "bfloat16")
PAGE = re.compile(r" \[docs/[\w-]+\.md(#[\w-]+)?\]$")


def missing_parent(place):
    return ("cast", FLAT, place / "a" / "new", *CAST), ["note: there is no directory '"]


def kind_taken_for_granted(place):
    words = ("rescale", FLAT, place / "new", KERNEL, "--by", "0.5")
    return words, ["assumed: 'opt_state/0' is taken for Adam's family, which is not proved"]


def slots_kept(place):
    params = {"w": np.ones((3, 4), np.float32)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        state = {"params": params, "opt_state": optax.rmsprop(1e-3).init(params)}
        checkpointer.save(place / "saved", state)
    words = ("rescale", place / "saved", place / "new", "params/w", "--by", "2")
    return words, ["note: 1 slot of 'opt_state/0' (nu) is kept as it was: "]


def slots_of_a_donor_not_taken(place):
    words = ("replace", ROOT, place / "new", KERNEL, "--with", f"{ROOT}@250")
    return words, ["note: 2 slots are not taken from '"]


def parts_of_the_script_not_compared(place):
    script = place / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(SAMPLES)!r})\nfrom digits import create_state\n"
        "def made():\n    return create_state(), [1.0]\n"
    )
    words = ("reinit", FLAT, place / "new", KERNEL, "--init", "zeros")
    return (*words, "--optimizer", "keep", "--like-init", f"{script}:made"), [
        f"note: '0' of what '{script}:made' returns is taken for the tree: most of its leaves",
        f"note: '1' of what '{script}:made' returns is not compared",
    ]


def damaged_metadata_carried_along(place):
    shutil.copytree(FLAT, place / "damaged")
    (place / "damaged" / "_CHECKPOINT_METADATA").write_bytes(b"[]")
    words = ("cast", place / "damaged", place / "new", *CAST)
    return words, ["note: `_CHECKPOINT_METADATA` is damaged ("]


def files_behind_links_copied(place):
    shutil.copytree(FLAT, place / "linked")
    (data,) = sorted((place / "linked" / "d").iterdir())[:1]
    shutil.move(data, place / "elsewhere")
    data.symlink_to(place / "elsewhere")
    words = ("cast", place / "linked", place / "new", KERNEL, *CAST)
    return words, ["note: 1 data file is reached by symbolic links that lead out of the checkpoint"]


def tree_inferred_from_names(place):
    shutil.copytree(FLAT, place / "bare")
    (place / "bare" / "_METADATA").unlink()
    words = ("cast", place / "bare", place / "new", *CAST)
    return words, [f"assumed: '{place / 'bare'}' is taken for a tree of dicts, as the names of its"]


def tree_inferred_from_names_of_an_old_layout(place):
    shutil.copytree(FLAT, place / "bare")
    for name in ("_METADATA", "_CHECKPOINT_METADATA", "_sharding"):
        (place / "bare" / name).unlink()
    shutil.rmtree(place / "bare" / "array_metadatas")
    words = ("cast", place / "bare", place / "new", *CAST)
    return words, ["note: there is no `_METADATA`: the tree is inferred from names"]


def older_step_as_the_newest_is_unfinished(place):
    shutil.copytree(ROOT, place / "run")
    (place / "run" / "600.orbax-checkpoint-tmp-1").mkdir()
    words = ("cast", place / "run", place / "new", *CAST)
    return words, [
        f"assumed: step 500 of '{place / 'run'}' is taken: the newest, 600, is unfinished"
    ]


def leftover_of_a_killed_run_removed(place):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = place / ".new.surgery-tmp-0123abcd"
    make_owned(left)
    here = Owner.here()
    owner = {"host": here.host, "machine": here.machine, "pid": ended.pid, "started": here.started}
    (left / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")
    return ("cast", FLAT, place / "new", *CAST, "--force"), [f"note: removed '{left}', which a "]


def set_aside_restored(place):
    shutil.copytree(FLAT, place / "new.surgery-old")
    words = ("cast", FLAT, place / "new", *CAST, "--force")
    return words, [f"note: restored '{place / 'new'}', which an interrupted run had set aside as"]


def rest_left_out(place):
    return ("extract-item", FLAT, place / "new", "params"), [
        "note: the result holds what stood in 'params' alone",
        "note: removed values may remain in linked data files",
    ]


def member_that_was_not_named(place):
    words = ("average", ROOT, place / "new", "params", "--step", "250", "--steps", "500..500")
    return words, ["note: 2 members of the average, of equal weight: step 250 (the source, though"]


def damage_sealed(place):
    shutil.copytree(FLAT, place / "damaged")
    (place / "damaged" / "_sharding").write_bytes(b"{")
    return ("seal", place / "damaged"), ["note: sealed as it is: '_sharding': not a JSON object"]


CASES = [
    missing_parent,
    kind_taken_for_granted,
    slots_kept,
    slots_of_a_donor_not_taken,
    parts_of_the_script_not_compared,
    damaged_metadata_carried_along,
    files_behind_links_copied,
    tree_inferred_from_names,
    tree_inferred_from_names_of_an_old_layout,
    older_step_as_the_newest_is_unfinished,
    leftover_of_a_killed_run_removed,
    set_aside_restored,
    rest_left_out,
    member_that_was_not_named,
    damage_sealed,
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_quiet_still_says_what_changes_what_happens(surgery, tmp_path, case):
    words, said = case(tmp_path)
    result = surgery(*words, "-q")

    assert (result.code, result.out) == (0, "")
    lines = result.err.splitlines()
    assert all(line.startswith(("assumed: ", "note: ")) for line in lines)
    assert [start for start in said if sum(line.startswith(start) for line in lines) != 1] == [], (
        result.err
    )
    assert len(lines) == len(said)
    assert all(PAGE.search(line) for line in lines if line.startswith("note: "))


def test_what_was_restored_is_said_also_if_the_run_then_fails(surgery, tmp_path):
    shutil.copytree(FLAT, tmp_path / "new.surgery-old")
    result = surgery("cast", FLAT, tmp_path / "new", *CAST, "--quiet")

    assert (result.code, result.out) == (2, "")
    restored, error = result.err.splitlines()[:2]
    assert restored.startswith(f"note: restored '{tmp_path / 'new'}'")
    assert error == f"error: the destination '{tmp_path / 'new'}' exists"


def test_quiet_hides_what_only_tells(surgery, tmp_path):
    """The members of an average are those that were asked for; the words of the report are JSON's, too."""
    words = ("average", ROOT, tmp_path / "new", "params", "--steps", "250..500")
    assert surgery(*words, "-q") == (0, "", "")
    document = surgery(*words, "--force", "--json", "-q").document
    assert any(note.startswith("2 members of the average") for note in document["notes"])
    assert document["consequences"] == []


def test_json_says_which_notes_are_consequences(surgery, tmp_path):
    words = ("cast", FLAT, tmp_path / "a" / "new", *CAST)
    for more in (("--dry-run",), ()):
        document = surgery(*words, "--json", *more).document
        assert document["consequences"] == [f"there is no directory '{tmp_path / 'a'}': it is made"]
        assert set(document["consequences"]) <= set(document["notes"])


NOT_OF_WRITING = {
    ("surgery/gate.py", "note"),  # `apply` makes a remark of it
}
"""What makes a sentence, and leaves to another what kind of note that is."""


def test_whatever_makes_a_note_says_which_kind_it_is():
    """A function that is called after notes gives notes, never plain text that `--quiet` would know nothing of."""
    makers = {
        (os.fspath(file.relative_to(SOURCES)), node.name): ast.unparse(node.returns)
        for file in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and {"note", "notes"} & set(node.name.split("_"))
        if node.returns is not None and ast.unparse(node.returns) != "None"
    }
    kinds = ("Note", "Consequence", "Remark")
    plain = {maker for maker, kind in makers.items() if not any(name in kind for name in kinds)}
    assert plain == NOT_OF_WRITING
    assert len(makers) > len(plain) + 15


POLICY = """
rules:
  - {id: small, at: params, norm: ..1e-9}
  - {id: calm, at: params, norm: ..1e-8, severity: warning}
  - {id: whole, at: params, finite: true}
"""


def broken_rules(place):
    (place / "policy.yaml").write_text(POLICY)
    said = ["finding: small: ", "warning: calm: "]
    return ("check", FLAT, place / "policy.yaml"), said


def leaves_that_differ(place):
    params = {f"w{number:02}": np.zeros(2, np.float32) for number in range(14)}
    changed = {name: leaf + (name > "w01") for name, leaf in params.items()}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place / "a", params)
        checkpointer.save(place / "b", {**changed, "other": np.zeros(1)})
    rest = ["finding: w"] * 9
    said = ["finding: other: only in b", *rest, "and 3 more (`--verbose` lists them)"]
    return ("diff", place / "a", place / "b"), said


def a_file_that_changed(place):
    shutil.copytree(FLAT, place / "sealed")
    surgery_to_seal(place / "sealed")
    (place / "sealed" / "_sharding").write_bytes(b"{}")
    return ("verify", place / "sealed"), ["finding: _sharding: file changed"]


def surgery_to_seal(checkpoint):
    done = [sys.executable, "-m", "surgery_cli", "seal", checkpoint]
    subprocess.run(done, check=True, capture_output=True)


def no_digests(place):
    said = ["0 leaves checked, 28 of 28 leaves have no digest: unchecked leaves remain"]
    return ("verify", FLAT, "--strict"), said


def a_step_that_was_not_finished(place):
    shutil.copytree(ROOT, place / "run")
    shutil.move(place / "run" / "500", place / "run" / "500.orbax-checkpoint-tmp")
    return ("doctor", place / "run"), ["1 whole, 1 unfinished"]


def a_run_of_another_machine(place):
    left = place / ".new.surgery-tmp-0123abcd"
    make_owned(left)
    here = Owner.here()
    owner = {"host": "other", "machine": "another", "pid": 1, "started": here.started}
    (left / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")
    return ("clean", place), ["kept "]


def leaves_that_are_lost(place):
    shutil.copytree(FLAT, place / "broken")
    for data in sorted((place / "broken").glob("ocdbt.process_0/d/*")):
        data.unlink()
    return ("rescue", place / "broken"), ["19 of 28 leaves whole"]


FINDINGS = [
    broken_rules,
    leaves_that_differ,
    a_file_that_changed,
    no_digests,
    a_step_that_was_not_finished,
    a_run_of_another_machine,
    leaves_that_are_lost,
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", FINDINGS, ids=lambda case: case.__name__)
def test_quiet_says_what_was_found_where_the_exit_code_does(surgery, tmp_path, case):
    words, said = case(tmp_path)
    result = surgery(*words, "--quiet")

    assert (result.code, result.out) == (1, "")
    lines = [line for line in result.err.splitlines() if not line.startswith("note: ")]
    assert [line[: len(start)] for line, start in zip(lines, said, strict=True)] == said
    everything = surgery(*words, "--quiet", "--verbose").err.splitlines()
    assert not any("--verbose" in line for line in everything)
    assert surgery(*words, "--quiet", "--json").err == ""


def test_quiet_is_silent_where_nothing_was_found(surgery, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules:\n  - {at: params, finite: true}\n")
    for words in (
        ("check", FLAT, policy), ("diff", FLAT, FLAT), ("verify", FLAT), ("doctor", ROOT),
    ):  # fmt: skip
        assert surgery(*words, "-q") == (0, "", "")


def test_every_command_that_can_end_with_1_says_why_with_quiet():
    """Whatever prints a report, and ends with another code than 0 behind it, says that the report is no good one."""
    files = [*SOURCES.glob("cli/commands/*.py"), SOURCES / "probing" / "command" / "__init__.py"]
    seen = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            inside = list(ast.walk(node))
            calls = [n for n in inside if isinstance(n, ast.Call)]
            reports = [c for c in calls if ast.unparse(c.func) == "print_report"]
            ends = {ast.unparse(n.value) for n in inside if isinstance(n, ast.Return) and n.value}
            if reports and ends - {"0"}:
                keywords = {word.arg for call in reports for word in call.keywords}
                assert "is_good" in keywords, f"{file.name}: {node.name} returns {ends}"
                seen.add(file.name)
    assert len(seen) >= 7
