"""Which checkpoint an argument names."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from surgery_cli.errors import CheckpointError, MissingError, PlanError
from surgery_cli.store.filesystem.local_disk import LocalDisk
from surgery_cli.store.locate.location import Location, locate
from tests.fixture_truths import FIXTURES, finished, unfinished

FLAT = FIXTURES / "orbax-0.8.0" / "odd_lst"
COMPOSITE_STEP = FIXTURES / "orbax-0.5.10" / "cm_composite" / "100"


def _root(folder: Path, names: list[str], item: str = "default") -> Path:
    """A root whose steps hold one pytree each; as 0.5.10 leaves them, without metadata of their own."""
    for name in names:
        shutil.copytree(FLAT, folder / name / item, ignore=lambda *_: {"_CHECKPOINT_METADATA"})
    return folder


@pytest.fixture(scope="module")
def manager_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CheckpointManager root, written by Orbax itself: steps 1 and 2, two trees, JSON, metrics."""
    import orbax.checkpoint as ocp

    root = tmp_path_factory.mktemp("manager")
    options = ocp.CheckpointManagerOptions(
        best_fn=lambda m: m["loss"], enable_async_checkpointing=False
    )
    with ocp.CheckpointManager(root, options=options, metadata={"run": "a"}) as manager:
        for step in (1, 2):
            manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave({"w": np.arange(3.0)}),
                    opt_state=ocp.args.PyTreeSave({"mu": np.arange(3.0)}),
                    extra=ocp.args.JsonSave({"epoch": step}),
                ),
                metrics={"loss": 1.0 / step},
            )
    return root


@pytest.fixture(scope="module")
def v1_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pytree` (v1 save), `items` (save_checkpointables), `training` (Checkpointer): written by Orbax itself."""
    from orbax.checkpoint import v1

    folder = tmp_path_factory.mktemp("v1")
    tree = {"w": np.arange(3.0)}
    v1.save(folder / "pytree", tree)
    v1.save_checkpointables(folder / "items", {"state": tree, "ema": tree})
    with v1.training.Checkpointer(folder / "training") as checkpointer:
        checkpointer.save(5, tree)
    return folder


def _names(location: Location) -> tuple[list[str], list[str]]:
    return sorted(location.items), sorted(location.other_items)


@pytest.mark.parametrize("name", finished())
def test_every_finished_fixture_is_located_and_nothing_in_it_is_foreign(name: str) -> None:
    location = locate(str(FIXTURES / name))
    assert location.items
    assert location.foreign == []
    assert location.root == FIXTURES / name


@pytest.mark.parametrize("name", unfinished())
def test_unfinished_saves_of_every_release_are_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="is an unfinished save"):
        locate(str(FIXTURES / name))


def test_the_newest_step_of_a_manager_root_is_chosen_with_its_items(manager_root: Path) -> None:
    location = locate(str(manager_root))
    assert (location.shape, location.step, location.steps) == ("root", 2, [1, 2])
    assert location.step_directory == manager_root / "2"
    assert _names(location) == (["opt_state", "params"], ["extra", "metrics"])
    assert location.prefix_items
    assert location.root_files == [manager_root / "metadata"]
    assert location.foreign == []
    assert location.chosen == "step 2 (newest finished of 2), items 'opt_state', 'params'"


def test_a_step_is_chosen_by_number_and_both_ways_must_agree(manager_root: Path) -> None:
    assert locate(f"{manager_root}@1").step == 1
    assert locate(str(manager_root), step=1).step_directory == manager_root / "1"
    assert locate(f"{manager_root}@1", step=1).step == 1
    with pytest.raises(PlanError, match="name two different steps"):
        locate(f"{manager_root}@1", step=2)


def test_the_newest_finished_step_has_a_name(manager_root: Path) -> None:
    assert locate(f"{manager_root}@latest").step == locate(str(manager_root)).step == 2
    with pytest.raises(PlanError, match="name two different steps"):
        locate(f"{manager_root}@latest", step=2)


@pytest.mark.parametrize("place", ["", "/2"])
def test_what_holds_no_steps_has_no_newest_one(manager_root: Path, place: str) -> None:
    one = f"{manager_root}{place}" if place else str(FLAT)
    with pytest.raises(PlanError, match="has no newest step"):
        locate(f"{one}@latest")


@pytest.mark.parametrize("step", ["last", "newest", "1..2", "x"])
def test_what_behind_an_at_is_no_step_is_answered_by_how_steps_are_named(
    manager_root: Path, step: str
) -> None:
    with pytest.raises(MissingError, match="no step") as caught:
        locate(f"{manager_root}@{step}")
    assert "@latest" in caught.value.problems[0].fix


def test_an_existing_path_wins_over_the_reading_as_a_step(tmp_path: Path) -> None:
    root = _root(tmp_path / "run", ["1"])
    shutil.copytree(FLAT, tmp_path / "run@1")
    assert locate(f"{root}@1").shape == "flat"
    assert locate(f"{root}@1").root == tmp_path / "run@1"


def test_a_step_that_is_not_there_names_those_that_are(manager_root: Path) -> None:
    with pytest.raises(PlanError) as refused:
        locate(str(manager_root), step=7)
    assert refused.value.problems[0].why == "finished steps: 1, 2"
    assert refused.value.problems[0].fix == "`--step 2` is the nearest"


def test_an_item_is_chosen_and_the_others_come_along(manager_root: Path) -> None:
    location = locate(str(manager_root), item="params")
    assert _names(location) == (["params"], ["extra", "metrics", "opt_state"])
    assert not location.prefix_items


def test_a_wrong_item_names_the_nearest_and_a_json_item_is_no_tree(manager_root: Path) -> None:
    with pytest.raises(PlanError) as refused:
        locate(str(manager_root), item="param")
    assert refused.value.problems[0].fix == "`--item params`"
    with pytest.raises(PlanError, match="there is no tree 'metrics'") as refused:
        locate(str(manager_root), item="metrics")
    assert "not a tree" in refused.value.problems[0].why


def test_a_step_directory_is_a_step_and_knows_its_number(manager_root: Path) -> None:
    location = locate(str(manager_root / "1"))
    assert (location.shape, location.step, location.step_name) == ("step", 1, "1")
    assert locate(str(manager_root / "1"), step=1).step == 1
    with pytest.raises(PlanError, match="does not hold step 2"):
        locate(str(manager_root / "1"), step=2)


def test_an_item_directory_knows_the_step_that_it_stands_in(manager_root: Path) -> None:
    location = locate(str(manager_root / "2" / "params"))
    assert (location.shape, location.step) == ("item", 2)
    assert location.items == {"params": manager_root / "2" / "params"}
    assert location.step_directory == manager_root / "2"


def test_an_item_of_a_step_without_metadata_is_an_item_too() -> None:
    location = locate(str(COMPOSITE_STEP / "params"))
    assert (location.shape, location.step) == ("item", 100)


def test_metrics_named_directly_are_no_tree(manager_root: Path) -> None:
    with pytest.raises(CheckpointError):
        locate(str(manager_root / "2" / "metrics"))


def test_v1_saves_are_steps_without_a_number(v1_checkpoints: Path) -> None:
    one = locate(str(v1_checkpoints / "pytree"))
    assert (one.shape, one.step, list(one.items), one.prefix_items) == (
        "step",
        None,
        ["state"],
        False,
    )
    several = locate(str(v1_checkpoints / "items"))
    assert (several.shape, sorted(several.items), several.prefix_items) == (
        "step",
        ["ema", "state"],
        True,
    )


def test_a_v1_training_root_needs_no_marker(v1_checkpoints: Path) -> None:
    location = locate(str(v1_checkpoints / "training"))
    assert (location.shape, location.step, list(location.items)) == ("root", 5, ["state"])
    assert not (v1_checkpoints / "training" / "5" / "orbax.checkpoint").exists()


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["1", "3", "20"], ("20", 20)),
        (["ckpt_000003", "ckpt_000020"], ("ckpt_000020", 20)),
        (["step_00000003"], ("step_00000003", 3)),
        (["00000003", "00000010"], ("00000010", 10)),
        (["my_model_7", "my_model_10"], ("my_model_10", 10)),
    ],
)
def test_steps_are_found_under_every_name_format(
    tmp_path: Path, names: list[str], newest: tuple[str, int]
) -> None:
    location = locate(str(_root(tmp_path, names)))
    assert (location.shape, location.step_name, location.step) == ("root", *newest)
    assert list(location.items) == ["default"]


def test_unfinished_steps_are_skipped_and_named(tmp_path: Path) -> None:
    root = _root(tmp_path, ["1"])
    shutil.copytree(FLAT, root / "7.orbax-checkpoint-tmp" / "state.orbax-checkpoint-tmp")
    shutil.copytree(FLAT, root / "8.orbax-checkpoint-tmp-1795167049873362" / "default")
    location = locate(str(root))
    assert (location.step, location.steps) == (1, [1])
    assert location.unfinished == [
        "7.orbax-checkpoint-tmp",
        "8.orbax-checkpoint-tmp-1795167049873362",
    ]
    assert "unfinished and skipped: '7.orbax-checkpoint-tmp'" in location.chosen
    with pytest.raises(CheckpointError, match=r"step 7 .* is unfinished"):
        locate(str(root), step=7)


def test_a_step_with_an_unfinished_item_is_unfinished(tmp_path: Path) -> None:
    root = _root(tmp_path, ["1", "2"])
    shutil.copytree(FLAT, root / "2" / "opt_state.orbax-checkpoint-tmp-17")
    assert locate(str(root)).step == 1
    with pytest.raises(CheckpointError, match="unfinished"):
        locate(str(root / "2"))


def test_a_root_without_a_finished_step_lists_the_unfinished(tmp_path: Path) -> None:
    (tmp_path / "7.orbax-checkpoint-tmp").mkdir()
    with pytest.raises(CheckpointError, match="no finished step") as refused:
        locate(str(tmp_path))
    assert "'7.orbax-checkpoint-tmp'" in refused.value.problems[0].why


def test_flax_roots_hold_files_or_directories() -> None:
    location = locate(str(FIXTURES / "orbax-0.2.7" / "flax_orbax_mode_chain"))
    assert (location.shape, location.step, location.step_name) == ("root", 3, "checkpoint_3")
    assert list(location.items) == [""]


def test_flax_msgpack_files_are_steps_of_their_folder(tmp_path: Path) -> None:
    from flax.training import checkpoints

    for step in (1, 10, 9):
        (tmp_path / f"checkpoint_{step}").write_bytes(_flax_bytes(step))
    location = locate(str(tmp_path))
    assert (location.shape, location.step, location.steps) == ("root", 10, [1, 9, 10])
    assert location.items == {"": tmp_path / "checkpoint_10"}
    assert checkpoints.latest_checkpoint(tmp_path) == str(tmp_path / "checkpoint_10")
    direct = locate(str(tmp_path / "checkpoint_9"))
    assert (direct.shape, direct.step) == ("file", 9)


def _flax_bytes(step: int) -> bytes:
    from flax import serialization

    return serialization.msgpack_serialize({"step": step, "w": np.ones(2, np.float32)})


def test_two_directories_for_one_step_are_not_guessed_between(tmp_path: Path) -> None:
    root = _root(tmp_path, ["3", "ckpt_3", "1"])
    with pytest.raises(PlanError, match="2 directories for step 3"):
        locate(str(root), step=3)
    assert locate(str(root), step=1).step == 1
    assert locate(str(root / "ckpt_3")).step == 3


def test_steps_of_two_kinds_are_not_compared_by_number(tmp_path: Path) -> None:
    root = _root(tmp_path, ["pretrain_900", "finetune_20"])
    with pytest.raises(PlanError, match="named in 2 formats"):
        locate(str(root))
    assert locate(str(root), step=20).step_name == "finetune_20"


def test_a_folder_of_checkpoints_is_not_read_as_a_root(tmp_path: Path) -> None:
    shutil.copytree(FLAT, tmp_path / "cnn")
    shutil.copytree(FLAT, tmp_path / "resnet_18")
    with pytest.raises(PlanError, match="holds several checkpoints"):
        locate(str(tmp_path))


def test_a_folder_of_runs_names_the_runs(tmp_path: Path) -> None:
    _root(tmp_path / "run_1", ["5"])
    _root(tmp_path / "run_2", ["5"])
    with pytest.raises(CheckpointError, match="is not a checkpoint") as refused:
        locate(str(tmp_path))
    assert f"'{tmp_path / 'run_1'}'" in refused.value.problems[0].why


def test_the_arguments_own_link_is_followed_and_said(tmp_path: Path) -> None:
    root = _root(tmp_path / "run", ["10"])
    (tmp_path / "latest").symlink_to(root)
    location = locate(str(tmp_path / "latest"))
    assert location.root == root
    assert location.chosen.startswith(f"'{tmp_path / 'latest'}' → '{root}': step 10")


def test_links_to_a_step_inside_a_root_are_not_foreign(tmp_path: Path) -> None:
    root = _root(tmp_path, ["10"])
    (root / "latest").symlink_to("10")
    (root / "events.out").write_text("x")
    assert locate(str(root)).foreign == [root / "events.out"]


def test_foreign_files_are_found_in_root_step_and_item(tmp_path: Path) -> None:
    root = _root(tmp_path, ["10"])
    for place in (root, root / "10", root / "10" / "default"):
        (place / "notes.txt").write_text("x")
    (root / "10" / "plots").mkdir()
    assert sorted(locate(str(root)).foreign) == sorted(
        [
            root / "notes.txt",
            root / "10" / "notes.txt",
            root / "10" / "default" / "notes.txt",
            root / "10" / "plots",
        ]
    )


def test_item_handlers_decide_before_what_stands_inside(tmp_path: Path) -> None:
    root = _root(tmp_path, ["1"], item="state")
    shutil.copytree(FLAT, root / "1" / "blob")
    handlers = {"state": "a.StandardCheckpointHandler", "blob": "a.ArrayCheckpointHandler"}
    (root / "1" / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": handlers}))
    assert _names(locate(str(root))) == (["state"], ["blob"])


def test_where_step_metadata_is_not_json_what_stands_inside_tells(tmp_path: Path) -> None:
    root = _root(tmp_path, ["1"], item="state")
    (root / "1" / "_CHECKPOINT_METADATA").write_bytes(b'{"item_han')
    assert _names(locate(str(root))) == (["state"], [])


def test_a_step_of_json_alone_holds_no_tree(tmp_path: Path) -> None:
    (tmp_path / "3" / "metrics").mkdir(parents=True)
    (tmp_path / "3" / "metrics" / "metrics").write_text("{}")
    with pytest.raises(CheckpointError, match="holds no tree of arrays"):
        locate(str(tmp_path))


def test_per_leaf_directories_without_any_metadata_are_a_tree(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(FIXTURES / "orbax-0.2.7" / "odd_zero", bare)
    (bare / "checkpoint").unlink()
    assert locate(str(bare)).shape == "flat"


def test_a_flat_checkpoint_has_no_items_and_no_steps() -> None:
    with pytest.raises(PlanError, match="no item 'params'"):
        locate(str(FLAT), item="params")
    with pytest.raises(PlanError, match="does not hold step 3"):
        locate(str(FLAT), step=3)


def test_safetensors_are_a_file_or_a_directory_of_shards(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    assert locate(str(tmp_path / "model.safetensors")).shape == "file"
    assert locate(str(tmp_path)).items == {"": tmp_path}


def test_a_directory_with_many_leaves_is_located_without_looking_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for index in range(300):
        (flat / f"layer_{index}").mkdir()
        (flat / f"layer_{index}" / ".zarray").write_text("{}")
    asked: list[object] = []
    for call in ("status", "entries", "open"):
        real = partial(getattr(LocalDisk, call), LocalDisk())
        monkeypatch.setattr(LocalDisk, call, lambda _, p, real=real: asked.append(p) or real(p))
    assert locate(str(flat)).shape == "flat"
    assert len(asked) < 50


def test_a_staging_directory_opens_only_for_surgery_itself(tmp_path: Path) -> None:
    staging = tmp_path / ".out.surgery-tmp-abc"
    shutil.copytree(FLAT, staging)
    with pytest.raises(CheckpointError, match="interrupted run of surgery"):
        locate(str(staging))
    assert locate(str(staging), staging=True).shape == "flat"


def test_records_of_surgery_are_neither_foreign_nor_of_the_root(tmp_path: Path) -> None:
    root = _root(tmp_path, ["1", "2"])
    for record in ("surgery.json", "1.surgery.json", "2/surgery.json", "2/default/surgery.json"):
        (root / record).write_text("{}")
    location = locate(str(root))
    assert (location.foreign, location.root_files) == ([], [])


def test_an_item_that_is_recorded_but_was_deleted_is_said(tmp_path: Path) -> None:
    root = _root(tmp_path, ["1"], item="params")
    handlers = dict.fromkeys(("params", "opt_state"), "a.StandardCheckpointHandler")
    (root / "1" / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": handlers}))
    assert locate(str(root)).chosen.endswith("item 'params'; recorded but not there: 'opt_state'")


def test_a_flat_json_save_says_who_saved_it(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    ocp.Checkpointer(ocp.JsonCheckpointHandler()).save(tmp_path / "j", {"a": 1})
    with pytest.raises(CheckpointError, match="holds no tree of arrays") as refused:
        locate(str(tmp_path / "j"))
    assert refused.value.problems[0].why == "it was saved by JsonCheckpointHandler"


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 5000])
def test_texts_that_are_no_paths_are_errors(text: str) -> None:
    with pytest.raises((PlanError, CheckpointError)):
        locate(text)


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises((PlanError, CheckpointError)):
        locate(str(tmp_path / "a"))


@pytest.mark.parametrize("name", ["orbax-0.5.10/odd_lst", "orbax-0.12.8/odd_lst"])
def test_a_flat_checkpoint_in_a_folder_with_a_number_in_its_name_is_no_item(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "experiment_3" / "model"
    shutil.copytree(FIXTURES / name, path)
    location = locate(str(path))
    assert (location.shape, location.step, location.step_directory) == ("flat", None, path)


def test_a_folder_of_unrelated_checkpoints_is_not_one_step(
    manager_root: Path, tmp_path: Path
) -> None:
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        for name in ("bn", "std"):
            checkpointer.save(tmp_path / name, {"w": np.arange(3.0)})
    shutil.copytree(manager_root, tmp_path / "run")
    with pytest.raises(PlanError, match="holds several checkpoints: name one") as refused:
        locate(str(tmp_path))
    assert refused.value.problems[0].why == "'bn', 'run', 'std'"
    assert refused.value.problems[0].fix == f"e.g. '{tmp_path / 'bn'}'"


def test_a_step_that_lost_its_metadata_still_opens(manager_root: Path, tmp_path: Path) -> None:
    shutil.copytree(manager_root / "2", tmp_path / "copy")
    (tmp_path / "copy" / "_CHECKPOINT_METADATA").unlink()
    assert _names(locate(str(tmp_path / "copy")))[0] == ["opt_state", "params"]


def test_the_nearest_step_is_spelled_as_the_missing_one_was(manager_root: Path) -> None:
    with pytest.raises(PlanError) as refused:
        locate(f"{manager_root}@9")
    assert refused.value.problems[0].fix == f"`{manager_root}@2` is the nearest"


@pytest.mark.parametrize("name", ["run_3", "exp_3", "checkpoint_7", "run"])
def test_a_root_of_flat_steps_is_a_root_whatever_number_its_own_name_ends_in(
    name: str, tmp_path: Path
) -> None:
    for step in ("checkpoint_100", "checkpoint_200"):
        shutil.copytree(FLAT, tmp_path / name / step)
    location = locate(str(tmp_path / name))
    assert (location.shape, location.step, location.steps) == ("root", 200, [100, 200])
    assert locate(f"{tmp_path / name}@100").step_directory == tmp_path / name / "checkpoint_100"
    assert locate(str(tmp_path / name / "checkpoint_100")).shape == "flat"


def test_the_record_of_a_root_called_like_a_step_lands_in_its_step(tmp_path: Path) -> None:
    from surgery_cli import surgery
    from surgery_cli.planning import operation_from_options, plan_of

    for step in ("checkpoint_100", "checkpoint_200"):
        shutil.copytree(FLAT, tmp_path / "runs" / step)
    leaf = next(iter(surgery.inspect(str(tmp_path / "runs")).leaves)).path
    plan = plan_of([operation_from_options("copy", {"at": leaf, "to": "again"})])
    new = tmp_path / "exp_3"
    surgery.apply(str(tmp_path / "runs"), str(new), plan)
    assert list(new.rglob("surgery.json")) == [new / "checkpoint_200" / "surgery.json"]
    assert locate(str(new)).steps == [200]
