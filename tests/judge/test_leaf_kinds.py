"""Leaves of every kind come through copies, edits of a neighbour, renames, copies and deletes as Orbax saved them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from tests.judge.layouts import pytree_checkpointer
from tests.judge.targets import abstract, is_same, leaves_of
from tests.source_trees import everything_of

DTYPES = [
    "bfloat16",
    "bool",
    "complex64",
    "float16",
    "float32",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "int16",
    "int32",
    "int4",
    "int8",
    "uint16",
    "uint32",
    "uint8",
]
WIDE_DTYPES = ["float64", "int64", "uint64", "complex128"]
"""JAX holds these only with x64 switched on; as NumPy arrays Orbax keeps them."""


def _values(name: str) -> np.ndarray:
    """A small array with negative values, where the dtype has them."""
    numbers = np.arange(8) if name.startswith("u") else np.arange(-3, 5)
    return numbers.reshape(2, 4).astype(np.dtype(getattr(ml_dtypes, name, name)))


def _arrays() -> dict[str, Any]:
    arrays = {name: jnp.asarray(_values(name)) for name in DTYPES}
    wide = {name: _values(name) for name in WIDE_DTYPES}
    return {**arrays, **wide, "numpy": np.arange(5, dtype=np.int16), "rank0": jnp.float32(1.5)}


def _kinds() -> dict[str, Any]:
    """Everything but arrays; strings are not for `StandardCheckpointer`."""
    return {
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(8), 3),
        "rbg": jax.random.key(9, impl="rbg"),
        "raw_key": jax.random.PRNGKey(3),
        "int": 5,
        "negative": -3,
        "float": 0.1,
        "true": True,
        "text": "grüße/a.b",
        "empty_text": "",
        "nothing": None,
        "no_dict": {},
        "no_list": [],
        "no_tuple": (),
        "list": [jnp.arange(2), None, "in a list", {"deep": 1}],
        "tuple": (jnp.arange(3), 2.5),
    }


def _named() -> dict[str, Any]:
    return {
        "a/b": {"c d": jnp.arange(3.0), "e.f": jnp.arange(4.0)},
        "a": {"plain": jnp.arange(5.0)},
        "x": {"1": jnp.arange(2.0), "10": jnp.arange(6.0)},
        "ünï": jnp.arange(7.0),
    }


def _state() -> dict[str, Any]:
    return {
        "params": {"w": jnp.arange(1.0, 13.0).reshape(3, 4), "v": jnp.ones((2, 2))},
        "arrays": _arrays(),
        "kinds": _kinds(),
        "named": _named(),
    }


def _pytree(*, ocdbt: bool, zarr3: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def save(path: Path, state: Any) -> None:
        with pytree_checkpointer(ocdbt=ocdbt, zarr3=zarr3) as checkpointer:
            checkpointer.save(path, args=ocp.args.PyTreeSave(state))

    def restore(path: Path, target: Any) -> Any:
        arguments = ocp.checkpoint_utils.construct_restore_args(target)
        with ocp.PyTreeCheckpointer() as checkpointer:
            args = ocp.args.PyTreeRestore(item=target, restore_args=arguments)
            return checkpointer.restore(path, args=args)

    return save, restore


STORES = {
    **{
        f"{'ocdbt' if ocdbt else 'leaves'}-zarr{3 if zarr3 else 2}": _pytree(
            ocdbt=ocdbt, zarr3=zarr3
        )
        for ocdbt in (True, False)
        for zarr3 in (False, True)
    },
    "v1": (v1.save, v1.load),
}


@pytest.fixture(scope="session", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A checkpoint with leaves of every kind, and how Orbax restores it."""
    save, restore = STORES[request.param]
    path = tmp_path_factory.mktemp("kinds") / request.param
    state = _state()
    save(path, state)
    assert _differing(restore(path, abstract(state)), state) == []
    return path, restore, state


def _differing(restored: Any, expected: Any) -> list[str]:
    """Paths of leaves that are not the same in kind, dtype, shape and bits; or of other structure."""
    found, wanted = leaves_of(restored), leaves_of(expected)
    assert list(found) == list(wanted)
    assert jax.tree.structure(restored) == jax.tree.structure(expected)
    return [path for path in wanted if not is_same(found[path], wanted[path])]


def _edited(store: Any, tmp_path: Path, *steps: tuple[str, dict[str, Any]], **options: Any) -> Path:
    source, _, _ = store
    before = everything_of(source)
    destination = tmp_path / "new"
    plan = plan_of(
        [operation_from_options(name, fields) for name, fields in steps], params="params"
    )
    surgery.apply(str(source), str(destination), plan, options=surgery.Options(**options))
    assert everything_of(source) == before
    return destination


@pytest.mark.sampled(4)
@pytest.mark.parametrize("compact", ["never", "always"])
def test_an_edit_of_a_neighbour_leaves_every_kind_as_it_was(
    store: Any, compact: str, tmp_path: Path
) -> None:
    _, restore, state = store
    rescale = ("rescale", {"at": "params/w", "by": "2"})
    path = _edited(store, tmp_path, rescale, compact=compact)
    expected = {**state, "params": {**state["params"], "w": state["params"]["w"] * 2}}
    assert _differing(restore(path, abstract(expected)), expected) == []


def test_a_plain_copy_keeps_every_kind(store: Any, tmp_path: Path) -> None:
    _, restore, state = store
    path = _edited(store, tmp_path)
    assert _differing(restore(path, abstract(state)), state) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("compact", ["never", "always"])
def test_every_kind_is_renamed_with_its_subtree(store: Any, compact: str, tmp_path: Path) -> None:
    _, restore, state = store
    steps = [("rename", {"at": part, "to": f"moved/{part}"}) for part in ("arrays", "kinds")]
    path = _edited(store, tmp_path, *steps, compact=compact)
    moved = {part: state[part] for part in ("arrays", "kinds")}
    expected = {"params": state["params"], "named": state["named"], "moved": moved}
    assert _differing(restore(path, abstract(expected)), expected) == []


def test_every_kind_is_copied_with_its_subtree(store: Any, tmp_path: Path) -> None:
    _, restore, state = store
    steps = [("copy", {"at": part, "to": f"{part}_again"}) for part in ("arrays", "kinds", "named")]
    path = _edited(store, tmp_path, *steps)
    again = {f"{part}_again": state[part] for part in ("arrays", "kinds", "named")}
    expected = {**state, **again}
    assert _differing(restore(path, abstract(expected)), expected) == []


@pytest.mark.covers(1)
@pytest.mark.parametrize("leaf", ["key", "keys", "rbg", "text", "int", "nothing", "no_list"])
def test_leaves_of_two_kinds_change_places(store: Any, leaf: str, tmp_path: Path) -> None:
    _, restore, state = store
    moves = [f"kinds/{leaf}=params/v", f"params/v=kinds/{leaf}"]
    path = _edited(store, tmp_path, ("rename", {"moves": moves}))
    expected = {
        **state,
        "params": {**state["params"], "v": state["kinds"][leaf]},
        "kinds": {**state["kinds"], leaf: state["params"]["v"]},
    }
    assert _differing(restore(path, abstract(expected)), expected) == []


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("leaf", sorted(_kinds()))
def test_a_leaf_of_any_kind_is_deleted_alone(store: Any, leaf: str, tmp_path: Path) -> None:
    _, restore, state = store
    path = _edited(store, tmp_path, ("delete", {"at": f"kinds/{leaf}"}))
    kinds = {name: value for name, value in state["kinds"].items() if name != leaf}
    expected = {**state, "kinds": kinds}
    assert _differing(restore(path, abstract(expected)), expected) == []


def test_a_list_closes_up_when_one_of_its_leaves_is_deleted(store: Any, tmp_path: Path) -> None:
    _, restore, state = store
    path = _edited(store, tmp_path, ("delete", {"at": "kinds/list/1"}))
    first, _, text, deep = state["kinds"]["list"]
    expected = {**state, "kinds": {**state["kinds"], "list": [first, text, deep]}}
    assert _differing(restore(path, abstract(expected)), expected) == []


def test_keys_with_slashes_dots_and_spaces_are_edited_by_what_they_print(
    store: Any, tmp_path: Path
) -> None:
    _, restore, state = store
    path = _edited(
        store,
        tmp_path,
        ("rescale", {"at": "named/a/b/c d", "by": "2", "optimizer": "keep"}),
        ("rescale", {"at": "named/a/b/e.f", "by": "3", "optimizer": "keep"}),
        ("delete", {"at": "named/x/1"}),
        ("rename", {"at": "named/a/plain", "to": "named/a/still plain"}),
    )
    named = {
        "a/b": {"c d": jnp.arange(3.0) * 2, "e.f": jnp.arange(4.0) * 3},
        "a": {"still plain": jnp.arange(5.0)},
        "x": {"10": jnp.arange(6.0)},
        "ünï": jnp.arange(7.0),
    }
    expected = {**state, "named": named}
    assert _differing(restore(path, abstract(expected)), expected) == []
