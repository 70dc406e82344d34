"""States that leave out some params: where a param gets another number of axes, the script may sort it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

from surgery_cli import surgery
from surgery_cli.cli.rendering.spelling import in_options
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.expand import Expand
from surgery_cli.operations.merge import Merge
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.stack import Stack
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_from_document, plan_of

PARAMS = {"w": np.ones((6, 4), np.float32), "b": np.ones(4, np.float32)}


def by_axes(matrix: Any, other: Any) -> Any:
    return lambda params: jax.tree.map(lambda p: matrix if p.ndim == 2 else other, params)


OPTIMIZERS = {
    "muon": contrib.muon(1e-3),
    "masked": optax.masked(optax.adam(1e-3), by_axes(matrix=True, other=False)),
    "partition": optax.partition(
        {"m": optax.adam(1e-3), "v": optax.sgd(1e-2, 0.9)}, by_axes("m", "v")
    ),
    "adam": optax.adam(1e-3),
}
EDITS: dict[str, tuple[Operation, bool]] = {
    "expand": (Expand(at="params/b", axis=0), True),
    "flatten": (Reshape(at="params/w", shape=(24,)), True),
    "as many axes": (Reshape(at="params/w", shape=(3, 8)), False),
    "transpose": (Transpose(at="params/w"), False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_another_number_of_axes_is_said_to_be_what_masks_may_go_by(
    name: str, tmp_path: Path
) -> None:
    transformation = OPTIMIZERS[name]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(
            tmp_path / "source", {"params": PARAMS, "opt_state": transformation.init(PARAMS)}
        )
    for operation, is_other in EDITS.values():
        report = surgery.plan(str(tmp_path / "source"), plan_of([operation]))
        said = [note for note in map(str, report.notes) if "another number of axes" in note]
        assert len(said) == (is_other and name != "adam"), (operation.name, report.notes)
        assert all("`--like-init` holds the result against it" in note for note in said)


def test_what_is_said_of_muon_is_what_its_script_does(tmp_path: Path) -> None:
    params = {f"l{n}": PARAMS for n in range(3)}
    state = {"params": params, "opt_state": contrib.muon(1e-3).init(params)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", state)
    plan = plan_of([Stack(at="params/l{0..2}", to="params/l")])
    report = surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    (said,) = [note for note in report.notes if "another number of axes" in note]
    assert "so that training will not start from the result" in said
    assert "`muon_weight_dimension_numbers`" in said
    assert not [note for note in report.notes if "if it goes by names" in note]

    params = {"l": jax.tree.map(lambda leaf: np.stack([leaf] * 3), PARAMS)}
    matrix = contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)
    axes = {"l": {"w": matrix, "b": None}}
    for told, tx in (
        (False, contrib.muon(1e-3)),
        (True, contrib.muon(1e-3, muon_weight_dimension_numbers=lambda _: axes)),
    ):
        target = {"params": params, "opt_state": tx.init(params)}
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        with ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(tmp_path / "b", target)
        try:
            tx.update(params, found["opt_state"], found["params"])
            starts = True
        except (TypeError, AttributeError):
            starts = False
        assert starts == told


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("op", "fields", "is_said"),
    [
        ("reinit", {"at": "params/a", "init": "zeros"}, True),
        ("reset-optimizer", {"at": "params/a"}, True),
        ("pad", {"at": "params/a", "axis": 0, "after": 1}, False),
        ("repeat", {"at": "params/a", "axis": 0, "times": 2}, True),
        ("slice", {"at": "params/a", "slices": "1:"}, True),
        ("rescale", {"at": "opt_state/diff_params_memory/a", "by": 2.0}, True),
        ("rescale", {"at": "params/a", "by": 2.0, "optimizer": "keep"}, False),
        ("transpose", {"at": "params/a"}, False),
        ("rename", {"at": "params/a", "to": "params/c"}, False),
        ("concat", {"at": ["params/a", "params/b"], "to": "params/c", "axis": 0}, False),
        ("reset-optimizer", {"clocks": True}, False),
        ("noise", {"at": "params/a", "std": 0.1}, False),
    ],
)
def test_weights_that_no_longer_fit_the_memory_are_said(
    op: str, fields: dict[str, Any], is_said: bool, tmp_path: Path
) -> None:
    """L-BFGS weighs each step in its memory by 1 / (s · y): held against the memory that Orbax restores."""
    tx = optax.scale_by_lbfgs(memory_size=3)
    draws = np.random.default_rng(0)
    params = {name: draws.normal(size=(4, 3)).astype(np.float32) for name in "ab"}
    state, update = tx.init(params), jax.jit(tx.update)
    for n in range(1, 5):
        params = jax.tree.map(lambda p, n=n: p * np.float32(1 - 0.1 * n), params)
        _, state = update(jax.tree.map(lambda p: p**3 + p, params), state, params)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": state})
        plan = plan_from_document({"edits": [{"op": op, **fields}]})
        report = surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
        found = checkpointer.restore(tmp_path / "b")["opt_state"]
    steps, changes = (found[f"diff_{name}_memory"] for name in ("params", "updates"))
    products = sum(
        np.sum(np.float64(steps[name]) * np.float64(changes[name]), axis=(1, 2)) for name in steps
    )
    weights = np.divide(1.0, products, out=np.zeros(3), where=np.asarray(products) != 0)
    fits = np.allclose(found["weights_memory"], weights, rtol=1e-4)
    said = [note for note in report.notes if "'opt_state/weights_memory' stays as it was" in note]
    assert bool(said) == is_said
    assert fits == (not is_said)


def test_a_twin_of_another_shape_than_its_param_is_said_to_need_a_word_from_then_on(
    tmp_path: Path,
) -> None:
    state = {"params": PARAMS, "opt_state": optax.adam(1e-3).init(PARAMS)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", state)
    twin = {"op": "reshape", "at": "opt_state/0/mu/w", "shape": [4, 6], "twins": "named"}
    param = {"op": "reshape", "at": "params/w", "shape": [4, 6]}

    def said(*edits: dict[str, Any]) -> list[str]:
        plan = plan_from_document({"edits": list(edits), "optimizer_kind": "adam"})
        notes = map(str, surgery.plan(str(tmp_path / "a"), plan).notes)
        return [note for note in notes if "later edits of these params need `slots:`" in note]

    assert len(said(twin)) == 1
    assert said(twin, param) == []  # both alike again
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_from_document({"edits": [twin]}))
    with pytest.raises(PlanError, match="cannot tell which params 'opt_state/0/mu' belongs to"):
        surgery.plan(str(tmp_path / "b"), plan_from_document({"edits": [param]}))


def by_name(label: Any, other: Any) -> Any:
    def labels(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: label if "frozen" in jax.tree_util.keystr(path) else other, params
        )

    return labels


NAMED = {
    "partition": optax.partition(
        {"f": optax.set_to_zero(), "t": optax.adam(1e-3)}, by_name("f", "t")
    ),
    "masked": optax.masked(optax.adam(1e-3), by_name(label=False, other=True)),
    "adam": optax.adam(1e-3),
}
SWAP = {"params/frozen": "params/body", "params/body": "params/frozen"}
MOVES = {
    "rename": ([{"op": "rename", "at": "params/frozen", "to": "params/warm"}], True),
    "swap": ([{"op": "rename", "moves": SWAP}], True),
    "copy": ([{"op": "copy", "at": "params/frozen", "to": "params/new"}], True),
    "to another format": ([{"op": "rename", "at": "params", "to": "model"}], False),
    "another": (
        [{"op": "add", "at": "params/new", "like": "params/frozen", "init": "zeros"}],
        True,
    ),
    "from elsewhere": (
        [
            {
                "op": "add",
                "at": "params/new",
                "like": "params/body",
                "with": "DONOR",
                "from": "params/body",
            },
        ],
        True,
    ),
    "values": ([{"op": "rescale", "at": "params/frozen", "by": 2}], False),
    "no param": ([{"op": "rename", "at": "step", "to": "count"}], False),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_new_name_is_said_to_be_what_labels_may_go_by(name: str, tmp_path: Path) -> None:
    """Orbax restores the result, and the script takes the param for one of another group."""
    params = {part: {"w": np.ones((3, 2), np.float32)} for part in ("frozen", "body")}
    state = NAMED[name].init(params)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(
            tmp_path / "source", {"params": params, "opt_state": state, "step": np.int32(3)}
        )
        donor = {"params": params | {"new": params["body"]}}
        checkpointer.save(tmp_path / "donor", donor)
    for edit, (edits, is_told) in MOVES.items():
        named = [
            {k: tmp_path / "donor" if v == "DONOR" else v for k, v in e.items()} for e in edits
        ]
        named = [{k: str(v) if k == "with" else v for k, v in e.items()} for e in named]
        plan = plan_from_document({"edits": named})
        notes = map(str, surgery.plan(str(tmp_path / "source"), plan).notes)
        said = [note for note in notes if "if it goes by names" in note]
        assert len(said) == (is_told and name != "adam"), (edit, said)


def test_a_merge_that_cannot_tell_advises_what_merge_and_add_take(tmp_path: Path) -> None:
    """What it advises is typed as it says, and the result is what the optimizer would begin such params with."""
    params = {part: {"w": np.ones((3, 2), np.float32)} for part in ("frozen", "body")}
    grown = params | {"new": {"w": np.ones((3, 2), np.float32)}}
    state = NAMED["partition"].init(params)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": state})
        checkpointer.save(tmp_path / "donor", {"params": grown})
    merge = {"op": "merge", "at": "params", "with": str(tmp_path / "donor"), "both": "ours"}
    with pytest.raises(PlanError) as refused:
        surgery.plan(str(tmp_path / "a"), plan_from_document({"edits": [merge]}))
    (problem,) = refused.value.problems
    assert str(problem.fix).startswith("`add` them before, by the same `with`, and say which")
    assert "`--with`" in in_options(problem.fix, Merge)

    add = {"op": "add", "at": "params/new", "like": "params/body", "with": str(tmp_path / "donor")}
    plan = plan_from_document({"edits": [add]})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    wanted = {"params": grown, "opt_state": NAMED["partition"].init(grown)}
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "b", wanted)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def named(what: str) -> Any:
    """Numbers of dimensions for muon: of matrices below what is called so."""
    return lambda tree: jax.tree_util.tree_map_with_path(
        lambda path, p: (
            contrib.MuonDimensionNumbers()
            if p.ndim == 2 and f"'{what}'" in jax.tree_util.keystr(path)
            else None
        ),
        tree,
    )


def muon(what: str = "") -> Any:
    more = {"muon_weight_dimension_numbers": named(what)} if what else {}
    return contrib.muon(1e-3, **more)


AXES, NAMES = (
    "by their axes, as muon does unless the script says otherwise",
    "and the script says which",
)
MUONS: dict[str, tuple[Any, set[str], bool]] = {
    "by axes": (muon(), {AXES}, True),
    "by the name of a layer": (muon("body"), {NAMES}, False),
    "by a name that all matrices have": (muon("w"), {AXES}, False),
    "beside a mask by names": (
        optax.chain(optax.masked(optax.trace(0.9), by_name(label=False, other=True)), muon()),
        {AXES, NAMES},
        True,
    ),
    "in a part by names": (
        optax.partition({"f": optax.trace(0.9), "t": muon()}, by_name("f", "t")),
        {NAMES},
        True,
    ),
}
"""What is said of the states, and whether training goes on after a matrix got another name."""


@pytest.mark.parametrize("case", MUONS)
def test_muon_is_said_to_go_by_axes_or_names_and_training_may_not_go_on(
    case: str, tmp_path: Path
) -> None:
    """That groups are those of axes shows nothing: the names that a script goes by may be the same."""
    tx, ways, goes_on = MUONS[case]
    params = dict.fromkeys(("frozen", "body"), PARAMS)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": tx.init(params)})
    edits = [{"op": "rename", "at": "params/body/w", "to": "params/body/kernel"}]
    if case == "by the name of a layer":
        edits = [{"op": "rename", "at": "params/body", "to": "params/other"}]
    plan = plan_from_document({"edits": edits})
    notes = list(map(str, surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan).notes))
    said = [note for note in notes if "goes by names" in note]
    assert {way for way in (AXES, NAMES) if any(way in note for note in said)} == ways
    assert len(said) == len(ways)
    assert not [note for note in said if AXES in note and "'opt_state/0/" in note]  # the mask

    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.metadata(tmp_path / "b").item_metadata.tree["params"]
    after = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), found)
    with ocp.PyTreeCheckpointer() as checkpointer:
        new = {"params": after, "opt_state": tx.init(after)}
        found = checkpointer.restore(tmp_path / "b", item=new)
    try:
        tx.update(after, found["opt_state"], found["params"])
        starts = True
    except (TypeError, AttributeError, ValueError):
        starts = False
    assert starts == goes_on
