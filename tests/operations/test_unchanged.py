"""An edit that changes nothing is done, and says so: its result is a copy, which is rarely what was meant."""

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.planning.reading import plan_from_document
from surgery_cli.surgery import plan as preview

PARAMS = {
    "w": np.arange(224, dtype=np.float32).reshape(32, 7),
    "b": np.arange(7, dtype=np.float32),
}
IDLE = {
    "slice": {"slices": ":, 0:7"},
    "resize": {"axis": 0, "size": 32},
    "rescale": {"by": 1},
    "permute": {"axis": 1, "index": [*range(7)]},
    "cast": {"to": "float32"},
    "reshape": {"shape": [32, 7]},
    "transpose": {"axes": [0, 1]},
    "squeeze": {},
    "keep": {"at": "**"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("idle") / "run"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(
            path, {"params": PARAMS, "opt_state": optax.adam(0.1).init(PARAMS), "step": np.int32(3)}
        )
    return path


def previewed(run, *edits):
    return preview(str(run), plan_from_document({"edits": [*edits]}))


def idle(document):
    return [note for note in document.notes if "nothing" in note]


@pytest.mark.parametrize("name", IDLE)
def test_an_edit_that_changes_nothing_says_so_and_tells_of_no_twins(run, name):
    document = previewed(run, {"op": name, "at": "params/w", **IDLE[name]})
    (line,) = document.edits
    assert (document.bytes_written, line.bytes, line.twins) == (0, 0, {})
    (said,) = idle(document)
    assert said.startswith(f"`{name}` changes nothing: ")
    if name != "keep":
        assert "'params/w' is already as it would have it" in said


@pytest.mark.parametrize(
    "edit",
    [
        {"op": "slice", "at": "params/w", "slices": ":, 0:6"},
        {"op": "resize", "at": "params/w", "axis": 0, "size": 33},
        {"op": "rescale", "at": "params/w", "by": 2},
        {"op": "permute", "at": "params/b", "axis": 0, "index": [1, 0, 2, 3, 4, 5, 6]},
        {"op": "cast", "at": "params/w", "to": "bfloat16"},
        {"op": "rename", "at": "params/w", "to": "params/v"},
        {"op": "delete", "at": "step"},
        {"op": "set", "at": "step", "to": 3},
        {"op": "assert", "at": "params/w", "finite": True},
        {"op": "delete", "at": "params/x", "optional": True},
    ],
    ids=lambda edit: edit["op"],
)
def test_no_other_edit_says_that_it_changes_nothing(run, edit):
    assert idle(previewed(run, edit)) == []


def test_it_is_said_which_edit_of_several_changes_nothing(run):
    found = idle(
        previewed(
            run,
            {"op": "rescale", "at": "params/w", "by": 2},
            {"op": "cast", "at": "params", "to": "float32"},
        )
    )
    assert found == ["edit 2, `cast` changes nothing: 2 leaves are already as it would have them"]


def test_edits_that_come_to_nothing_together_say_so(run):
    other = {"op": "rename", "at": "params/w", "to": "params/v"}
    back = {"op": "rename", "at": "params/v", "to": "params/w"}
    turned = {"op": "transpose", "at": "params/w"}
    for edits in ([other, back], [turned, turned]):
        (said,) = idle(previewed(run, *edits))
        assert said.startswith("the edits together change nothing")


@pytest.mark.parametrize(
    ("slices", "said"),
    [
        (":, 0:10", ["`0:10` reaches beyond the 7 places of axis 1 of 'params/w'"]),
        ("-40:, ...", ["`-40:` reaches beyond the 32 places of axis 0 of 'params/w'"]),
        ("5:1:-1, 9::-1", ["`9::-1` reaches beyond the 7 places of axis 1 of 'params/w'"]),
        ("0:33, 0:8", ["`0:33` reaches beyond the 32", "`0:8` reaches beyond the 7"]),
        (":, 0:7", []),
        ("-32:32, -7:", []),
        ("31:-33:-1, 6::-1", []),
    ],
)
def test_a_slice_that_names_places_which_are_not_there_says_so(run, slices, said):
    document = previewed(run, {"op": "slice", "at": "params/w", "slices": slices})
    found = [note for note in document.notes if "reaches beyond" in note]
    assert len(found) == len(said)
    assert all(note.startswith(text) for note, text in zip(found, said, strict=True))
