"""One flipped bit: after a seal, none in any file passes; before it, none in metadata that Orbax then refuses."""

import logging
import random
import shutil

import flax.serialization
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.planning import plan_from_document
from surgery_cli.store.filesystem.names import name_of_record

RANDOM = np.random.default_rng(0)


def tree():
    return {
        "params": {"w": jax.numpy.asarray(RANDOM.normal(size=(8, 40)), np.float32)},
        "key": jax.random.key(3),
        "n": np.arange(3.0),
        "step": 3,
        "text": "hi",
        "none": None,
    }


def save_flat(path, **options):
    with ocp.PyTreeCheckpointer(**options) as checkpointer:
        checkpointer.save(path, tree())
    return path


def save_chunked(path, **options):
    """Arrays that Orbax cut into smaller chunks than it wrote at once."""
    array = jax.numpy.asarray(RANDOM.normal(size=(64, 60)), np.float32)
    with ocp.PyTreeCheckpointer(**options) as checkpointer:
        save_args = {"w": ocp.SaveArgs(chunk_byte_size=4000)}
        checkpointer.save(path, {"w": array}, save_args=save_args)
    return path


def save_manager(path):
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    items = {
        "state": ocp.args.PyTreeSave(tree()),
        "ema": ocp.args.PyTreeSave({"w": np.ones((3, 3))}),
        "config": ocp.args.JsonSave({"rate": 0.1}),
        "random": ocp.args.JaxRandomKeySave(jax.random.key(0)),
    }
    with ocp.CheckpointManager(path, options=options) as manager:
        manager.save(5, args=ocp.args.Composite(**items), metrics={"loss": 0.5})
    return path


def save_v1(path):
    v1.save(path, {"w": jax.numpy.ones((4, 4)), "n": 3}, custom_metadata={"note": "hi"})
    return path


def save_edited(path):
    """Linked files, and a copy of a record with a history."""
    save_flat(path.with_name("first"))
    for source, target in (("first", "second"), ("second", path.name)):
        edit = {"op": "rescale", "at": "params/w", "by": 2}
        plan = plan_from_document({"edits": [edit]})
        surgery.apply(str(path.with_name(source)), str(path.with_name(target)), plan)
    return path


def save_inferred(path):
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(path, {"w": np.ones((3, 3)), "v": np.zeros(2)})
    for file in path.iterdir():
        if file.is_file():
            file.unlink()
    return path


def save_msgpack(path):
    path.write_bytes(flax.serialization.to_bytes({"w": np.ones((3, 3)), "n": 3}))
    return path


def save_safetensors(path):
    path.mkdir()
    for name in "ab":
        save_file({name: np.ones((3, 3), np.float32)}, path / f"{name}.safetensors")
    return path


LAYOUTS = {
    "ocdbt": save_flat,
    "zarr3": lambda path: save_flat(path, use_zarr3=True),
    "per leaf": lambda path: save_flat(path, use_ocdbt=False),
    "chunked": save_chunked,
    "chunked zarr3": lambda path: save_chunked(path, use_zarr3=True),
    "manager": save_manager,
    "v1": save_v1,
    "edited": save_edited,
    "inferred": save_inferred,
    "msgpack": save_msgpack,
    "safetensors": save_safetensors,
}


def files_of(checkpoint):
    beside = checkpoint.with_name(name_of_record(checkpoint.name))
    found = [path for path in checkpoint.rglob("*") if path.is_file()] or [checkpoint]
    return sorted(path for path in [*found, beside] if path.is_file() and path.stat().st_size)


UNNAMED = "it is not there: arrays' names alone tell what the tree was"


def passes(checkpoint):
    """True if `verify` finds nothing but what was so when it was sealed. Any error is a finding, but for a bug."""
    try:
        found = surgery.verify(str(checkpoint))
    except SurgeryError:
        return False
    assert found.agrees == (not found.findings)
    return all(one.detail == UNNAMED for one in found.findings)


class Flipped:
    """A context in which one bit of a file is another; links of the file elsewhere keep theirs."""

    def __init__(self, file, at, bit):
        self.file, self.raw = file, file.read_bytes()
        changed = bytearray(self.raw)
        changed[at] ^= 1 << bit
        self.changed = bytes(changed)

    def __enter__(self):
        copy = self.file.with_name(f"{self.file.name}.copy")
        shutil.copy2(self.file, copy)
        copy.replace(self.file)
        self.file.write_bytes(self.changed)

    def __exit__(self, *_):
        self.file.write_bytes(self.raw)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_a_seal_no_flip_in_any_file_passes(tmp_path, layout, pytestconfig):
    is_every = pytestconfig.getoption("--every-combination")
    checkpoint = LAYOUTS[layout](tmp_path / "it")
    surgery.seal(str(checkpoint))
    assert passes(checkpoint)
    step = checkpoint / "5" if layout == "manager" else checkpoint
    draw = random.Random(layout)
    for file in files_of(step):
        size = file.stat().st_size
        places = sorted({0, size - 1, draw.randrange(size), draw.randrange(size)})
        for at in places if is_every else draw.sample(places, min(2, size)):
            with Flipped(file, at, draw.randrange(8)):
                assert not passes(checkpoint), (file, at)
    assert passes(checkpoint)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_a_seal_no_file_goes_or_comes_unseen(tmp_path, layout):
    """Whatever is gone, the record is still found; only its own loss leaves nothing to compare with."""
    checkpoint = LAYOUTS[layout](tmp_path / "it")
    surgery.seal(str(checkpoint))
    step = checkpoint / "5" if layout == "manager" else checkpoint
    files = [file for file in files_of(step) if not file.name.endswith("surgery.json")]
    for file in files:
        file.rename(tmp_path / "aside")
        assert not passes(checkpoint), file
        (tmp_path / "aside").rename(file)
    for folder in {file.parent for file in files if step.is_dir()}:
        (folder / "new").write_text("{}")
        assert not passes(checkpoint), folder
        (folder / "new").unlink()
    assert passes(checkpoint)


METADATA = {"_METADATA", "_sharding", "_CHECKPOINT_METADATA", "process_0", ".zarray", "zarr.json"}


def restored(checkpoint):
    """What Orbax restores without a target, or None if it refuses."""
    try:
        if (checkpoint / "5").exists():
            with ocp.CheckpointManager(checkpoint) as manager:
                return str(jax.tree.map(str, dict(manager.restore(5))))
        with ocp.PyTreeCheckpointer() as checkpointer:
            return str(jax.tree.map(str, checkpointer.restore(checkpoint)))
    except Exception:  # noqa: BLE001 - whatever it is that Orbax stumbles over
        return None


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "layout", ["ocdbt", "zarr3", "per leaf", "chunked", "chunked zarr3", "manager"]
)
def test_without_digests_metadata_that_orbax_refuses_or_takes_for_another_is_a_finding(
    tmp_path, layout
):
    logging.disable(logging.CRITICAL)
    checkpoint = LAYOUTS[layout](tmp_path / "it")
    whole = restored(checkpoint)
    assert whole is not None
    assert passes(checkpoint)
    draw = random.Random(layout)
    files = [path for path in files_of(checkpoint) if path.name in METADATA]
    notes = surgery.verify(str(checkpoint)).notes
    for _ in range(40):
        file = draw.choice(files)
        with Flipped(file, draw.randrange(file.stat().st_size), draw.randrange(8)) as flip:
            if passes(checkpoint) and surgery.verify(str(checkpoint)).notes == notes:
                assert restored(checkpoint) == whole, (file, flip)
    logging.disable(logging.NOTSET)
