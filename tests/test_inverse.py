"""`plan --inverse` makes of a result what it was made of, bit for bit, or says what cannot be undone."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy
from flax import serialization

from surgery_cli import surgery
from surgery_cli.cli.main import run
from surgery_cli.errors import PlanError, UndoError
from surgery_cli.planning import plan_from_document, yaml_of
from surgery_cli.planning.plan_files import parse
from surgery_cli.settings.run import Options


def _layer(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"w": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32), "b": jnp.ones(3) * seed}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    params = {"layers": [_layer(n) for n in range(3)], "head": _layer(7), "x_12": _layer(8)}
    tx = optax.adam(1e-3)
    state = tx.init(params)
    _, state = tx.update(jax.tree.map(lambda x: x * 0.1, params), state, params)
    path = tmp_path_factory.mktemp("inverse") / "source"
    extra = {"ids": jnp.arange(5, dtype=jnp.int16), "none": None, "empty": {}}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params, "opt_state": state, "step": 1, **extra})
    return path


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.fixture(scope="module")
def original(source: Path) -> Any:
    """What Orbax restores of the source."""
    return _restored(source)


def _code(*words: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        run(words)
    return ended.value.code


def _same(one: Path, other: Path) -> None:
    _same_trees(_restored(one), _restored(other))


def _same_trees(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def _applied(source: Path, new: Path, *edits: dict[str, Any], **shared: Any) -> None:
    document = {"optimizer_kind": "adam", "edits": list(edits), **shared}
    surgery.apply(str(source), str(new), plan_from_document(document))


PLACES: list[list[dict[str, Any]]] = [
    [
        {"op": "add", "at": "params/new", "like": "params/head", "init": "zeros"},
        {"op": "rename", "at": "params/head", "to": "params/out"},
        {"op": "delete", "at": "params/new"},
    ],
    [{"op": "rename", "at": "params/head", "to": "params/out"}],
    [{"op": "rename", "at": "params/layers", "to": "params/blocks"}],
    [{"op": "rename", "at": "params/layers/{0..2}", "to": "params/layers/{2..0}"}],
    [{"op": "rename", "moves": {"params/head": "params/x_12", "params/x_12": "params/head"}}],
    [{"op": "copy", "at": "params/head", "to": "params/again"}],
    [{"op": "copy", "at": "params/layers/0", "to": "params/layers/3"}],
    [{"op": "copy", "at": "ids", "to": "empty/ids"}],
    [
        {"op": "rename", "at": "params/head", "to": "params/out"},
        {"op": "copy", "at": "params/out", "to": "params/more"},
        {"op": "rename", "at": "params/out/w", "to": "params/out/kernel"},
    ],
    [{"op": "cast", "at": "ids", "to": "int32", "where_dtype": "int*"}],
    [],
]
STACK = {"op": "stack", "at": "params/layers/{0..2}", "to": "params/scanned"}
SPLIT = {"op": "split", "at": "params/head/w", "axis": 0, "to": "params/head/{q,k}"}
SHAPES: list[list[dict[str, Any]]] = [
    [STACK, {"op": "repeat", "at": "params/scanned", "axis": 0, "times": 2}],
    [
        STACK,
        {"op": "repeat", "at": "params/scanned", "axis": 0, "times": 2, "order": "tiled"},
        {"op": "unstack", "at": "params/scanned", "to": "params/block_{0..5}"},
    ],
    [SPLIT, {"op": "pad", "at": "params/head", "axis": 0, "after": 2}],
    [{"op": "transpose", "at": "params/**/w"}],
    [{"op": "reshape", "at": "params/**/w", "shape": [2, -1]}],
    [{"op": "expand", "at": ["params/head", "ids"], "axis": [0, 1]}],
    [
        {"op": "expand", "at": "params/**/b", "axis": 0},
        {"op": "squeeze", "at": "params/layers"},
        {"op": "permute", "at": "params/layers/*/w", "index": [2, 0, 3, 1]},
    ],
    [{"op": "permute", "at": "params/**/w", "index": [1, 2, 0], "axis": -1}],
    [{"op": "pad", "at": "params/**/w", "axis": 1, "before": 2, "after": 1, "value": 4}],
    [{"op": "resize", "at": "params/**/w", "axis": 0, "size": 6}],
    [
        {"op": "transpose", "at": "params/head/w"},
        {"op": "rename", "at": "params/head", "to": "params/out"},
        {"op": "transpose", "at": "params/out/w"},
        {"op": "pad", "at": "params/out/w", "axis": 0, "after": 3},
        {"op": "reshape", "at": "params/out/w", "shape": [3, 7]},
    ],
]
VALUES: list[list[dict[str, Any]]] = [
    [SPLIT, {"op": "delete", "at": "params/head/k"}],
    [SPLIT, {"op": "slice", "at": "params/head/q", "slices": "0:1"}],
    [
        SPLIT,
        {"op": "delete", "at": "params/head/q"},
        {"op": "add", "at": "params/head/q", "like": "params/head/k", "init": "zeros"},
        {"op": "concat", "at": ["params/head/k", "params/head/q"], "axis": 0, "to": "params/head/w"},
    ],
    [
        {"op": "rename", "at": "params/head", "to": "params/out"},
        STACK,
        {"op": "slice", "at": "params/scanned", "slices": "1:"},
        {"op": "unstack", "at": "params/scanned", "to": "params/layers/{0..1}", "list": True},
    ],
    [{"op": "repeat", "at": "params/layers", "axis": 0, "times": 2, "new_axis": True}],
    [{"op": "extract-item", "at": "params/layers"}],
    [{"op": "delete", "at": "params/layers/0/w"}],
    [
        {"op": "permute", "at": "params/head/w", "index": [2, 0, 3, 1]},
        {"op": "delete", "at": "params/head"},
    ],
    [{"op": "rescale", "at": "params/head", "by": 3}],
    [{"op": "reinit", "at": "params/head", "init": "zeros", "optimizer": "reset"}],
    [{"op": "cast", "to": "bfloat16"}],
    [{"op": "cast", "at": "ids", "to": "int8", "where_dtype": "int*"}],
    [{"op": "reset-optimizer", "clocks": True}],
    [{"op": "set", "at": "step", "to": 9}],
    [{"op": "prune", "at": "params/**/w", "sparsity": 0.5}],
    [{"op": "slice", "at": "params/**/w", "slices": "1:"}],
    [{"op": "cast", "at": "params/head", "to": "bfloat16", "optimizer": "reset"}],
    [{"op": "transpose", "at": "params/head/w", "optimizer": "reset"}],
    [
        {"op": "rescale", "at": "params/head", "by": 3},
        {"op": "transpose", "at": "params/head/w"},
        {"op": "prune", "at": "params/head/w", "sparsity": 0.5},
    ],
    [{"op": "delete", "at": "params/head"}],
    [{"op": "delete", "at": "none"}],
    [{"op": "keep", "at": "params"}],
    [{"op": "extract-item", "at": "params"}],
    [{"op": "delete", "at": "params/head/*"}],
    [
        {"op": "rename", "at": "params/head", "to": "params/out"},
        {"op": "rescale", "at": "params/**/w", "by": 0.5},
        {"op": "copy", "at": "params/out", "to": "params/more"},
        {"op": "reinit", "at": "params/more", "init": "ones"},
        {"op": "delete", "at": "params/x_12"},
        {"op": "rename", "at": "params/out", "to": "params/x_12"},
        {"op": "cast", "at": "params/layers", "to": "float16"},
    ],
]  # fmt: skip


@pytest.mark.sampled(24)
@pytest.mark.parametrize("edits", [*PLACES, *SHAPES, *VALUES], ids=str)
def test_the_inverse_gives_back_the_original_bit_for_bit(
    source: Path, original: Any, tmp_path: Path, edits: list[dict[str, Any]]
) -> None:
    shutil.copytree(source, tmp_path / "old")
    _applied(tmp_path / "old", tmp_path / "new", *edits)
    found = surgery.inverse(str(tmp_path / "new"))
    if edits not in VALUES:  # places and shapes are undone without the source
        (tmp_path / "old").rename(tmp_path / "away")
        assert surgery.inverse(str(tmp_path / "new")).plan == found.plan
    text = yaml_of(found.plan)
    assert parse(text, "YAML", "inverse").value == found.plan
    plan = plan_from_document(found.plan)
    report = surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan)
    _same_trees(_restored(tmp_path / "back"), original)
    # by reference, but for elements that move, and for integers that come back in their own dtype
    if edits not in SHAPES and not any(edit["op"] == "transpose" for edit in edits):
        assert report.bytes_written <= 10
    assert ("sources" in found.plan) == (edits in VALUES) == bool(found.from_source)


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_what_only_the_source_has_is_named_if_that_is_not_there_any_more(
    source: Path, tmp_path: Path, how: str
) -> None:
    shutil.copytree(source, tmp_path / "old")
    _applied(
        tmp_path / "old",
        tmp_path / "new",
        {"op": "rename", "at": "params/x_12", "to": "params/y"},
        {"op": "delete", "at": "params/head"},
        {"op": "rescale", "at": "params/layers/1/w", "by": 2, "optimizer": "keep"},
    )
    (tmp_path / "old").rename(tmp_path / "away")
    if how == "changed":
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / "old", {"other": np.ones(3)})
    with pytest.raises(UndoError) as refused:
        surgery.inverse(str(tmp_path / "new"))
    text = "\n".join(f"{p.what}: {p.why}" for p in refused.value.problems)
    assert "'params/head'" in text
    assert "'params/layers/1/w'" in text
    assert "y" not in [p.what for p in refused.value.problems]
    assert ("changed" in text) == (how == "changed")
    assert _code("plan", str(tmp_path / "new"), "--inverse") == 1


def test_a_plan_that_was_kept_is_refused_over_a_source_that_has_changed_since(
    source: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(source, own)
    _applied(own, tmp_path / "new", {"op": "rescale", "at": "params/head/w", "by": 0.3})
    document = surgery.inverse(str(tmp_path / "new")).plan
    plan = plan_from_document(document)
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan)
    _same(own, tmp_path / "back")
    shutil.rmtree(own)
    _applied(source, own, {"op": "rescale", "at": "params/head/w", "by": 100.0})
    with pytest.raises(PlanError, match="'source' is not what the plan was made for"):
        surgery.apply(str(tmp_path / "new"), str(tmp_path / "again"), plan)
    del document["fingerprints"]
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "meant"), plan_from_document(document))


def test_the_command_prints_a_plan_for_apply(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _applied(source, tmp_path / "new", {"op": "rescale", "at": "params/head", "by": 3})
    assert _code("plan", str(tmp_path / "new"), "--inverse") == 0
    (tmp_path / "undo.yaml").write_text(capsys.readouterr().out)
    words = ["apply", str(tmp_path / "new"), str(tmp_path / "back"), str(tmp_path / "undo.yaml")]
    assert _code(*words) == 0
    _same(tmp_path / "back", source)
    capsys.readouterr()
    assert _code("plan", str(tmp_path / "new"), "--inverse", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["from_source"] == 1
    assert document["plan"]["edits"][0]["note"] == "only the source has these values"
    assert _code("plan", str(source), "--inverse") == 2
    assert "has no record of an edit to undo" in capsys.readouterr().err
    assert _code("plan", str(tmp_path / "new")) == 2
    assert _code("plan", str(tmp_path / "new"), str(tmp_path / "undo.yaml"), "--inverse") == 2


def test_an_operation_may_say_its_own_inverse(source: Path, tmp_path: Path) -> None:
    """A cast to wider integers comes back by a cast, not from the source."""
    _applied(
        source, tmp_path / "new", {"op": "cast", "at": "ids", "to": "int64", "where_dtype": "int*"}
    )
    (edit,) = surgery.inverse(str(tmp_path / "new")).plan["edits"]
    assert (edit["op"], edit["to"]) == ("cast", "int16")


def test_params_are_named_where_only_the_user_said_which_they_are(tmp_path: Path) -> None:
    params = {f"layers_{n}": _layer(n) for n in range(2)}
    tree = {"weights": params, "ema": params, "opt_state": optax.adam(1e-3).init(params)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "run", tree)
    stack = {"op": "stack", "at": "weights/layers_{0..1}", "to": "weights/layers"}
    move = {"op": "rename", "at": "weights", "to": "model"}
    document = {"params": "weights", "edits": [stack, move]}
    surgery.apply(str(tmp_path / "run"), str(tmp_path / "new"), plan_from_document(document))
    found = surgery.inverse(str(tmp_path / "new")).plan
    assert found["params"] == "model"
    assert "sources" not in found
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan_from_document(found))
    _same(tmp_path / "back", tmp_path / "run")


def test_a_copy_moves_back_if_what_it_is_of_was_deleted(source: Path, tmp_path: Path) -> None:
    copy = {"op": "copy", "at": "params/head", "to": "params/again"}
    _applied(source, tmp_path / "new", copy, {"op": "delete", "at": "params/head"})
    found = surgery.inverse(str(tmp_path / "new"))
    assert [edit["op"] for edit in found.plan["edits"]] == ["rename"]


@pytest.mark.parametrize(
    "edits",
    [
        [{"op": "delete", "at": "b/z"}],
        [{"op": "delete", "at": "b"}],
        [{"op": "copy", "at": "b", "to": "q"}, {"op": "delete", "at": "b"}],
        [{"op": "rename", "at": "b", "to": "q"}, {"op": "delete", "at": "q/z"}],
    ],
    ids=str,
)
def test_a_file_that_keeps_the_order_of_keys_comes_back_byte_by_byte(
    tmp_path: Path, edits: list[dict[str, Any]]
) -> None:
    tree = {"b": {"z": np.ones(3), "a": np.ones(2)}, "a": {"k": np.ones(4), "c": np.zeros(3)}}
    source, new, back = (tmp_path / f"{name}.msgpack" for name in ("run", "new", "back"))
    source.write_bytes(serialization.to_bytes({**tree, "d": np.ones(1)}))
    surgery.apply(str(source), str(new), plan_from_document({"edits": edits}))
    found = surgery.inverse(str(new))
    surgery.apply(str(new), str(back), plan_from_document(found.plan))
    assert back.read_bytes() == source.read_bytes()


def test_without_an_inverse_on_record_all_is_taken_from_the_source(
    source: Path, tmp_path: Path
) -> None:
    """A record of an earlier version, or of a run of several hosts; what stayed is not taken from there."""
    moved = {"op": "rename", "at": "params/head", "to": "params/out"}
    _applied(source, tmp_path / "new", moved, {"op": "transpose", "at": "params/x_12/w"})
    path = tmp_path / "new" / "surgery.json"
    record = json.loads(path.read_text())
    path.write_text(
        json.dumps({k: v for k, v in record.items() if k not in ("inverse", "content")})
    )
    found = surgery.inverse(str(tmp_path / "new"))
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan_from_document(found.plan))
    _same(tmp_path / "back", source)
    assert [edit["op"] for edit in found.plan["edits"]].count("rename") == 1
    assert "params/x_12/w" in yaml_of(found.plan)
    assert "params/x_12/b" not in yaml_of(found.plan)


def _saved(path: Path, **items: Any) -> Path:
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    with ocp.CheckpointManager(path, options=options) as manager:
        saves = {name: ocp.args.PyTreeSave(item) for name, item in items.items()}
        manager.save(7, args=ocp.args.Composite(**saves))
    return path


def _same_items(one: Path, other: Path) -> None:
    names = [
        sorted(item.name for item in (path / "7").iterdir() if item.is_dir())
        for path in (one, other)
    ]
    assert names[0] == names[1]
    for name in names[0]:
        _same(one / "7" / name, other / "7" / name)


ITEMS: list[list[dict[str, Any]]] = [
    [{"op": "rescale", "at": "params/b", "by": 3}],
    [{"op": "delete", "at": "ema"}],
    [{"op": "delete", "at": "ema"}, {"op": "transpose", "at": "params/w"}],
    [{"op": "keep", "at": "params"}, {"op": "rescale", "at": "params/b", "by": 3}],
    [{"op": "keep", "at": "state"}],
    [{"op": "extract-item", "at": "ema/in", "as": "inner"}, {"op": "delete", "at": "inner/w"}],
    [{"op": "extract-item", "at": "ema/in"}, {"op": "keep", "at": "in"}],
    [{"op": "insert-item", "at": "ema/state", "from": "state"}, {"op": "delete", "at": "ema/in/b"}],
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("edits", ITEMS, ids=str)
def test_items_that_went_come_back_and_those_that_came_go(
    tmp_path: Path, edits: list[dict[str, Any]]
) -> None:
    state = [{"count": np.asarray(3)}, {"mu": np.ones(3)}]
    source = _saved(tmp_path / "run", params=_layer(1), ema={"in": _layer(2)}, state=state)
    surgery.apply(str(source), str(tmp_path / "new"), plan_from_document({"edits": edits}))
    found = surgery.inverse(str(tmp_path / "new"))
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan_from_document(found.plan))
    _same_items(tmp_path / "back", source)


def test_the_one_item_of_a_step_comes_back_under_its_name(tmp_path: Path) -> None:
    source = _saved(tmp_path / "run", default={"params": _layer(1), "step": np.asarray(3)})
    edits = [{"op": "extract-item", "at": "params", "as": "w"}, {"op": "keep", "at": "w"}]
    surgery.apply(str(source), str(tmp_path / "new"), plan_from_document({"edits": edits}))
    found = surgery.inverse(str(tmp_path / "new"))
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan_from_document(found.plan))
    _same_items(tmp_path / "back", source)


def test_a_run_of_one_item_is_undone_in_that_item(tmp_path: Path) -> None:
    source = _saved(tmp_path / "run", params=_layer(1), ema=_layer(2))
    options = Options(item="params")
    edits = plan_from_document({"edits": [{"op": "transpose", "at": "w"}]})
    surgery.apply(str(source), str(tmp_path / "new"), edits, options=options)
    with pytest.raises(PlanError, match="edited the item 'params' alone") as refused:
        surgery.inverse(str(tmp_path / "new"))
    assert "`--item params`" in refused.value.problems[0].fix
    found = plan_from_document(surgery.inverse(str(tmp_path / "new"), options=options).plan)
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), found, options=options)
    _same_items(tmp_path / "back", source)


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "msgpack"])
def test_what_was_made_of_a_single_file_is_undone(tmp_path: Path, suffix: str) -> None:
    """A file is the source of the edit, and the donor of what undoes it: one fingerprint for both."""
    tree = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, np.float32)}
    file, other = tmp_path / f"weights.{suffix}", tmp_path / "new"
    if suffix == "safetensors":
        safetensors.numpy.save_file(tree, file)
    elif suffix == "npz":
        np.savez(file, **tree)
    else:
        file.write_bytes(serialization.to_bytes(tree))
    assert _code("rescale", str(file), str(other), "a", "--by", "0") == 0
    undo = tmp_path / "undo.yaml"
    undo.write_text(yaml_of(surgery.inverse(str(other)).plan))
    assert _code("apply", str(other), str(tmp_path / "back"), str(undo)) == 0
    assert _code("diff", str(tmp_path / "back"), str(file)) == 0
    if suffix != "msgpack":  # the record is no promise of the file's values, only of this file
        np.testing.assert_array_equal(_restored(tmp_path / "back")["a"], tree["a"])
    file.touch()
    assert _code("apply", str(other), str(tmp_path / "again"), str(undo)) == 2


def _out_of_order(preview: Any) -> list[str]:
    return [note for note in preview.notes if "this undoes a run after which" in note]


_CAST = {"edits": [{"op": "cast", "at": "params/head", "to": "bfloat16"}]}
_RESCALED = {"edits": [{"op": "rescale", "at": "params/head", "by": 0.25}]}
_RENAMED = {"edits": [{"op": "rename", "at": "params/head", "to": "params/top"}]}
_IN_PARTS = {"edits": [], "reshard": {"chunk_bytes": 8}}
_IN_OTHERS = {"edits": [], "reshard": {"chunk_bytes": 16}}


@pytest.mark.parametrize(
    ("runs", "named"),
    [
        ([_CAST, _RESCALED, _RENAMED], "`rescale`"),
        ([_IN_PARTS, _CAST, _RENAMED], "`cast`"),
        ([_IN_PARTS, _IN_OTHERS, _CAST], "`reshard`"),
        ([_CAST, _IN_PARTS, _RENAMED], "`reshard`"),
        ([{**_CAST, "reshard": _IN_PARTS["reshard"]}, _RESCALED, _IN_OTHERS], "`rescale`"),
    ],
    ids=lambda given: given if isinstance(given, str) else str(len(given)),
)
def test_a_plan_that_undoes_another_run_than_the_last_is_told_of(
    source: Path, tmp_path: Path, runs: list[dict[str, Any]], named: str
) -> None:
    """What came after it stays in the slots: the params would be as they were, and their moments not."""
    steps = [source]
    undoing = []
    for number, document in enumerate(runs):
        steps.append(tmp_path / f"s{number}")
        surgery.apply(str(steps[-2]), str(steps[-1]), plan_from_document(document))
        undoing.append(plan_from_document(surgery.inverse(str(steps[-1])).plan))
    said = {
        (at, of): _out_of_order(surgery.plan(str(steps[at]), undoing[of]))
        for at, of in ((1, 0), (2, 1), (3, 2), (2, 0))
    }
    assert [key for key, notes in said.items() if notes] == [(2, 0)]
    assert named in said[2, 0][0]
    done = surgery.apply(str(steps[2]), str(tmp_path / "wrong"), undoing[0])
    assert _out_of_order(done) == said[2, 0]
    surgery.apply(str(steps[2]), str(tmp_path / "back"), undoing[1])
    assert _out_of_order(surgery.plan(str(tmp_path / "back"), undoing[0])) == []


def test_where_the_result_has_taken_the_place_of_its_source_that_is_said(
    source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source, tmp_path / "run")
    _applied(tmp_path / "run", tmp_path / "new", {"op": "rescale", "at": "params/head", "by": 3})
    (tmp_path / "run").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "run")
    with pytest.raises(UndoError) as refused:
        surgery.inverse(str(tmp_path / "run"))
    assert "what stands there now is this result" in str(refused.value)
    (tmp_path / "run").rename(tmp_path / "new")
    (tmp_path / "old").rename(tmp_path / "run")
    plan = plan_from_document(surgery.inverse(str(tmp_path / "new")).plan)
    surgery.apply(str(tmp_path / "new"), str(tmp_path / "back"), plan)
    _same(tmp_path / "back", source)


def test_runs_of_other_items_and_other_layouts_are_none_that_came_after(tmp_path: Path) -> None:
    items = {name: {"w": jnp.arange(8.0), "m": jnp.ones(8)} for name in ("params", "opt")}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        saves = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(1, args=ocp.args.Composite(**saves))
    of_params, of_opt = Options(item="params"), Options(item="opt")
    rename = plan_from_document({"edits": [{"op": "rename", "at": "w", "to": "v"}]})
    cast = plan_from_document({"edits": [{"op": "cast", "at": "m", "to": "bfloat16"}]})
    for source, new, plan, options in (
        ("run", "first", rename, of_params),
        ("first", "second", cast, of_opt),
    ):
        surgery.apply(str(tmp_path / source), str(tmp_path / new), plan, options=options)
    undo = plan_from_document(surgery.inverse(str(tmp_path / "second"), options=of_params).plan)
    back = surgery.plan(str(tmp_path / "second"), undo, options=of_params)
    assert _out_of_order(back) == []

    assert _code("compact", str(tmp_path / "first"), str(tmp_path / "packed")) == 0
    again = surgery.plan(str(tmp_path / "packed"), undo, options=of_params)
    assert _out_of_order(again) == []

    words = ["reshard", str(tmp_path / "first"), str(tmp_path / "laid"), "--chunk-bytes", "16B"]
    assert _code(*words) == 0
    (said,) = _out_of_order(surgery.plan(str(tmp_path / "laid"), undo, options=of_params))
    assert "`reshard`" in said


STATE_EDITS: dict[str, list[dict[str, Any]]] = {
    "rescaled": [{"op": "rescale", "at": "params/head", "by": -0.5}],
    "drawn": [{"op": "reinit", "at": "params/head/w", "init": "normal", "optimizer": "warm"}],
    "reset": [{"op": "reset-optimizer", "at": "params/layers"}],
    "deleted": [{"op": "delete", "at": "params/x_12"}],
    "permuted, rounded": [
        {"op": "permute", "at": "params/head/w", "index": [2, 0, 1, 3]},
        {"op": "cast", "at": "opt_state/1/0/mu", "to": "bfloat16", "twins": "named"},
    ],
    "renamed, rescaled": [
        {"op": "rename", "at": "params/x_12", "to": "params/out"},
        {"op": "rescale", "at": "params/head", "by": -0.5},
    ],
    "rescaled, swapped": [
        {"op": "rescale", "at": "params/head", "by": -0.5},
        {"op": "rename", "moves": {"params/head": "params/x_12", "params/x_12": "params/head"}},
    ],
    "rescaled, state renamed": [
        {"op": "rescale", "at": "params/head", "by": -0.5},
        {"op": "rename", "at": "opt_state", "to": "optimizer"},
    ],
    "rescaled, params renamed": [
        {"op": "rescale", "at": "params/head", "by": -0.5},
        {"op": "rename", "at": "params", "to": "model"},
    ],
    "copied, drawn": [
        {"op": "copy", "at": "params/head", "to": "params/other"},
        {"op": "reinit", "at": "params/head/w", "init": "normal", "optimizer": "warm"},
    ],
    "stacked, drawn": [
        {"op": "stack", "at": ["params/head", "params/x_12"], "to": "params/both"},
        {"op": "reinit", "at": "params/layers/w", "init": "normal", "optimizer": "warm"},
    ],
    "renamed, and from elsewhere": [
        {"op": "rename", "at": "params/x_12", "to": "params/out"},
        {"op": "replace", "at": "opt_state/1/0/mu/head", "with": "DONOR", "twins": "named"},
    ],
    "from elsewhere": [
        {"op": "replace", "at": "opt_state/1/0/mu/head", "with": "DONOR", "twins": "named"}
    ],
}


@pytest.mark.parametrize("name", STATE_EDITS)
@pytest.mark.parametrize("kind", [None, "adamw"])
def test_an_undo_does_not_doubt_that_a_state_is_of_the_kind_that_it_was(
    name: str, kind: str | None, tmp_path: Path
) -> None:
    """Nothing on disk tells what stands behind a clip; but by record the result was made of that very state."""
    params = {"layers": _layer(1), "head": _layer(7), "x_12": _layer(8)}
    tx = optax.chain(optax.clip_by_global_norm(1e9), optax.adamw(1e-3))
    state = tx.init(params)
    for _ in range(5):
        _, state = tx.update(jax.tree.map(lambda x: x * 0.1, params), state, params)
    with ocp.PyTreeCheckpointer() as checkpointer:
        for copy in ("a", "donor"):
            checkpointer.save(tmp_path / copy, {"params": params, "opt_state": state})
            state = tx.update(jax.tree.map(lambda x: x * 3e3, params), state, params)[1]
    donor = str(tmp_path / "donor")
    edits = [{k: donor if v == "DONOR" else v for k, v in e.items()} for e in STATE_EDITS[name]]
    document = {"edits": edits} | ({"optimizer_kind": kind} if kind else {})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_from_document(document))

    undo = plan_from_document(surgery.inverse(str(tmp_path / "b")).plan)
    report = surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), undo)

    doubts = [note for note in map(str, report.notes) if "same kind" in note]
    assert not doubts
    _same(tmp_path / "c", tmp_path / "a")


def test_of_another_checkpoint_it_is_doubted_all_the_same(tmp_path: Path) -> None:
    params = {"a": _layer(1), "b": _layer(2)}
    tx = optax.chain(optax.clip_by_global_norm(1e9), optax.adamw(1e-3))
    state = {"params": params, "opt_state": tx.init(params)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", state)
        checkpointer.save(tmp_path / "other", state | {"step": 1})
    edit = {"op": "rescale", "at": "params/a", "by": 2}
    plan = plan_from_document({"edits": [edit], "optimizer_kind": "adamw"})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    moved = plan_from_document(
        {"edits": [{"op": "rename", "at": "params/b", "to": "params/c"}, edit]}
    )
    moved = msgspec.structs.replace(moved, optimizer_kind="adamw")
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "renamed"), moved)
    back = {"op": "rename", "at": "params/c", "to": "params/b"}
    for result, before in (("b", []), ("renamed", [back])):
        for donor, is_doubted in (("a", False), ("other", True)):
            taken = {"op": "replace", "at": "opt_state/1/0/mu/a", "twins": "named"}
            taken["with"] = str(tmp_path / donor)
            taking = plan_from_document({"edits": [*before, taken]})
            notes = map(str, surgery.plan(str(tmp_path / result), taking).notes)
            assert any("same kind" in note for note in notes) == is_doubted, (result, donor)


def test_values_of_two_optimizers_are_doubted_where_one_gave_half(tmp_path: Path) -> None:
    """The record says of a leaf that was averaged where it stood, and not whose values went into it."""
    params = {"a": _layer(1), "b": _layer(2)}
    for name, tx in (("a", optax.adamw(1e-3)), ("other", optax.adabelief(1e-3))):
        chain = optax.chain(optax.clip_by_global_norm(1e9), tx)
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, {"params": params, "opt_state": chain.init(params)})
    average = {"op": "average", "at": "opt_state/1/0/{mu,nu}/**", "twins": "named"}
    average |= {"with": str(tmp_path / "other")}
    plan = plan_from_document({"edits": [average]})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "mixed"), plan)
    taken = {"op": "replace", "at": "opt_state/1/0/mu/a", "twins": "named"}
    taking = plan_from_document({"edits": [taken | {"with": str(tmp_path / "a")}]})
    notes = map(str, surgery.plan(str(tmp_path / "mixed"), taking).notes)
    assert any("same kind" in note for note in notes)
