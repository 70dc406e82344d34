"""Every path that a command prints can be given back as a pattern, and names just that leaf, whatever its keys hold."""

import html
import json
import re

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy

import surgery_cli

KEYS = (
    *("plain", "a/b", "e//dge", "x%2Fy", "100%25", "50%", "%1B", "%C2%85", "$%{", "a%20b"),
    *("*", "**", "w?", "[0]", "]", "[!a]", "{a,b}", "{0..3}", "${x}", "{,}", "\\1", "q'uote"),
    *("", "sp ace", " lead", "end ", " ", ".hidden", "-dash", "re:x", "\u6838"),
    *("\x1b[31mred", "line\nbreak", "\r::error::no", "bidi\u202eabc", "\u2028\x85", "%\x07"),
)
SIZES = {key: size for size, key in enumerate(KEYS, 1)}
"""Each leaf has a size of its own, by which it is known whatever it is called."""


def tree(value, more=0, keys=KEYS):
    params = {key: np.full(SIZES[key] + more, value, np.float32) for key in keys}
    params["n"] = [np.full(101 + more, value, np.float32), np.full(102 + more, value, np.float32)]
    return {
        "params": params,
        "opt_state": optax.adam(1).init(params),
        "re:root": np.full(103 + more, value, np.float32),
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A checkpoint, one of other values, one of other shapes, one that lacks every second leaf, and policies."""
    place = tmp_path_factory.mktemp("odd")
    trees = {"one": tree(1), "two": tree(2), "three": tree(1, 1), "less": tree(1, keys=KEYS[::2])}
    for name, wanted in trees.items():
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(place / name, wanted)
    rules = {
        "dtype": {"dtype": "bool"},
        "equal": {"equal_in": "two"},
        "lacking": {"equal_in": "one"},
        "structure": {"same_structure_as": "less"},
        "norm": {"norm": "..0.1"},
    }
    for name, rule in rules.items():
        (place / f"{name}.json").write_text(json.dumps([{"id": "rule", **rule}]))
    return place


COMMANDS = {
    "inspect": ["inspect", "one"],
    "inspect depth": ["inspect", "one", "--depth", "2"],
    "inspect stats": ["inspect", "one", "--stats"],
    "inspect digests": ["inspect", "one", "--digests"],
    "inspect optimizer": ["inspect", "one", "--optimizer"],
    "inspect pattern": ["inspect", "one", "params/nothing"],
    "diff values": ["diff", "one", "two"],
    "diff shapes": ["diff", "one", "three"],
    "diff lacking": ["diff", "less", "one"],
    "diff equal": ["diff", "one", "one"],
    "verify": ["verify", "one"],
    "verify shapes": ["verify", "one", "--like", "three"],
    "verify lacking": ["verify", "one", "--like", "less"],
    "verify manifest": ["verify", "two", "--like-manifest", "one.digests"],
    "verify lacking manifest": ["verify", "less", "--like-manifest", "one.digests"],
    "check dtype": ["check", "one", "dtype.json"],
    "check equal": ["check", "one", "equal.json"],
    "check lacking": ["check", "less", "lacking.json"],
    "check structure": ["check", "one", "structure.json"],
    "check norm": ["check", "one", "norm.json"],
    "rescale": ["rescale", "one", "NEW", "params", "--by", "2"],
    "rescale to zero": ["rescale", "one", "NEW", "opt_state/0/nu", "--by=-1"],
    "ambiguous": ["rescale", "one", "NEW", "**/plain", "--by", "2"],
    "delete": ["delete", "one", "NEW", "params"],
    "cast": ["cast", "one", "NEW", "params", "--to", "bfloat16"],
    "replace": ["replace", "one", "NEW", "params", "--with", "three"],
    "replace lacking": ["replace", "one", "NEW", "params", "--with", "less"],
    "average": ["average", "one", "NEW", "params", "--with", "less"],
    "export": ["export", "one", "NEW", "opt_state", "params", "--to", "msgpack"],
}
PATTERNS = {"params/nothing", "params/**", "opt_state/**"}
NODES = {
    "params/n",
    "params/n/",
    "opt_state/0/",
    "params",
    "opt_state",
    "opt_state/0",
    "opt_state/0/mu",
    "opt_state/0/nu",
}
OTHERS = {"spelling", "spellings", "containers", "digests", "summary"}
"""Fields of documents that hold keys as they are, what is looked up by these, or what an edit does."""


@pytest.fixture(scope="module")
def names(place):
    """What `inspect --json` calls the leaves, each with its size in elements, and the digests of all of them."""
    found = surgery_cli.inspect(place / "one", digests=True).to_dict()
    (place / "one.digests").write_text(json.dumps(found))
    return {leaf["path"]: tuple(leaf["shape"]) for leaf in found["leaves"]}


def test_each_path_names_just_its_leaf(surgery, place, names, monkeypatch):
    monkeypatch.chdir(place)
    sizes = {(size,) for size in (*SIZES.values(), 101, 102, 103)}
    params = {name: shape for name, shape in names.items() if not name.startswith("opt_state")}
    assert set(params.values()) == sizes
    for name, shape in params.items():
        (leaf,) = surgery("inspect", "one", "--json", "--", name).document["leaves"]
        assert (leaf["path"], tuple(leaf["shape"])) == (name, shape)
        document = surgery("diff", "one", "two", "--json", "--", name).document
        assert [one["path"] for one in document["changed"]] == [name]
        words = ["rescale", "one", "NEW", "--by", "2", "--optimizer", "keep", "--dry-run", "--json"]
        (leaf,) = surgery(*words, "--", name).document["leaves"]
        assert (leaf["path"], leaf["from"]) == (name, name)
        assert leaf["after"] == f"float32[{shape[0]}]"


def texts_in(document):
    """Every text in a document, but for those that are no paths."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, list):
        for one in document:
            yield from texts_in(one)
    elif isinstance(document, dict):
        for field, value in document.items():
            yield from () if field in OTHERS else texts_in(value)


ROOTS = r"(?:params|opt_state|re:root|\[r\]e:root)"
QUOTED = re.compile(rf"['`]({ROOTS}.*?)['`](?=[\s,.:;)]|$)", re.MULTILINE)
AT_START = re.compile(rf"^\s*({ROOTS}\S*?(?: \S+?)*?)(?=  |: [a-z]+(?:  |$)|$)", re.MULTILINE)
OF = re.compile(rf"\bof ({ROOTS}/\S*(?: \S+)*)", re.MULTILINE)


def paths_in(text):
    """The paths that a text holds: quoted, as the first column of a row, or as that of which a leaf is the twin."""
    for one in (QUOTED, AT_START, OF):
        yield from (found[1] for found in one.finditer(text))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_calls_a_leaf_the_same(surgery, place, names, monkeypatch, command, form):
    monkeypatch.chdir(place)
    words = list(COMMANDS[command])
    if "NEW" in words:
        words.append("--dry-run")
    ended = surgery(*words, *(["--json"] if form == "json" else []))
    assert ended.code in (0, 1, 2), ended.err
    said = "\n".join(texts_in(ended.document)) if form == "json" else ended.out + ended.err
    found = set(paths_in(said))
    assert found or form == "text"  # sums alone
    assert found - set(names) <= NODES | PATTERNS
    assert not re.search(r"\\x1b|\\r|\\u202e", said)


@pytest.mark.parametrize("form", ["junit", "markdown", "github", "html"])
def test_every_format_calls_a_leaf_the_same(surgery, place, names, monkeypatch, tmp_path, form):
    monkeypatch.chdir(place)
    surgery("diff", "one", "two", "--output", f"{form}={tmp_path / form}")
    said = html.unescape((tmp_path / form).read_text())
    if form == "github":
        said = re.sub("%([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), said)
    wanted = [name for name in names if name.startswith("params/")]
    shown = [name for name in wanted if json.dumps(name)[1:-1] in said or name in said]
    # a runner takes ten annotations of a step
    assert shown == wanted if form != "github" else len(shown) > 5
    if form != "html":  # a script is in it
        assert not re.search(r"\\x1b|\\r:|\\u202e", said)


def test_a_record_and_what_undoes_it_name_the_leaves(surgery, place, names, tmp_path):
    new, plan, old = (tmp_path / name for name in ("new", "plan.json", "old"))
    edits = [
        {"op": "rescale", "at": "params", "by": 2},
        {"op": "rename", "at": "params/[*]", "to": "params/new%0A"},
    ]
    plan.write_text(json.dumps({"edits": edits}))
    assert surgery("apply", place / "one", new, plan).code == 0
    record = json.loads((new / "surgery.json").read_text())
    paths = {leaf["path"] for leaf in record["leaves"] if leaf["path"].startswith("params")}
    wanted = {name for name in names if name.startswith("params/") and name != "params/[*]"}
    assert paths == wanted | {"params/new%0A"}
    surgery("log", new)
    undone = surgery("plan", new, "--inverse", "--json").document["plan"]
    plan.write_text(json.dumps(undone))
    assert surgery("apply", new, old, plan).code == 0
    assert surgery("diff", place / "one", old).code == 0


@pytest.mark.parametrize(("form", "separator"), [("npz", "/"), ("safetensors", ".")])
def test_files_of_other_programs_have_the_keys_as_they_are(
    surgery, place, tmp_path, form, separator
):
    file = tmp_path / f"new.{form}"
    ended = surgery("export", place / "one", file, "params", "--to", form)
    assert ended.code == 0, ended.err
    if form == "npz":
        with np.load(file) as members:
            read = dict(members)
    else:
        read = safetensors.numpy.load_file(file)
    wanted = {f"params{separator}{key}": SIZES[key] for key in KEYS}
    found = {name: len(read[name]) for name in read if f"params{separator}n{separator}" not in name}
    assert found == wanted
