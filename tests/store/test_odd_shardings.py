"""Whatever stands in `_sharding`, no command falls over it, and what it writes is restored to a target."""

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.cli.conftest import surgery as command_line

__all__ = ["command_line"]  # a fixture

STORED = {
    "sharding_type": "NamedSharding",
    "shape": [2, 2],
    "axis_names": ["x", "y"],
    "axis_types": ["AxisType.Auto", "AxisType.Auto"],
    "partition_spec": ["x", "y"],
    "device_mesh": {"mesh": [[{"id": 0}, {"id": 1}], [{"id": 2}, {"id": 3}]]},
}
SIZES: tuple[list[Any], ...] = (
    [2, 0], [0, 2], [0, 0], [-2, -2], [4, -1], [-2, 2], [2], [], [2, 2, 1], [1e308, 2], [2.5, 2], ["2", 2],
    [None, 2], [10**12, 1], [2**70, 1],
)  # fmt: skip
ODD: list[Any] = [
    *({**STORED, "shape": sizes, **more} for sizes in SIZES for more in ({}, {"device_mesh": None})),
    *(
        {**STORED, "shape": sizes, "device_mesh": None, "partition_spec": ["x"]}
        for sizes in ([2, 0], [0, 2], [-2, 2], [2, -2])
    ),
    *({**STORED, "axis_names": names} for names in (["x", "x"], [], None, [1, 2], "xy", [["x"], "y"])),
    *({**STORED, "partition_spec": spec} for spec in ("x", [{}], ["q"], [[["x"]]], ["x", "x"], None, ["x"] * 3)),
    *({**STORED, "device_mesh": mesh} for mesh in ([1], {"mesh": 5}, {"mesh": [{"id": "a"}] * 4}, {}, "m")),
    *({**STORED, "axis_types": types} for types in ([5], 5, ["AxisType.Explicit"], {})),
    *({key: value for key, value in STORED.items() if key != left_out} for left_out in STORED),
    *({"sharding_type": kind} for kind in ("GSPMDSharding", "SingleDeviceSharding", None, [], 4)),
    *({"sharding_type": "SingleDeviceSharding", "device_str": text} for text in ("", 5, None, "cpu:x", "tpu:1")),
    {}, [], None, "", "NamedSharding", 7, True,
]  # fmt: skip

COMMANDS: dict[str, list[str]] = {
    "plan of a slice": ["slice", "HERE", "NEW", "params/w", "--slices", "0:6,:"],
    "a new leaf": ["add", "HERE", "NEW", "params/n", "--init", "zeros", "--shape", "8,8", "--dtype", "float32"],
    "a donor's leaves": ["merge", "HERE", "NEW", "params", "--with", "DONOR", "--both", "ours"],
    "a donor in the place": ["replace", "HERE", "NEW", "params/w", "--with", "DONOR"],
    "odd ones of a donor": ["merge", "DONOR", "NEW", "params", "--with", "HERE", "--both", "ours"],
    "odd ones in the place": ["replace", "DONOR", "NEW", "params/w", "--with", "HERE"],
    "copy": ["copy", "HERE", "NEW", "params/w", "--to", "params/c"],
    "transpose": ["transpose", "HERE", "NEW", "params/w"],
    "reshape": ["reshape", "HERE", "NEW", "params/w", "--shape", "4,16"],
    "stack": ["stack", "HERE", "NEW", "params/[wv]", "--to", "params/s"],
    "rename": ["rename", "HERE", "NEW", "params/y", "--to", "params/yy"],
    "reshard": ["reshard", "HERE", "NEW", "--mesh", "x=2", "--spec", "params/w=x"],
    "chunks": ["reshard", "HERE", "NEW", "--chunk-bytes", "64KiB"],
    "reshard like": ["reshard", "DONOR", "NEW", "--like", "HERE"],
    "inspect": ["inspect", "HERE"],
    "layout": ["inspect", "HERE", "--layout"],
    "verify": ["verify", "HERE"],
    "diff": ["diff", "HERE", "DONOR"],
    "rescue": ["rescue", "BROKEN", "NEW", "--allow-partial"],
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    for name, third in (("here", "y"), ("donor", "z")):
        params = {
            leaf: jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x", "y")))
            for leaf in ("w", "v", third)
        }
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(folder / name, {"params": params})
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_falls_over_what_stands_in_a_sharding(
    command: str, saved: Path, tmp_path: Path, command_line: Any
) -> None:
    here, broken = (Path(shutil.copytree(saved / "here", tmp_path / n)) for n in ("here", "broken"))
    (broken / "_METADATA").unlink()
    keys = json.loads((here / "_sharding").read_text())
    places = {"HERE": here, "DONOR": saved / "donor", "NEW": tmp_path / "new", "BROKEN": broken}
    for odd in ODD:
        text = odd if isinstance(odd, str) else json.dumps(odd)
        for place in (here, broken):
            (place / "_sharding").write_text(json.dumps(dict.fromkeys(keys, text)))
        done = command_line(*(places.get(word, word) for word in COMMANDS[command]))
        assert done.code in (0, 1, 2, 3), (odd, done)
        if (tmp_path / "new").exists():
            _restore(tmp_path / "new")
            shutil.rmtree(tmp_path / "new")


def _restore(path: Path) -> None:
    """To a target that says shardings."""
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target: dict[str, Any] = {}
    for key in json.loads((path / "_METADATA").read_text())["tree_metadata"]:
        node, leaf = ast.literal_eval(key)
        target.setdefault(node, {})[leaf] = ocp.ArrayRestoreArgs(sharding=one)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(path, args=ocp.args.PyTreeRestore(restore_args=target))
    assert jax.tree.structure(found) == jax.tree.structure(target)
