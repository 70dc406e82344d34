"""Extract-item and insert-item, judged by Orbax: both items restore as targets, and the way back is bit for bit."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli.errors import PlanError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.surgery import Options, apply, verify
from tests.judge.layouts import METRICS, STEP, manager, pytree_checkpointer, pytree_restore
from tests.judge.targets import filled, params
from tests.source_trees import everything_of

PLACED = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def state() -> dict[str, Any]:
    """A model half-way: params, statistics, Adam with a None in its chain, and leaves of every other kind."""
    weights = params()
    tree = {
        "params": weights,
        "batch_stats": {"norm": {"mean": np.ones(4, np.float32)}},
        "opt_state": optax.adam(0.1).init(weights),
        "step": np.asarray(STEP),
    }
    return jax.tree.map(lambda leaf: jax.device_put(leaf, PLACED), filled(tree))


def edited(source: Path, destination: Path, operation: str, **fields: Any) -> Any:
    edit = operation_from_options(operation, {k.rstrip("_"): v for k, v in fields.items()})
    return apply(str(source), str(destination), plan_of([edit]), options=Options())


def same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (np.asarray(a).dtype, np.asarray(a).tobytes()) == (
            np.asarray(b).dtype,
            np.asarray(b).tobytes(),
        )


def rest_of(tree: dict[str, Any], *gone: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key not in gone}


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A manager's run, its directory and its state; nothing in it may change."""
    tree = state()
    root = tmp_path / "run"
    with manager(root) as opened:
        opened.save(STEP, args=ocp.args.StandardSave(tree), metrics=METRICS)
    return root, tree


def restored(root: Path, **items: Any) -> Any:
    """What a manager that knows the items' names restores of them."""
    args = {
        name: target
        if isinstance(target, ocp.args.CheckpointArgs)
        else ocp.args.StandardRestore(target)
        for name, target in items.items()
    }
    settings = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(root, item_names=tuple(items), options=settings) as opened:
        return opened.restore(STEP, args=ocp.args.Composite(**args))


def test_a_manager_restores_both_items_and_its_metrics(run, tmp_path):
    root, tree = run
    before = everything_of(root)
    report = edited(root, tmp_path / "new", "extract-item", at=["params"], as_="weights")
    assert (report.bytes_read, report.bytes_written) == (0, 0)
    found = restored(tmp_path / "new", default=rest_of(tree, "params"), weights=tree["params"])
    same(found["default"], rest_of(tree, "params"))
    same(found["weights"], tree["params"])
    with manager(tmp_path / "new", read_only=True) as opened:
        assert opened.metrics(STEP) == METRICS
        rest = rest_of(tree, "params")
        same(opened.restore(STEP, args=ocp.args.StandardRestore(rest)), rest)
    assert any("item_names=('default', 'weights')" in note for note in report.notes)
    record = json.loads((tmp_path / "new" / str(STEP) / "_CHECKPOINT_METADATA").read_text())
    assert record["item_handlers"]["weights"] == record["item_handlers"]["default"]
    assert everything_of(root) == before


class Averaged(NamedTuple):
    params: Any
    average: Any


class Bare(NamedTuple):
    params: Any


def test_a_field_of_a_named_tuple_is_taken_out_like_a_key_and_the_preview_says_what_restores(
    tmp_path,
):
    """Metadata do not tell a NamedTuple from a dict: its restore needs a class without the field, or `keep`."""
    weights = state()["params"]
    tree = {"model": Averaged(weights, weights["Dense_0"]), "step": jax.device_put(3, PLACED)}
    with manager(tmp_path / "run") as opened:
        opened.save(STEP, args=ocp.args.StandardSave(tree))
    gone = edited(tmp_path / "run", tmp_path / "gone", "extract-item", at=["model/average"])
    kept = edited(
        tmp_path / "run", tmp_path / "kept", "extract-item", at=["model/average"], keep=True
    )

    rest = {"model": Bare(weights), "step": tree["step"]}
    found = restored(tmp_path / "gone", default=rest, average=weights["Dense_0"])
    same(found["default"], rest)
    same(found["average"], weights["Dense_0"])
    with pytest.raises(ValueError, match="do not match"):
        restored(tmp_path / "gone", default=tree)
    said = "a restore of 'default' takes a target without 'model/average' now"
    assert [note.startswith(said) for note in gone.notes].count(True) == 1

    same(restored(tmp_path / "kept", default=tree)["default"], tree)
    assert not any(note.startswith("a restore of") for note in kept.notes)


def test_foreign_files_of_an_item_stay_with_it(run, tmp_path):
    root, tree = run
    (root / str(STEP) / "default" / "notes.txt").write_text("mine")
    edited(root, tmp_path / "new", "extract-item", at=["params"])
    step = tmp_path / "new" / str(STEP)
    assert (step / "default" / "notes.txt").read_text() == "mine"
    assert not (step / "params" / "notes.txt").exists()
    same(restored(tmp_path / "new", default=None, params=None)["params"], tree["params"])


def test_an_extracted_item_is_edited_with_its_twins(run, tmp_path):
    root, tree = run
    edits = [
        operation_from_options("extract-item", {"at": ["params"]}),
        operation_from_options("rescale", {"at": ["params/Dense_1/kernel"], "by": "0.5"}),
        operation_from_options("extract-item", {"at": ["default/opt_state"], "as": "optimizer"}),
    ]
    options = Options(optimizer_kind="adam")
    report = apply(str(root), str(tmp_path / "new"), plan_of(edits), options=options)
    assert [note for note in report.notes if note.startswith("the step has")] == [
        "the step has the trees 'default', 'params', 'optimizer': paths begin with their names"
    ]
    found = restored(tmp_path / "new", default=None, params=None, optimizer=tree["opt_state"])
    kernel = np.asarray(tree["params"]["Dense_1"]["kernel"])
    np.testing.assert_array_equal(found["params"]["Dense_1"]["kernel"], kernel * np.float32(0.5))
    old, new = tree["opt_state"][0], found["optimizer"][0]
    np.testing.assert_array_equal(
        new.mu["Dense_1"]["kernel"], np.asarray(old.mu["Dense_1"]["kernel"]) * np.float32(2)
    )
    np.testing.assert_array_equal(
        new.nu["Dense_1"]["kernel"], np.asarray(old.nu["Dense_1"]["kernel"]) * np.float32(4)
    )
    same(new.mu["Dense_0"], old.mu["Dense_0"])


def test_each_item_restores_without_a_target(run, tmp_path):
    root, tree = run
    edited(root, tmp_path / "new", "extract-item", at=["batch_stats"])
    found = restored(tmp_path / "new", default=None, batch_stats=None)
    same(found["batch_stats"], tree["batch_stats"])
    same(found["default"]["params"], tree["params"])
    assert sorted(found["default"]) == ["opt_state", "params", "step"]


def test_a_kept_subtree_is_in_both_items(run, tmp_path):
    root, tree = run
    edited(root, tmp_path / "new", "extract-item", at=["params/Dense_1"], as_="layer", keep=True)
    found = restored(tmp_path / "new", default=tree, layer=tree["params"]["Dense_1"])
    same(found["default"], tree)
    same(found["layer"], tree["params"]["Dense_1"])


def test_the_optimizer_state_is_an_item_like_any_other(run, tmp_path):
    root, tree = run
    edited(root, tmp_path / "new", "extract-item", at=["opt_state"], as_="optimizer")
    found = restored(
        tmp_path / "new", default=rest_of(tree, "opt_state"), optimizer=tree["opt_state"]
    )
    same(found["optimizer"], tree["opt_state"])


def test_extract_then_insert_gives_the_run_back(run, tmp_path):
    root, tree = run
    edited(root, tmp_path / "two", "extract-item", at=["params"])
    report = edited(
        tmp_path / "two", tmp_path / "back", "insert-item", at=["default/params"], from_="params"
    )
    assert (report.bytes_read, report.bytes_written) == (0, 0)
    with manager(tmp_path / "back", read_only=True) as opened:
        same(opened.restore(STEP, args=ocp.args.StandardRestore(tree)), tree)
    step = tmp_path / "back" / str(STEP)
    assert not (step / "params").exists()
    record = json.loads((step / "_CHECKPOINT_METADATA").read_text())
    assert sorted(record["item_handlers"]) == ["default", "metrics"]


def test_digests_on_record_follow_into_the_item_and_back(run, tmp_path):
    root, _ = run
    edited(
        root, tmp_path / "half", "rescale", at=["params/Dense_1/kernel"], by="0.5", optimizer="keep"
    )
    edited(tmp_path / "half", tmp_path / "two", "extract-item", at=["params"])
    edited(
        tmp_path / "two", tmp_path / "back", "insert-item", at=["default/params"], from_="params"
    )
    for name in ("half", "two", "back"):
        found = verify(str(tmp_path / name))
        assert (found.agrees, found.checked) == (True, 1)


def test_a_composite_step_gets_another_item(tmp_path):
    tree = state()
    with manager(tmp_path / "run") as opened:
        items = {"model": rest_of(tree, "step"), "data": {"step": tree["step"]}}
        saved = {name: ocp.args.StandardSave(item) for name, item in items.items()}
        opened.save(STEP, args=ocp.args.Composite(**saved), metrics=METRICS)
    edited(tmp_path / "run", tmp_path / "new", "extract-item", at=["model/params"])
    wanted = {
        "model": rest_of(tree, "step", "params"),
        "data": {"step": tree["step"]},
        "params": tree["params"],
    }
    with manager(tmp_path / "new", read_only=True) as opened:
        args = {name: ocp.args.StandardRestore(item) for name, item in wanted.items()}
        found = opened.restore(STEP, args=ocp.args.Composite(**args))
    for name, item in wanted.items():
        same(found[name], item)


def test_v1_loads_both_checkpointables(tmp_path):
    tree = state()
    v1.save_checkpointables(tmp_path / "v1", {"model": tree})
    edited(tmp_path / "v1", tmp_path / "new", "extract-item", at=["params"], as_="weights")
    found = v1.load_checkpointables(
        tmp_path / "new", {"model": rest_of(tree, "params"), "weights": tree["params"]}
    )
    same(found["model"], rest_of(tree, "params"))
    same(found["weights"], tree["params"])
    edited(tmp_path / "new", tmp_path / "back", "insert-item", at=["model/params"], from_="weights")
    same(v1.load_checkpointables(tmp_path / "back", {"model": tree})["model"], tree)


@pytest.mark.parametrize("zarr3", [False, True], ids=["zarr2", "zarr3"])
@pytest.mark.parametrize("ocdbt", [False, True], ids=["per-leaf", "ocdbt"])
def test_params_out_of_a_flat_checkpoint_and_back(tmp_path, ocdbt, zarr3):
    tree = state()
    with pytree_checkpointer(ocdbt=ocdbt, zarr3=zarr3) as checkpointer:
        checkpointer.save(tmp_path / "flat", args=ocp.args.PyTreeSave(tree))
    edited(tmp_path / "flat", tmp_path / "bare", "extract-item", at=["params"])
    same(pytree_restore(tmp_path / "bare", tree["params"]), tree["params"])
    edited(tmp_path / "flat", tmp_path / "rest", "keep", at=["opt_state", "batch_stats", "step"])
    report = edited(
        tmp_path / "rest",
        tmp_path / "back",
        "insert-item",
        at=["params"],
        with_=str(tmp_path / "bare"),
    )
    assert (report.bytes_read, report.bytes_written) == (0, 0)
    same(pytree_restore(tmp_path / "back", tree), tree)
    assert list(open_checkpoint(str(tmp_path / "bare")).items) == [""]


def test_a_standard_checkpointer_restores_bare_params(tmp_path):
    tree = state()
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "flat", tree)
        checkpointer.wait_until_finished()
        edited(tmp_path / "flat", tmp_path / "bare", "extract-item", at=["params"])
        same(checkpointer.restore(tmp_path / "bare"), tree["params"])
        same(checkpointer.restore(tmp_path / "bare", tree["params"]), tree["params"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("zarr3", [False, True], ids=["zarr2", "zarr3"])
@pytest.mark.parametrize("ocdbt", [False, True], ids=["per-leaf", "ocdbt"])
def test_a_donor_in_another_layout_takes_a_place_in_a_run(run, tmp_path, ocdbt, zarr3):
    root, tree = run
    other = filled(jax.tree.map(np.asarray, tree["batch_stats"]), seed=5)
    with pytree_checkpointer(ocdbt=ocdbt, zarr3=zarr3) as checkpointer:
        checkpointer.save(tmp_path / "donor", args=ocp.args.PyTreeSave({"ema": {"stats": other}}))
    donor = str(tmp_path / "donor")
    edited(root, tmp_path / "new", "insert-item", at=["ema_stats"], with_=donor, from_="ema/stats")
    edited(
        tmp_path / "new",
        tmp_path / "over",
        "insert-item",
        at=["batch_stats"],
        with_=donor,
        from_="ema/stats",
    )
    wanted = {**tree, "batch_stats": other, "ema_stats": other}
    with manager(tmp_path / "over", read_only=True) as opened:
        same(opened.restore(STEP, args=ocp.args.StandardRestore(wanted)), wanted)


def test_arrays_keep_their_shardings_in_the_item_and_back(tmp_path):
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("data",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    kernel = jax.device_put(np.arange(8.0, dtype=np.float32).reshape(4, 2), split)
    tree = {
        "params": {"kernel": kernel},
        "batch_stats": {"mean": jax.device_put(np.ones(4), split)},
    }
    with manager(tmp_path / "run") as opened:
        opened.save(STEP, args=ocp.args.StandardSave(tree), metrics=METRICS)
    edited(tmp_path / "run", tmp_path / "two", "extract-item", at=["params"])
    found = restored(tmp_path / "two", default=None, params=None)
    assert found["params"]["kernel"].sharding == split
    assert found["default"]["batch_stats"]["mean"].sharding == split
    edited(
        tmp_path / "two", tmp_path / "back", "insert-item", at=["default/params"], from_="params"
    )
    back = restored(tmp_path / "back", default=None)["default"]
    assert back["params"]["kernel"].sharding == split
    same(back, tree)


def test_statistics_are_edited_like_params(run, tmp_path):
    root, tree = run
    report = edited(root, tmp_path / "new", "rescale", at=["batch_stats"], by="0.5")
    assert report.edits[0].twins == {}
    with manager(tmp_path / "new", read_only=True) as opened:
        found = opened.restore(STEP, args=ocp.args.StandardRestore(tree))
    mean = np.asarray(tree["batch_stats"]["norm"]["mean"])
    np.testing.assert_array_equal(found["batch_stats"]["norm"]["mean"], mean * np.float32(0.5))
    same(rest_of(found, "batch_stats"), rest_of(tree, "batch_stats"))


def test_a_list_is_no_root_where_the_layout_keeps_dicts_only(tmp_path):
    old = Path(__file__).parents[1] / "fixtures" / "orbax-0.2.7" / "odd_lst"
    with pytest.raises(PlanError, match="would stand in a list at the root"):
        edited(old, tmp_path / "new", "extract-item", at=["x"])
    assert not (tmp_path / "new").exists()


def test_keys_strings_and_empties_go_along(tmp_path):
    tree = {
        "params": {"w": jax.numpy.arange(6.0)},
        "extra": {
            "key": jax.random.key(3),
            "name": "ein Wörtchen",
            "none": None,
            "empty": {},
            "n": 4,
        },
    }
    root = tmp_path / "run"
    with manager(root) as opened:
        opened.save(STEP, args=ocp.args.PyTreeSave(tree), metrics=METRICS)
    edited(root, tmp_path / "two", "extract-item", at=["extra"])
    whole = ocp.args.PyTreeRestore()
    found = restored(tmp_path / "two", default=whole, extra=whole)
    same(found["default"], {"params": tree["params"]})
    extra = dict(found["extra"])
    assert (extra["name"], extra["none"], extra["empty"], extra["n"]) == (
        "ein Wörtchen",
        None,
        {},
        4,
    )
    same(jax.random.key_data(extra["key"]), jax.random.key_data(tree["extra"]["key"]))
    edited(tmp_path / "two", tmp_path / "back", "insert-item", at=["default/extra"], from_="extra")
    with manager(tmp_path / "back", read_only=True) as opened:
        back = opened.restore(STEP, args=ocp.args.PyTreeRestore())
    assert (back["extra"]["name"], back["extra"]["none"], back["extra"]["empty"]) == (
        "ein Wörtchen",
        None,
        {},
    )
