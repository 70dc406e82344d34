"""What a preview says of the bytes that move is what the run's record says, whatever the edit and the layout."""

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("edit", EDITS)
def test_a_preview_states_the_bytes_that_the_run_moves(
    edit: str, layout: str, tmp_path: Path
) -> None:
    source, new = str(_saved(tmp_path / "source", layout)), str(tmp_path / "new")
    document: dict[str, Any] = {"edits": [EDITS[edit]]}
    if edit == "graft":
        document["sources"] = {"donor": str(_saved(tmp_path / "donor", layout))}
    plan = plan_from_document(document)
    options = surgery.Options(link="hard", compact="never")
    before = surgery.plan(source, plan, destination=new, options=options)
    done = surgery.apply(source, new, plan, options=options)
    assert before.bytes_linked == done.bytes_linked
    assert before.bytes_written == done.bytes_written
    inodes = {f.stat().st_ino for top in (source, tmp_path / "donor") for f in Path(top).rglob("*")}
    files = [f for f in Path(new).rglob("*") if f.is_file() and f.stat().st_ino in inodes]
    assert before.bytes_linked == sum(f.stat().st_size for f in files)
