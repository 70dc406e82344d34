"""`inspect --layout` against TensorStore: each host, a process of its own, reads the bytes that were foretold."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from surgery_cli.settings.reshard import Reshard
from tests.layout.states import LAYOUTS, over, save
from tests.layout.test_reshard import reshard

DEVICES = (4, 2)
SPEC = {"params/rows": "fsdp", "params/both": "fsdp,tensor", "params/columns": "None,(fsdp,tensor)"}
HERE = Path(__file__).parent


def arrays() -> dict[str, Any]:
    """Incompressible matrices, none of whose chunks is small enough to stand in the tree of a database."""
    drawn = np.random.default_rng(0)
    names = ("rows", "both", "columns", "replicated")
    return {
        "params": {
            name: jax.numpy.asarray(drawn.normal(size=(64, 256)), "float32") for name in names
        }
    }


def windows_of(host: int, hosts: int) -> dict[str, list[Any]]:
    """What a host needs of each array, as JAX itself places it: windows without those that are alike."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(DEVICES), ("fsdp", "tensor"))
    each = 8 // hosts
    own = set(mesh.devices.flat[host * each : (host + 1) * each])
    specs = {
        "rows": P("fsdp"),
        "both": P("fsdp", "tensor"),
        "columns": P(None, ("fsdp", "tensor")),
        "replicated": P(),
    }
    found = {}
    for name, spec in specs.items():
        found[f"params.{name}"] = windows_in(NamedSharding(mesh, spec), (64, 256), own)
    return found


def windows_in(sharding: NamedSharding, shape: tuple[int, ...], own: set[Any]) -> list[Any]:
    """What some devices hold of an array."""
    ends = {
        tuple(part.indices(n)[:2] for part, n in zip(w, shape, strict=True))
        for d, w in sharding.devices_indices_map(shape).items()
        if d in own
    }
    return sorted(ends)


def read_by_one_host(asked: list[dict[str, Any]]) -> list[int]:
    """The bytes that are read of each checkpoint, by a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "one_host.py")],
        input=json.dumps(asked),
        text=True,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One chunk a leaf, rows of one device, and the result of `reshard`, in every layout."""
    folder = tmp_path_factory.mktemp("reads")
    found = []
    for number, (ocdbt, zarr3) in enumerate(LAYOUTS):
        kind = {"ocdbt": ocdbt, "driver": "zarr3" if zarr3 else "zarr"}
        one = save(folder / f"one{number}", arrays(), ocdbt=ocdbt, zarr3=zarr3)
        rows = over(jax.make_mesh((8,), ("data",)), arrays(), P("data"))
        old = save(folder / f"rows{number}", rows, ocdbt=ocdbt, zarr3=zarr3)
        new = folder / f"new{number}"
        reshard(one, new, mesh={"fsdp": 4, "tensor": 2}, spec=SPEC)
        found += [{"path": str(path), **kind} for path in (one, old, new)]
    return found


@pytest.mark.parametrize("hosts", [8, 2])
def test_every_host_reads_the_bytes_that_were_foretold(
    checkpoints: list[dict[str, Any]], hosts: int
) -> None:
    request = Reshard(mesh={"fsdp": 4, "tensor": 2}, spec=SPEC)
    told = [surgery.inspect(one["path"], layout=request, hosts=hosts).hosts for one in checkpoints]
    kept = 0 if hosts == 8 else 1 << 28
    read = []
    for host in range(hosts):
        asked = [{**one, "arrays": windows_of(host, hosts), "kept": kept} for one in checkpoints]
        read.append(read_by_one_host(asked))
    for at, one in enumerate(told):
        by_host = [counts[at] for counts in read]
        assert one is not None
        assert (one.read_bytes, one.most_bytes, one.least_bytes) == (
            sum(by_host),
            max(by_host),
            min(by_host),
        )


@pytest.mark.parametrize("zarr3", [False, True])
def test_values_that_stand_in_the_nodes_of_the_tree_are_read_with_these(
    tmp_path: Path, zarr3: bool
) -> None:
    """Of small leaves all do, of the large one none."""
    drawn, mesh = np.random.default_rng(0), jax.make_mesh((8,), ("data",))
    tree = {f"small{n}": jax.numpy.asarray(drawn.normal(size=(8, 4)), "float32") for n in range(9)}
    tree["large"] = jax.numpy.asarray(drawn.normal(size=(64, 256)), "float32")
    spread = over(mesh, tree, P("data"))
    path = save(tmp_path / "ck", spread, zarr3=zarr3)
    told = surgery.inspect(str(path), layout=Reshard(), hosts=8).hosts
    assert told is not None
    one = {"path": str(path), "ocdbt": True, "driver": "zarr3" if zarr3 else "zarr", "kept": 0}
    read = {"small": 0, "large": 0}
    for host in range(8):
        own = {jax.devices()[host]}
        for kind in read:
            arrays = {
                name: windows_in(leaf.sharding, leaf.shape, own)
                for name, leaf in spread.items()
                if name.startswith(kind)
            }
            read[kind] += read_by_one_host([{**one, "arrays": arrays}])[0]
    assert read["small"] == 0
    assert told.read_bytes == read["large"] > 0


def test_leaves_on_other_meshes_are_read_by_the_hosts_of_their_devices(tmp_path: Path) -> None:
    """Of smaller ones, of the same devices in another order, and of one that shares some of them."""
    drawn, devices = np.random.default_rng(0), np.array(jax.devices()[:8])
    grid = Mesh(devices.reshape(DEVICES), ("a", "b"))
    spreads = {
        "most": NamedSharding(grid, P("a", "b")),
        "also": NamedSharding(grid, P(None, "a")),
        "two": NamedSharding(Mesh(devices[:2], ("x",)), P("x")),
        "three": NamedSharding(Mesh(devices[3:6], ("x",)), P(None, "x")),
        "back": NamedSharding(Mesh(devices[::-1].reshape(2, 4), ("x", "y")), P("y", "x")),
        "whole": NamedSharding(Mesh(devices[2:4], ("x",)), P()),
    }
    values = {name: drawn.normal(size=(64, 240)).astype(np.float32) for name in spreads}
    tree = {name: jax.device_put(values[name], spread) for name, spread in spreads.items()}
    for hosts in (8, 4):
        one = {"path": str(save(tmp_path / str(hosts), tree)), "ocdbt": True, "driver": "zarr"}
        told = surgery.inspect(one["path"], layout=Reshard(), hosts=hosts).hosts
        assert told is not None
        assert (told.mesh, told.elsewhere) == ("a=4,b=2", 4)
        read = []
        for host in range(hosts):
            own = set(devices[host * 8 // hosts : (host + 1) * 8 // hosts])
            windows = {name: windows_in(spread, (64, 240), own) for name, spread in spreads.items()}
            asked = [{**one, "arrays": windows, "kept": 0 if hosts == 8 else 1 << 28}]
            read += read_by_one_host(asked)
        found = (told.read_bytes, told.most_bytes, told.least_bytes)
        assert found == (sum(read), max(read), min(read))
        named = {leaf.path: leaf.mesh for leaf in told.worst}
        assert named.get("whole", "x=2") == "x=2"
        assert ("whole" in named) == (hosts == 8)  # else both devices are of one host


def test_what_is_read_for_nothing_is_named_and_ends_with_reshard(
    checkpoints: list[dict[str, Any]],
) -> None:
    request = Reshard(mesh={"fsdp": 4, "tensor": 2}, spec=SPEC)
    one, rows, new = (surgery.inspect(c["path"], layout=request).hosts for c in checkpoints[:3])
    assert one is not None
    assert rows is not None
    assert new is not None
    assert one.read_bytes == 8 * one.stored_bytes
    assert {leaf.path for leaf in one.worst[:3]} == set(SPEC)
    assert rows.worst[0].path == "params/columns"
    assert rows.worst[0].read_bytes == 8 * rows.worst[0].stored_bytes
    assert new.unused_bytes == 0
    assert (new.worst[0].path, new.worst[0].partition) == ("params/replicated", "None")
    assert new.again_bytes == sum(leaf.again_bytes for leaf in new.worst)


@pytest.mark.parametrize("ocdbt", [True, False])
def test_the_preview_of_a_reshard_counts_what_an_inspection_counts(
    tmp_path: Path, ocdbt: bool
) -> None:
    """Numbers of Python and arrays of NumPy, too, which every host reads whole."""
    tree = {**arrays(), "number": 3, "share": 0.5, "own": np.ones((4, 6), np.float32)}
    source = save(tmp_path / "ck", tree, ocdbt=ocdbt)
    request = Reshard(mesh={"fsdp": 4, "tensor": 2}, spec=SPEC)
    inspected = surgery.inspect(str(source), layout=request).hosts
    plan = plan_from_document({"edits": [], "reshard": {"mesh": request.mesh, "spec": SPEC}})
    previewed = surgery.plan(str(source), plan).reshard
    assert previewed
    assert inspected is not None
    assert previewed.before == inspected
    assert previewed.after is not None
    assert previewed.after.chunks > inspected.chunks


@pytest.mark.parametrize("hosts", [None, 1, 4])
def test_of_arrays_of_numpy_no_mesh_is_asked_for(tmp_path: Path, hosts: int | None) -> None:
    """Whatever is added, it would be refused again."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", {"w": np.ones((8, 8), np.float32)})
    with pytest.raises(PlanError, match="none of the leaves is one that is split"):
        surgery.inspect(str(tmp_path / "ck"), layout=Reshard(), hosts=hosts)


def test_hosts_must_share_a_mesh_that_somebody_names(checkpoints: list[dict[str, Any]]) -> None:
    one, rows = checkpoints[0]["path"], checkpoints[1]["path"]
    with pytest.raises(PlanError, match="nothing says for how many hosts"):
        surgery.inspect(one, layout=Reshard())
    with pytest.raises(PlanError, match="cannot share the mesh data=8"):
        surgery.inspect(rows, layout=Reshard(), hosts=3)
    derived = surgery.inspect(one, layout=Reshard(), hosts=4).hosts
    assert derived is not None
    assert derived.read_bytes == 4 * derived.stored_bytes
    stored = surgery.inspect(rows, layout=Reshard(), hosts=4).hosts
    assert stored is not None
    assert (stored.devices_per_host, stored.unused_bytes) == (2, 0)
