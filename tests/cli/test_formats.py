"""Results for other programs: `--output FORMAT=FILE`, and what it takes to add a format."""

import json
import os
import resource
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.console import formats
from surgery_cli.console.formats.table import FORMATS, Format

KERNEL = "params/Dense_1/kernel"
TAP = '''
"""The Test Anything Protocol: a line for each case."""

from surgery_cli.document import Document


def text_of(document: Document) -> str:
    cases = document.suite().cases
    lines = [
        f"{'not ok' if case.outcome == 'failed' else 'ok'} {number} {case.name} {case.what}".strip()
        for number, case in enumerate(cases, 1)
    ]
    return "\\n".join((f"1..{len(cases)}", *lines, ""))
'''


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A format that somebody adds: one file, and one line in the table."""
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "tap.py").write_text(TAP)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "formats")])
    monkeypatch.setitem(FORMATS, "tap", Format("the Test Anything Protocol", ("verify",)))


def test_a_new_format_is_one_file_and_one_line(surgery, own_checkpoint, tmp_path, newcomer):
    surgery("seal", own_checkpoint)
    (own_checkpoint / "_sharding").write_bytes(b"{}")
    file = tmp_path / "report.tap"

    result = surgery("verify", own_checkpoint, "--output", f"tap={file}", "-q")

    assert result == (1, "", "finding: _sharding: file changed\n")
    lines = [
        line.partition(" ")[2].lstrip("ok 0123456789") for line in file.read_text().splitlines()
    ]
    assert "_sharding file changed" in lines
    assert KERNEL in lines


def test_a_new_format_is_offered_to_the_commands_that_it_names(surgery, checkpoint, newcomer):
    result = surgery("verify", checkpoint, "--output", "tpa=x.tap")
    assert (result.code, result.err.splitlines()[1]) == (2, "  use `tap`")
    result = surgery("diff", checkpoint, checkpoint, "--output", "tap=x.tap")
    assert result.code == 2
    assert "`diff` has no output format 'tap'" in result.err


def test_every_format_is_a_module_that_the_table_names():
    files = {path.stem for path in Path(formats.__file__).parent.glob("*.py")}
    assert files == {*FORMATS, "__init__", "table", "files"}


@pytest.mark.parametrize("words", [["verify", "A"], ["diff", "A", "B"]])
def test_a_file_gets_what_json_prints(surgery, checkpoint, tmp_path, words):
    places = {"A": f"{checkpoint}@250", "B": f"{checkpoint}@500"}
    typed = [places.get(word, word) for word in words]
    file = tmp_path / "result.json"

    result = surgery(*typed, "--json", "--output", f"json={file}")

    assert result.document == json.loads(file.read_text())
    assert result.code == (1 if "B" in words else 0)


def test_a_file_has_a_place_outside_of_what_is_looked_at(surgery, own_checkpoint, tmp_path):
    before = sorted(own_checkpoint.rglob("*"))
    for file, said in [
        (own_checkpoint / "result.json", "would stand inside"),
        (tmp_path / "no" / "result.json", "cannot be made"),
        (tmp_path, "cannot be made"),
        ("s3://bucket/result.json", "is in a bucket"),
    ]:
        result = surgery("verify", own_checkpoint, "--output", f"json={file}")
        assert (result.code, said in result.err) == (2, True), result.err
    assert sorted(own_checkpoint.rglob("*")) == before


def test_what_is_no_format_and_file_is_refused(surgery, checkpoint):
    for text in ("json", "json=", "=x.json"):
        result = surgery("verify", checkpoint, "--output", text)
        assert result.code == 2
        assert "--output" in result.err or "no output format" in result.err


def test_a_file_that_cannot_be_written_is_left_as_it_was(surgery, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be cut off, and stay so
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": np.ones(3, np.float32)})
    old = tmp_path / "old.json"
    old.write_text("as it was")
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for file in (tmp_path / "new.json", old):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
        try:
            result = surgery("verify", tmp_path / "source", "--output", f"json={file}")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        assert (result.code, "File too large" in result.err) == (4, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.json", "source"]
    assert old.read_text() == "as it was"


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("/dev/stdout", "> log"),
        ("/dev/stdout", ">> log"),
        ("/dev/stdout", "| cat >> log"),
        ("/dev/stderr", "2>> log"),
        ("/dev/fd/7", "7>> log"),
        ("/proc/self/fd/1", "> log"),
        ("link", "> log"),
    ],
)
@pytest.mark.parametrize("words", ["--output github=", "--output json=", "--html "])
def test_what_is_open_already_is_written_behind_what_stands_in_it(tmp_path, words, name, file):
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "log").write_text("")
    call = f"verify none {words}{name}"
    script = (
        f"echo before > log; ( {sys.executable} -m surgery_cli {call} ) {file}; echo after >> log"
    )
    if ">>" not in file:
        script = f"( echo before; {sys.executable} -m surgery_cli {call}; echo after ) {file}"
    env = {**os.environ, "PYTHONPATH": str(Path(formats.__file__).parents[3])}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, check=True, capture_output=True)
    log = (tmp_path / "log").read_text().splitlines()
    assert (log[0], log[-1]) == ("before", "after")
    assert any("none" in line for line in log[1:-1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/dev/fd/7", "no file is open there"),
        ("/dev/fd/6", "no file is open there"),  # open, but only to be read
        ("log", "what is printed goes there: `/dev/stdout`"),
        ("other", "what is printed goes there: `/dev/stderr`"),
    ],
)
def test_what_would_be_lost_or_is_not_open_is_refused_before_any_work(tmp_path, name, said):
    command = f"{sys.executable} -m surgery_cli verify none --output json={name}"
    script = f"( echo before; {command}; echo after ) > log 2> other 6< /dev/null"
    env = {**os.environ, "PYTHONPATH": str(Path(formats.__file__).parents[3])}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "log").read_text() == "before\nafter\n"
    assert said in (tmp_path / "other").read_text()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["verify", "none"], "verify none"),
        (["diff", "none", "other", "--structure"], "diff none other"),
        (["verify", "--strict", "--", "none"], "verify none"),
    ],
)
def test_a_command_that_fails_is_called_by_what_was_typed(
    surgery, tmp_path, monkeypatch, words, named
):
    monkeypatch.chdir(tmp_path)
    given = [word for name in ("junit", "markdown") for word in ("--output", f"{name}={name}.txt")]

    typed = [words[0], *given, *words[1:]] if "--" in words else [*words, *given]
    assert surgery(*typed).code == 2
    suite = ET.parse("junit.txt").getroot()
    assert suite.get("name") == f"surgery {words[0]}"
    assert {case.get("classname") for case in suite.iter("testcase")} == {f"surgery {named}"}
    assert Path("markdown.txt").read_text().startswith(f"### ❌ surgery {words[0]}\n")
