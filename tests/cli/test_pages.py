"""Pages for a browser: `--html FILE`. What is drawn is looked at in `tests/browser`."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import orbax.checkpoint as ocp
import pytest

KERNELS = "params/**/kernel"
NAMES = [
    "</script><script>alert(1)</script>",
    "<!--",
    "\"quoted\" & 'single'",
    "🧠",
    "שלום",
    "a\u202eb",
    "`code`",
    "new\nline",
]
EMPTY = {"meta", "col"}


class Page(HTMLParser):
    """A page as a browser reads it: elements that close, the text outside of scripts, the document in it."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words, self.data = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if attributes.get("id") == "document":
            self.data += data
        elif tag not in {"script", "style"}:
            self.words.append(data)

    @property
    def document(self):
        return json.loads(self.data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


@pytest.fixture
def page(surgery, tmp_path):
    """Runs a command with `--html`; gives its result and the page."""

    def run(*words):
        file = tmp_path / "page.html"
        result = surgery(*words, "--html", file)
        return result, Page(file.read_text("utf-8"))

    return run


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    place = tmp_path_factory.mktemp("strange") / "source"
    tree = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(NAMES)}
    tree["bad"] = np.array([1, np.nan, np.inf], np.float32)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(place, {"params": tree})
    return place


def words_of(command, checkpoint, tmp_path):
    """A command line with what it reads beside the checkpoint."""
    plan, policy = tmp_path / "plan.yaml", tmp_path / "policy.yaml"
    plan.write_text(f"edits:\n- {{op: rescale, at: '{KERNELS}', by: 0.5}}\n")
    policy.write_text("- {id: small, norm: '..0.1', at: 'params/**'}\n")
    return {
        "inspect": ["inspect", checkpoint, "--stats", "--optimizer"],
        "diff": ["diff", f"{checkpoint}@250", f"{checkpoint}@500"],
        "plan": ["plan", checkpoint, plan],
        "rescale": ["rescale", checkpoint, tmp_path / "new", KERNELS, "--by", "0.5", "--dry-run"],
        "verify": ["verify", checkpoint],
        "check": ["check", checkpoint, policy],
    }[command]


def without_times(document):
    return {name: value for name, value in document.items() if name != "seconds"}


@pytest.mark.parametrize("command", ["inspect", "diff", "plan", "rescale", "verify", "check"])
def test_a_page_holds_the_document_of_json_and_asks_no_network(
    page, surgery, checkpoint, tmp_path, command
):
    words = words_of(command, checkpoint, tmp_path)
    shown = surgery(*words)
    document = surgery(*words, "--json").document

    result, found = page(*words)

    assert (result.code, result.err) == (shown.code, shown.err)
    assert without_times(found.document) == without_times(document)
    assert "surgery " + command in found.text
    for _, attributes in found.elements:
        assert not {"src", "href", "style", "srcset"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
    policy = next(a["content"] for _, a in found.elements if "content-security" in str(a).lower())
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("diff", "26 leaves differ; 2 leaves equal in structure and values"),
        ("verify", "0 leaves checked, 28 of 28 leaves have no digest: nothing was found wrong"),
        ("check", "broken: 1 rule, 1 error;"),
    ],
)
def test_the_verdict_stands_on_top_in_the_words_of_the_text(
    page, checkpoint, tmp_path, command, said
):
    result, found = page(*words_of(command, checkpoint, tmp_path))

    assert said in " ".join(result.out.split())
    assert found.text.index(said) == len(f"surgery {command} surgery {command} ")


def test_what_was_written_is_verified_on_its_page(page, checkpoint, tmp_path):
    result, found = page("rescale", checkpoint, tmp_path / "new", KERNELS, "--by", "0.5")

    assert (result.code, found.document["verified"]) == (0, True)
    assert "verified: the tree is as planned, 12 leaves read back" in found.text
    assert "twins: 8 transform (scaled to match, taken for Adam's family)" in found.text
    assert {leaf.get("twin_of") for leaf in found.document["leaves"]} > {None}


def test_names_of_strangers_are_text_and_nothing_else(page, strange):
    result, found = page("inspect", strange, "--stats")

    assert result.code == 0
    paths = sorted([*(f"params/{name}" for name in NAMES), "params/bad"])
    shown = [path.replace("\u202e", "%E2%80%AE").replace("\n", "%0A") for path in paths]
    assert [leaf["path"] for leaf in found.document["leaves"]] == shown
    assert sum(tag == "script" for tag, _ in found.elements) == 2
    assert "</script><script>alert(1)</script>/" not in found.data
    assert "שלום" in found.text
    assert "a%E2%80%AEb" in found.text
    bad = next(leaf for leaf in found.document["leaves"] if leaf["path"] == "params/bad")
    assert (bad["statistics"]["non_finite"], bad["bad"]) == (2, ["1 NaN", "1 infinity"])


def test_what_is_bad_stands_on_top(page, strange):
    result, found = page("inspect", strange, "--only", "bad")
    assert "bad: 2 of 9 leaves" in result.out
    assert found.text.startswith("surgery inspect surgery inspect bad: 2 of 9 leaves")


def test_without_a_script_a_page_still_says_it_all_folded(page, strange):
    _, found = page("inspect", strange)
    assert "9 leaves" in found.text
    assert "float32[2,3]" in found.text
    assert "needs JavaScript" in found.text


def test_a_failure_has_a_page_too(page, checkpoint, tmp_path):
    result, found = page("rescale", checkpoint, tmp_path / "new", "params/none", "--by", "0.5")

    assert result.code == 2
    assert found.text.startswith("surgery rescale surgery rescale error: ")
    assert [problem["what"] for problem in found.document["problems"]] == [
        result.err.splitlines()[0].removeprefix("error: ")
    ]


def test_a_page_has_a_place_of_its_own_before_any_work(surgery, own_checkpoint, tmp_path):
    new, plan = tmp_path / "new", tmp_path / "plan.yaml"
    plan.write_text(f"edits:\n- {{op: rescale, at: '{KERNELS}', by: 0.5}}\n")
    before = sorted(tmp_path.rglob("*"))
    for file, said in [
        (own_checkpoint / "page.html", "would stand inside"),
        (new / "page.html", "cannot be made"),
        (new, f"'{new}' is '{new}'"),
        (plan, f"'{plan}' is '{plan}'"),
        (tmp_path / "no" / "page.html", "cannot be made"),
        ("gs://bucket/page.html", "is in a bucket"),
    ]:
        result = surgery("apply", own_checkpoint, new, plan, "--html", file)
        assert (result.code, said in result.err) == (2, True), (file, result.err)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_checkpoint_that_is_a_file_is_not_overwritten_by_a_page(surgery, tmp_path):
    np.savez(tmp_path / "model.npz", w=np.ones(3, np.float32))
    before = (tmp_path / "model.npz").read_bytes()
    result = surgery("verify", tmp_path / "model.npz", "--output", f"json={tmp_path}/model.npz")
    assert (result.code, "model.npz' is '" in result.err) == (2, True), result.err
    assert (tmp_path / "model.npz").read_bytes() == before


def test_two_formats_are_two_files(surgery, checkpoint, tmp_path):
    file = tmp_path / "x"
    result = surgery("verify", checkpoint, "--output", f"json={file}", "--html", file)
    assert (result.code, "to be json and html" in result.err) == (2, True)


def test_output_knows_the_format_by_its_name(surgery, checkpoint, tmp_path):
    a, b = tmp_path / "a.html", tmp_path / "b.html"
    surgery("verify", checkpoint, "--output", f"html={a}", "--html", b)
    assert Page(a.read_text()).document == Page(b.read_text()).document


def test_a_page_that_cannot_be_written_undoes_nothing_and_says_so(surgery, checkpoint, tmp_path):
    words = ["rescale", checkpoint, tmp_path / "new", KERNELS, "--by", "0.5"]
    result = surgery(*words, "--html", "/dev/full")
    assert (result.code, "verified" in result.out) == (4, True)
    assert "only this file is missing" in result.err
    assert surgery("verify", tmp_path / "new").code == 0


def test_an_inverse_plan_has_no_page(surgery, checkpoint, tmp_path):
    result = surgery("plan", checkpoint, "--inverse", "--html", tmp_path / "page.html")
    assert (result.code, "a plan is no page" in result.err) == (2, True)


def test_nothing_of_it_is_loaded_without_being_asked_for(checkpoint):
    code = (
        "import sys\nfrom surgery_cli.cli.main import run\n"
        "try:\n    run(['inspect', sys.argv[1]])\n"
        "except SystemExit:\n    print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, checkpoint], check=True, capture_output=True, text=True
    )
    assert not re.search(r"formats\.html|html_page|surgery_cli\.library", ended.stderr)
