"""Names come from strangers: in no form of a result does one reach a terminal, a log or a page as it is."""

import re

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.console.formats.table import FORMATS

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
    if form != "json":
        assert not RAW.search(seen)
        assert "\nbreak" not in seen
        assert "%0Abreak" not in seen
        assert "&#10;break" not in seen
        assert "<br>break" not in seen
