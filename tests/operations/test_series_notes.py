"""Of a series that is joined, the preview says what stays, in which order the parts go, and which axes are no kin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.operations.joining import Joining
from surgery_cli.operations.table import operations
from surgery_cli.planning import plan_from_document

JOINING = sorted(name for name, kind in operations().items() if issubclass(kind, Joining))


def notes(source: Path, *edits: dict[str, Any]) -> list[str]:
    preview = surgery.plan(str(source), plan_from_document({"edits": list(edits)}))
    return list(map(str, preview.notes))


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve layers, twelve more whose numbers have two digits, three in a list, and keys with slashes."""
    path = tmp_path_factory.mktemp("layers") / "a"

    def layer() -> dict[str, Any]:
        return {"kernel": np.ones((4, 6), np.float32), "bias": np.ones(6, np.float32)}

    params = {f"layers_{n}": layer() for n in range(12)} | {
        f"pad_{n:02}": layer() for n in range(12)
    }
    params |= {f"enc/h_{n}": layer() for n in range(3)} | {"row": [layer() for _ in range(3)]}
    params |= {
        "a": {f"w_{n}": np.ones(2) for n in range(3)},
        "b": {f"w_{n}": np.ones(2) for n in range(4)},
    }
    ocp.PyTreeCheckpointer().save(path, {"params": params})
    return path


@pytest.mark.parametrize("op", JOINING)
@pytest.mark.parametrize(
    ("at", "to", "stay", "range_"),
    [
        ("params/layers_?", "params/layers", "'params/layers_{10,11}' are", "{0..11}"),
        ("params/layers_?/kernel", "params/w", "'params/layers_{10,11}/kernel' are", "{0..11}"),
        ("params/layers_{0..10}", "params/layers", "'params/layers_11' is", "{0..11}"),
        (
            "params/layers_{10..1}",
            "params/layers",
            "'params/layers_{0,11}' are",
            "{11..0}",
        ),
        ("params/layers_{3,4}", "params/layers", "'params/layers_{0..2,5..11}' are", "{0..11}"),
        ("params/pad_0[0-8]", "params/pad", "'params/pad_{09..11}' are", "{00..11}"),
        ("params/enc%2Fh_[01]", "params/enc", "'params/enc%2Fh_2' is", "{0..2}"),
        ("params/row/{0..1}", "params/all", "'params/row/2' is", "{0..2}"),
        (r"re:params/layers_(\d)/bias", "params/w", "'params/layers_{10,11}/bias' are", ""),
        (r"re:params/layers_(\d)/(kernel)", r"params/\2", "'params/layers_{10,11}/kernel' are", ""),
        ("params/*/w_{0..1}", r"params/\1/w", "'params/a/w_2', 'params/b/w_{2,3}' are", ""),
        ("params/layers_*", "params/layers", "", ""),
        (["params/layers_{0..8}", "params/layers_{9..11}"], "params/layers", "", ""),
        (["params/layers_0/kernel", "params/layers_1/kernel"], "params/w", "", ""),
    ],
)
def test_numbered_siblings_that_a_pattern_leaves_out_are_named(
    op: str, at: Any, to: str, stay: str, range_: str, layers: Path
) -> None:
    edit: dict[str, Any] = {"op": op, "at": at, "to": to, "axis": 0}
    found = [note for note in notes(layers, edit) if "not named by" in note]
    assert len(found) == bool(stay)
    for note in found:
        assert stay in note
        assert (f"`{range_}` would take all" in note) if range_ else "would take" not in note
    if range_:  # what it advises takes all, and nothing is left to say
        again = re.sub(r"(\{[\d.,]+\}|\?|0?\[[-\d]+\])", range_, at, count=1)
        assert not [note for note in notes(layers, {**edit, "at": again}) if "not named" in note]


@pytest.mark.parametrize("op", JOINING)
def test_what_is_excepted_is_left_out_on_purpose(op: str, layers: Path) -> None:
    edit = {
        "op": op,
        "at": "params/layers_*",
        "except": "params/layers_1?",
        "to": "params/x",
        "axis": 0,
    }
    assert not [note for note in notes(layers, edit) if "not named" in note]


@pytest.mark.parametrize("op", JOINING)
@pytest.mark.parametrize(
    ("at", "is_said"),
    [
        ("params/row/{1,0,2}", True),
        ("params/row/{0,1,2}", False),
        ("params/row/{2..0}", False),
        (["params/row/1", "params/row/0", "params/row/2"], False),
    ],
)
def test_an_order_that_braces_only_seem_to_say_is_denied(
    op: str, at: Any, is_said: bool, layers: Path
) -> None:
    found = notes(layers, {"op": op, "at": at, "to": "params/row", "axis": 0})
    said = "its leaves go in the order of their numbers, 0, 1, 2, not in that of the braces"
    assert any(said in note for note in found) == is_said


ALONG = {
    "concat": {"at": ["params/one", "params/two"], "to": "params/both"},
    "split": {"at": "params/one", "to": "params/part_{0..1}"},
    "unstack": {"at": "params/one", "to": "params/part_{0..5}"},
    "repeat": {"at": "params/one", "times": 2},
    "resize": {"at": "params/one", "size": 8},
    "pad": {"at": "params/one", "after": 1},
    "permute": {"at": "params/one", "index": [5, 4, 3, 2, 1, 0]},
}
"""Every operation that is about one axis of all leaves that it names."""


def test_the_table_has_every_operation_along_an_axis() -> None:
    along = {
        name
        for name, kind in operations().items()
        if "along" in vars(kind) and "along" not in vars(Joining)
    }
    assert along == ALONG.keys()


@pytest.mark.parametrize("op", ALONG)
def test_an_axis_that_is_no_kin_of_the_one_beside_it_is_named(op: str, tmp_path: Path) -> None:
    """A bias [out, layers] beside a kernel [in, layers, out], as layers stacked on axis 1 have them."""

    def layer(size: int) -> dict[str, Any]:
        return {"kernel": np.ones((4, size, 6), np.float32), "bias": np.ones((6, size), np.float32)}

    for name, size in (("apart", 12), ("alike", 6)):
        params = {"one": layer(size), "two": layer(size)}
        ocp.PyTreeCheckpointer().save(tmp_path / name, {"params": params})
    edit = {"op": op, **ALONG[op]}
    for axis, kin in ((-1, False), (1, True)):
        if op in ("unstack", "permute"):  # which take one size along the axis alone
            continue
        found = notes(tmp_path / "apart", {**edit, "axis": axis})
        said = [note for note in found if f"`axis: {axis}` holds" in note]
        assert bool(said) != kin
        if said:
            assert "12 places in 'params/one/bias'" in said[0]
            assert "6 places in 'params/one/kernel'" in said[0]
    # where sizes agree by chance, only the plan that stacked them tells
    assert not [note for note in notes(tmp_path / "alike", {**edit, "axis": -1}) if "holds" in note]
    parts = [
        {"op": "unstack", "at": f"params/{n}", "axis": 1, "to": f"params/{n}_{{0..5}}"}
        for n in ("one", "two")
    ]
    stacks = [
        {"op": "stack", "at": f"params/{n}_{{0..5}}", "axis": 1, "to": f"params/{n}"}
        for n in ("one", "two")
    ]
    found = notes(tmp_path / "alike", *parts, *stacks, {**edit, "axis": -1})
    assert any("holds 6 stacked layers in 'params/one/bias'" in note for note in found)
