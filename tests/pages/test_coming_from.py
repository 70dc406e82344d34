"""Every row of the page for those who come from another tool gives what that tool gives."""

import copy
import re

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import read_plan
from tests.pages.recipes import BLOCK, REPOSITORY
from tests.pages.tools import (
    ARRAY,
    FRESH,
    OLD,
    OTHER,
    ROUNDED,
    TOOLS,
    WITHOUT_OPTIMIZER,
    expected,
    flattened,
    nested,
)

PAGE = REPOSITORY / "docs" / "coming-from.md"
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.+?) \| (`.+`) \|$", re.MULTILINE)


def rows():
    """The plan entries of each row, by tool and feature."""
    return {
        (tool.replace("`", ""), feature): re.findall("`(.+?)`(?:<br>|$)", cell)
        for tool, text in SECTION.findall(PAGE.read_text())
        for feature, cell in ROW.findall(text)
    }


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    """The checkpoints that the rows speak of, with moments of Adam, and the page's file of functions."""
    folder = tmp_path_factory.mktemp("coming")
    with ocp.StandardCheckpointer() as checkpointer:
        for name, flat in {"old": OLD, "other": OTHER, "fresh": FRESH}.items():
            params = nested(flat)
            moment = nested({path: np.square(leaf) + 1 for path, leaf in flat.items()})
            adam = optax.ScaleByAdamState(np.int32(7), moment, copy.deepcopy(moment))
            checkpointer.save(folder / name, {"params": params, "opt_state": (adam,)})
    (functions,) = (text for language, text in BLOCK.findall(PAGE.read_text()))
    (folder / "edits.py").write_text(functions)
    np.save(folder / "array.npy", ARRAY)
    return folder


@pytest.mark.sampled(24)
@pytest.mark.parametrize("row", rows(), ids=" ".join)
def test_a_row_gives_what_the_tool_gives(row, kitchen, tmp_path, monkeypatch):
    monkeypatch.chdir(kitchen)
    lines = ["sources: {other: other, fresh: fresh}", "edits:"]
    (kitchen / "row.yaml").write_text("\n  - ".join(["\n".join(lines), *rows()[row]]))
    surgery.apply("old", str(tmp_path / "new"), read_plan("row.yaml"))
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")

    params = flattened(found["params"])
    wanted = expected(row, params)
    assert params.keys() == wanted.keys()
    for path, leaf in wanted.items():
        assert params[path].dtype == leaf.dtype
        tolerance = 0 if leaf.dtype != np.float32 or row not in ROUNDED else 2e-6
        np.testing.assert_allclose(params[path], leaf, rtol=0, atol=tolerance, err_msg=path)
    if row not in WITHOUT_OPTIMIZER:
        for moment in ("mu", "nu"):
            slots = flattened(found["opt_state"][0][moment])
            assert {p: s.shape for p, s in slots.items()} == {p: s.shape for p, s in wanted.items()}


def test_the_page_has_the_rows_that_are_judged():
    assert list(TOOLS) == list(rows())
