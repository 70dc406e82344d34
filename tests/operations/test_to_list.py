"""Lists that become dicts, and dicts that become lists, each the way back of the other; judged by flax and Orbax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.serialization import to_state_dict

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.to_dict import ToDict
from surgery_cli.operations.to_list import ToList
from surgery_cli.planning import plan_from_document, plan_of
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    rewritten,
)

TX = optax.chain(optax.clip(1.0), optax.adamw(optax.linear_schedule(1e-2, 0.0, 9)))
PARAMS = {"layers": [{"w": jnp.arange(3.0)}, {"w": jnp.ones(2)}]}
STATE = {"params": PARAMS, "opt_state": TX.init(PARAMS)}
CHAINS = [ToList(at="opt_state", length=2), ToList(at="opt_state/1", length=3)]

DROPPED = plan_of([ToDict(at="**", empties="drop")])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("list") / "source"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, STATE)
    return path


def restored(path: Path, target: Any) -> Any:
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, abstract)


def same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def undone(result: Path, source: Path) -> None:
    """The inverse needs nothing of the source."""
    inverse = surgery.inverse(str(result))
    assert inverse.from_source == 0, inverse.plan
    back = result.with_name(f"{result.name}-undone")
    surgery.apply(str(result), str(back), plan_from_document(inverse.plan))
    alike(source, back)


def alike(a: Path, b: Path) -> None:
    found = surgery.diff(str(a), str(b))
    assert found.only_in_a == found.only_in_b == found.changed == []


def test_all_lists_become_what_flax_makes_of_them(source: Path, tmp_path: Path) -> None:
    plan = plan_of([ToDict(at=("params", "opt_state"))])
    report = surgery.apply(str(source), str(tmp_path / "dicts"), plan)
    assert report.bytes_written == 0
    wanted = to_state_dict(STATE)
    wanted["opt_state"]["0"] = wanted["opt_state"]["1"]["1"] = None  # flax: {}
    same(restored(tmp_path / "dicts", wanted), wanted)
    undone(tmp_path / "dicts", source)


def test_a_chain_loses_what_is_empty_and_gets_it_back(source: Path, tmp_path: Path) -> None:
    surgery.apply(str(source), str(tmp_path / "dropped"), DROPPED)
    wanted = to_state_dict(STATE)
    del wanted["opt_state"]["0"], wanted["opt_state"]["1"]["1"]
    same(restored(tmp_path / "dropped", wanted), wanted)
    plan = plan_of([*CHAINS, ToList(at="params/layers")])
    report = surgery.apply(str(tmp_path / "dropped"), str(tmp_path / "back"), plan)
    assert report.bytes_written == 0
    same(restored(tmp_path / "back", STATE), STATE)
    alike(source, tmp_path / "back")
    undone(tmp_path / "dropped", source)
    undone(tmp_path / "back", tmp_path / "dropped")


@pytest.mark.parametrize(
    ("edit", "tree", "said"),
    [
        (ToList(at="a"), ["a/0", "a/2"], "'a' would have nothing at index 1"),
        (ToList(at="a", length=2), ["a/0", "a/2"], "'a' has the key '2'"),
        (ToList(at="a"), ["a/0", "a/x"], "'a' has keys that are no places in a list: 'x'"),
        (ToList(at="a"), ["a/00"], "'a' has keys that are no places in a list: '00'"),
        (ToList(at="a/0"), ["a/0"], "'a/0' is a leaf"),
        (ToDict(at="a"), ["a/0"], "'a' changes nothing"),
    ],
)
def test_what_is_no_list_is_refused(edit: ToDict | ToList, tree: list[str], said: str) -> None:
    draft = draft_of({path: np.zeros(2, np.float32) for path in tree})
    with pytest.raises(PlanError) as caught:
        rewritten(edit, draft, ArrayScene())
    assert [problem.what for problem in caught.value.problems] == [said]


def test_what_is_a_list_already_is_refused(source: Path) -> None:
    with pytest.raises(PlanError, match="'opt_state' is a list already"):
        surgery.plan(str(source), plan_of([ToList(at="opt_state")]))


def test_the_preview_names_the_places_that_hold_nothing(source: Path, tmp_path: Path) -> None:
    surgery.apply(str(source), str(tmp_path / "dropped"), DROPPED)
    report = surgery.plan(str(tmp_path / "dropped"), plan_of(CHAINS))
    notes = list(map(str, report.notes))
    assert "the list 'opt_state' holds None at index 0" in notes
    assert sum("`plans/nnx-to-linen-like.yaml`" in note for note in notes) == 1


def test_a_place_that_was_deleted_holds_nothing_among_params_and_twins(tmp_path: Path) -> None:
    """What the refusal without ``length`` advises."""
    params = {"layers": [{"w": jnp.arange(3.0) + n} for n in range(3)]}
    state = {"params": params, "opt_state": TX.init(params)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", state)
    edits = [ToDict(at="params/layers"), Delete(at="params/layers/1")]
    with pytest.raises(PlanError, match="length: 3"):
        surgery.plan(str(tmp_path / "source"), plan_of([*edits, ToList(at="params/layers")]))
    plan = plan_of([*edits, ToList(at="params/layers", length=3)])
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), plan)
    left = {"layers": [params["layers"][0], None, params["layers"][2]]}
    wanted = {"params": left, "opt_state": TX.init(left)}
    same(restored(tmp_path / "new", wanted), wanted)
