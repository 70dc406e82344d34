"""Documentation that is made from the program says what the program says."""

import importlib.util
import re
from pathlib import Path

import pytest

from surgery_cli.cli.main import Commands
from surgery_cli.operations.table import operations

DOCS = Path(__file__).resolve().parent.parent / "docs"


MADE = {name: f"{name}.md" for name in ("fuzzing", "limits", "mutants", "operations", "options")}
MADE["rules"] = "checks.md"


@pytest.mark.parametrize("name", MADE)
def test_the_references_are_up_to_date(name):
    spec = importlib.util.spec_from_file_location(f"make_{name}", DOCS / f"make_{name}.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert (DOCS / MADE[name]).read_text() == maker.page()


@pytest.mark.parametrize("kind", operations().values(), ids=operations())
def test_every_operation_has_a_docstring_an_example_and_described_fields(kind):
    assert kind.__doc__
    assert f"op: {kind.__struct_config__.tag}" in kind.example


PAGES = [*sorted(DOCS.glob("*.md")), *sorted(DOCS.parent.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_page_of_commands_has_them_all():
    named = re.findall(r"`([a-z-]+)", (DOCS / "commands.md").read_text())
    assert set(Commands(name="surgery").list_commands(None)) - {*named} == set()
