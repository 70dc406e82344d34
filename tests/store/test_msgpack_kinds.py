"""In files of one piece a leaf that gains or loses axes is what its format has for that: an array, bytes, a scalar."""

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.rearranging import ShapeEdit
from surgery_cli.operations.table import operations
from surgery_cli.planning import plan_from_document

LEAVES = {
    "scalar": np.float32(3),
    "zero": np.array(2, np.int32),
    "bytes": b"abcdef",
    "one": np.ones(1, np.float32),
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
}
"""A leaf of every kind that Flax's msgpack tells apart."""

EDITS = {
    "expand": [{"axis": 0}],
    "reshape": [{"shape": [-1]}, {"shape": [1, -1]}, {"shape": []}, {"shape": [2, 3]}],
    "squeeze": [{}],
    "slice": [{"slices": "0:1"}],
    "repeat": [{"axis": 0, "times": 2, "new_axis": True}, {"axis": 0, "times": 2}],
    "stack": [{"to": "new"}],
    "unstack": [{"to": "new_{}"}],
    "split": [{"to": ["x", "y"], "axis": 0}],
    "concat": [{"to": "new", "axis": 0}],
    "transpose": [{}],
    "permute": [{"axis": 0, "index": [0]}],
    "pad": [{"axis": 0, "after": 1}],
    "resize": [{"size": 8, "axis": 0}],
    "interpolate-positions": [],
}
"""Settings with which an operation gives leaves another shape; of positions there are none here."""


def test_every_operation_that_gives_other_shapes_is_tried() -> None:
    kinds = operations().items()
    regrouping = {"stack", "unstack", "split", "concat"}
    shaping = {name for name, kind in kinds if issubclass(kind, ShapeEdit)} | regrouping
    assert shaping == EDITS.keys(), "say with which settings it is tried"
    assert all(issubclass(dict(kinds)[name], LeafOperation) for name in shaping - regrouping)


def write(folder, layout, values):
    """A checkpoint that is one file, with one leaf; what it is called."""
    path = folder / f"a.{layout}"
    if layout == "msgpack":
        path.write_bytes(flax.serialization.msgpack_serialize({"a": values}))
    elif layout == "npz":
        np.savez(path, a=values)
    else:
        save_file({"a": np.asarray(values)}, path)
    return path


def read(path):
    if path.is_dir():
        return ocp.PyTreeCheckpointer().restore(path)
    return flax.serialization.msgpack_restore(path.read_bytes())


def type_of(value):
    array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layout", "leaf"),
    [*(("msgpack", leaf) for leaf in LEAVES), ("npz", "scalar"), ("safetensors", "zero")],
)
def test_what_gains_or_loses_axes_is_what_the_format_has_for_it(tmp_path, layout, leaf):
    source = write(tmp_path, layout, LEAVES[leaf])
    done = 0
    for op, settings in EDITS.items():
        for n, fields in enumerate(settings):
            plan = plan_from_document({"edits": [{"op": op, "at": "a", **fields}]})
            result = tmp_path / f"{op}{n}.{layout}"
            try:
                report = surgery.apply(str(source), str(result), plan)
            except PlanError:  # it has no such axes
                continue
            done += 1
            after = {one.path: one.after for one in report.leaves}
            for path, found in read(result).items():
                assert after.get(path, type_of(LEAVES[leaf])) == type_of(found), op
    assert done >= 3


@pytest.mark.parametrize(
    ("leaf", "edit", "wanted"),
    [
        ("one", {"op": "reshape", "shape": []}, np.ones((), np.float32)),
        ("one", {"op": "squeeze", "axis": 0}, np.ones((), np.float32)),
        ("scalar", {"op": "expand", "axis": 0}, np.full(1, 3, np.float32)),
        ("scalar", {"op": "rescale", "by": 2}, np.float32(6)),
        ("bytes", {"op": "reshape", "shape": [2, 3]}, np.frombuffer(b"abcdef", "u1").reshape(2, 3)),
        ("bytes", {"op": "slice", "slices": "0:2"}, b"ab"),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else None,
)
def test_it_is_written_as_flax_writes_one(tmp_path, leaf, edit, wanted):
    source = write(tmp_path, "msgpack", LEAVES[leaf])
    plan = plan_from_document({"edits": [{"at": "a", **edit}]})
    surgery.apply(str(source), str(tmp_path / "b.msgpack"), plan)
    written = flax.serialization.msgpack_serialize({"a": wanted})
    assert (tmp_path / "b.msgpack").read_bytes() == written
