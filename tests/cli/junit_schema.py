"""What JUnit's XML may hold, by the schema of Jenkins's xUnit plugin (`junit-10.xsd`)."""

from pathlib import Path
from xml.etree import ElementTree as ET

NUMBERS = {"tests", "failures", "errors", "skipped"}
SUITE = NUMBERS | {"name", "time", "timestamp", "hostname", "id", "package", "disabled"}
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors", "skipped", "disabled"},
    "testsuite": SUITE,
    "testcase": {"name", "classname", "time", "assertions", "status", "file", "line"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message", "type"},
    "system-out": set(),
    "properties": set(),
    "property": {"name", "value"},
}
REQUIRED = {
    "testsuite": {"name", "tests"},
    "testcase": {"name", "classname"},
    "property": {"name", "value"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    "properties": {"property"},
}


def outcomes(file: Path) -> dict[str, str]:
    """What became of every case of a file that the schema holds of, by name; counts agree with it."""
    root = ET.fromstring(file.read_bytes())
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag], element.attrib
        assert REQUIRED.get(element.tag, set()) <= set(element.attrib), element.tag
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set()), element.tag
    for suite in root:
        found = [_outcome(case) for case in suite.iter("testcase")]
        counts = {"tests": len(found), "failures": found.count("failure")}
        counts |= {"errors": found.count("error"), "skipped": found.count("skipped")}
        assert {name: int(suite.attrib[name]) for name in NUMBERS} == counts
        assert {name: int(root.attrib[name]) for name in NUMBERS} == counts
    names = [case.attrib["name"] for case in root.iter("testcase")]
    assert all(names)
    return {case.attrib["name"]: _outcome(case) for case in root.iter("testcase")}


def _outcome(case: ET.Element) -> str:
    tags = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    assert len(tags) <= 1
    return tags[0] if tags else "passed"
