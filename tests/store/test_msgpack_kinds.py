"""In a msgpack file an array that loses its last axis stays an array, and becomes no NumPy scalar."""

import flax.serialization
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document


@pytest.mark.parametrize(
    "edit",
    [
        {"op": "reshape", "at": "a", "shape": []},
        {"op": "squeeze", "at": "a", "axis": 0},
    ],
    ids=lambda edit: edit["op"],
)
def test_an_array_without_axes_is_written_as_flax_writes_one(tmp_path, edit):
    values = np.array([3], np.float32)
    (tmp_path / "a.msgpack").write_bytes(flax.serialization.msgpack_serialize({"a": values}))
    plan = plan_from_document({"edits": [edit]})
    surgery.apply(str(tmp_path / "a.msgpack"), str(tmp_path / "b.msgpack"), plan)
    wanted = flax.serialization.msgpack_serialize({"a": values.reshape(())})
    assert (tmp_path / "b.msgpack").read_bytes() == wanted
