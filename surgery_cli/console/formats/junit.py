"""JUnit's XML, as CI shows it: a case for everything that was looked at, what agrees as well as what does not."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from surgery_cli.console.printable import printable_suite
from surgery_cli.document import Case, Document


def text_of(document: Document) -> str:
    """One suite. What is only a warning passes, and says so in its output.

    Source: https://github.com/jenkinsci/xunit-plugin, `junit-10.xsd`
    """
    suite = printable_suite(document)
    name = suite.title
    counts = {
        "tests": len(suite.cases),
        "failures": suite.count("failed"),
        "errors": suite.count("error"),
        "skipped": suite.count("skipped"),
    }
    time = {} if suite.seconds is None else {"time": f"{suite.seconds:.3f}"}
    given = {"name": name, **{key: str(count) for key, count in counts.items()}, **time}
    root = ET.Element("testsuites", given)
    found = ET.SubElement(root, "testsuite", given)
    if suite.judged:
        properties = ET.SubElement(found, "properties")
        ET.SubElement(properties, "property", name="checkpoint", value=suite.judged)
    classname = f"{name} {suite.subject}".strip()
    for case in suite.cases:
        _add(found, case, classname)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add(suite: ET.Element, case: Case, classname: str) -> None:
    found = ET.SubElement(suite, "testcase", name=case.name, classname=classname)
    what = case.what
    text = "\n".join((_place(case), *case.details)).strip()
    match case.outcome:
        case "failed":
            ET.SubElement(found, "failure", message=what, type="finding").text = text
        case "error":
            ET.SubElement(found, "error", message=what, type="error").text = text
        case "skipped":
            ET.SubElement(found, "skipped", message=what)
        case "warned":
            ET.SubElement(found, "system-out").text = f"warning: {what}\n{text}"
        case "passed" if case.about:
            ET.SubElement(found, "system-out").text = case.about


def _place(case: Case) -> str:
    if case.file is None:
        return ""
    return f"{case.file}:{case.line}" if case.line else case.file
