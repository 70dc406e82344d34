"""An item that Orbax's handler of it does not restore is never called whole: every handler, every file, every harm."""

import dataclasses
import random
import shutil
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from google.protobuf import struct_pb2

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of
from tests.garbage import told_here

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TREE = {"w": jax.numpy.arange(12.0).reshape(3, 4)}
SHARDING = jax.sharding.SingleDeviceSharding(jax.devices()[0])
TARGET = {"w": jax.ShapeDtypeStruct((3, 4), np.float32, sharding=SHARDING)}
RANDOM = random.Random(0)


class OwnHandler(ocp.CheckpointHandler):
    """A handler of the user's own, of which nobody else knows what it needs."""

    def save(self, directory, args):
        (directory / "own.bin").write_bytes(args.item)

    def restore(self, directory, args=None):
        return (directory / "own.bin").read_bytes()


@ocp.args.register_with_handler(OwnHandler, for_save=True)
@dataclasses.dataclass
class OwnSave(ocp.args.CheckpointArgs):
    item: bytes


@ocp.args.register_with_handler(OwnHandler, for_restore=True)
@dataclasses.dataclass
class OwnRestore(ocp.args.CheckpointArgs):
    pass


SAVES = {
    "json": ocp.args.JsonSave({"rate": 0.1}),
    "proto": ocp.args.ProtoSave(struct_pb2.Value(string_value="x")),
    "array": ocp.args.ArraySave(jax.numpy.arange(4.0)),
    "jax_key": ocp.args.JaxRandomKeySave(jax.random.key(0)),
    "numpy_key": ocp.args.NumpyRandomKeySave(np.random.RandomState(0).get_state()),
    "own": OwnSave(b"abc"),
    "ema": ocp.args.StandardSave(TREE),
    "second": ocp.args.PyTreeSave(TREE),
}
RESTORES = {
    "json": ocp.args.JsonRestore(),
    "proto": ocp.args.ProtoRestore(struct_pb2.Value),
    "array": ocp.args.ArrayRestore(),
    "jax_key": ocp.args.JaxRandomKeyRestore(),
    "numpy_key": ocp.args.NumpyRandomKeyRestore(),
    "own": OwnRestore(),
    "ema": ocp.args.StandardRestore(TARGET),
    "second": ocp.args.PyTreeRestore(
        TARGET, restore_args=ocp.checkpoint_utils.construct_restore_args(TARGET)
    ),
    "metrics": ocp.args.JsonRestore(),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A step that holds an item of every handler, each restored by Orbax."""
    root = tmp_path_factory.mktemp("saved") / "run"
    options = ocp.CheckpointManagerOptions(
        best_fn=lambda metrics: metrics["loss"], enable_async_checkpointing=False
    )
    with ocp.CheckpointManager(root, options=options) as manager:
        items = {"state": ocp.args.StandardSave(TREE), **SAVES}
        manager.save(1, args=ocp.args.Composite(**items), metrics={"loss": 0.5})
    assert {name for name in RESTORES if _is_restored(root / "1", name)} == set(RESTORES)
    return root


def _is_restored(step: Path, item: str) -> bool:
    """Whether the item's own handler restores it."""
    handlers = {"metrics": ocp.JsonCheckpointHandler(filename="metrics")}
    known = {item: handlers[item]} if item in handlers else {}
    handler = ocp.CompositeCheckpointHandler(**known)
    with told_here(), ocp.Checkpointer(handler) as checkpointer:
        try:
            found = checkpointer.restore(step, args=ocp.args.Composite(**{item: RESTORES[item]}))
        except Exception:  # noqa: BLE001 - whatever Orbax says
            found = {item: None}
    return found[item] is not None


def _emptied(path):
    shutil.rmtree(path)
    path.mkdir()


HARMS_OF_FILES = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a broken link": lambda path: (path.unlink(), path.symlink_to("/nowhere")),
}
HARMS_OF_FOLDERS = {"removed": shutil.rmtree, "emptied": _emptied}


def _harms(step: Path, item: str) -> list[tuple[str, str]]:
    below = sorted((step / item).rglob("*"))
    files = [path for path in below if path.is_file() and path.name != "commit_success.txt"]
    folders = [step / item, *(path for path in below if path.is_dir())]
    return [(str(path.relative_to(step)), harm) for path in files for harm in HARMS_OF_FILES] + [
        (str(path.relative_to(step)), harm) for path in folders for harm in HARMS_OF_FOLDERS
    ]


def _called_whole(root: Path) -> list[str]:
    """The commands that find nothing wrong."""
    (place,) = surgery.doctor(str(root), settled_seconds=0).places
    said = ["doctor"] if place.state == "whole" else []
    for name, command in (
        ("verify", lambda: not surgery.verify(str(root)).agrees),
        ("seal", lambda: surgery.seal(str(root)).notes),
        ("plan", lambda: _said_of_an_edit(root)),
    ):
        try:
            is_said = bool(command())
        except SurgeryError:
            is_said = True
        said += [] if is_said else [name]
    return said


def _said_of_an_edit(root: Path) -> bool:
    """Whether the preview says that something that comes along is damaged, or does not come."""
    preview = surgery.plan(str(root), plan_of([Rescale(at="state/w", by=2.0)]))
    return bool(preview.notes) or "recorded but not there" in preview.chosen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("item", RESTORES)
def test_what_its_handler_does_not_restore_is_called_whole_by_no_command(
    saved, tmp_path, item, pytestconfig
):
    harms = _harms(saved / "1", item)
    every = pytestconfig.getoption("--every-combination")
    for number, (path, harm) in enumerate(harms if every else RANDOM.sample(harms, 4)):
        root = Path(shutil.copytree(saved, tmp_path / str(number)))
        place = root / "1" / path
        (HARMS_OF_FOLDERS if place.is_dir() else HARMS_OF_FILES)[harm](place)

        is_restored = _is_restored(root / "1", item)
        called_whole = _called_whole(root)

        assert is_restored or not called_whole, f"{path} {harm}"


HARMS_OF_VALUES = {
    "cut": lambda raw: raw[:-1],
    "half": lambda raw: raw[: len(raw) // 2],
    "zeros": lambda raw: bytes(len(raw)),
    "garbage behind": lambda raw: raw + b"\x01garbage",
}


@pytest.mark.sampled(6)
@pytest.mark.covers(1)
@pytest.mark.parametrize("item", ["array", "jax_key", "numpy_key"])
@pytest.mark.parametrize("harm", HARMS_OF_VALUES)
def test_values_that_its_handler_does_not_decode_are_found_by_all_that_read_data(
    saved, tmp_path, item, harm
):
    """Chunks of arrays and random keys: no metadata tell, so that edits and a look without data cannot say it."""
    chunks = [
        path
        for path in (saved / "1" / item).rglob("*")
        if path.is_file() and (path.name == "0" or path.parent.name == "d")
    ]
    assert chunks
    for number, path in enumerate(chunks):
        root = Path(shutil.copytree(saved, tmp_path / str(number)))
        chunk = root / path.relative_to(saved)
        chunk.write_bytes(HARMS_OF_VALUES[harm](path.read_bytes()))

        is_restored = _is_restored(root / "1", item)
        (place,) = surgery.doctor(str(root), settled_seconds=0, read_data=True).places

        assert (place.state == "whole") == is_restored
        assert surgery.verify(str(root)).agrees == is_restored
        assert bool(surgery.seal(str(root)).notes) != is_restored
        assert surgery.verify(str(root)).agrees == is_restored
        if not is_restored:
            assert item in place.why[0]
            assert f"copy '{item}' again from where it is whole" in place.todo
            assert surgery.verify(str(root), sample="1/2").notes


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "file", ["json/metadata", "metrics/metrics", "proto/proto.pbtxt", "own/own.bin"]
)
def test_an_item_without_its_only_file_is_named_and_the_leaves_are_had_without_it(
    saved, tmp_path, file
):
    root = Path(shutil.copytree(saved, tmp_path / "run"))
    (root / "1" / file).unlink()
    item = Path(file).parent.name

    (place,) = surgery.doctor(str(root), settled_seconds=0).places
    assert [why.split(":")[0] for why in place.why] == [f"`{item}`"]
    assert f"copy '{item}' again" in place.todo
    assert "rescue" in place.todo
    assert "--allow-partial" in place.todo

    surgery.rescue(str(root / "1"), str(tmp_path / "new"), allow_partial=True)
    assert not (tmp_path / "new" / item).exists()
    assert _is_restored(tmp_path / "new", "ema")


def test_a_name_of_the_users_own_for_json_is_no_fault(tmp_path):
    handler = ocp.CompositeCheckpointHandler(
        state=ocp.StandardCheckpointHandler(), about=ocp.JsonCheckpointHandler("about.json")
    )
    with ocp.Checkpointer(handler) as checkpointer:
        items = {"state": ocp.args.StandardSave(TREE), "about": ocp.args.JsonSave({"a": 1})}
        checkpointer.save(tmp_path / "step", args=ocp.args.Composite(**items))
    assert surgery.verify(str(tmp_path / "step")).agrees
    (tmp_path / "step/about/about.json").write_text("{")
    assert not surgery.verify(str(tmp_path / "step")).agrees


PUT_ASIDE = [
    "json/metadata",
    "metrics/metrics",
    "proto/proto.pbtxt",
    "ema/array_metadatas/process_0",
]


@pytest.mark.parametrize("file", PUT_ASIDE)
def test_a_file_that_was_put_aside_is_not_there(saved, tmp_path, file):
    root = Path(shutil.copytree(saved, tmp_path / "run"))
    (root / "1" / file).rename(root / "1" / f"{file}.bak")
    assert not _is_restored(root / "1", Path(file).parts[0])
    assert [name for name in _called_whole(root) if name != "plan"] == []


def test_what_is_lost_beside_a_damaged_tree_is_left_out_as_doctor_says(saved, tmp_path):
    root = Path(shutil.copytree(saved, tmp_path / "run"))
    (root / "1/json/metadata").unlink()
    (root / "1/state/manifest.ocdbt").unlink()
    (root / "1/commit_success.txt").unlink()
    (root / "1/commit_success.txt").symlink_to("/nowhere")
    (place,) = surgery.doctor(str(root), settled_seconds=0, read_data=True).places
    command = f"`surgery rescue {root}/1 NEW/1 --allow-partial` writes a checkpoint of all of them"
    assert place.todo == f"{command}, without 'json'"
    surgery.rescue(str(root / "1"), str(tmp_path / "new"), allow_partial=True)
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        items = {name: RESTORES[name] for name in ("ema", "array", "jax_key")}
        found = checkpointer.restore(tmp_path / "new", args=ocp.args.Composite(**items))
    np.testing.assert_array_equal(found["ema"]["w"], TREE["w"])


def test_of_a_step_that_lost_its_tree_a_random_key_is_no_tree(saved, tmp_path):
    root = Path(shutil.copytree(saved, tmp_path / "run"))
    for name in ("state", "ema", "second"):
        _emptied(root / "1" / name)
    (place,) = surgery.doctor(str(root), settled_seconds=0).places
    assert not place.whole_leaves
