"""Every note is one line that ends in the page of the documentation that explains it."""

import copy
import io
import json
import pickle
import re
import shutil
from pathlib import Path

import pytest

from surgery_cli.console.page import Page
from surgery_cli.words.advice import FieldName
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.pages import DocsPage

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES, SOURCES = REPOSITORY / "sample_checkpoints", REPOSITORY / "surgery_cli"
FLAT, ROOT = SAMPLES / "digits_standard", SAMPLES / "digits_manager"
KERNEL = "params/Dense_1/kernel"


def anchors(page):
    """The anchors that GitHub and the site give to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DocsPage, ids=lambda page: page.name)
def test_the_page_of_a_note_is_there_with_its_heading(page):
    file, _, anchor = page.partition("#")
    assert not anchor or anchor in anchors(REPOSITORY / file)
    assert (REPOSITORY / file).is_file()


def test_every_page_is_named_by_some_note():
    sources = "".join(file.read_text() for file in SOURCES.rglob("*.py"))
    named = set(re.findall(r"\bDocsPage\.([A-Z_]+)", sources))
    assert named == {page.name for page in DocsPage}


def inspect_root(place):
    return ("inspect", ROOT)


def preview(place):
    return ("average", ROOT, place / "new", "params", "--steps", "250..500", "--dry-run")


def removal(place):
    return ("extract-item", FLAT, place / "a" / "new", "params")


def leaves_of_a_donor(place):
    return ("replace", ROOT, place / "new", KERNEL, "--with", f"{ROOT}@250")


def verdict(place):
    return ("verify", FLAT)


def sealed_damage(place):
    shutil.copytree(FLAT, place / "damaged")
    (place / "damaged" / "_sharding").write_bytes(b"{")
    return ("seal", place / "damaged")


def leftover_of_nobody(place):
    (place / ".new.surgery-tmp-0123abcd").mkdir()
    return ("clean", place / "new")


def broken(place):
    shutil.copytree(FLAT, place / "broken")
    (place / "broken" / "_METADATA").unlink()
    return ("rescue", place / "broken")


CASES = [
    inspect_root,
    preview,
    removal,
    leaves_of_a_donor,
    verdict,
    sealed_damage,
    leftover_of_nobody,
    broken,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_note_of_a_command_ends_in_its_page_and_json_has_the_pages_beside(
    surgery, tmp_path, case
):
    words = case(tmp_path)
    printed = surgery(*words)
    shutil.rmtree(tmp_path / "a", ignore_errors=True)
    shutil.rmtree(tmp_path / "new", ignore_errors=True)
    document = surgery(*words, "--json").document
    notes, pages = document["notes"], document["note_pages"]
    assert notes
    assert len(notes) == len(pages)
    assert {*pages} <= {*DocsPage}
    lines = [line.strip() for line in printed.out.splitlines()]
    expected = [f"note: {note} [{page}]" for note, page in zip(notes, pages, strict=True)]
    assert [line for line in lines if line.startswith("note: ")] == list(dict.fromkeys(expected))


def test_a_note_in_other_words_keeps_its_kind_and_page():
    note = Consequence(DocsPage.MEMORY, "say ", FieldName("seed"))
    for other in (note.saying("say --seed"), copy.deepcopy(note), pickle.loads(pickle.dumps(note))):
        assert (type(other), other.page) == (Consequence, DocsPage.MEMORY)
    assert pickle.loads(pickle.dumps(note)).parts == note.parts
    assert json.dumps(note) == '"say `seed`"'


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_note_is_one_line_in_any_locale_and_said_once(encoding):
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    notes = [Remark(DocsPage.MEMORY, "two\nlines"), Remark(DocsPage.MEMORY, "two\nlines")]
    Page(stream).notes(notes, indent=2)
    stream.flush()
    assert buffer.getvalue() == b"  note: two\\nlines [docs/how-it-writes.md#memory]\n"


def test_the_remark_of_an_edit_is_said_with_the_leaves_that_it_names(surgery, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "edits:\n"
        "  - {op: rename, at: 'params/Dense_*/bias', to: 'params/Dense_\\1/b', note: 'called so by us'}\n"
        "  - {op: delete, at: params/none, optional: true, note: not there}\n"
        "  - {op: cast, at: params/Dense_0, to: float32, note: 'changes nothing'}\n"
    )
    words = ("apply", FLAT, tmp_path / "new", plan, "--dry-run")
    said = surgery(*words, "--json").document
    assert said["notes"][:2] == [
        "called so by us: 'params/Dense_{0,1}/bias'",
        "changes nothing: 'params/Dense_0/b', 'params/Dense_0/kernel'",
    ]
    assert said["consequences"] == [
        "edit 3, `cast` changes nothing: 2 leaves are already as it would have them"
    ]
    text = surgery(*words).out
    assert "note: called so by us: 'params/Dense_{0,1}/bias' [docs/operations.md#fields" in text
    assert "not there" not in text
