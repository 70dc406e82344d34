"""Whatever strikes a run, the destination is absent or whole, and the source is as it was."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.engine.progress import Progress
from surgery_cli.errors import (
    CheckpointError,
    DestinationError,
    PlanError,
    SurgeryError,
    ValueRefusal,
    WriteError,
)
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.write.item import PytreeWriter
from surgery_cli.tree.paths import LeafPath
from tests.source_trees import everything_of

VALUES = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
TREE = {"w": VALUES, "layers": {str(n): np.full(4, n, np.float32) for n in range(3)}}
RESCALE = plan_of([operation_from_options("rescale", {"at": "w", "by": "2"})])
HERE = Path(__file__).parent


def _save(path: Path, *, ocdbt: bool) -> Path:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(TREE))
    return path


@pytest.fixture(params=[True, False], ids=["ocdbt", "leaves"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return _save(tmp_path / "source", ocdbt=request.param)


def _is_whole(path: Path) -> bool:
    """Whether Orbax restores the edited leaf and every other one."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(path)
    others = {name: values.tolist() for name, values in restored["layers"].items()}
    return np.array_equal(restored["w"], VALUES * np.float32(2)) and others == {
        name: values.tolist() for name, values in TREE["layers"].items()
    }


def _with_small_files(source: Path, destination: Path) -> subprocess.CompletedProcess[str]:
    """A run in which no file may become larger than 2 KiB; the bytecode that others use would be cut off, too."""
    words = ["-m", "surgery_cli", "rescale", str(source), str(destination), "w", "--by", "2"]
    return subprocess.run(
        ["bash", "-c", 'ulimit -f 2; exec "$@"', "-", sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_a_file_that_cannot_be_written_is_exit_4_and_leaves_nothing(
    source: Path, tmp_path: Path
) -> None:
    before = everything_of(source)
    (tmp_path / "place").mkdir()
    ended = _with_small_files(source, tmp_path / "place" / "new")
    assert ended.returncode == 4, ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) <= 3
    assert "File too large" in ended.stderr
    assert list((tmp_path / "place").iterdir()) == []
    assert everything_of(source) == before


@pytest.mark.parametrize("source", [False], ids=["leaves"], indirect=True)
def test_a_chunk_that_cannot_be_written_is_reported_by_the_name_of_its_leaf(
    source: Path, tmp_path: Path
) -> None:
    ended = _with_small_files(source, tmp_path / "new")
    assert ended.stderr.splitlines() == [
        "error: writing 'w' failed",
        "  File too large",
        "  nothing was left behind; allow larger files (`ulimit -f`) and run the command again",
    ]


def test_a_msgpack_file_that_cannot_be_written_is_reported_by_the_name_of_the_destination(
    tmp_path: Path,
) -> None:
    source = tmp_path / "checkpoint_5"
    source.write_bytes(flax.serialization.msgpack_serialize({"w": VALUES}))
    ended = _with_small_files(source, tmp_path / "new")
    assert ended.returncode == 4
    assert ended.stderr.splitlines()[:2] == ["error: writing 'new' failed", "  File too large"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_5"]


def _in_the_way(folder: Path) -> None:
    """A file where the directory of the leaf `w` is to be made."""
    (built,) = folder.glob(".new.surgery-tmp-*/new")
    (built / "w").write_text("")


@pytest.mark.parametrize("source", [False], ids=["leaves"], indirect=True)
def test_an_array_that_cannot_be_made_is_a_failed_write_in_the_words_of_the_system(
    source: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(WriteError) as caught:
        surgery.apply(
            str(source),
            str(place / "new"),
            RESCALE,
            listener=_on_first_event(lambda: _in_the_way(place)),
        )
    assert caught.value.problems[0].what == "writing 'w' failed"
    assert caught.value.problems[0].why in ("Not a directory", "File exists")
    assert list(place.iterdir()) == []


TENSORSTORE = (
    'RESOURCE_EXHAUSTED: Error opening "zarr" driver: Error writing local file "/x/w/.zarray": '
    "Failed to write 176 bytes to file 3: No space left on device [os_error_code='28'] "
    "[tensorstore_spec='{}']"
)
OLDER = (
    "INTERNAL: no such codec [source locations='tensorstore/driver.cc:563'] [tensorstore_spec='{}']"
)


@pytest.mark.parametrize("told", ["INTERNAL: no such codec [tensorstore_spec='{}']", OLDER])
def test_of_what_tensorstore_says_of_a_full_disk_the_systems_own_words_are_kept(told: str) -> None:
    with pytest.raises(WriteError) as caught, write_errors("w"):
        raise ValueError(TENSORSTORE)
    (problem,) = caught.value.problems
    assert problem.why == "No space left on device"
    assert "`df -h`; for files `df -i`" in problem.fix
    with pytest.raises(WriteError) as caught, write_errors("w"):
        raise ValueError(told)
    (problem,) = caught.value.problems
    assert problem.why == "INTERNAL: no such codec"
    assert "mend the cause" in problem.fix


def _on_first_event(action: Callable[[], Any]) -> Callable[[Progress], None]:
    """A listener that does something once, in the middle of a run."""
    done: list[bool] = []

    def listen(event: Progress) -> None:
        if not done:
            done.append(True)
            action()

    return listen


def test_of_two_runs_on_one_destination_one_wins_and_the_other_is_told(
    source: Path, tmp_path: Path
) -> None:
    destination = tmp_path / "place" / "new"
    inner: list[str] = []

    def run_inside() -> None:
        surgery.apply(str(source), str(destination), RESCALE)
        inner.append("won")

    with pytest.raises(DestinationError, match="exists"):
        surgery.apply(str(source), str(destination), RESCALE, listener=_on_first_event(run_inside))
    assert inner == ["won"]
    assert [path.name for path in destination.parent.iterdir()] == ["new"]
    assert _is_whole(destination)


def test_a_source_that_changes_underneath_stops_the_run(source: Path, tmp_path: Path) -> None:
    """A training script replaces the checkpoint that is being read."""
    (tmp_path / "place").mkdir()

    def change() -> None:
        other = plan_of([operation_from_options("replace", {"at": "w", "with": "0"})])
        surgery.apply(str(source), str(tmp_path / "other"), other)
        shutil.rmtree(source)
        (tmp_path / "other").rename(source)

    with pytest.raises(CheckpointError, match="changed"):
        surgery.apply(
            str(source),
            str(tmp_path / "place" / "new"),
            RESCALE,
            listener=_on_first_event(change),
        )
    assert list((tmp_path / "place").iterdir()) == []


def test_a_source_that_is_removed_or_moved_underneath_is_said_to_be_gone(
    source: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    for take_away in (lambda: source.rename(tmp_path / "moved"), lambda: shutil.rmtree(source)):
        with pytest.raises(CheckpointError) as caught:
            surgery.apply(
                str(source), str(place / "new"), RESCALE, listener=_on_first_event(take_away)
            )
        (problem,) = caught.value.problems
        assert problem.what == f"'{source}' is gone"
        assert "removed or moved" in problem.why
        assert list(place.iterdir()) == []
        if (tmp_path / "moved").exists():
            (tmp_path / "moved").rename(source)


def test_a_step_that_a_training_script_deletes_underneath_is_said_to_be_gone(
    tmp_path: Path,
) -> None:
    root, place = tmp_path / "run", tmp_path / "place"
    place.mkdir()
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    with ocp.CheckpointManager(root, options=options) as manager:
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave(TREE))
    with pytest.raises(CheckpointError) as caught:
        surgery.apply(
            f"{root}@1",
            str(place / "new"),
            RESCALE,
            listener=_on_first_event(lambda: shutil.rmtree(root / "1")),
        )
    assert caught.value.problems[0].what == f"'{root / '1' / 'default'}' is gone"
    assert list(place.iterdir()) == []


REFUSALS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no match": ({"op": "rescale", "at": "nothing", "by": "2"}, PlanError),
    "zero norm": ({"op": "normalize", "at": "layers/0"}, ValueRefusal),
    "not finite": ({"op": "rescale", "at": "w", "by": "1e39"}, ValueRefusal),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_edit_leaves_nothing_and_changes_nothing(
    name: str, source: Path, tmp_path: Path
) -> None:
    fields, error = REFUSALS[name]
    before = everything_of(source)
    operation = operation_from_options(fields["op"], {k: v for k, v in fields.items() if k != "op"})
    with pytest.raises(error):
        surgery.apply(str(source), str(tmp_path / "place" / "deep" / "new"), plan_of([operation]))
    assert not (tmp_path / "place").exists()
    assert everything_of(source) == before


def test_a_destination_in_around_or_at_the_source_is_refused_before_any_work(
    source: Path, tmp_path: Path
) -> None:
    before = everything_of(source)
    (tmp_path / "link").symlink_to(source, target_is_directory=True)
    for destination in (
        source,
        source / "new",
        tmp_path,
        source.parent / "link" / "new",
        source / ".." / source.name / "d" / "new",
    ):
        with pytest.raises(DestinationError):
            surgery.apply(
                str(source), str(destination), RESCALE, options=surgery.Options(force=True)
            )
    assert everything_of(source) == before


def test_a_damaged_chunk_stops_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    source = _save(tmp_path / "source", ocdbt=False)
    (source / "w" / "0.0").write_bytes(b"\xff" * 100)
    with pytest.raises(CheckpointError, match="cannot be read"):
        surgery.apply(str(source), str(tmp_path / "place" / "new"), RESCALE)
    assert not (tmp_path / "place").exists()


def test_a_result_that_does_not_read_back_never_gets_its_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes into the staging directory while it is built."""
    finish = PytreeWriter.finish

    def spoiled_afterwards(writer: PytreeWriter) -> None:
        finish(writer)
        for path in (tmp_path / "place").rglob("_METADATA"):
            path.write_bytes(path.read_bytes().replace(b'"layers"', b'"leyers"'))

    monkeypatch.setattr(PytreeWriter, "finish", spoiled_afterwards)
    with pytest.raises(SurgeryError, match="leyers"):
        surgery.apply(str(source), str(tmp_path / "place" / "new"), RESCALE)
    assert not (tmp_path / "place").exists()


def test_the_staging_directory_is_ignored_by_a_manager_and_named_by_inspect(
    tmp_path: Path,
) -> None:
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    root = tmp_path / "run"
    with ocp.CheckpointManager(root, options=options) as manager:
        manager.save(1, args=ocp.args.StandardSave(TREE))
    leftover = root / ".2.surgery-tmp-0123abcd"
    (leftover / "2" / "default").mkdir(parents=True)
    with ocp.CheckpointManager(root, options=options) as manager:
        assert manager.all_steps() == [1]
    assert open_checkpoint(str(root)).location.step == 1
    values = open_checkpoint(str(root)).read(LeafPath(("w",)))
    np.testing.assert_array_equal(values, VALUES)
    with pytest.raises(CheckpointError, match="surgery-tmp-0123abcd"):
        surgery.inspect(str(leftover / "2"))
