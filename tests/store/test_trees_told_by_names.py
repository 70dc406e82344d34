"""Without `_METADATA`, the names of arrays alone tell a tree: what is no array cannot be kept there."""

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from surgery_cli.store.open.checkpoint import open_checkpoint

ONE, TWO = np.ones(3, np.float32), np.full(2, 2, np.float32)
TREE = {"params": {"a": {"w": ONE}, "b": {"w": ONE, "c": TWO}}}


@pytest.fixture(params=[True, False], ids=["ocdbt", "leaves"])
def source(request, tmp_path):
    place = tmp_path / "ck"
    with ocp.PyTreeCheckpointer(use_ocdbt=request.param) as checkpointer:
        checkpointer.save(place, TREE)
    (place / "_METADATA").unlink()
    return place


def edited(source, *edits):
    new = source.with_name("new")
    surgery.apply(str(source), str(new), plan_from_document({"edits": list(edits)}))
    return {str(path) for path in open_checkpoint(str(new)).tree}


@pytest.mark.parametrize("at", ["params/a/w", "params/a/*", "params/b/*"])
def test_an_empty_container_is_refused_before_any_work(source, at):
    """It was found missing in what had been written, which "is worth a report"."""
    plan, node = plan_from_document({"edits": [{"op": "delete", "at": at}]}), at[: len("params/a")]
    with pytest.raises(PlanError, match=f"'{node}' would be {{}}") as refused:
        surgery.plan(str(source), plan)
    assert f"name '{node}' itself" in str(refused.value)
    with pytest.raises(PlanError, match=f"'{node}' would be {{}}"):
        surgery.apply(str(source), str(source.with_name("new")), plan)
    assert not source.with_name("new").exists()


def test_whole_nodes_go_and_leaves_beside_others(source):
    gone = [{"op": "delete", "at": "params/a"}, {"op": "delete", "at": "params/b/c"}]
    assert edited(source, *gone) == {"params/b/w"}


def test_a_node_of_which_all_is_moved_away_goes(source):
    moved = {"op": "rename", "at": "params/a/w", "to": "params/b/v"}
    assert edited(source, moved) == {"params/b/c", "params/b/v", "params/b/w"}
