"""A run goes on if all is as it was that it reads or takes along, whatever comes beside that."""

import json
import os
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.engine.execution import Execution
from surgery_cli.planning import operation_from_options, plan_of
from tests.buckets.checkpoints import uploaded
from tests.cli.test_lora import FIXTURES, NAMES, peft_words
from tests.store.cutting import Runs
from tests.store.t5x_checkpoints import write_t5x

VALUES = np.random.default_rng(1)
TREE = {n: VALUES.normal(size=(64, 64)).astype(np.float32) for n in "abcdefg"}
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]


@pytest.fixture(scope="module")
def run():
    with Runs() as runs:
        yield runs


def steps(place, *, items=()):
    """A run of one step, which has a tree, or several, and something else."""
    state = ocp.args.StandardSave(jax.device_put(TREE))  # whose arrays have `array_metadatas`
    with ocp.CheckpointManager(place, metadata={"who": "me"}) as manager:
        if not items:
            manager.save(1, args=state)
        else:
            trees = dict.fromkeys(items, state)
            manager.save(1, args=ocp.args.Composite(**trees, extra=ocp.args.JsonSave({"a": 1})))


def one_tree(place):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place, TREE)


def per_leaf(place):
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(place, TREE)


def shards(place, *, index=True):
    place.mkdir()
    homes = {name: SHARDS[name > "c"] for name in TREE}
    for shard in SHARDS:
        save_file({n: TREE[n] for n, home in homes.items() if home == shard}, place / shard)
    if index:
        text = json.dumps({"metadata": {}, "weight_map": homes})
        (place / "model.safetensors.index.json").write_text(text)


def flax_run(place, step=1):
    place.mkdir(exist_ok=True)
    (place / f"checkpoint_{step}").write_bytes(serialization.to_bytes(TREE))


MAKE = {
    "run": steps,
    "run of items": lambda place: steps(place, items=("state", "ema")),
    "tree": one_tree,
    "per-leaf": per_leaf,
    "shards": shards,
    "shards without an index": lambda place: shards(place, index=False),
    "npz": lambda place: np.savez(place, **TREE),
    "flax": flax_run,
    "t5x": write_t5x,
}
"""Of what kind an input is, by how it is made."""


def put(name):
    """Something comes."""

    def come(place):
        file = Path(os.path.normpath(place / name))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")

    return come


def written(place, name, more):
    found = [file for file in Path("/").glob(os.path.normpath(place / name)[1:]) if file.is_file()]
    assert found
    for file in found:
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content + more)


def again(name):
    """What it holds is written anew, as by whoever saves or copies it again: nobody has compared the two."""
    return lambda place: written(place, name, b"")


def rewritten(name):
    """A small file says something else."""
    return lambda place: written(place, name, b" ")


def flax_step(place):
    flax_run(place, 2)


GOES_ON = "goes on"
METADATA = "its metadata, or the names, sizes or times of its files, are others now"
WRITTEN = "its files have the same names and sizes, and were written since"

OF_SOURCE = [
    ("run", "", put("train.log"), GOES_ON),
    ("run", "", put("logs/events"), GOES_ON),
    ("run", "", put("metadata/more"), "'metadata' was written since"),
    ("run", "", rewritten("metadata/*"), "'metadata' was written since"),
    ("run", "", again("1/default/_METADATA"), GOES_ON),
    ("run", "", again("1/_CHECKPOINT_METADATA"), GOES_ON),
    ("run", "", put("1/eval.json"), "'1/eval.json' was not there"),
    ("run", "", put("1/default/eval.json"), "'1/default/eval.json' was not there"),
    ("run", "", again("1/default/d/*"), WRITTEN),
    ("run", "1", put("eval.json"), "'eval.json' was not there"),
    ("run", "1", rewritten("default/array_metadatas/*"), METADATA),
    ("run", "1", again("default/array_metadatas/*"), GOES_ON),
    ("run", "1/default", put("../eval.json"), GOES_ON),
    ("run", "1/default", put("eval.json"), "'eval.json' was not there"),
    ("run of items", "1", rewritten("extra/*"), "'extra' was written since"),
    ("run of items", "1", again("ema/d/*"), "'ema' was written since"),
    ("run of items", "1", again("ema/_METADATA"), "'ema' was written since"),
    ("run of items", "1", put("ema/notes"), "'ema' was written since"),
    ("run of items", "1", again("state/d/*"), WRITTEN),
    ("run of items", "1/state", put("../ema/notes"), GOES_ON),
    ("run of items", "1/state", rewritten("../extra/*"), GOES_ON),
    ("tree", "", put("eval.json"), "'eval.json' was not there"),
    ("tree", "", again("d/*"), WRITTEN),
    ("tree", "", again("_METADATA"), GOES_ON),
    ("per-leaf", "", put("eval.json"), "'eval.json' was not there"),
    ("per-leaf", "", again("a/0.0"), METADATA),
    ("shards", "", put("README.md"), GOES_ON),
    ("shards", "", put("adapter_config.json"), GOES_ON),
    ("shards", "", again(SHARDS[1]), METADATA),
    ("shards", "", again("model.safetensors.index.json"), METADATA),
    ("shards without an index", "", put("README.md"), GOES_ON),
    ("shards without an index", "", again(SHARDS[0]), METADATA),
    ("npz", "", put("../eval.json"), GOES_ON),
    ("npz", "", again(""), METADATA),
    ("t5x", "", put("eval.json"), "'eval.json' was not there"),
    ("t5x", "", again("target.*/*"), METADATA),
]
OF_DONOR = [
    ("run", "", put("1/eval.json"), GOES_ON),
    ("run", "", put("1/default/eval.json"), GOES_ON),
    ("run", "", put("metadata/more"), GOES_ON),
    ("run", "", again("1/default/d/*"), WRITTEN),
    ("run", "1/default", put("../eval.json"), GOES_ON),
    ("tree", "", put("eval.json"), GOES_ON),
    ("tree", "", put("d/unknown"), GOES_ON),
    ("tree", "", again("d/*"), WRITTEN),
    ("per-leaf", "", put("eval.json"), GOES_ON),
    ("per-leaf", "", again("a/0.0"), METADATA),
    ("shards", "", put("README.md"), GOES_ON),
    ("shards", "", again(SHARDS[1]), METADATA),
    ("npz", "", again(""), "its size, or when it was written, is another now"),
    ("flax", "@1", flax_step, GOES_ON),
    ("flax", "@1", again("checkpoint_1"), METADATA),
    ("t5x", "", put("eval.json"), GOES_ON),
    ("t5x", "", again("target.*/*"), METADATA),
]


def begun(run, words):
    ended = run(*words, cut=["entry+", 3, "SIGKILL"])
    assert ended["code"] == -9, ended["said"]


def cast_of(folder, kind, below):
    """An input of that kind, and a command that reads it."""
    place = folder / f"in{'.npz' * (kind == 'npz')}"
    MAKE[kind](place)
    words = ["cast", f"{place}/{below}".rstrip("/"), folder / "new", "--to", "bfloat16"]
    if kind == "t5x":
        words += ["--optimizer", "keep"]
    if (kind, below) == ("run of items", "1"):
        words += ["--item", "state"]
    return place / below, [*words, "--quiet", "--resume"]


def judge(run, words, wanted):
    ended = run(*words, "--json")
    if wanted == GOES_ON:
        assert ended["code"] == 0, ended["said"]
        assert json.loads(ended["said"])["taken_up_bytes"] > 0
        return ended
    assert ended["code"] == 3, ended["said"]
    assert wanted in ended["said"]
    assert "has changed since the run that left" in ended["said"]
    return ended


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "below", "change", "wanted"), OF_SOURCE)
def test_of_a_source_what_is_read_and_what_comes_along(run, tmp_path, kind, below, change, wanted):
    place, words = cast_of(tmp_path, kind, below)
    begun(run, words)
    change(place)
    judge(run, words, wanted)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "below", "change", "wanted"), OF_DONOR)
def test_of_a_donor_what_is_read(run, tmp_path, kind, below, change, wanted):
    place = tmp_path / f"donor{'.npz' * (kind == 'npz')}"
    MAKE[kind](place)
    source = tmp_path / "in"
    (write_t5x if kind == "t5x" else one_tree)(source)
    at = below if below.startswith("@") else f"/{below}"
    donor = f"{place}{at}".rstrip("/")
    nodes = ["target/**"] if kind == "t5x" else ["*"]
    edits = "".join(f"- {{op: average, at: '{node}', with: [d]}}\n" for node in nodes)
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"optimizer: keep\nsources: {{d: '{donor}'}}\nedits:\n{edits}")
    words = ["apply", source, tmp_path / "new", plan, "--quiet", "--resume"]
    begun(run, words)
    change(place if at == below else place / below)
    judge(run, words, wanted)


@pytest.mark.parametrize("names", [["eval.json"], ["notes", "more/x"]], ids=" ".join)
def test_what_has_come_beside_is_named_and_once_it_is_elsewhere_the_run_goes_on(
    run, tmp_path, names
):
    place, words = cast_of(tmp_path, "run", "1")
    begun(run, words)
    for name in names:
        put(name)(place)
    ended = judge(run, words, "was not there")
    for name in {name.partition("/")[0] for name in names}:
        assert re.search(rf"move .*'{name}'.* to another place, and `surgery cast", ended["said"])
        (place / name).rename(tmp_path / name)
    judge(run, words, GOES_ON)


def test_what_is_left_out_is_not_held(run, tmp_path):
    """Metrics do not come along where they were measured on other values."""
    place = tmp_path / "run"
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(place, options=options) as manager:
        manager.save(1, args=ocp.args.StandardSave(TREE), metrics={"loss": 1.0})
    words = ["cast", place, place, "--to", "bfloat16", "--as-step", "2", "--quiet", "--resume"]
    begun(run, words)
    put("metrics/more")(place / "1")
    judge(run, words, GOES_ON)


def test_the_log_of_a_training_that_goes_on_comes_along_as_it_is_in_the_end(run, tmp_path):
    place, words = cast_of(tmp_path, "run", "")
    (place / "train.log").write_text("1")
    begun(run, words)
    (place / "train.log").write_text("1\n2")
    judge(run, words, GOES_ON)
    assert (tmp_path / "new" / "train.log").read_text() == "1\n2"


@pytest.mark.parametrize("how", ["another scale", "other words"])
def test_a_config_beside_an_adapter_is_read_with_it(run, tmp_path, how):
    lora = FIXTURES / "lora"
    adapter = shutil.copytree(lora / "adapter", tmp_path / "adapter")
    config = adapter / "adapter_config.json"
    words = ["merge-lora", lora / "base.safetensors", tmp_path / "new", NAMES[0]]
    words = [*words, *peft_words(adapter), "--quiet", "--resume"]
    begun(run, words)
    said = json.loads(config.read_text())
    said["lora_alpha"] += how == "another scale"
    config.write_text(json.dumps(said, indent=7))
    if how == "other words":
        judge(run, words, GOES_ON)
        return
    ended = judge(run, words, "its content is another now")
    assert f"'{config}' (a file beside what an edit names)" in ended["said"]


def test_what_comes_into_a_folder_of_shards_while_it_is_read_is_nobodys_business(
    monkeypatch, tmp_path
):
    place, _ = cast_of(tmp_path, "shards", "")
    done = Execution.run

    def and_put(self, writers):
        put("README.md")(place)
        return done(self, writers)

    monkeypatch.setattr(Execution, "run", and_put)
    plan = plan_of([operation_from_options("cast", {"to": "bfloat16"})])
    assert surgery.apply(str(place), str(tmp_path / "new"), plan).verified


@pytest.mark.parametrize("whose", ["source", "donor"])
def test_in_a_bucket_as_well(google, bucket, tmp_path, whose):
    places = {}
    for name in ("source", "donor"):
        one_tree(tmp_path / name)
        places[name] = uploaded(bucket, tmp_path / name, f"{bucket.root}/{name}")
    plan = tmp_path / "plan.yaml"
    edit = "{op: average, at: '*', with: [d]}"
    plan.write_text(f"sources: {{d: '{places['donor']}'}}\nedits: [{edit}]\n")
    words = ["apply", places["source"], f"{bucket.root}/new", plan, "--quiet", "--resume"]
    with Runs("gcsfs") as run:
        begun(run, words)
        bucket.put("bkt", f"{whose}/eval.json", b"{}")
        if whose == "source":
            judge(run, words, "of what comes along with its values, 'eval.json' was not there")
            bucket.remove("source/eval.json")
        judge(run, words, GOES_ON)
