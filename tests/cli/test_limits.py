"""What files declare is held against one table before memory is asked for; more is let through where that is asked."""

import shutil
import signal
import time
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery as use_cases
from surgery_cli.engine.digests import Digester
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.limits import LIMITS, limits
from surgery_cli.operations.interpolate_positions import InterpolatePositions
from surgery_cli.operations.numbered import Series
from surgery_cli.operations.repeat import Repeat
from surgery_cli.planning import read_plan
from surgery_cli.settings.limits import limits_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.sharding import Mesh, NamedSharding
from surgery_cli.tree.specs import LeafKind, LeafSpec
from tests.fuzz.ocdbt import inner_node, reaching_itself

SAMPLE = Path(__file__).resolve().parents[2] / "sample_checkpoints" / "digits_standard"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Small checkpoints of the same tree, one of each format, by the libraries that write it."""
    folder = tmp_path_factory.mktemp("saved")
    tree = {"a": {"b": np.ones(3, np.float32)}, "c": np.zeros((2, 2), np.int32)}
    for name, options in {"ocdbt": {}, "per-leaf": {"use_ocdbt": False}}.items():
        handler = ocp.PyTreeCheckpointHandler(**options)
        ocp.Checkpointer(handler).save(folder / name, ocp.args.PyTreeSave(tree))
    from flax import serialization
    from safetensors.numpy import save_file

    flat = {"a.b": tree["a"]["b"], "c": tree["c"]}
    (folder / "flax.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    save_file(flat, folder / "m.safetensors")
    np.savez(folder / "m.npz", **flat)
    shutil.copy(Path(__file__).parents[1] / "fixtures" / "torch" / "state.pt", folder / "m.pt")
    return folder


def refused(said, act, *, exit_code=3):
    """The problem with which ``act`` is refused while these limits hold."""
    with limits(said), pytest.raises((CheckpointError, PlanError)) as caught:
        act()
    assert caught.value.exit_code == exit_code
    (problem,) = caught.value.problems
    return problem


FORMATS = ["ocdbt", "per-leaf", "flax.msgpack", "m.safetensors", "m.pt"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("limit", ["leaves", "name"])
def test_every_format_holds_its_tree_against_the_table(saved, name, limit):
    place = str(saved / name)
    problem = refused({limit: 1}, lambda: open_checkpoint(place).tree)
    assert f"--limit {limit}=" in problem.fix
    assert str(saved / name) in problem.what
    value = problem.fix.split(f"--limit {limit}=")[1].split("`")[0]
    with limits({limit: int(value)}):
        assert open_checkpoint(place).tree


@pytest.mark.parametrize("name", ["ocdbt", "per-leaf", "flax.msgpack"])
def test_how_deep_a_tree_is_is_held_against_the_table(saved, name):
    problem = refused({"nesting": 1}, lambda: open_checkpoint(str(saved / name)).tree)
    assert "2 keys, and 1 keys are read at most" in problem.what


@pytest.mark.parametrize("name", ["ocdbt", "per-leaf"])
@pytest.mark.parametrize("limit", ["metadata", "document"])
def test_small_files_are_not_read_if_they_are_large(saved, name, limit):
    problem = refused({limit: 10}, lambda: open_checkpoint(str(saved / name)).tree)
    assert "and 10 B are read at most" in problem.what


def test_a_large_json_text_is_counted_before_it_is_read(saved, tmp_path):
    shutil.copytree(saved / "per-leaf", tmp_path / "large")
    (tmp_path / "large" / "_METADATA").write_bytes(b'{"x": [' + b"[]," * (6 << 20) + b"[]]}")
    problem = refused(
        {"json-values": 9_000_000}, lambda: open_checkpoint(str(tmp_path / "large")).tree
    )
    assert "values are read at most" in problem.what


def test_the_pickle_of_a_torch_file_is_bounded(saved):
    assert (
        "B are read at most"
        in refused({"pickle": 10}, lambda: open_checkpoint(str(saved / "m.pt")).tree).what
    )


def test_what_a_database_holds_is_counted_node_by_node(saved):
    problem = refused({"stored-values": 2}, lambda: open_checkpoint(str(saved / "ocdbt")).tree)
    assert "the store in" in problem.what


@pytest.mark.parametrize("height", [1, 2])
@pytest.mark.parametrize("prefix", [b"", b"a"])
def test_a_node_that_leads_to_itself_is_damage_and_has_an_end(saved, tmp_path, height, prefix):
    """Its checksum is good: that does not cover where it lies."""
    place = shutil.copytree(saved / "ocdbt", tmp_path / "circle")
    (place / "d" / "circle").write_bytes(node := reaching_itself(height, "d/circle", prefix))
    manifest = ts.ocdbt.dump(ts.KvStore.open(f"file://{place}/").result()).result()
    newest = manifest["versions"][-1]
    newest["root"]["location"] = f"btreenode::d/circle:0:{len(node)}"
    newest["root_height"] = height
    (place / "manifest.ocdbt").write_bytes(ts.ocdbt.undump_manifest(manifest))

    with pytest.raises(CheckpointError) as refused:
        _ = open_checkpoint(str(place)).tree
    assert f"of height {height} stands where one of {height - 1}" in str(refused.value)
    assert {row.state for row in use_cases.rescue(str(place)).leaves} == {"whole"}


def test_stored_values_are_counted(saved):
    problem = refused({"stored-values": 2}, lambda: open_checkpoint(str(saved / "ocdbt")).tree)
    assert "stored-values" in problem.why


def test_nodes_that_share_their_children_are_refused(saved, tmp_path):
    """Sixty levels of two children each, all of which are one node: there is no end to the keys of it."""
    place = shutil.copytree(saved / "ocdbt", tmp_path / "many")
    content, child = reaching_itself(1, "d/many"), None
    for height in range(1, 60):
        at = len(content)
        child = (0, at) if child is None else child
        node = inner_node(height + 1, "d/many", [child, child])
        child, content = (at, len(node)), content + node
    (place / "d" / "many").write_bytes(content)
    manifest = ts.ocdbt.dump(ts.KvStore.open(f"file://{place}/").result()).result()
    newest = manifest["versions"][-1]
    newest["root"]["location"] = f"btreenode::d/many:{child[0]}:{child[1]}"
    newest["root_height"] = 60
    (place / "manifest.ocdbt").write_bytes(ts.ocdbt.undump_manifest(manifest))
    problem = refused({}, lambda: open_checkpoint(str(place)).tree)
    assert "do not belong there" in problem.why


def test_ranges_meshes_patterns_and_digests_are_counted_before_they_are_written_out():
    assert "`{0..9999999}` has" in refused({}, lambda: Series("w_{0..9999999}"), exit_code=2).what
    assert (
        "the mesh 'x=1000000'" in refused({}, lambda: Mesh.of({"x": 1_000_000}), exit_code=2).what
    )
    assert "a pattern has" in refused({}, lambda: PathPattern("a" * 40_000), exit_code=2).what
    spec = LeafSpec(kind=LeafKind.ARRAY, shape=(1 << 12, 1 << 12), dtype="float32")
    assert "the digest on record" in refused({}, lambda: Digester(spec, (1, 1))).what
    assert "range-steps" in refused({}, lambda: PathPattern("{0..9999..2}"), exit_code=2).why


def test_plans_are_bounded_in_bytes_values_and_nesting(tmp_path):
    def reading(name, text):
        (tmp_path / name).write_text(text)
        return lambda: read_plan(str(tmp_path / name))

    assert "the plan" in refused({"plan": 3}, reading("a.yaml", "edits: []"), exit_code=2).what
    aliases = "edits: []\nvars: {a: &a [1,1,1,1], b: [*a, *a, *a, *a]}"
    assert "16 values" in refused({"plan-values": 16}, reading("b.yaml", aliases), exit_code=2).what
    deep = "vars: " + "[" * 300 + "]" * 300
    assert "nested too deeply" in refused({}, reading("c.yaml", deep), exit_code=2).what
    assert (
        "'"
        in refused(
            {"plan-values": 2}, reading("d.toml", "vars = {a=1, b=2, c=3}"), exit_code=2
        ).what
    )


def test_a_sharding_of_more_devices_than_there_are_tells_nothing():
    text = NamedSharding(Mesh(("x",), (4,)), (("x",),)).text
    assert NamedSharding.of_text(text) is not None
    assert NamedSharding.of_text(text.replace("[4]", "[999999999]")) is None
    assert NamedSharding.of_text('{"sharding_type": ' + "[" * 100_000) is None


def test_the_option_holds_for_the_command_alone(surgery, saved):
    place = saved / "ocdbt"
    done = surgery("inspect", place, "--limit", "leaves=1")
    assert done.code == 3
    assert "--limit leaves=2" in done.err
    assert surgery("inspect", place).code == 0
    assert LIMITS["leaves"].most == LIMITS["leaves"].default


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("leafs=3", "did you mean `--limit leaves=3`?"),
        ("leaves=0", "no whole number"),
        ("leaves=1.5", "no whole number"),
        ("leaves=²", "no whole number"),
        ("metadata=x", "is not a size"),
        ("leaves", "NAME=VALUE"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_would_be(text, says):
    with pytest.raises(PlanError) as caught:
        limits_of([text])
    assert says in str(caught.value)


def test_a_regular_expression_that_tries_every_way_is_ended():
    leaf = LeafPath(("a" * 60,))
    began = time.process_time()
    problem = refused(
        {"pattern-seconds": 1}, lambda: PathPattern("re:(a+)+b").match(leaf), exit_code=2
    )
    assert "takes over 1 seconds" in problem.what
    assert time.process_time() - began < 3
    assert PathPattern("re:(a+)+").match(leaf)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    "edit",
    [
        Repeat(axis=0, times=10**6),
        Repeat(axis=0, times=2 * 10**6, new_axis=True),
        Repeat(axis=0, times=10**6, order="tiled"),
        InterpolatePositions(axis=0, size=10**7),
        InterpolatePositions(axis=(0, 1), size=(10**4, 10**4)),
    ],
    ids=lambda edit: edit.name,
)
def test_an_axis_of_which_each_place_is_looked_at_is_bounded(edit):
    leaf = LeafSpec(kind=LeafKind.ARRAY, shape=(8, 4), dtype="float32")
    problem = refused({}, lambda: (edit.check_values(), edit.map(leaf)), exit_code=2)
    assert "--limit places=" in problem.fix
