"""Checkpoints damaged at random: what is whole comes back, nothing has a wrong value, every loss is named.

`RESCUES=200 python -m pytest tests/salvage/test_random_damage.py -n 0` tries more of them, a fifth of them saves that
were killed, and prints a table; `make rescues` also writes it down for the docs (`RESCUES_TO`).
"""

import functools
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.extents import Extent
from tests.faults.tally import program
from tests.salvage.test_corpus import restored

STATES = ("whole", "partly", "lost")
COLUMNS = ("tries", "leaves", *STATES, "surely whole", "lost though whole", "wrong values")
TRIES = int(os.environ.get("RESCUES", "10"))
KILLED = TRIES // 5 if TRIES > 10 else 0
"""Of the tries, saves that were killed; in the suite, the corpus has some."""

LAYOUTS = {
    "ocdbt": {},
    "ocdbt-zarr3": {"use_zarr3": True},
    "ocdbt-chunks": {"chunks": 2000},
    "ocdbt-small-files": {"file_bytes": 4000},
    "leaf-folders": {"use_ocdbt": False},
    "leaf-folders-zarr3": {"use_ocdbt": False, "use_zarr3": True},
    "leaf-folders-chunks": {"use_ocdbt": False, "chunks": 2000},
    "step-of-items": {},
    "v1": {},
    "sealed": {"chunks": 2000},
    "sealed-leaf-folders": {"use_ocdbt": False},
}
WAYS = ("remove", "cut", "empty", "remove folder", "stop upload")
ITEMS = ("params", "opt")


def _tree():
    random_numbers = np.random.default_rng(0)

    def layer():
        kernel = random_numbers.standard_normal((24, 33)).astype(np.float32)
        return {"kernel": kernel, "bias": random_numbers.standard_normal(33).astype(np.float32)}

    params = {f"layer_{n}": layer() for n in range(3)}
    return {"params": params, "opt": [{"mu": {"layer_0": layer()}}, None], "step": 7}


def _arrays(tree):
    """The arrays of a tree, by printed path."""
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): v for path, v in found}


TRUE = {path: np.asarray(value) for path, value in _arrays(_tree()).items()}


def _save(place, layout, tree):
    if layout == "v1":
        v1.save(place, tree)
        return place
    if layout == "step-of-items":
        with ocp.CheckpointManager(place, item_names=ITEMS) as manager:
            items = {name: ocp.args.PyTreeSave(tree[name]) for name in ITEMS}
            manager.save(7, args=ocp.args.Composite(**items))
        return place / "7"
    own = LAYOUTS[layout]
    handling = {name: own[name] for name in ("use_ocdbt", "use_zarr3") if name in own}
    size = own.get("chunks")
    saving = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=size), tree)
    args = ocp.args.PyTreeSave(
        tree, save_args=saving, ocdbt_target_data_file_size=own.get("file_bytes")
    )
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**handling)).save(place, args)
    if layout.startswith("sealed"):
        surgery.seal(str(place))
    return place


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saves by layout, each made when it is first asked for."""
    folder = tmp_path_factory.mktemp("saved")
    return functools.cache(lambda layout: _save(folder / layout, layout, _tree()))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What is left of saves that were killed."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "tree").write_bytes(pickle.dumps(_tree()))
    script = Path(__file__).with_name("killed_saves.py")
    subprocess.run([sys.executable, script, folder, str(KILLED)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def table():
    """What became of leaves, by layout; printed at the end of a long run."""
    found = {}
    yield found
    if TRIES > 10:
        rows = [("layout", *COLUMNS), ("---",) * (len(COLUMNS) + 1)]
        rows += [(name, *(found[name][column] for column in COLUMNS)) for name in sorted(found)]
        sys.stdout.write("\n" + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows))
    if place := os.environ.get("RESCUES_TO"):
        known = {
            "program": program(),
            "date": datetime.now(UTC).date().isoformat(),
            "layouts": found,
        }
        Path(place).write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def _damage(place, chance, *, is_sealed):
    ways = (*WAYS, "flip", "flip", "flip") if is_sealed else WAYS
    for _ in range(chance.randint(1, 5)):
        # who damages the seal as well may do as he likes
        files = sorted(f for f in place.rglob("*") if f.is_file() and f.name != "surgery.json")
        if not files:
            return
        file, way = chance.choice(files), chance.choice(ways)
        if way == "remove":
            file.unlink()
        elif way == "cut":
            file.write_bytes(file.read_bytes()[: chance.randint(0, file.stat().st_size)])
        elif way == "empty":
            file.write_bytes(b"")
        elif way == "flip" and file.stat().st_size:
            raw = bytearray(file.read_bytes())
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            file.write_bytes(raw)
        elif way == "remove folder" and file.parent != place:
            shutil.rmtree(file.parent)
        elif way == "stop upload":
            for other in chance.sample(files, k=len(files) // 3):
                other.unlink()


def _items(step):
    """The folders with trees in a checkpoint as it was saved."""
    inside = [step / name for name in (*ITEMS, "state") if (step / name / "_METADATA").exists()]
    return inside or [step]


def _surely_whole(before, after):
    """Paths in their item of arrays whose bytes, and the tree that leads to them, are as they were."""
    return {
        ("params/" if item.name == "params" else "opt/" if item.name == "opt" else "")
        + name.replace(".", "/")
        for item in _items(before)
        for name in _same_arrays(item, after / item.relative_to(before))
    }


def _same_arrays(before, after):
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


def _hold_rescued(broken, new, surely, layout, table):
    """What is surely whole is found, and nothing that comes back has a wrong value."""
    counts = table.setdefault(layout, Counter())
    counts.update({"tries": 1, "leaves": len(TRUE), "surely whole": len(surely)})
    try:
        found = surgery.rescue(str(broken))
    except SurgeryError:
        counts["lost"] += len(TRUE)
        counts["lost though whole"] += len(surely)
        assert not surely
        return

    # a step whose other item is gone, and the file that says so, is one tree
    several = layout == "step-of-items" and all(row.path.startswith(ITEMS) for row in found.leaves)
    front = "" if layout != "step-of-items" or several else f"{_only_item(broken)}/"
    rows = {front + row.path: row for row in found.leaves}
    whole = {path for path, row in rows.items() if row.state == "whole" and row.type_text}
    partly = {path for path, row in rows.items() if row.state == "partly"}
    counts["lost though whole"] += len(surely - whole)
    assert surely <= whole
    counts.update({"whole": len(whole), "partly": len(partly)})
    counts["lost"] += len(TRUE) - len(whole) - len(partly)
    if not whole:
        return
    surgery.rescue(str(broken), str(new), allow_partial=True)
    values = {}
    trees = (
        [front.rstrip("/")] if front else ITEMS
    )  # of another item, what is left comes along as it is
    for place in [new / name for name in trees if (new / name).exists()] or [new]:
        item = new / "state" if (new / "state").exists() else place
        before = f"{place.name}/" if place != new else front
        values |= {before + name.replace(".", "/"): v for name, v in restored(item).items()}
    assert whole <= values.keys()
    wrong = {path for path in whole if values[path].tobytes() != TRUE[path].tobytes()}
    counts["wrong values"] += len(wrong)
    assert not wrong


def _only_item(broken):
    there = [name for name in ITEMS if (broken / name).is_dir()]
    described = [name for name in there if (broken / name / "_METADATA").exists()]
    (name,) = there if len(there) == 1 else described
    return name


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(TRIES - KILLED))
def test_what_is_whole_comes_back_and_nothing_has_a_wrong_value(seed, saved, table, tmp_path):
    chance = random.Random(seed)
    layout = list(LAYOUTS)[seed % len(LAYOUTS)]
    broken, new = tmp_path / "broken", tmp_path / "new"
    step = saved(layout)
    shutil.copytree(step, broken)
    _damage(broken, chance, is_sealed=layout.startswith("sealed"))
    _hold_rescued(broken, new, _surely_whole(step, broken), layout, table)


@pytest.mark.parametrize("number", range(KILLED))
def test_of_a_save_that_was_killed_nothing_is_lost_that_is_there(number, killed, table, tmp_path):
    (broken,) = [*(killed / str(number)).glob("7*"), None][:1]
    if broken is None:  # killed before it had begun
        return
    surely = _readable(broken)
    _hold_rescued(broken, tmp_path / "new", surely, f"killed-{number % 3}", table)


def _readable(broken):
    """Paths of the arrays that TensorStore itself reads whole, as the folders lie there."""
    found = set()
    for name in (path.replace("/", ".") for path in TRUE):
        for folder in (broken, broken / "ocdbt.process_0"):
            base = f"file://{folder}/"
            is_database = (folder / "manifest.ocdbt").exists()
            for driver in ("zarr", "zarr3"):
                kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
                spec = {
                    "driver": driver,
                    "kvstore": kvstore if is_database else f"{base}{name}/",
                    "fill_missing_data_reads": False,
                }
                try:
                    ts.open(spec, open=True, read=True).result().read().result()
                except (ValueError, OSError):
                    continue
                found.add(name.replace(".", "/"))
    return found
