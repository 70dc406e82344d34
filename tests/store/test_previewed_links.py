"""What a preview says of the bytes that move is what the run's record says, whatever the edit and the layout."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from flax.serialization import to_bytes
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document

NUMBERS = np.random.default_rng(5)
ARRAYS = {f"{name}{n}": {"w": NUMBERS.normal(size=(40, 50))} for name in "abc" for n in range(8)}
TREE = {**ARRAYS, "nothing": {"none": None, "empty": {}}}  # no file holds anything of these
EDITS: dict[str, dict[str, Any]] = {
    "look on": {"op": "assert", "at": "a0/w", "finite": True},
    "move a leaf": {"op": "rename", "at": "a0", "to": "z"},
    "move nearby": {"op": "rename", "at": "b3/w", "to": "b3/x"},
    "move many": {"op": "rename", "at": "c*", "to": "d\\1"},
    "exchange": {"op": "rename", "moves": {"a0": "c7", "c7": "a0"}},
    "delete": {"op": "delete", "at": "b*"},
    "keep": {"op": "keep", "at": "a1"},
    "copy": {"op": "copy", "at": "c7", "to": "e"},
    "compute": {"op": "rescale", "at": "a*", "by": 2},
    "convert": {"op": "cast", "at": "b0/w", "to": "float16"},
    "graft": {"op": "replace", "at": "a1", "with": "donor", "from": "b1"},
}
LAYOUTS = ["ocdbt", "zarr3", "leaves", "small nodes"]


def _saved(place: Path, layout: str) -> Path:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=layout != "leaves", use_zarr3=layout == "zarr3")
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(place, args=ocp.args.PyTreeSave(TREE))
    if layout == "small nodes":
        _part_nodes(place)
    return place


def _part_nodes(place: Path) -> None:
    """Write the database anew, with many nodes, a commit for each key, so that files hold nodes alone."""
    old = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{place}/"}).result()
    held = {key: old.read(key).result().value for key in old.list().result()}
    for file in [place / "manifest.ocdbt", *place.glob("**/d/*"), *place.glob("ocdbt.*/manifest*")]:
        file.unlink()
    config = {"max_decoded_node_bytes": 2000, "max_inline_value_bytes": 100}
    spec = {"driver": "ocdbt", "base": f"file://{place}/", "config": config}
    new = ts.KvStore.open(spec).result()
    for key, value in held.items():
        new.write(key, value).result()


def _plan(edit: str, donor: Path, *, is_flat: bool = False) -> Any:
    document: dict[str, Any] = {"edits": [EDITS[edit]]}
    if is_flat:
        document = json.loads(json.dumps(document).replace("/w", "").replace("/x", "x"))
    if edit == "graft":
        document["sources"] = {"donor": str(donor)}
    return plan_from_document(document)


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("edit", EDITS)
def test_a_preview_states_the_bytes_that_the_run_moves(
    edit: str, layout: str, tmp_path: Path
) -> None:
    source, new = str(_saved(tmp_path / "source", layout)), str(tmp_path / "new")
    if edit == "graft":
        _saved(tmp_path / "donor", layout)
    plan = _plan(edit, tmp_path / "donor")
    options = surgery.Options(link="hard", compact="never")
    before = surgery.plan(source, plan, destination=new, options=options)
    done = surgery.apply(source, new, plan, options=options)
    assert before.bytes_linked == done.bytes_linked
    assert before.bytes_written == done.bytes_written
    inodes = {f.stat().st_ino for top in (source, tmp_path / "donor") for f in Path(top).rglob("*")}
    files = [f for f in Path(new).rglob("*") if f.is_file() and f.stat().st_ino in inodes]
    assert before.bytes_linked == sum(f.stat().st_size for f in files)
    assert before.bytes_copied == done.bytes_copied
    apart = surgery.Options(link="never", compact="never")
    before = surgery.plan(source, plan, destination=f"{new}-2", options=apart)
    done = surgery.apply(source, f"{new}-2", plan, options=apart)
    assert (before.bytes_linked, done.bytes_linked) == (0, 0)
    assert before.bytes_copied == done.bytes_copied


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["msgpack", "safetensors", "npz"])
@pytest.mark.parametrize("edit", EDITS)
def test_a_preview_of_a_format_that_is_one_file_states_them(
    edit: str, kind: str, tmp_path: Path
) -> None:
    files = [tmp_path / f"{name}.{kind}" for name in ("source", "donor")]
    for file in files:
        if kind == "msgpack":
            file.write_bytes(to_bytes(ARRAYS))
        else:
            flat = {name: leaf["w"] for name, leaf in ARRAYS.items()}
            save_file(flat, file) if kind == "safetensors" else np.savez(file, **flat)
    source, new = str(files[0]), str(tmp_path / "new")
    plan = _plan(edit, files[1], is_flat=kind != "msgpack")
    before = surgery.plan(source, plan, destination=new)
    done = surgery.apply(source, new, plan)
    moved = [(of.bytes_written, of.bytes_linked, of.bytes_copied) for of in (before, done)]
    assert moved[0] == moved[1]
    assert before.bytes_read == done.bytes_read
