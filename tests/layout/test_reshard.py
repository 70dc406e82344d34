"""`reshard` against Orbax: what it restores, to which shardings, from which chunks."""

import json
from pathlib import Path
from typing import Any

import jax
import pytest
import tensorstore as ts
from jax.sharding import PartitionSpec as P

from surgery_cli import surgery
from surgery_cli.planning import plan_of
from surgery_cli.settings.reshard import Reshard
from tests.layout.states import LAYOUTS, NAMES, over, restored, save, state, values

MESH = {"fsdp": 4, "expert": 2}
SPECS = {"params/**/kernel": "fsdp,expert", "params/embed": "(fsdp,expert)"}


def reshard(source: Path, target: Path, **request: Any) -> Any:
    return surgery.apply(str(source), str(target), plan_of([], reshard=Reshard(**request)))


def shapes(path: Path, name: str) -> tuple[int, ...]:
    """The chunks of a stored array, as TensorStore finds them."""
    base = f"file://{path}/"
    store = {"driver": "ocdbt", "base": base} if (path / "manifest.ocdbt").exists() else base
    for driver in ("zarr", "zarr3"):
        spec = {"driver": driver, "kvstore": ts.KvStore.Spec(store) / f"{name}/"}
        try:
            return ts.open(spec, open=True, read=True).result().chunk_layout.read_chunk.shape
        except ValueError:
            continue
    raise AssertionError(name)


@pytest.mark.covers(1)
@pytest.mark.parametrize("rows", [False, True], ids=["one device", "rows"])
@pytest.mark.parametrize(("ocdbt", "zarr3"), LAYOUTS, ids=NAMES)
def test_orbax_restores_every_layout_on_the_mesh_that_was_asked_for(
    tmp_path: Path, ocdbt: bool, zarr3: bool, rows: bool
) -> None:
    tree = state()
    if rows:
        tree = over(jax.make_mesh((8,), ("data",)), tree, P("data"))
    source = save(tmp_path / "source", tree, ocdbt=ocdbt, zarr3=zarr3)
    target = tmp_path / "target"
    reshard(source, target, mesh=MESH, spec=SPECS)

    mesh = jax.make_mesh((4, 2), ("fsdp", "expert"))
    plain = restored(target)
    assert values(plain) == values(restored(source))
    kernels = [plain["params"]["dense"]["kernel"], plain["opt_state"][0]["nu"]["dense"]["kernel"]]
    assert [k.sharding.spec for k in kernels] == [P("fsdp", "expert")] * 2
    assert [k.sharding.mesh.axis_names for k in kernels] == [mesh.axis_names] * 2
    assert plain["params"]["embed"].sharding.spec == P(("fsdp", "expert"))
    assert plain["params"]["dense"]["bias"].sharding.is_fully_replicated

    for spec in (P("fsdp", "expert"), P(None, "fsdp"), P()):
        wanted = over(mesh, state(), spec)
        found = restored(target, wanted)
        assert values(found) == values(wanted)
        assert found["params"]["dense"]["kernel"].sharding.spec == spec

    assert shapes(target, "params.dense.kernel") == (16, 48)
    assert shapes(target, "opt_state.0.mu.dense.kernel") == (16, 48)
    assert shapes(target, "params.embed") == (5, 16)
    assert shapes(target, "params.dense.bias") == shapes(source, "params.dense.bias")
    for file in (target / "array_metadatas").iterdir():
        entries = [e["array_metadata"] for e in json.loads(file.read_text())["array_metadatas"]]
        said = {e["param_name"]: (e["write_shape"], e["chunk_shape"]) for e in entries}
        assert said["params.dense.kernel"] == ([16, 48], [16, 48])


def test_what_nothing_refers_to_any_more_is_not_counted_as_linked(tmp_path: Path) -> None:
    source = save(tmp_path / "source", state())
    report = reshard(source, tmp_path / "target", mesh=MESH, spec={"**/kernel": "fsdp"})
    kept = [file for file in (tmp_path / "target").rglob("*") if file.is_file()]
    shared = sum(file.stat().st_size for file in kept if file.stat().st_nlink > 1)
    assert report.bytes_linked == shared


@pytest.mark.parametrize("service", ["s3"], indirect=True)
def test_buckets_are_laid_out_anew_as_disks_are(service: Any, tmp_path: Path) -> None:
    source = save(tmp_path / "source", state())
    there = service.upload(source, f"{service.root}/ck")
    surgery.apply(there, f"{service.root}/new", plan_of([], reshard=Reshard(mesh=MESH, spec=SPECS)))
    target = tmp_path / "target"
    for name in service.names("new/"):
        file = tmp_path / "target" / name.removeprefix("new/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(service.content(name))
    assert values(restored(target)) == values(restored(source))
    assert shapes(target, "params.dense.kernel") == (16, 48)
    assert restored(target)["params"]["embed"].sharding.spec == P(("fsdp", "expert"))
