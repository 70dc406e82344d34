"""What Orbax restores with the right values is not called damaged; what only a restore without arguments lacks is said.

Each harm of a registry, with two of Orbax's restores as the judges: one that is given all arguments, and one that is
given none.
"""

import json
import os
import shutil
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from tests.garbage import told_here
from tests.hosts.companies import saved as saved_in_chunks

TREE = {"w": jax.numpy.arange(6.0).reshape(2, 3), "b": jax.numpy.ones(3)}
ARRAY = jax.numpy.arange(4.0)
TARGET = jax.tree.map(ocp.utils.to_shape_dtype_struct, TREE)
LAYOUTS = {
    "ocdbt": {},
    "per-leaf": {"use_ocdbt": False},
    "per-leaf-zarr3": {"use_ocdbt": False, "use_zarr3": True},
}


def _save_manager(place):
    options = ocp.CheckpointManagerOptions(best_fn=lambda m: m["loss"])
    with ocp.CheckpointManager(place.parent, options=options) as manager:
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(TREE),
            about=ocp.args.JsonSave({"epoch": 1}),
            arr=ocp.args.ArraySave(ARRAY),
            key=ocp.args.JaxRandomKeySave(jax.random.key(3)),
            old_key=ocp.args.NumpyRandomKeySave(np.random.RandomState(0).get_state()),
        )
        manager.save(1, args=items, metrics={"loss": 0.5})


def _of_manager(place, *, with_arguments):
    args = ocp.args.Composite(
        state=ocp.args.StandardRestore(TARGET),
        about=ocp.args.JsonRestore(),
        arr=ocp.args.ArrayRestore(),
        key=ocp.args.JaxRandomKeyRestore(),
        old_key=ocp.args.NumpyRandomKeyRestore(),
    )
    with ocp.CheckpointManager(place.parent) as manager:
        found = manager.restore(1, args=args) if with_arguments else manager.restore(1)
    assert found["about"] == {"epoch": 1}
    assert jax.random.key_data(found["key"]).tolist() == [0, 3]
    assert np.array_equal(found["old_key"][1], np.random.RandomState(0).get_state()[1])
    return {"state": found["state"], "arr": found["arr"]}, {"state": TREE, "arr": ARRAY}


def _save_v1(place):
    with v1.training.Checkpointer(place.parent) as checkpointer:
        checkpointer.save_checkpointables(1, {"state": TREE}, metrics={"loss": 0.1})


def _of_v1(place, *, with_arguments):
    with v1.training.Checkpointer(place.parent) as checkpointer:
        targets = [{"state": TARGET}] if with_arguments else []
        return checkpointer.load_checkpointables(1, *targets)["state"], TREE


def _save_v1_alone(place):
    v1.save(place, TREE)


def _of_v1_alone(place, *, with_arguments):
    return v1.load(place, *([TARGET] if with_arguments else [])), TREE


def _save_flat(layout):
    def save(place):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**LAYOUTS[layout])) as checkpointer:
            checkpointer.save(place, args=ocp.args.PyTreeSave(TREE))

    return save


def _of_flat(place, *, with_arguments):
    args = ocp.args.PyTreeRestore(
        TARGET, restore_args=ocp.checkpoint_utils.construct_restore_args(TARGET)
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(
            place, args=args if with_arguments else ocp.args.PyTreeRestore()
        ), TREE


SOURCES = {
    "manager": (_save_manager, _of_manager),
    "v1": (_save_v1, _of_v1),
    "v1 alone": (_save_v1_alone, _of_v1_alone),
    **{layout: (_save_flat(layout), _of_flat) for layout in LAYOUTS},
}


def _gone(name):
    return lambda step: [file.unlink() for file in step.glob(name)]


def _cut(name, size):
    return lambda step: os.truncate(step / name, size)


def _says(name, text):
    return lambda step: (step / name).write_text(text)


def _lacks_an_entry(name):
    def harm(step):
        document = json.loads((step / name).read_text())
        document.pop(next(iter(document)))
        (step / name).write_text(json.dumps(document))

    return harm


def _a_folder(name):
    return lambda step: ((step / name).unlink(), (step / name).mkdir())


OF_THE_STEP = "_CHECKPOINT_METADATA"
OF_STEPS = {
    "nothing": lambda step: None,
    "step metadata emptied": _cut(OF_THE_STEP, 0),
    "step metadata cut": _cut(OF_THE_STEP, 10),
    "step metadata no text": lambda step: (step / OF_THE_STEP).write_bytes(b"\xff"),
    "step metadata a folder": _a_folder(OF_THE_STEP),
}
OF_TREES = {
    **OF_STEPS,
    "no structure": _gone("_METADATA"),
    "an entry of the shardings gone": _lacks_an_entry("_sharding"),
    "all entries of the shardings gone": _says("_sharding", "{}"),
}
OF_RUNS = {
    **OF_STEPS,
    "step metadata a list": _says(OF_THE_STEP, "[]"),
    "metrics emptied": _cut("metrics/metrics", 0),
}
HARMS = {
    "manager": {
        **OF_RUNS,
        "no structure of an array": _gone("arr/_METADATA"),
        "structure of an array emptied": _cut("arr/_METADATA", 0),
        "no structure of a key": _gone("key/*/_METADATA"),
        "no structure of a key of NumPy": _gone("old_key/*/_METADATA"),
        "no sharding of an array": _gone("arr/_sharding"),
        "no entry of an array's sharding": _says("arr/_sharding", "{}"),
        "an entry of the shardings gone": _lacks_an_entry("state/_sharding"),
    },
    "v1": OF_RUNS,
    "v1 alone": OF_STEPS,
    **dict.fromkeys(LAYOUTS, OF_TREES),
}


NOTHING_LOST = {"nothing", "no structure of an array", "no structure of a key"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name, (save, _) in SOURCES.items():
        save(folder / name / "1")
    return folder


def _is_restored(restore, place, **how):
    with told_here():
        try:
            found, expected = restore(place, **how)
        except Exception:  # noqa: BLE001 - whatever Orbax says
            return False
    return jax.tree.all(jax.tree.map(np.array_equal, found, expected))


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("source", "harm"), [(source, harm) for source, harms in HARMS.items() for harm in harms]
)
def test_what_orbax_restores_is_whole_and_what_it_needs_for_that_is_said(
    saved, tmp_path, source, harm
):
    place = tmp_path / "run" / "1"
    shutil.copytree(saved / source, tmp_path / "run")
    HARMS[source][harm](place)
    restore = SOURCES[source][1]
    is_restored = _is_restored(restore, place, with_arguments=True)
    needs_none = _is_restored(restore, place, with_arguments=False)

    (row,) = surgery.doctor(str(place), settled_seconds=0).places
    verdict = surgery.verify(str(place))
    if harm == "no structure":  # a target brings it, where zarr 2 is what a script's handler reads
        assert row.state == "damaged"
        assert not needs_none
        return
    assert (row.state == "whole") == is_restored, row.why
    assert verdict.agrees == is_restored, verdict.findings
    if harm == "step metadata a list":
        assert "`surgery rescue" in row.todo
        new = tmp_path / "new" / "1"
        surgery.rescue(str(place), str(new))
        assert _is_restored(restore, new, with_arguments=True)
    if is_restored:
        said = [str(note) for note in verdict.notes if "Orbax restores" in str(note)]
        assert bool(said) == (harm not in NOTHING_LOST)
        assert said or needs_none
        assert [why for why in row.why if "Orbax restores" in why] == said


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shardings_of_other_leaves_are_a_finding(saved, tmp_path, layout):
    """One damaged character of a name: what lacks an entry has one under a name that nothing has."""
    place = Path(shutil.copytree(saved / layout, tmp_path / "run"))
    file = place / "1" / "_sharding"
    first = next(iter(json.loads(file.read_text())))
    file.write_text(file.read_text().replace(f'"{first}"', '"eA=="'))
    assert not surgery.verify(str(place / "1")).agrees


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("value", [7, None, ["text"], {"a": "text"}], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_entry_of_the_shardings_that_is_no_text_is_a_finding(saved, tmp_path, layout, value):
    """Orbax takes it for JSON text, and ends in an error of Python's."""
    place = Path(shutil.copytree(saved / layout, tmp_path / "run"))
    file = place / "1" / "_sharding"
    shardings = json.loads(file.read_text())
    file.write_text(json.dumps({**shardings, next(iter(shardings)): value}))
    with told_here(), pytest.raises((TypeError, ValueError)):
        ocp.PyTreeCheckpointer().restore(place / "1")
    assert not surgery.verify(str(place / "1")).agrees


def test_a_mark_of_v1_that_is_a_link_to_nowhere_harms_nothing(tmp_path):
    tree = {"w": np.arange(4.0)}
    v1.save(tmp_path / "saved", tree)
    mark = tmp_path / "saved" / "orbax.checkpoint"
    mark.unlink()
    mark.symlink_to(tmp_path / "gone")
    assert np.array_equal(v1.load(tmp_path / "saved")["w"], tree["w"])

    assert surgery.verify(str(tmp_path / "saved")).findings == []
    assert surgery.doctor(str(tmp_path / "saved"), settled_seconds=0).places[0].state == "whole"
    assert surgery.rescue(str(tmp_path / "saved")).is_whole


CUT = {
    "slice": {"at": "w", "slices": "0:11, :"},
    "pad": {"at": "w", "axis": 0, "after": 3},
    "split": {"at": "w", "axis": 0, "sizes": [5, 7], "to": ["u", "v"]},
}


@pytest.mark.parametrize("edit", CUT)
@pytest.mark.parametrize("layout", [*LAYOUTS, "ocdbt-zarr3"])
def test_a_result_whose_last_chunks_are_cut_is_whole(tmp_path, layout, edit):
    """Orbax's own blocks divide the shape; what an edit leaves has the source's chunks, and less in the last."""
    tree = {"w": np.arange(96, dtype=np.float32).reshape(12, 8)}
    how = LAYOUTS.get(layout, {"use_zarr3": True})
    there = saved_in_chunks(tmp_path / "ck", tree, 64, **how)
    edits = plan_of([operation_from_options(edit, CUT[edit])])
    surgery.apply(str(there), str(tmp_path / "new"), edits)
    assert surgery.verify(str(tmp_path / "new")).agrees
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new")
    wanted = {"slice": [tree["w"][:11]], "pad": [np.pad(tree["w"], ((0, 3), (0, 0)))]}
    wanted["split"] = [tree["w"][:5], tree["w"][5:]]
    assert [found.tolist() for found in restored.values()] == [w.tolist() for w in wanted[edit]]
