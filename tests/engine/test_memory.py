"""Memory that there is: what a plan needs is held against every limit, before any of it is asked for."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.filesystem import memory_limits
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.orbax import declared_sizes
from surgery_cli.tree.paths import LeafPath

MIB = 1 << 20


@pytest.fixture
def claiming(tmp_path: Path) -> Path:
    """A small leaf whose metadata says that it is one chunk of a terabyte."""
    path = tmp_path / "claiming"
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(path, {"params": {"w": np.ones((4,), np.float32)}})
    document = path / "params.w" / ".zarray"
    fields = json.loads(document.read_text())
    document.write_text(json.dumps({**fields, "shape": [1 << 38], "chunks": [1 << 38]}))
    return path


def test_a_claimed_terabyte_is_refused_before_memory_is_asked_for(claiming: Path) -> None:
    assert surgery.inspect(str(claiming)).total_bytes == 1 << 40

    with pytest.raises(CheckpointError, match="does not fit into memory") as caught:
        surgery.inspect(str(claiming), stats=True)

    assert caught.value.problems[0].why.endswith("in one chunk of 1.0 TiB, which is decoded whole")


def test_a_chunk_that_is_kept_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": np.arange(64, dtype=np.float32)})
    checkpoint = open_checkpoint(str(tmp_path / "source"))
    monkeypatch.setattr(declared_sizes, "_SMALL", 0)
    left = [memory_limits.Room(256, "are free"), memory_limits.Room(0, "are free")]
    monkeypatch.setattr(declared_sizes, "room", lambda: left.pop(0))

    for start in range(0, 64, 16):  # the first of them takes all the memory that there is
        block = checkpoint.read(LeafPath(("w",)), (slice(start, start + 16),))
        np.testing.assert_array_equal(block, np.arange(start, start + 16))

    with pytest.raises(CheckpointError, match="does not fit into memory"):
        checkpoint.read(LeafPath(("w",)), (slice(0, 16),))


LOOKS = {
    "inspect": lambda path, **how: surgery.inspect(path, stats=True, **how),
    "digests": lambda path, **how: surgery.inspect(path, digests=True, **how),
    "verify": surgery.verify,
    "seal": surgery.seal,
    "diff": lambda path, **how: surgery.diff(path, path, **how),
}


@pytest.mark.parametrize("look", LOOKS)
def test_what_a_look_takes_beyond_the_memory_is_said_of_all_leaves_before_any_is_read(
    look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = np.ones((3 * MIB,), np.float32)
    params = {
        "small": np.ones((2, 2), np.float32),
        "a": large,
        "b": large,
        "c": large[: MIB * 5 // 2],
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"params": params})
    said: list[str] = []

    def read(*_: object) -> None:
        assert said
        raise CheckpointError("read")

    monkeypatch.setattr(Checkpoint, "read", read)
    monkeypatch.setattr(Checkpoint, "identity", lambda *_: None)
    if look == "verify":
        assert not LOOKS[look](str(tmp_path / "source"), memory_bytes=MIB, say=said.append).agrees
    else:
        with pytest.raises(CheckpointError, match=r"^read$"):
            LOOKS[look](str(tmp_path / "source"), memory_bytes=MIB, say=said.append)
    count = 2 if look == "diff" else 1
    much = f"{24 * count}.0 MiB"
    (note,) = said
    assert note == (
        f"'params/a', 'params/b', 'params/c' take up to {much} at once, more than `--memory` allows: 'params/a' since"
        " the least that is worked on is a block of 12.0 MiB; the run goes on with that much, which"
        f" `--memory {24 * count + 1}MiB` allows"
    )


def test_what_an_edit_takes_beyond_the_memory_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": np.ones((MIB,), np.float32)})
    said: list[str] = []

    def written(*_: object) -> None:
        raise CheckpointError("written")

    monkeypatch.setattr(sys.modules["surgery_cli.surgery.apply"], "write", written)
    plan = plan_of([operation_from_options("rescale", {"at": "w", "by": 2.0})])
    options = surgery.Options(memory_bytes=MIB)
    with pytest.raises(CheckpointError, match=r"^written$"):
        surgery.apply(
            str(tmp_path / "source"), str(tmp_path / "new"), plan, options=options, say=said.append
        )
    (note,) = said
    assert note.startswith("'w' takes about ")
    assert note in surgery.plan(str(tmp_path / "source"), plan, options=options).notes


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_for_which_there_is_no_memory_is_refused_before_anything_is_read(
    look: str, claiming: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpoint, "read", None)
    monkeypatch.setattr(Checkpoint, "identity", lambda *_: None)
    with pytest.raises(CheckpointError, match="'params/w' does not fit into memory") as caught:
        LOOKS[look](str(claiming))
    times = 4 if look == "diff" else 2
    why = caught.value.problems[0].why
    assert why.startswith(f"float32[274877906944] takes about {times}.0 TiB at once, ")
    assert why.endswith(": it is stored in one chunk of 1.0 TiB, which is decoded whole")


def test_an_edit_that_would_make_a_terabyte_at_once_is_refused_by_the_plan(claiming: Path) -> None:
    plan = plan_of([operation_from_options("rescale", {"at": "params", "by": 2.0})])

    with pytest.raises(CheckpointError, match="'params/w' does not fit into memory") as caught:
        surgery.plan(str(claiming), plan)
    why = caught.value.problems[0].why
    assert why.startswith("float32[274877906944] takes about 4.0 TiB at once, ")
    assert why.endswith("it is stored in one chunk of 1.0 TiB, which is decoded and written whole")


def test_the_preview_names_the_leaf_that_the_budget_does_not_hold(tmp_path: Path) -> None:
    params = {"small": np.ones((2, 2), np.float32), "large": np.ones((256, 256), np.float32)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"params": params})
    plan = plan_of([operation_from_options("normalize", {"at": "params", "norm": "spectral"})])
    options = surgery.Options(memory_bytes=MIB)

    notes = surgery.plan(str(tmp_path / "source"), plan, options=options).notes

    (note,) = [note for note in notes if "--memory" in note]
    assert re.fullmatch(
        r"'params/large' takes about [0-9.]+ MiB at once, more than `--memory` allows:"
        r" `normalize` needs the whole leaf at once; the run goes on with that much, which `--memory \d+MiB` allows",
        note,
    )


def test_a_note_of_a_twin_that_follows_a_measurement_names_the_edit_as_it_is_typed(
    tmp_path: Path,
) -> None:
    params = {"w": np.ones((8, 8), np.float32)}
    state = {"opt_state": optax.adam(0.1).init(params), "params": params}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
    fields = {"at": "params", "norm": "spectral", "optimizer": "transform"}
    plan = plan_of([operation_from_options("normalize", fields)])
    options = surgery.Options(memory_bytes=1, optimizer_kind="adam")

    notes = surgery.plan(str(tmp_path / "state"), plan, options=options).notes

    (note,) = [note for note in notes if "--memory" in note]
    assert note.startswith("'opt_state/0/mu/w', 'opt_state/0/nu/w', 'params/w' take up to ")
    assert "`normalize` needs the whole leaf at once" in note


@pytest.mark.parametrize(
    ("shape", "chunks", "why"),
    [
        ([4096, 2048], [4096, 2048], "it is stored in one chunk of 32.0 MiB, which is"),
        ([8192, 2048], [4096, 2048], "it is stored in chunks of 32.0 MiB, which are"),
        ([8192, 2048], [256, 2048], "the least that is worked on is a block of 16.0 MiB"),
        ([256, 2048], [256, 2048], "the least that is worked on is a block of 2.0 MiB"),
    ],
)
def test_the_preview_says_what_has_to_be_in_memory_at_once(
    shape: list[int], chunks: list[int], why: str, claiming: Path
) -> None:
    document = claiming / "params.w" / ".zarray"
    fields = json.loads(document.read_text())
    document.write_text(json.dumps({**fields, "shape": shape, "chunks": chunks}))
    for row in range(shape[0] // chunks[0]):
        shutil.copy(claiming / "params.w" / "0", claiming / "params.w" / f"{row}.0")
    plan = plan_of([operation_from_options("rescale", {"at": "params", "by": 2.0})])

    notes = surgery.plan(str(claiming), plan, options=surgery.Options(memory_bytes=1 * MIB)).notes

    (note,) = [note for note in notes if "--memory" in note]
    assert why in note


def test_the_memory_that_there_is_can_be_told() -> None:
    assert 16 * MIB < memory_limits.available_bytes() < 1 << 50


def _group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def test_the_limit_of_a_control_group_counts_and_that_of_every_one_around_it(
    tmp_path: Path,
) -> None:
    process, groups = tmp_path / "self", tmp_path / "cgroup"
    process.mkdir()
    (process / "cgroup").write_text("0::/job/step\n")
    _group(groups / "job/step", {"memory.max": "max", "memory.current": str(700 * MIB)})
    _group(
        groups / "job",
        {
            "memory.max": str(9000 * MIB),
            "memory.current": str(4000 * MIB),
            "memory.stat": f"anon 2500\ninactive_file {1000 * MIB}\nactive_file {500 * MIB}",
        },
    )
    there = memory_limits.room(groups, process)
    assert (there.bytes, there.is_deadly) == ((6500 - 48) * MIB, True)
    assert there.bound.endswith(
        " (cgroup limit 8.8 GiB, 2.4 GiB in use, 48.0 MiB for the program itself)"
    )
    _group(groups / "job/step", {"memory.max": str(600 * MIB)})  # lowered below what is used
    assert memory_limits.room(groups, process).bytes == 0


def test_the_limit_of_a_control_group_of_version_1_counts_also_where_only_its_root_shows(
    tmp_path: Path,
) -> None:
    process, groups = tmp_path / "self", tmp_path / "cgroup"
    process.mkdir()
    (process / "cgroup").write_text("4:cpu,memory:/docker/abc\n1:cpuset:/docker/abc\n")
    limit = {"memory.limit_in_bytes": f"{9000 * MIB}", "memory.usage_in_bytes": f"{4000 * MIB}"}
    _group(
        groups / "memory",
        {**limit, "memory.stat": f"inactive_file 1\ntotal_inactive_file {1500 * MIB}"},
    )
    assert memory_limits.room(groups, process).bytes == (6500 - 48) * MIB
    _group(groups / "memory", {"memory.limit_in_bytes": "9223372036854771712"})
    assert memory_limits.room(groups, process).bound == "are free"


def test_control_groups_of_any_name_and_lines_of_any_form_are_read(tmp_path: Path) -> None:
    process, groups = tmp_path / "self", tmp_path / "cgroup"
    process.mkdir()
    (process / "cgroup").write_bytes(b"no group\n0::/a/b\xfcro.slice\n")
    folder = groups / "a" / os.fsdecode(b"b\xfcro.slice")
    stat = f"anon\n\ninactive_file {500 * MIB}\nactive_file\n"
    _group(
        folder,
        {"memory.max": f"{9000 * MIB}", "memory.current": f"{4000 * MIB}", "memory.stat": stat},
    )
    assert memory_limits.room(groups, process).bytes == (5500 - 48) * MIB


def test_a_leaf_that_the_limit_of_address_space_does_not_hold_is_refused_before_any_work(
    claiming: Path, tmp_path: Path
) -> None:
    document = claiming / "params.w" / ".zarray"
    fields = json.loads(document.read_text())
    document.write_text(json.dumps({**fields, "shape": [1 << 29], "chunks": [1 << 29]}))
    (tmp_path / "place").mkdir()
    words = [
        "-m",
        "surgery_cli",
        "rescale",
        str(claiming),
        str(tmp_path / "place" / "new"),
        "params",
        "--by",
        "2",
    ]
    ended = subprocess.run(
        ["bash", "-c", 'ulimit -v 2500000; exec "$@"', "-", sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 3, ended.stderr
    assert "are left of what it may map (`ulimit -v` is 2.4 GiB)" in ended.stderr
    assert "one chunk of 2.0 GiB" in ended.stderr
    assert list((tmp_path / "place").iterdir()) == []
