"""Results for other programs: `--output FORMAT=FILE`, and what it takes to add a format."""

import json
import resource
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.console import formats
from surgery_cli.console.formats.table import FORMATS, Format

KERNEL = "params/Dense_1/kernel"
JUNIT = '''
"""JUnit XML, as CI shows it: a failure for each finding."""

from xml.etree import ElementTree as xml

from surgery_cli.reports import Verdict


def text_of(document: Verdict) -> str:
    suite = xml.Element("testsuite", name="surgery verify", failures=str(len(document.findings)))
    for finding in document.findings:
        case = xml.SubElement(suite, "testcase", classname=document.checkpoint, name=finding.path)
        xml.SubElement(case, "failure", message=finding.what).text = finding.detail or finding.fix
    return xml.tostring(suite, encoding="unicode")
'''


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A format that somebody adds: one file, and one line in the table."""
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "junit.py").write_text(JUNIT)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "formats")])
    monkeypatch.setitem(FORMATS, "junit", Format("a JUnit report", ("verify",)))


def test_a_new_format_is_one_file_and_one_line(surgery, own_checkpoint, tmp_path, newcomer):
    surgery("seal", own_checkpoint)
    (own_checkpoint / "_sharding").write_bytes(b"{}")
    file = tmp_path / "report.xml"

    result = surgery("verify", own_checkpoint, "--output", f"junit={file}", "-q")

    assert result == (1, "", "")
    cases = ET.parse(file).getroot()
    messages = {found.get("name"): found[0].get("message") for found in cases}
    assert messages["_sharding"] == "file changed"


def test_a_new_format_is_offered_to_the_commands_that_it_names(surgery, checkpoint, newcomer):
    result = surgery("verify", checkpoint, "--output", "junti=x.xml")
    assert (result.code, result.err.splitlines()[1]) == (2, "  use `junit`")
    result = surgery("diff", checkpoint, checkpoint, "--output", "junit=x.xml")
    assert result.code == 2
    assert "`diff` has no output format 'junit'" in result.err


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


def test_a_file_that_cannot_be_written_is_left_as_it_was(surgery, tmp_path):
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
