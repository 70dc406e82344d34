"""Names come from strangers: in no form of a result does one reach a terminal, a log or a page as it is."""

import re

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.console.formats.table import FORMATS
from surgery_cli.surgery import complete_path
from surgery_cli.tree.paths import LeafPath, PathPattern

KEYS = {
    "\x1b[31mred": r"\x1b[31mred",
    "bidi\u202eabc": r"bidi\u202eabc",
    "line\nbreak": r"line\nbreak",
    "\r::error::no": r"\r::error::no",
    "bell\x07": r"bell\x07",
    "\u2028next\x85": r"\u2028next\x85",
}
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202f\u2066-\u2069]")
COMMANDS = {
    "diff": ["diff", "one", "two"],
    "verify": ["verify", "one", "--like", "three"],
    "check": ["check", "one", "policy.yaml"],
    "refused": ["check", "one", "wrong.yaml"],
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Checkpoints whose keys all are hostile, of other values and of other shapes, and policies that all break."""
    place = tmp_path_factory.mktemp("hostile")
    for name, value in {"one": np.ones(3), "two": np.zeros(3), "three": np.ones(4)}.items():
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(place / name, {"params": dict.fromkeys(KEYS, value)})
    rules = "".join(
        f'- {{id: "{shown}", at: "re:params/.*", dtype: bool, message: "{shown}"}}\n'
        for shown in KEYS.values()
    )
    (place / "policy.yaml").write_text(f"- {{id: all, dtype: bool}}\n{rules}")
    (place / "wrong.yaml").write_text(f"{rules}- {{id: a, dtype: bool, at: nowhere}}\n")
    return place


@pytest.mark.parametrize("form", [*FORMATS, "text"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_form_of_a_result_holds_a_name_as_it_is(
    surgery, hostile, monkeypatch, tmp_path, command, form
):
    monkeypatch.chdir(hostile)
    file = tmp_path / "result"
    wanted = [] if form == "text" else ["--output", f"{form}={file}"]
    ended = surgery(*COMMANDS[command], *wanted)
    assert ended.code in (1, 2)
    said = ended.out + ended.err + (file.read_text() if file.exists() else "")
    assert "red" in said
    data = r'<script type="application/json"[^>]*>.*?</script>|<(script|style).*?</\1>'
    seen = re.sub(data, "", said, flags=re.DOTALL)  # a page's script escapes what it draws
    if form == "github":
        assert "%0Abreak" not in file.read_text()  # a runner makes it a line of its own
    if form != "json":
        assert not RAW.search(seen)
        assert "\nbreak" not in seen
        assert "&#10;break" not in seen
        assert "<br>break" not in seen


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A checkpoint whose keys hold wildcards, slashes, variables and what cannot be typed."""
    place = tmp_path_factory.mktemp("odd") / "checkpoint"
    keys = [*KEYS, "*", "{a,b}", "${x}", "[0-9]", "a/b", "100%25", "50%", "x%2Fy", "sp ace", "w?"]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place, {"params": dict.fromkeys(keys, np.ones(3))})
    return place, [LeafPath(("params", key)) for key in keys]


def test_what_the_shell_completes_names_exactly_the_leaf(odd):
    place, leaves = odd
    offered = complete_path(str(place), "params/")
    assert len(offered) == len(leaves)
    texts = {leaf: leaf.text for leaf in leaves}
    named = [list(PathPattern(text).named(texts)) for text in offered]
    assert sorted(found for (found,) in named) == sorted(leaves)
    assert all(text.isprintable() and "${" not in text for text in offered)


def test_the_nearest_paths_of_advice_name_a_leaf_when_they_are_typed(surgery, odd):
    place, leaves = odd
    texts = {leaf: leaf.text for leaf in leaves}
    for leaf in leaves:
        mistyped = str(leaf) + "x"
        fix = surgery("inspect", place, mistyped, "--json").document["problems"][0]["fix"]
        for text in re.findall(r"'(params/[^']+)'", fix):
            assert len(PathPattern(text).named(texts)) == 1
