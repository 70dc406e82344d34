"""Where a layout comes from: another checkpoint, a script's state, a size of chunks; and what is refused."""

import base64
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from surgery_cli import surgery
from surgery_cli.errors import PlanError, UndoError
from surgery_cli.planning import plan_from_document, read_plan
from surgery_cli.settings.reshard import Reshard
from tests.garbage import told_here
from tests.layout.states import over, restored, save, state, values
from tests.layout.test_reshard import reshard, shapes

SCRIPT = """
import jax, optax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

def made():
    zeros = jax.numpy.zeros
    params = {"dense": {"kernel": zeros((64, 96)), "bias": zeros(96)}, "embed": zeros((40, 16), "bfloat16")}
    opt_state = optax.adamw(1e-3).init(params)
    return {"params": params, "opt_state": opt_state, "step": jax.numpy.asarray(3), "rng": jax.random.key(3)}

def state():
    mesh = AbstractMesh((32,), ("fsdp",))
    def spread(a):
        spec = P(None, "fsdp") if a.ndim == 2 and a.shape[1] % 32 == 0 else P()
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    return jax.tree.map(spread, jax.eval_shape(made))
"""


SCRIPT_OF_KINDS = """
import jax, numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

def state():
    split = NamedSharding(AbstractMesh((8,), ("x",)), P("x"))
    return {
        "jax": jax.ShapeDtypeStruct((64, 96), "float32", sharding=split),
        "numpy": np.ones((64, 96), np.float32),
        "key": jax.random.key(3),
        "scalar": 3.5,
        "zero": np.ones((), np.float32),
    }
"""


def test_another_checkpoint_says_the_layout_across_zarr_versions_and_kinds_of_store(
    tmp_path: Path,
) -> None:
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"))
    model = save(
        tmp_path / "model", over(mesh, state(), P("tensor", "fsdp")), ocdbt=False, zarr3=True
    )
    source = save(tmp_path / "source", state())
    report = reshard(source, tmp_path / "target", like=str(model))
    assert shapes(tmp_path / "target", "params.dense.kernel") == (32, 24)
    plain = restored(tmp_path / "target")
    assert plain["params"]["dense"]["kernel"].sharding.spec == P("tensor", "fsdp")
    assert values(plain) == values(restored(source))
    again = reshard(tmp_path / "target", tmp_path / "again", like=str(model))
    assert (report.reshard.rewritten > 0, again.bytes_written, again.reshard.relabelled) == (
        True,
        0,
        0,
    )


@pytest.mark.parametrize("ocdbt", [True, False])
@pytest.mark.parametrize("way", ["like", "like_init"])
def test_leaves_of_every_kind_get_what_they_can_have(tmp_path: Path, way: str, ocdbt: bool) -> None:
    """Orbax records shardings of JAX's arrays alone: of NumPy's, a result that has none is as planned."""
    kinds = {
        "jax": jax.numpy.ones((64, 96)),
        "numpy": np.ones((64, 96), np.float32),
        "key": jax.random.key(3),
        "scalar": 3.5,
        "zero": np.ones((), np.float32),
    }
    mesh = jax.make_mesh((8,), ("x",))
    arrays = {"numpy": jax.numpy.ones((64, 96)), "zero": jax.numpy.float32(1)}
    there = over(mesh, {**kinds, **arrays, "scalar": arrays["zero"]}, P("x"))
    model = save(tmp_path / "model", {**there, "scalar": 3.5})
    source = save(tmp_path / "source", kinds, ocdbt=ocdbt)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT_OF_KINDS)
    named = {"like": str(model)} if way == "like" else {"like_init": f"{script}:state"}
    report = reshard(source, tmp_path / "target", **named)
    assert shapes(tmp_path / "target", "jax") == (8, 96)
    said = [str(note) for note in report.notes if "arrays of NumPy" in str(note)]
    assert ["'numpy', 'zero' are stored as" in note for note in said] == [True] * (way == "like")
    found = restored(tmp_path / "target")
    assert (found["jax"].sharding.spec, type(found["numpy"])) == (P("x"), np.ndarray)
    for one in (found, kinds):
        del one["scalar"]
    assert values(found) == values(kinds)


def test_arrays_of_which_the_other_checkpoint_says_no_sharding_are_named(tmp_path: Path) -> None:
    """They keep their own, of another mesh perhaps; numbers of Python never have one."""
    eight, four = jax.make_mesh((8,), ("x",)), jax.make_mesh((4,), ("x",))
    ones = {name: jax.numpy.ones((64, 96)) for name in ("a", "b")}
    source = save(tmp_path / "source", over(eight, ones, P("x")) | {"step": 3})
    there = over(four, ones, P("x")) | {"b": np.ones((64, 96), np.float32), "step": 3}
    model = save(tmp_path / "model", there)
    report = reshard(source, tmp_path / "target", like=str(model))
    (said,) = (str(note) for note in report.consequences if str(model) in str(note))
    assert said.startswith(f"'{model}' says no sharding of 'b': they keep the one that they have")
    found = restored(tmp_path / "target")
    assert {name: found[name].sharding.mesh.size for name in "ab"} == {"a": 4, "b": 8}


def test_device_ids_are_those_of_the_mesh_that_most_leaves_have(tmp_path: Path) -> None:
    devices = np.array(jax.devices()[:8])
    most = jax.sharding.Mesh(devices[:4], ("x",))
    few = jax.sharding.Mesh(devices[4:8], ("x",))
    tree = over(most, {"a": jax.numpy.ones((64, 96)), "b": jax.numpy.ones((64, 96))}, P("x"))
    first = {"0": over(few, {"w": jax.numpy.ones((64, 96))}, P("x"))["w"]}
    source = save(tmp_path / "source", first | tree)
    reshard(source, tmp_path / "target", mesh={"y": 4}, spec={"**": "y"})
    found = restored(tmp_path / "target")
    ids = {tuple(d.id for d in leaf.sharding.mesh.devices.flat) for leaf in found.values()}
    assert ids == {tuple(device.id for device in devices[:4])}


def test_a_scripts_state_says_shardings_for_more_devices_than_there_are(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    source = save(tmp_path / "source", state())
    reshard(source, tmp_path / "target", like_init=f"{script}:state")
    assert shapes(tmp_path / "target", "params.dense.kernel") == (64, 3)
    assert shapes(tmp_path / "target", "opt_state.0.nu.dense.kernel") == (64, 3)
    found = restored(tmp_path / "target", state())
    assert values(found) == values(state())
    with pytest.raises(PlanError, match="says no sharding"):
        reshard(source, tmp_path / "other", like_init=f"{script}:made")


def test_leaves_of_which_a_script_says_nothing_are_named(tmp_path: Path) -> None:
    """A `sharding=` that was forgotten would be a layout that no restore complains of, and none that was meant."""
    script = tmp_path / "train.py"
    lacking = """
def lacking():
    with open(__file__ + ".calls", "a") as calls:
        calls.write("x")
    whole, made_ = state(), jax.eval_shape(made)
    return {**whole, "params": made_["params"]}
"""
    script.write_text(SCRIPT + lacking)
    source = save(tmp_path / "source", state())
    said = (
        "says no sharding of 'params/dense/bias', 'params/dense/kernel', 'params/embed': laid out"
    )
    for name, is_noted in (("state", False), ("lacking", True)):
        report = reshard(source, tmp_path / name, like_init=f"{script}:{name}")
        assert any(said in note for note in report.notes) == is_noted, report.notes
    assert (tmp_path / "train.py.calls").read_text() == "x"  # for the layout and the note alike


SCRIPT_OF_NUMPY = """
import jax
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

def state(axis="x"):
    over = NamedSharding(AbstractMesh((8,), ("x",)), P(axis))
    array = jax.ShapeDtypeStruct((64, 96), "float32", sharding=over)
    return {"jax": array, "numpy": array}

def whole():
    return state(None)
"""


@pytest.mark.parametrize("name", ["state", "whole"])
def test_what_a_script_splits_and_is_stored_as_numpy_s_is_named(tmp_path: Path, name: str) -> None:
    """It said "as they are" of leaves that the script spreads, as if they were so already."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT_OF_NUMPY)
    ones = {"jax": jax.numpy.ones((64, 96)), "numpy": np.ones((64, 96), np.float32)}
    source = save(tmp_path / "source", ones)
    report = reshard(source, tmp_path / "target", like_init=f"{script}:{name}")
    said = "'numpy' is stored as arrays of NumPy: it keeps its chunks, without the sharding of"
    assert any(str(note).startswith(said) for note in report.notes) == (name == "state")
    assert shapes(tmp_path / "target", "numpy") == (64, 96)


def test_an_axis_that_a_script_leaves_to_the_compiler_is_none_that_it_says(tmp_path: Path) -> None:
    """JAX places no array by such a spec: there is nothing that could be written for it."""
    opened = """
def opened():
    mesh = AbstractMesh((8,), ("fsdp",))
    def spread(a):
        spec = P("fsdp", P.UNCONSTRAINED) if a.shape == (64, 96) else P()
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    return jax.tree.map(spread, jax.eval_shape(made))
"""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + opened)
    report = reshard(
        save(tmp_path / "source", state()), tmp_path / "new", like_init=f"{script}:opened"
    )
    said = "says no sharding of 'opt_state/0/mu/dense/kernel', 'opt_state/0/nu/dense/kernel',"
    assert any(said in note for note in report.notes), report.notes
    assert shapes(tmp_path / "new", "params.dense.kernel") == (64, 96)


def test_what_a_scripts_mesh_says_of_axes_and_the_sources_of_devices_is_restored(
    tmp_path: Path,
) -> None:
    kinds, turned = (AxisType.Explicit, AxisType.Auto), np.array(jax.devices())[::-1]
    mesh = jax.sharding.Mesh(turned.reshape(4, 2), ("a", "b"), axis_types=kinds)
    own = save(tmp_path / "own", over(mesh, state(), P("a")))
    typed = """
def typed():
    kinds = (jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto)
    mesh = AbstractMesh((4, 2), ("a", "b"), axis_types=kinds)
    def spread(a):
        spec = P("a") if a.ndim and a.shape[0] % 4 == 0 else P()
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec))
    return jax.tree.map(spread, jax.eval_shape(made))
"""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + typed)
    source = save(tmp_path / "source", over(mesh, state(), P()))
    reshard(source, tmp_path / "new", like_init=f"{script}:typed")
    ours, orbax = (restored(ck)["params"]["dense"] for ck in (tmp_path / "new", own))
    assert ours["kernel"].sharding == orbax["kernel"].sharding


@pytest.mark.parametrize("zarr3", [False, True])
def test_chunks_are_the_largest_even_parts_within_a_size(tmp_path: Path, zarr3: bool) -> None:
    source = save(tmp_path / "source", state(), zarr3=zarr3)
    reshard(source, tmp_path / "target", chunk_bytes="8KiB")
    assert shapes(tmp_path / "target", "params.dense.kernel") == (16, 96)
    assert shapes(tmp_path / "target", "params.embed") == (40, 16)
    assert values(restored(tmp_path / "target")) == values(restored(source))
    whole = tmp_path / "whole"
    assert reshard(tmp_path / "target", whole, chunk_bytes=1 << 20).reshard.rewritten == 3
    assert shapes(whole, "params.dense.kernel") == (64, 96)


def test_tiny_chunks_are_counted_in_the_preview_and_the_report(tmp_path: Path) -> None:
    source = save(tmp_path / "source", state())
    plan = plan_from_document({"reshard": {"chunk_bytes": "1KiB"}})
    notes = surgery.plan(str(source), plan).notes
    notes += surgery.apply(str(source), str(tmp_path / "target"), plan).notes
    stored = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{tmp_path}/target/"}).result()
    cut = [key.rpartition(b"/")[0] for key in stored.list().result() if b".zarray" not in key]
    count = sum(number for number in Counter(cut).values() if number > 1)
    assert (
        len([note for note in notes if f" come in {count} chunks of less than 64.0 KiB" in note])
        == 2
    )


def test_a_mesh_of_the_largest_clusters_costs_seconds(tmp_path: Path) -> None:
    """Every sharding names all devices, and most leaves say the same one; hosts that share chunks count as one."""
    wide = {"w": jax.numpy.zeros((4096, 16)), "b": jax.numpy.zeros(8)}
    source = save(tmp_path / "source", wide)
    request = {"mesh": {"fsdp": 8192}, "spec": {"w": "(fsdp)", "b": "None"}}
    with pytest.raises(PlanError, match="no multiple of 8192"):
        reshard(source, tmp_path / "target", **request)
    request["mesh"] = {"fsdp": 4096, "data": 2}
    before = time.process_time()
    report = reshard(source, tmp_path / "target", **request)
    assert time.process_time() - before < 20
    reads = report.reshard.after
    assert (reads.hosts, reads.devices_per_host, reads.chunks) == (4096, 2, 4097)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"mesh": {"fsdp": 16}, "spec": {"params/**/kernel": "fdsp"}}, "no axis 'fdsp'"),
        ({"mesh": {"fsdp": 16}, "spec": {"params/**/kernels": "fsdp"}}, "matches nothing"),
        ({"mesh": {"fsdp": 16}, "spec": {"params/**/bias": "None,fsdp"}}, "the array has 1"),
        ({"mesh": {"fsdp": 16}, "spec": {"params/**/bias": "fsdp,None"}}, "the array has 1"),
        ({"mesh": {"fsdp": 16}, "spec": {"params/**/bias": (None, None)}}, "the array has 1"),
        ({"mesh": {"fsdp": 16}, "spec": {"params/embed": "fsdp"}}, "40 is no multiple of 16"),
        ({"mesh": {"fsdp": 16}, "spec": {"**/embed": "fsdp"}}, "opt_state/0/nu/embed"),
        ({"mesh": {"fsdp": 2}, "spec": {"params": "None", "params/embed": "fsdp"}}, "counts for no leaf"),
        ({"mesh": {"fsdp": 2}, "spec": {"rng": "fsdp"}}, "names nothing that is split"),
        ({"mesh": {"x": 2}, "spec": {"params/embed": "x,x"}}, "over 'x' twice"),
        ({"mesh": {"fsdp": 2}}, "says nothing of leaves"),
        ({"mesh": {"fsdp": 2}, "spec": {"params/**/kernel": ""}}, "a partition is empty"),
        ({"spec": {"**": "fsdp"}}, "needs a `mesh`"),
        ({"mesh": "fsdp=0", "spec": {"**": "None"}}, "fsdp=0"),
        ({"chunk_bytes": 1}, "chunks of 1 B would be "),
        ({"chunk_bytes": "0"}, "'0' is not a size"),
        ({"mesh": {"fsdp": 10**9}, "spec": {"**": "None"}}, "--limit devices=1000000000"),
        ({}, "not told for what"),
        ({"mesh": {"x": 2}, "spec": {"**": "None"}, "like": "other"}, "takes one of"),
    ],
)  # fmt: skip
def test_what_jax_would_refuse_or_says_nothing_is_refused(
    tmp_path: Path, request_: dict[str, Any], said: str
) -> None:
    source = save(tmp_path / "source", state())
    with pytest.raises(PlanError) as caught:
        reshard(source, tmp_path / "target", **request_)
    assert said in str(caught.value)
    assert not (tmp_path / "target").exists()


def test_what_splits_no_arrays_of_numpy_says_what_does(tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": np.ones((8, 4), np.float32)})
    with pytest.raises(PlanError, match="the target of your restore") as caught:
        reshard(tmp_path / "source", tmp_path / "no", mesh={"fsdp": 2}, spec={"w": "fsdp"})
    assert "`chunk_bytes`" in str(caught.value)
    report = reshard(tmp_path / "source", tmp_path / "target", chunk_bytes=64)
    assert report.reshard is not None


def _with_entry(place: Path, **fields: Any) -> None:
    """Say otherwise how `params/embed`, of 40 by 16, is spread."""
    file, key = place / "_sharding", base64.urlsafe_b64encode(b"params.embed").decode()
    document = json.loads(file.read_text())
    document[key] = json.dumps({**json.loads(document[key]), **fields})
    file.write_text(json.dumps(document))


REFUSED: dict[str, dict[str, Any]] = {
    "an axis twice": {"partition_spec": ["fsdp", "fsdp"]},
    "not even": {"partition_spec": [["fsdp", "tensor"], "none"], "axis_names": ["fsdp", "none"]},
    "no such axis": {"partition_spec": ["data"]},
    "more axes than there are": {"partition_spec": [None, None, "fsdp"]},
    "no list": {"partition_spec": 3},
    "a list too deep": {"partition_spec": [[["fsdp"]], None]},
    "uneven": {"partition_spec": [None, ["fsdp", "tensor"]], "shape": [3, 2], "device_mesh": None},
}
TAKEN: dict[str, dict[str, Any]] = {
    "two axes for one": {"partition_spec": [None, ["fsdp", "tensor"]]},
    "none": {"partition_spec": [None, None]},
    "nothing of an axis that is not there": {"partition_spec": ["fsdp", None, None]},
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("how", [*REFUSED, *TAKEN])
def test_what_jax_refuses_of_shardings_on_disk_is_a_finding_and_no_model(
    tmp_path: Path, how: str
) -> None:
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"))
    source = save(tmp_path / "source", over(mesh, state(), P("fsdp", "tensor")))
    plain = save(tmp_path / "plain", state())
    _with_entry(source, **(REFUSED | TAKEN)[how])
    is_taken = how in TAKEN
    if is_taken:
        restored(source)
    else:
        with told_here(), pytest.raises(Exception):  # noqa: B017, PT011 - the premise, in whatever words
            restored(source)
    assert bool(surgery.verify(str(source)).findings) != is_taken
    notes = [
        *surgery.inspect(str(source), layout=Reshard()).notes,
        *reshard(source, tmp_path / "laid-out", chunk_bytes="1KiB").notes,
    ]
    assert sum("has what JAX refuses: of 'params/embed'" in str(one) for one in notes) == (
        0 if is_taken else 2
    )
    done = surgery.rescue(str(source), str(tmp_path / "rescued"))
    assert any("_sharding' is wrong about" in str(one) for one in done.notes) != is_taken
    assert not surgery.verify(str(tmp_path / "rescued")).findings
    if is_taken:
        reshard(plain, tmp_path / "alike", like=str(source))
        restored(tmp_path / "alike")
    else:
        with pytest.raises(PlanError, match="has what JAX refuses"):
            reshard(plain, tmp_path / "alike", like=str(source))


def test_a_leaf_of_which_no_sharding_is_on_record_is_laid_out_with_the_others(
    tmp_path: Path,
) -> None:
    mesh = jax.make_mesh((8,), ("fsdp",))
    source = save(tmp_path / "source", over(mesh, state(), P("fsdp")))
    document = json.loads((source / "_sharding").read_text())
    del document[base64.urlsafe_b64encode(b"params.embed").decode()]
    (source / "_sharding").write_text(json.dumps(document))
    reshard(source, tmp_path / "target", chunk_bytes="1KiB")
    assert restored(tmp_path / "target")["params"]["embed"].sharding.spec == P()


def test_a_file_without_chunks_is_refused(tmp_path: Path) -> None:
    from flax import serialization

    file = tmp_path / "checkpoint_3"
    file.write_bytes(serialization.msgpack_serialize({"params": {"w": state()["params"]["embed"]}}))
    with pytest.raises(PlanError, match="cannot be laid out anew"):
        reshard(file, tmp_path / "target", chunk_bytes=1000)


def test_a_plan_says_it_after_its_edits_and_the_record_says_it_again(tmp_path: Path) -> None:
    source = save(tmp_path / "source", state())
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "edits:\n- op: rescale\n  at: params/dense/kernel\n  by: 2.0\n"
        "- op: rename\n  at: params/embed\n  to: params/table\n"
        "reshard:\n  mesh: {fsdp: 4, tensor: 2}\n  spec:\n    params/table: [[fsdp, tensor], null]\n"
        "    params/**/kernel: fsdp,tensor\n"
    )
    done = surgery.apply(str(source), str(tmp_path / "target"), read_plan(str(plan)))
    assert shapes(tmp_path / "target", "params.table") == (5, 16)
    assert shapes(tmp_path / "target", "params.dense.kernel") == (16, 48)
    before, after = restored(source), restored(tmp_path / "target")
    kernel = np.asarray(before["params"]["dense"]["kernel"]) * 2
    assert (np.asarray(after["params"]["dense"]["kernel"]) == kernel).all()
    record = str(tmp_path / "target" / "surgery.json")
    again = surgery.apply(str(source), str(tmp_path / "again"), read_plan(record))
    assert again.draft == done.draft
    plan.write_text(plan.read_text().replace("[[fsdp, tensor], null]", "[null, fsdp]"))
    other = surgery.plan(str(source), read_plan(str(plan)))
    assert other.draft != done.draft


def test_the_inverse_takes_edits_back_and_the_layout_too(tmp_path: Path) -> None:
    source = save(tmp_path / "source", state())
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "edits:\n- op: rename\n  at: params/embed\n  to: params/table\n"
        "reshard:\n  mesh: fsdp=4\n  spec:\n    params/**/kernel: fsdp\n"
    )
    surgery.apply(str(source), str(tmp_path / "target"), read_plan(str(plan)))
    undo = surgery.inverse(str(tmp_path / "target")).plan
    assert undo["reshard"] == {"like": "source"}
    again = tmp_path / "again"
    surgery.apply(str(tmp_path / "target"), str(again), plan_from_document(undo))
    for name in ("params.dense.kernel", "params.embed", "opt_state.0.mu.dense.kernel"):
        assert shapes(again, name) == shapes(source, name)
    said = [json.loads((path / "_sharding").read_text()) for path in (again, source)]
    assert said[0] == said[1]
    assert values(restored(again)) == values(restored(source))
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(UndoError, match="chunks and shardings cannot be undone"):
        surgery.inverse(str(tmp_path / "target"))
