"""A small file that is cut does not stand between a person and leaves that are whole; what it costs is said."""

import base64
import json
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath

TREE = {"k": jnp.ones(4), "w": jnp.arange(6.0).reshape(2, 3)}
TARGET = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), TREE)


def _standard(path: Path) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, TARGET)


def _managed(path: Path) -> Any:
    with ocp.CheckpointManager(path) as manager:
        return manager.restore(3, args=ocp.args.StandardRestore(TARGET))


LAYOUTS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "standard": (".", ".", _standard),
    "manager": ("3", "3/default", _managed),
    "v1": (".", "state", lambda path: v1.load(path, TARGET)),
}
"""Where step and item stand, and how Orbax restores it."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "standard", TREE)
    with ocp.CheckpointManager(folder / "manager") as manager:
        manager.save(3, args=ocp.args.StandardSave(TREE))
    v1.save(folder / "v1", TREE)
    return folder


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def whole(saved: Path, layout: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved / layout, tmp_path / "x"))


def _cut(file: Path, how: str) -> None:
    raw = file.read_bytes()
    file.write_bytes({"half": raw[: len(raw) // 2], "empty": b"", "other": b"\xff[1]"}[how])


def _is_restored(layout: str, path: Path, tree: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restored = LAYOUTS[layout][2](path)
    return jax.tree.all(jax.tree.map(np.array_equal, restored, tree))


@pytest.mark.parametrize("how", ["half", "empty", "other"])
@pytest.mark.parametrize("file", ["_sharding", "array_metadatas/process_0", "_CHECKPOINT_METADATA"])
def test_every_leaf_is_read_and_what_is_damaged_is_said(
    whole: Path, layout: str, file: str, how: str
) -> None:
    step, item, _ = LAYOUTS[layout]
    _cut(whole / (step if file.startswith("_CHECK") else item) / file, how)
    checkpoint = open_checkpoint(str(whole))
    for name, values in TREE.items():
        np.testing.assert_array_equal(checkpoint.read(LeafPath((name,))), values)
    assert any(f"`{file}` is damaged" in note for note in surgery.inspect(str(whole)).notes)


@pytest.mark.parametrize("file", ["_sharding", "_CHECKPOINT_METADATA"])
def test_what_orbax_restores_without_comes_along_as_it_is(
    whole: Path, layout: str, file: str, tmp_path: Path
) -> None:
    step, item, _ = LAYOUTS[layout]
    place = f"{step if file.startswith('_CHECK') else item}/{file}"
    _cut(whole / place, "half")
    assert _is_restored(layout, whole, TREE)
    report = surgery.apply(str(whole), str(tmp_path / "y"), plan_of([Rescale(at="w", by=2.0)]))
    assert any(f"`{file}` is damaged" in note for note in report.notes)
    assert (tmp_path / "y" / place).read_bytes() == (whole / place).read_bytes()
    assert _is_restored(layout, tmp_path / "y", {**TREE, "w": 2 * TREE["w"]})


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("_sharding", Rename(at="w", to="v")),
        ("_sharding", Delete(at="w")),
        ("array_metadatas/process_0", Rename(at="w", to="v")),
        ("array_metadatas/process_0", Rescale(at="w", by=2.0)),
    ],
)
def test_an_edit_that_needs_the_file_is_refused_and_the_way_out_works(
    whole: Path, layout: str, file: str, edit: Any, tmp_path: Path
) -> None:
    path = whole / LAYOUTS[layout][1] / file
    _cut(path, "half")
    with pytest.raises(
        CheckpointError, match="is damaged, and a new checkpoint needs it"
    ) as caught:
        surgery.apply(str(whole), str(tmp_path / "y"), plan_of([edit]))
    assert "move it away" in caught.value.problems[0].fix
    assert not (tmp_path / "y").exists()
    path.rename(tmp_path / "away")
    assert _is_restored(layout, whole, TREE)
    surgery.apply(str(whole), str(tmp_path / "y"), plan_of([edit]))
    assert len(surgery.inspect(str(tmp_path / "y")).leaves) == 2 - isinstance(edit, Delete)


@pytest.mark.parametrize("odd", [2**63, "x", ["1"], 0.5, True, {"a": [1]}])
@pytest.mark.parametrize("field", ["ext_metadata", "param_name", "write_shape", "chunk_shape"])
def test_a_file_that_orbax_does_not_read_is_not_carried_along_as_whole(
    saved: Path, tmp_path: Path, field: str, odd: Any
) -> None:
    path = Path(shutil.copytree(saved / "standard", tmp_path / "x"))
    file = path / "array_metadatas/process_0"
    document = json.loads(file.read_bytes())
    document["array_metadatas"][0]["array_metadata"][field] = odd
    file.write_text(json.dumps(document))
    edit = plan_of([Rescale(at="w", by=2.0)])
    if isinstance(odd, str if field == "param_name" else dict) and field.endswith(("name", "data")):
        surgery.apply(str(path), str(tmp_path / "y"), edit)
        assert _is_restored("standard", tmp_path / "y", {**TREE, "w": 2 * TREE["w"]})
        return
    with pytest.raises(CheckpointError, match="process_0' is damaged"):
        surgery.apply(str(path), str(tmp_path / "y"), edit)


ODD_VALUES: tuple[Any, ...] = (None, -1, 2**70, 1.5, True, "x", [], {}, [[]], [{"x": []}])
NAMED_SHARDING = {
    "sharding_type": "NamedSharding",
    "shape": [1],
    "axis_names": ["data"],
    "axis_types": ["AxisType.Auto"],
    "partition_spec": ["data"],
    "device_mesh": {"mesh": [{"id": 0}]},
}
LEFT_OUT = {"axis_types": [None], "device_mesh": [None], "partition_spec": [[], [[]]]}
"""What Orbax takes for nothing said."""


@pytest.mark.parametrize("field", NAMED_SHARDING)
def test_whatever_stands_in_a_sharding_is_looked_at_without_a_fall(
    field: str, saved: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(saved / "standard", tmp_path / "copy")
    stored = json.loads((copy / "_sharding").read_text())
    for odd in ODD_VALUES:
        odd_sharding = json.dumps({**NAMED_SHARDING, field: odd})
        (copy / "_sharding").write_text(json.dumps(dict.fromkeys(stored, odd_sharding)))
        found = surgery.verify(str(copy)).findings
        assert bool(found) == (odd not in LEFT_OUT.get(field, ()))


MORE_ODD: tuple[Any, ...] = (
    [0],
    ["1"],
    [2, 0],
    ["0", "1"],
    {"mesh": "abc"},
    {"mesh": [["0"]]},
    [["a"]],
)
EDITS_BESIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "of the leaf itself": ("resize", {"at": "k", "axis": "0", "size": "3"}),
    "of another": ("cast", {"at": "w", "to": "bfloat16"}),
    "a new leaf": ("add", {"at": "q", "shape": "4", "dtype": "float32", "init": "zeros"}),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("edit", EDITS_BESIDE)
@pytest.mark.parametrize("field", NAMED_SHARDING)
def test_whatever_stands_in_a_sharding_is_edited_beside_or_refused_without_a_fall(
    field: str, edit: str, saved: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(saved / "standard", tmp_path / "copy"))
    stored = json.loads((copy / "_sharding").read_text())
    key = base64.urlsafe_b64encode(b"k").decode()
    assert key in stored
    kind, fields = EDITS_BESIDE[edit]
    plan = plan_of([operation_from_options(kind, fields)])
    for odd in (*ODD_VALUES, *MORE_ODD):
        odd_sharding = json.dumps({**NAMED_SHARDING, field: odd})
        (copy / "_sharding").write_text(json.dumps({**stored, key: odd_sharding}))
        with suppress(CheckpointError):  # what else it raises falls through
            surgery.apply(str(copy), str(tmp_path / "new"), plan)
        shutil.rmtree(tmp_path / "new", ignore_errors=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("odd", ODD_VALUES)
@pytest.mark.parametrize("field", ["tree_metadata", "key_metadata", "value_metadata"])
def test_whatever_stands_in_the_metadata_of_an_item_beside_is_looked_at_without_a_fall(
    field: str, odd: Any, saved: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(saved / "manager", tmp_path / "copy")
    beside = shutil.copytree(copy / "3" / "default", copy / "3" / "ema")
    document = json.loads((beside / "_METADATA").read_text())
    if field == "tree_metadata":
        document[field] = odd
    else:
        for entry in document["tree_metadata"].values():
            entry[field] = odd
    (beside / "_METADATA").write_text(json.dumps(document))
    verdict = surgery.verify(str(copy), item="default")
    assert any("ema" in finding.path for finding in verdict.findings)
