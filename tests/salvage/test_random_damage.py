"""Checkpoints damaged at random: what is whole comes back, nothing has a wrong value, every loss is named.

`RESCUES=200 python -m pytest tests/salvage/test_random_damage.py -n 0` tries more of them.
"""

import os
import random
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.orbax.btree import Extent, Survey
from tests.salvage.test_corpus import restored

LAYOUTS = {
    "ocdbt": {},
    "ocdbt-zarr3": {"use_zarr3": True},
    "ocdbt-chunks": {"chunks": 2000},
    "leaf-folders": {"use_ocdbt": False},
    "leaf-folders-zarr3": {"use_ocdbt": False, "use_zarr3": True},
    "leaf-folders-chunks": {"use_ocdbt": False, "chunks": 2000},
}
WAYS = ("remove", "cut", "empty", "remove folder", "stop upload")


def _tree():
    random_numbers = np.random.default_rng(0)

    def layer():
        kernel = random_numbers.standard_normal((24, 33)).astype(np.float32)
        return {"kernel": kernel, "bias": random_numbers.standard_normal(33).astype(np.float32)}

    params = {f"layer_{n}": layer() for n in range(3)}
    return {"params": params, "opt": [{"mu": {"layer_0": layer()}}, None], "step": 7}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder, tree = tmp_path_factory.mktemp("saved"), _tree()
    for name, options in LAYOUTS.items():
        settings = {k: v for k, v in options.items() if k != "chunks"}
        size = options.get("chunks")
        saving = jax.tree.map(lambda _, size=size: ocp.SaveArgs(chunk_byte_size=size), tree)
        handler = ocp.PyTreeCheckpointHandler(**settings)
        args = ocp.args.PyTreeSave(tree, save_args=saving)
        ocp.Checkpointer(handler).save(folder / name, args)
    return folder


def _damage(place, chance):
    for _ in range(chance.randint(1, 5)):
        files = sorted(file for file in place.rglob("*") if file.is_file())
        if not files:
            return
        file, way = chance.choice(files), chance.choice(WAYS)
        if way == "remove":
            file.unlink()
        elif way == "cut":
            file.write_bytes(file.read_bytes()[: chance.randint(0, file.stat().st_size)])
        elif way == "empty":
            file.write_bytes(b"")
        elif way == "remove folder" and file.parent != place:
            shutil.rmtree(file.parent)
        elif way == "stop upload":
            for other in chance.sample(files, k=len(files) // 3):
                other.unlink()


def _surely_whole(before, after):
    """Stored names of arrays whose bytes, and the tree that leads to them, are as they were."""

    def is_same(extent):
        def part(folder):
            file = folder / extent.file
            raw = file.read_bytes() if file.exists() else b""
            return raw[extent.offset : extent.offset + extent.length]

        return part(before) == part(after) and part(before) != b""

    if not (before / "manifest.ocdbt").exists():
        folders = [f for f in before.iterdir() if f.is_dir() and f.name != "array_metadatas"]
        return {
            folder.name
            for folder in folders
            if all(
                (after / f.relative_to(before)).exists()
                and (after / f.relative_to(before)).read_bytes() == f.read_bytes()
                for f in folder.rglob("*")
                if f.is_file()
            )
        }
    survey = Survey(before)
    if not all(map(is_same, survey.nodes)):
        return set()
    there = {}
    for key, value in survey.values.items():
        name = key.decode().partition("/")[0]
        is_there = not isinstance(value, Extent) or is_same(value)
        there[name] = there.get(name, True) and is_there
    return {name for name, is_there in there.items() if is_there}


@pytest.mark.parametrize("seed", range(int(os.environ.get("RESCUES", "10"))))
def test_what_is_whole_comes_back_and_nothing_has_a_wrong_value(seed, saved, tmp_path):
    chance = random.Random(seed)
    layout = chance.choice(list(LAYOUTS))
    broken, new = tmp_path / "broken", tmp_path / "new"
    shutil.copytree(saved / layout, broken)
    _damage(broken, chance)
    true = {str(p): v for p, v in _values(open_checkpoint(str(saved / layout)))}
    surely = _surely_whole(saved / layout, broken)
    try:
        found = surgery.rescue(str(broken))
    except SurgeryError:
        assert not surely
        return

    rows = {row.path: row for row in found.leaves}
    assert {name.replace(".", "/") for name in surely} <= {
        path for path, row in rows.items() if row.state == "whole"
    }
    whole = {path for path, row in rows.items() if row.state == "whole" and row.type_text}
    if not whole:
        return
    surgery.rescue(str(broken), str(new), allow_partial=True)
    values = {name.replace(".", "/"): value for name, value in restored(new).items()}
    assert whole <= values.keys()
    for path in whole:
        assert values[path].tobytes() == true[path].tobytes(), path


def _values(checkpoint):
    for path, spec in checkpoint.tree.items():
        if spec.has_array:
            yield path, np.asarray(checkpoint.read(path))
