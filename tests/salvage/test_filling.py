"""What stands for what is lost: an older step's leaves, or what the training script begins with."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError

SCRIPT = """
    import jax
    import numpy as np

    def state(width=33):
        keys = jax.random.split(jax.random.key(0), 2)
        params = {
            "kernel": jax.nn.initializers.lecun_normal()(keys[0], (24, width)),
            "bias": jax.random.normal(keys[1], (33,)),
        }
        return {"params": params, "opt": [{"mu": np.zeros((24, 33), np.float32)}, None], "name": "new", "step": 0}

    def items():
        return {"params": state()["params"], "opt": {"mu": np.zeros(300, np.float32)}}
"""


def restored(place):
    """What Orbax restores, by names joined by dots."""
    found = jax.tree_util.tree_flatten_with_path(ocp.PyTreeCheckpointer().restore(place))[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in found}


@pytest.fixture
def script(tmp_path):
    place = tmp_path / "train.py"
    place.write_text(textwrap.dedent(SCRIPT))
    namespace = {}
    exec(place.read_text(), namespace)
    return place, namespace["state"]


def _tree(factor=1):
    values = factor * np.random.default_rng(0).standard_normal((24, 33)).astype(np.float32)
    params = {"kernel": values, "bias": values[0]}
    return {"params": params, "opt": [{"mu": values + 1}, None], "name": f"run {factor}", "step": 7}


def _saved(place, factor=1, **how):
    args = ocp.args.PyTreeSave(
        _tree(factor), save_args=jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=800), _tree())
    )
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False, **how)).save(place, args)
    return place


@pytest.mark.parametrize("zarr3", [False, True])
def test_what_is_lost_begins_anew_as_the_script_makes_it(script, tmp_path, zarr3):
    broken = _saved(tmp_path / "broken", use_zarr3=zarr3)
    file, state = script
    (broken / "params.kernel" / ("zarr.json" if zarr3 else ".zarray")).unlink()
    for name in ("opt.0.mu", "step"):
        for chunk in [
            f for f in (broken / name).rglob("*") if f.name not in (".zarray", "zarr.json")
        ]:
            chunk.unlink() if chunk.is_file() else None

    done = surgery.rescue(
        str(broken), str(tmp_path / "new"), fill="init", like_init=f"{file}:state"
    )

    values, begun = restored(tmp_path / "new"), jax.jit(lambda: state()["params"])()
    assert np.array_equal(values["params.kernel"], begun["kernel"])
    assert np.array_equal(values["params.bias"], _tree()["params"]["bias"])
    assert not values["opt.0.mu"].any()
    assert (values["step"], values["name"]) == (0, "run 1")
    filled = {row.path for row in done.leaves if row.filled_from}
    assert filled == {"params/kernel", "opt/0/mu", "step"}
    record = json.loads((tmp_path / "new" / "surgery.json").read_text())["rescued"]
    assert {path for path, one in record.items() if one["from"] == "fill"} == filled
    assert record["params/kernel"]["filled_from"] == f"{file}:state"


def test_chunks_alone_may_begin_anew(script, tmp_path):
    broken = _saved(tmp_path / "broken")
    file, state = script
    lost = min(place for place in (broken / "params.kernel").iterdir() if place.name != ".zarray")
    lost.unlink()

    done = surgery.rescue(
        str(broken),
        str(tmp_path / "new"),
        fill="init",
        fill_by="chunk",
        like_init=f"{file}:state",
    )

    (row,) = (row for row in done.leaves if row.filled_from)
    block = tuple(slice(*map(int, p.split(":"))) for p in row.missing[0].strip("[]").split(","))
    expected = _tree()["params"]["kernel"].copy()
    expected[block] = np.asarray(jax.jit(lambda: state()["params"]["kernel"])())[block]
    assert np.array_equal(restored(tmp_path / "new")["params.kernel"], expected)


def test_a_function_that_makes_something_else_is_refused(script, tmp_path):
    broken = _saved(tmp_path / "broken")
    for file in (broken / "params.kernel").iterdir():
        if file.name != ".zarray":
            file.unlink()
    (broken / "_strings.json").unlink()
    with pytest.raises(PlanError, match=r"'params/kernel' .* does not fit"):
        surgery.rescue(
            str(broken), str(tmp_path / "new"), fill="init", like_init=f"{script[0]}:state(32)"
        )
    with pytest.raises(PlanError, match="needs the function"):
        surgery.rescue(str(broken), str(tmp_path / "new"), fill="init")
    with pytest.raises(PlanError, match="both say"):
        surgery.rescue(
            str(broken), str(tmp_path / "new"), fill="init", fill_from=str(broken), like_init="a:b"
        )


def test_a_script_knows_the_structure_where_nothing_else_does(script, tmp_path):
    broken = _saved(tmp_path / "broken")
    (broken / "_METADATA").unlink()

    done = surgery.rescue(str(broken), str(tmp_path / "new"), like_init=f"{script[0]}:state")

    assert done.structure == "a script's function"
    assert isinstance(ocp.PyTreeCheckpointer().restore(tmp_path / "new")["opt"], list)
    assert {row.path: row.state for row in done.leaves}["opt/1"] == "whole"


MOST_OF_A_KERNEL = 2500
"""Bytes; a kernel has 3,168 of random numbers, which hardly compress, and nothing else is as large."""


@pytest.fixture
def run(tmp_path):
    """Steps 1 to 4, of which the last two have lost their chunks."""
    root = tmp_path / "run"
    with ocp.CheckpointManager(root) as manager:
        for step in range(1, 5):
            manager.save(step, args=ocp.args.PyTreeSave(_tree(step)))
    for step in (3, 4):
        for file in (root / f"{step}").rglob("d/*"):  # now and then, Orbax leaves its chunk in two
            if file.stat().st_size > MOST_OF_A_KERNEL:
                file.unlink()
    return root


def test_of_a_run_the_newest_step_that_is_whole_stands_for_what_is_lost(run, tmp_path):
    done = surgery.rescue(f"{run}@4", str(tmp_path / "new"), fill_from=str(run))

    values = restored(tmp_path / "new" / "4" / "default")
    assert np.array_equal(values["params.kernel"], _tree(2)["params"]["kernel"])
    assert {row.filled_from for row in done.leaves} == {"", f"{run}@2"}
    assert any(f"step 2 of '{run}' fills what is not whole" in note for note in done.notes)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (
            "{run}",
            "step 2 of '{run}' fills what is not whole: it is the newest before 3 that can be read",
        ),
        ("{run}@1", "step 1 of '{run}' fills what is not whole"),
        ("{run}@2", "step 2 of '{run}' fills what is not whole"),
        ("{run}@5", "step 5 of '{run}' fills what is not whole: it was saved after 3"),
        ("{other}@5", "step 5 of '{other}' fills what is not whole"),
        (
            "{other}",
            "step 2 of '{other}' fills what is not whole: it is the newest before 3 that can be read",
        ),
    ],
)
def test_of_the_step_that_fills_is_said_what_is_so(run, tmp_path, named, said):
    """That it was chosen by its age, only where nobody has named it."""
    shutil.copytree(run / "2", run / "5")
    other = shutil.copytree(run, tmp_path / "other")
    report = surgery.rescue(f"{run}@3", fill_from=named.format(run=run, other=other))
    (note,) = [str(one) for one in report.notes if "fills what is not whole" in one]
    assert note.partition(" [")[0] == said.format(run=run, other=other)


def test_a_step_that_is_not_what_was_sealed_stands_for_nothing(run, tmp_path):
    surgery.seal(f"{run}@2")
    for data in (run / "2").rglob("d/*"):  # the kernel is most of whichever file it stands in
        raw = bytearray(data.read_bytes())
        raw[len(raw) // 2] ^= 1
        data.write_bytes(raw)

    surgery.rescue(f"{run}@4", str(tmp_path / "new"), fill_from=str(run))

    values = restored(tmp_path / "new" / "4" / "default")
    assert np.array_equal(values["params.kernel"], _tree(1)["params"]["kernel"])


def test_where_no_older_step_is_whole_that_is_said(run, tmp_path):
    with pytest.raises(CheckpointError, match=r"no step of .* is whole and older than '1'"):
        surgery.rescue(f"{run}@1", str(tmp_path / "new"), fill_from=str(run))


def test_texts_whose_file_is_lost_come_from_an_older_step(tmp_path):
    broken, older = _saved(tmp_path / "broken"), _saved(tmp_path / "older", 2)
    (broken / "_strings.json").unlink()

    surgery.rescue(str(broken), str(tmp_path / "new"), fill_from=str(older))

    assert restored(tmp_path / "new")["name"] == "run 2"


def test_texts_have_names_of_their_own(tmp_path):
    broken = _saved(tmp_path / "broken")
    (broken / "_METADATA").unlink()

    surgery.rescue(str(broken), str(tmp_path / "new"), allow_partial=True)

    assert restored(tmp_path / "new")["name"] == "run 1"


def test_a_text_that_is_not_what_was_sealed_is_lost(tmp_path):
    broken = _saved(tmp_path / "broken")
    surgery.seal(str(broken))
    texts = broken / "_strings.json"
    texts.write_text(texts.read_text().replace("run 1", "run 7"))

    rows = {row.path: row for row in surgery.rescue(str(broken)).leaves}

    assert rows["name"].state == "lost"
    assert all(row.state == "whole" for path, row in rows.items() if path != "name")


def _without(place, name, is_folder):
    """A leaf folder without what describes it, or none."""
    shutil.rmtree(place / name) if is_folder else (place / name / ".zarray").unlink()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_folder", [True, False], ids=["folder", "description"])
@pytest.mark.parametrize("fill_by", ["leaf", "chunk"])
@pytest.mark.parametrize("width", [32, 66, 1], ids=["narrower", "twice as wide", "one"])
def test_what_has_another_shape_than_the_blocks_on_record_fills_nothing(
    tmp_path, is_folder, fill_by, width
):
    broken, other = tmp_path / "broken", tmp_path / "other"
    tree = jax.device_put({name: _tree()[name] for name in ("params", "opt", "step")})
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(broken, tree)
    tree["params"]["kernel"] = jax.numpy.zeros((24, width), np.int32)
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(other, tree)
    _without(broken, "params.kernel", is_folder)

    with pytest.raises(PlanError, match=r"'params/kernel' .* does not fit") as refused:
        surgery.rescue(str(broken), str(tmp_path / "new"), fill_from=str(other), fill_by=fill_by)
    assert f"it is int32[24,{width}]" in str(refused.value.problems[0].why)
    assert not (tmp_path / "new").exists()


def test_the_type_of_what_nothing_describes_is_named_with_what_fills_it(tmp_path):
    broken, other = _saved(tmp_path / "broken"), _saved(tmp_path / "other", 2)
    _without(broken, "params.kernel", is_folder=True)
    next(f for f in (broken / "opt.0.mu").iterdir() if f.name != ".zarray").unlink()

    done = surgery.rescue(str(broken), str(tmp_path / "new"), fill_from=str(other))

    types = {row.path: row.filled_type for row in done.leaves if row.filled_from}
    assert types == {"params/kernel": "float32[24,33]", "opt/0/mu": ""}
    (said,) = [str(note) for note in done.notes if "nothing that is left" in str(note)]
    assert "'params/kernel' (float32[24,33])" in said


MESHES = """
import sys, jax, numpy as np, orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

for place, count in zip(sys.argv[1:], (4, 2), strict=True):
    mesh = Mesh(np.array(jax.devices()[:count]), ("d",))
    values = {"split": P("d"), "copied": P(), "other": P(None, "d")}
    tree = {
        name: jax.device_put(np.arange(96, dtype=np.float32).reshape(8, 12), NamedSharding(mesh, spec))
        for name, spec in values.items()
    }
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(place, tree)
"""


@pytest.fixture(scope="module")
def of_two_meshes(tmp_path_factory):
    """The same values, saved from four devices and from two."""
    places = [tmp_path_factory.mktemp("meshes") / name for name in ("four", "two")]
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", MESHES, *map(str, places)]
    subprocess.run(command, check=True, env={**os.environ, **flags}, timeout=120)
    return places


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["split", "copied", "other"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_same_shape_on_another_mesh_fills(tmp_path, of_two_meshes, name, is_reversed):
    source, other = reversed(of_two_meshes) if is_reversed else of_two_meshes
    broken = tmp_path / "broken"
    shutil.copytree(source, broken)
    shutil.rmtree(broken / name)

    surgery.rescue(str(broken), str(tmp_path / "new"), fill_from=str(other))

    expected = np.arange(96, dtype=np.float32).reshape(8, 12)
    args = ocp.args.PyTreeRestore(
        restore_args={
            n: ocp.RestoreArgs(restore_type=np.ndarray) for n in ("split", "copied", "other")
        }
    )
    found = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(tmp_path / "new", args)
    assert np.array_equal(found[name], expected)


@pytest.mark.parametrize("name", ["split", "other"])
def test_a_mesh_on_record_tells_shapes_that_its_blocks_would_fit(tmp_path, of_two_meshes, name):
    broken, other = tmp_path / "broken", tmp_path / "other"
    shutil.copytree(of_two_meshes[0], broken)
    shutil.rmtree(broken / name)
    tree = {n: np.zeros((16, 12), np.float32) for n in ("split", "copied", "other")}
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(other, tree)

    with pytest.raises(PlanError, match="does not fit"):
        surgery.rescue(str(broken), str(tmp_path / "new"), fill_from=str(other))
