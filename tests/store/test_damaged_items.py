"""What is damaged beside the item, or the step, that was asked for does not stand in its way, and is named."""

import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of
from surgery_cli.store.locate.location import locate
from surgery_cli.surgery import Options

STATE = {"w": np.arange(6, dtype=np.float32)}
EMA = {"e": np.random.default_rng(0).normal(size=900)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps, each with two trees."""
    root = tmp_path_factory.mktemp("run") / "root"
    with ocp.CheckpointManager(root) as manager:
        for step in (1, 2):
            items = {"state": STATE, "ema": EMA}
            args = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
            manager.save(step, args=ocp.args.Composite(**args))
    return root


@pytest.fixture
def root(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "root"))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


DAMAGES = {
    "metadata cut": lambda item: (item / "_METADATA").write_bytes(b'{"tree'),
    "no manifest": lambda item: (item / "manifest.ocdbt").unlink(),
    "no data": lambda item: shutil.rmtree(item / "ocdbt.process_0"),
    "empty": lambda item: [file.write_bytes(b"") for file in item.rglob("d/*")],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", ["root", "step"])
def test_an_item_is_edited_beside_a_damaged_one(
    root: Path, tmp_path: Path, damage: str, place: str
) -> None:
    DAMAGES[damage](root / "2" / "ema")
    before = contents(root / "2" / "ema")
    source = root if place == "root" else root / "2"
    with pytest.raises(CheckpointError, match="ema") as caught:
        surgery.inspect(str(source))
    assert "`--item state`" in caught.value.problems[0].fix
    edit = plan_of([Rescale(at="w", by=2.0)])
    report = surgery.apply(str(source), str(tmp_path / "y"), edit, options=Options(item="state"))
    assert any("the item 'ema' cannot be read" in note for note in report.notes)
    step = tmp_path / "y" / ("2" if place == "root" else "")
    assert contents(step / "ema") == before
    with ocp.StandardCheckpointer() as checkpointer:
        np.testing.assert_array_equal(checkpointer.restore(step / "state")["w"], 2 * STATE["w"])


def test_an_item_is_edited_beside_one_that_was_never_finished(root: Path, tmp_path: Path) -> None:
    (root / "2" / "ema").rename(root / "2" / "ema.orbax-checkpoint-tmp")
    with pytest.raises(CheckpointError, match="unfinished save") as caught:
        surgery.inspect(str(root / "2"))
    assert "`--item state`" in caught.value.problems[0].fix
    assert "unfinished: 'ema.orb" in surgery.inspect(str(root / "2"), item="state").chosen
    edit = plan_of([Rescale(at="w", by=2.0)])
    surgery.apply(str(root / "2"), str(tmp_path / "y"), edit, options=Options(item="state"))
    assert (tmp_path / "y" / "ema.orbax-checkpoint-tmp" / "_METADATA").is_file()


def test_an_older_step_that_cannot_be_read_does_not_stand_in_the_way(root: Path) -> None:
    shutil.rmtree(root / "1")
    (root / "1").symlink_to(root / "gone")
    assert locate(str(root)).step == 2
    assert "cannot be read: '1'" in locate(str(root)).chosen
    assert len(surgery.inspect(f"{root}@2").leaves) == 2
    with pytest.raises(CheckpointError, match="step 1") as caught:
        locate(str(root), step=1)
    assert "steps that can be read: 2" in caught.value.problems[0].fix


def test_the_newest_step_is_never_passed_over_in_silence(root: Path) -> None:
    shutil.rmtree(root / "2")
    (root / "2").symlink_to(root / "gone")
    with pytest.raises(CheckpointError, match="step 2") as caught:
        locate(str(root))
    assert "steps that can be read: 1" in caught.value.problems[0].fix
    assert locate(str(root), step=1).step == 1


def test_older_steps_may_be_damaged_in_any_way(root: Path) -> None:
    (root / "1" / "_CHECKPOINT_METADATA").write_bytes(b"\xff")
    for file in (root / "1" / "state").iterdir():
        if file.is_file():
            file.write_bytes(b"")
    assert locate(str(root)).step == 2
    assert len(surgery.inspect(str(root)).leaves) == 2


def test_a_damaged_file_of_an_item_that_is_no_tree_is_named_before_it_comes_along(
    tmp_path: Path,
) -> None:
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        args = {"state": ocp.args.StandardSave(STATE), "extra": ocp.args.JsonSave({"lr": 0.1})}
        manager.save(1, args=ocp.args.Composite(**args))
    plan = plan_of([Rescale(at="w", by=2.0)])
    assert not surgery.plan(str(tmp_path / "run"), plan).notes
    (tmp_path / "run" / "1" / "extra" / "metadata").write_text("{")

    notes = surgery.plan(str(tmp_path / "run"), plan).notes

    assert [note for note in notes if note.startswith("`extra/metadata` is damaged (not JSON")]


def test_what_a_difference_does_not_compare_is_said(root: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    (other / "2" / "notes").mkdir()
    found = surgery.diff(str(root), str(other), item="state")
    assert found.not_compared == ["ema"]
    assert surgery.diff(str(root), str(other), ["w"], item="state").not_compared == []
