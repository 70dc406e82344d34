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
    return words, ["note: there is no `_METADATA`: the tree is inferred from names"]


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
    leftover_of_a_killed_run_removed,
    set_aside_restored,
    rest_left_out,
    member_that_was_not_named,
    damage_sealed,
]


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
