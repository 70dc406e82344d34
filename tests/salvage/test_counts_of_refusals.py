"""A rescue that refuses counts what is whole, what can be filled and what cannot, each once; and says what fills."""

import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.cli.conftest import surgery

__all__ = ["surgery"]

N = 7


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Steps 10 to 30 of a tree and an item beside it; of the newest, data of some leaves and that item are lost."""
    root = tmp_path_factory.mktemp("counted") / "run"
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    with ocp.CheckpointManager(root, options=options) as manager:
        for step in (10, 20, 30):
            tree = {f"w{n}": np.full(5, step + n, np.float32) for n in range(N)}
            state = ocp.args.PyTreeSave(tree)
            about = ocp.args.JsonSave({"epoch": step})
            manager.save(step, args=ocp.args.Composite(state=state, about=about))
    return root


@pytest.fixture
def broken(run, tmp_path):
    """A copy whose leaves stand in folders, so that single ones can be lost."""
    for step in ("10", "20", "30"):
        tree = {f"w{n}": np.full(5, int(step) + n, np.float32) for n in range(N)}
        shutil.copytree(run / step, tmp_path / "run" / step)
        state = tmp_path / "run" / step / "state"
        shutil.rmtree(state)
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
            checkpointer.save(state, tree)
        (state / "_CHECKPOINT_METADATA").unlink()
    newest = tmp_path / "run" / "30"
    for name in ("w0", "w1", "w2", "w3"):
        (newest / "state" / name / "0").write_bytes(b"\1")
    return newest


def test_without_what_fills_two_numbers_say_all(surgery, broken, tmp_path):
    ended = surgery("rescue", broken, tmp_path / "new")
    assert ended.code == 3
    assert "3 of 7 leaves in '" in ended.err
    assert "are whole, and 4 are not" in ended.err.replace("\n", " ")


def test_what_can_be_filled_is_counted_apart_from_what_cannot(surgery, broken, tmp_path):
    """Four of seven are damaged leaves, which the older step fills; beside them is an item that nothing fills."""
    (broken / "about" / "metadata").write_bytes(b"")
    words = ("rescue", broken, tmp_path / "new", "--fill-from", broken.parent)
    ended = surgery(*words)
    said = ended.err.replace("\n", " ")
    assert ended.code == 3
    assert "3 of 7 leaves in '" in said
    assert "are whole, 4 can be filled, and 'about' is lost as a whole" in said
    assert "`--allow-partial` for what is whole or can be filled" in said
    done = surgery(*words, "--allow-partial", "--json")
    assert done.document["written"] == 3 + 4
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new" / "state")
    wanted = {f"w{n}": np.full(5, (20 if n < 4 else 30) + n, np.float32) for n in range(N)}
    for name, values in wanted.items():
        np.testing.assert_array_equal(restored[name], values)
    fills = f"step 20 of '{broken.parent}' fills what is not whole: it is the newest before 30 that can be read"
    assert fills in done.document["notes"]
