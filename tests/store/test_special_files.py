"""Pipes, sockets and devices in place of any file of a checkpoint: an error that names them, and no waiting."""

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError, SurgeryError
from surgery_cli.planning import operation_from_options, plan_of, read_plan

TREE = {"a": np.arange(64, dtype=np.float32), "b": {"c": np.arange(64, dtype=np.float32) + 7}}
RESCALE = plan_of([operation_from_options("rescale", {"at": "**/a", "by": "2"})])
PATIENCE_SECONDS = 300


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """A test that waits for a pipe fails."""

    def strike(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, strike)
    signal.alarm(PATIENCE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _pytree(path: Path, *, ocdbt: bool) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(TREE))


def _root(path: Path) -> None:
    with ocp.CheckpointManager(path) as manager:
        items = {"state": ocp.args.StandardSave(TREE), "config": ocp.args.JsonSave({"a": 1})}
        manager.save(3, args=ocp.args.Composite(**items), metrics={"loss": 1.0})
        manager.wait_until_finished()


def _msgpack(path: Path) -> None:
    path.write_bytes(flax.serialization.msgpack_serialize(TREE))


def _safetensors(path: Path) -> None:
    path.mkdir()
    safetensors.numpy.save_file({"a": TREE["a"]}, path / "model.safetensors")


def _leaves(path: Path) -> None:
    _pytree(path, ocdbt=False)


def _ocdbt(path: Path) -> None:
    _pytree(path, ocdbt=True)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


SPECIAL = [_pipe, _link_to_a_device, _socket]


def _error_of(source: Path, new: Path) -> str | None:
    try:
        surgery.inspect(str(source))
        surgery.apply(str(source), str(new), RESCALE)
    except CheckpointError as error:
        return str(error)
    return None


@pytest.mark.parametrize("make", [_ocdbt, _leaves, _root, _msgpack, _safetensors])
def test_every_file_of_a_checkpoint_that_is_none_is_named(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    make(whole)
    files = [p.relative_to(whole) for p in sorted(whole.rglob("*")) if p.is_file()] or [Path()]
    silent = []
    for number, name in enumerate(files):
        source, new = tmp_path / "source", tmp_path / f"new{number}"
        shutil.copytree(whole, source) if whole.is_dir() else shutil.copy(whole, source)
        (source / name).unlink()
        SPECIAL[number % len(SPECIAL)](source / name)
        said = _error_of(source, new)
        if said is None:
            silent.append(name)
            special = (Path.is_fifo, Path.is_socket, Path.is_symlink)
            assert not any(is_one(p) for p in new.rglob("*") for is_one in special)
        else:
            assert f"'{source / name}' is a" in said
            assert not new.exists()
        shutil.rmtree(source) if source.is_dir() else source.unlink()
    # data that nothing refers to is neither read nor carried along
    assert all("d" in name.parts for name in silent), silent


@pytest.mark.parametrize("special", SPECIAL)
def test_a_pipe_among_files_of_ones_own_is_named_before_anything_is_written(
    special: Callable[[Path], None], tmp_path: Path
) -> None:
    _root(tmp_path / "source")
    for place in ("run.pipe", "3/own", "3/state/own"):
        path = tmp_path / "source" / place
        special(path)
        with pytest.raises(CheckpointError, match="is a"):
            surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), RESCALE)
        path.unlink()
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), RESCALE)


def _read_as_plan(path: Path) -> Any:
    return read_plan(str(path))


def _taken_as_donor(path: Path) -> Any:
    _pytree(path.parent / "source", ocdbt=True)
    edit = operation_from_options("replace", {"at": "a", "with": str(path)})
    return surgery.plan(str(path.parent / "source"), plan_of([edit]))


def _opened(path: Path) -> Any:
    return surgery.inspect(str(path))


def _as_manifest(path: Path) -> Any:
    _pytree(path.parent / "source", ocdbt=True)
    return surgery.verify(str(path.parent / "source"), like_manifest=path)


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize(
    ("name", "use", "kind"),
    [
        ("p.yaml", _read_as_plan, PlanError),
        ("x.npy", _taken_as_donor, CheckpointError),
        ("x.npz", _taken_as_donor, CheckpointError),
        ("x.safetensors", _taken_as_donor, CheckpointError),
        ("checkpoint_3", _opened, CheckpointError),
        ("m.json", _as_manifest, PlanError),
    ],
)
def test_a_pipe_where_a_file_is_named_is_no_file(
    special: Callable[[Path], None],
    name: str,
    use: Callable[[Path], Any],
    kind: type[SurgeryError],
    tmp_path: Path,
) -> None:
    special(tmp_path / name)
    with pytest.raises(kind) as refused:
        use(tmp_path / name)
    problem = refused.value.problems[0]
    assert problem.what.startswith(f"'{tmp_path / name}' is a ")
    assert problem.what.endswith(", not a file")


def test_a_chunk_that_is_a_link_to_a_file_of_the_system_is_copied_not_shared(
    tmp_path: Path,
) -> None:
    _leaves(tmp_path / "source")
    system = tmp_path / "passwd"
    chunk = tmp_path / "source" / "b.c" / "0"
    chunk.rename(system)
    chunk.symlink_to(system)
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), RESCALE)
    assert system.stat().st_nlink == 1
    assert (tmp_path / "new" / "b.c" / "0").read_bytes() == system.read_bytes()
