"""Where an edit makes other leaves: a note is there if and only if the next updates of optax differ by that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from surgery_cli.settings.run import Options
from tests.optimizer.optax_registry import OPTIMIZERS
from tests.optimizer.policy_registry import CASES

UNSEEN = {"agc_sgd", "centralize_adam", "fromage"}
"""What goes by whole leaves in a part of the chain that keeps nothing, and that no name of a factory says."""
NEEDS_MORE = {
    "backtracking", "dpsgd", "freeze", "lbfgs", "partition_3same", "sam", "selective_transform", "sophia",
}  # fmt: skip
"""What trains on more than gradients and a loss, or on params of other names only."""
NOISE = {"add_noise_adam", "noisy_sgd"}
"""What draws by the shapes of leaves."""
ORDER = [3, 1, 0, 2, 5, 4]


class Edit(NamedTuple):
    """An edit of leaves of these shapes, and what NumPy makes of them, in order."""

    fields: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    change: Callable[[list[Any]], list[Any]]


KERNELS = ((6, 8), (6, 8))
EDITS = {
    "stack": Edit({"op": "stack"}, KERNELS, lambda xs: [np.stack(xs)]),
    "unstack": Edit({"op": "unstack"}, ((2, 6, 8),), lambda xs: [*xs[0]]),
    "concat": Edit({"op": "concat", "axis": 1}, KERNELS, lambda xs: [np.concatenate(xs, 1)]),
    "split": Edit({"op": "split", "axis": 1}, ((6, 8),), lambda xs: np.split(xs[0], 2, 1)),
    "biases": Edit({"op": "concat", "axis": 0}, ((8,), (8,)), lambda xs: [np.concatenate(xs)]),
    "transpose": Edit({"op": "transpose"}, ((6, 8),), lambda xs: [xs[0].T]),
    "reshape": Edit(
        {"op": "reshape", "shape": [4, 12]}, ((6, 8),), lambda xs: [xs[0].reshape(4, 12)]
    ),
    "permute": Edit({"op": "permute", "index": ORDER}, ((6, 8),), lambda xs: [xs[0][ORDER]]),
    "rename": Edit({"op": "rename"}, ((6, 8),), lambda xs: xs),
}


SAME = {
    "unstack of one": Edit({"op": "unstack"}, ((1, 6, 8),), lambda xs: [xs[0][0]]),
    "square transposed": Edit({"op": "transpose"}, ((7, 7),), lambda xs: [xs[0].T]),
}
"""After these updates by whole leaves may be what they were."""


def drawn(draws: Any) -> dict[str, list[Any]]:
    """Leaves for every edit, no two of one size."""
    return {
        name: [
            np.asarray(draws.normal(size=shape) * 4.0**n, np.float32)
            for n, shape in enumerate(edit.shapes)
        ]
        for name, edit in EDITS.items()
    }


def changed(tree: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: list(EDITS[name].change(leaves)) for name, leaves in tree.items()}


def tree_of(leaves: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: {f"p{n}": leaf for n, leaf in enumerate(every)} for name, every in leaves.items()}


def trained(tx: Any, form: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Params after some steps in this form, and the first state; gradients are the same in every form."""
    draws = np.random.default_rng(0)
    tx = optax.with_extra_args_support(tx)
    params = begun = tree_of(form(drawn(draws)))
    state = first = tx.init(params)
    update = jax.jit(lambda *given: tx.update(*given, value=np.float32(1.0)))
    for _ in range(8):
        updates, state = update(tree_of(form(drawn(draws))), state, params)
        params = optax.apply_updates(params, updates)
    return jax.tree.map(np.subtract, params, begun), first


def differing(tx: Any) -> frozenset[str]:
    """The edits after which optax moves elements otherwise than without: trained both ways."""
    before, _ = trained(tx, lambda leaves: leaves)
    after, _ = trained(tx, changed)
    found = set()
    for edit, leaves in changed({e: [*leaf.values()] for e, leaf in before.items()}).items():
        for wanted, moved in zip(leaves, after[edit].values(), strict=True):
            if not np.allclose(wanted, moved, rtol=2e-3, atol=2e-3 * np.abs(wanted).max()):
                found.add(edit)
    return frozenset(found)


def notes_of(source: Path, edit: str, kind: str | None) -> list[str] | None:
    """What is said of other leaves; None where the edit is refused."""
    fields, leaves = EDITS[edit].fields, len(EDITS[edit].shapes)
    at = f"params/{edit}/p{{0..{leaves - 1}}}" if leaves > 1 else f"params/{edit}/p0"
    to = {"stack": "p", "concat": "p", "biases": "p", "unstack": "q{0..1}", "split": "{q,r}"}
    to |= {"unstack of one": "q{0..0}"}
    names = {"to": f"params/{edit}/{to[edit]}"} if edit in to else {}
    names = {"to": f"params/{edit}/q"} if fields["op"] == "rename" else names
    document = {"edits": [{**fields, "at": at, **names}]}
    try:
        plan = plan_from_document(document | ({"optimizer_kind": kind} if kind else {}))
        notes = map(str, surgery.plan(str(source), plan).notes)
    except PlanError:
        return None
    said = ("the next updates of", "another number of axes")
    return [note for note in notes if any(words in note for words in said)]


def saved(tx: Any, path: Path) -> Path:
    params = tree_of(drawn(np.random.default_rng(1)))
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params, "opt_state": tx.init(params)})
    return path


@pytest.mark.parametrize("name", sorted(CASES.keys() - NEEDS_MORE - NOISE))
def test_other_leaves_are_said_if_and_only_if_updates_go_by_them(name: str, tmp_path: Path) -> None:
    differ = differing(OPTIMIZERS[name]())
    if "rename" in differ:
        pytest.skip("optax's own updates hang on the order of names, in this release")
    source = saved(OPTIMIZERS[name](), tmp_path / "source")
    for edit in EDITS:
        notes = notes_of(source, edit, CASES[name].kind)
        if notes is not None:  # what no slot can follow is refused
            assert bool(notes) == (edit in differ and name not in UNSEEN), (edit, notes)


@pytest.mark.parametrize("name", ["lamb", "muon", "adafactor", "fromage", "lars"])
def test_nothing_is_said_for_sure_where_updates_are_what_they_were(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "EDITS", SAME)
    differ = differing(OPTIMIZERS[name]())
    source = saved(OPTIMIZERS[name](), tmp_path / "source")
    for edit in SAME:
        notes = notes_of(source, edit, CASES[name].kind)
        assert notes is not None
        if edit not in differ:
            assert all("may differ" in note for note in notes), (edit, notes)


@pytest.mark.parametrize(
    "call",
    [
        "lamb(0.1)",
        "adam(0.1)",
        "chain(adaptive_grad_clip(0.01), sgd(0.1, momentum=0.9))",
        "MultiSteps(lamb(0.1), 3)",
        "adafactor(0.1)",
        "adafactor(0.1, clipping_threshold=None, multiply_by_parameter_scale=False)",
        "chain(clip_by_global_norm(1.0), adam(0.1))",
    ],
)
def test_a_call_is_tried_out_for_it(call: str, tmp_path: Path) -> None:
    tx: Any = eval(call, dict(vars(optax)))
    tx = tx.gradient_transformation() if isinstance(tx, optax.MultiSteps) else tx
    differ, source = differing(tx), saved(tx, tmp_path / "source")
    for edit in (
        "stack",
        "rename",
    ):  # what is split along axes that a sum leaves apart only may differ
        assert bool(notes_of(source, edit, call)) == (edit in differ), edit


@pytest.mark.parametrize(
    ("chain", "is_said"),
    [
        ("optax.lamb(0.1)", True),
        ("optax.adamw(0.1)", False),
        ("optax.chain(optax.clip(1e9), optax.adamw(0.1), optax.centralize())", None),
    ],
)
def test_a_script_is_tried_out_for_leaves_that_it_names_otherwise(
    chain: str, is_said: bool | None, tmp_path: Path
) -> None:
    """It has the new leaves, the checkpoint the old ones: what all leaves of a state show alike holds of these."""
    script = tmp_path / "train.py"
    script.write_text(
        "import jax.numpy as jnp, optax\n\ndef make():\n"
        "    q, k = ({'w': jnp.ones((6, 4))} for _ in 'qk')\n"
        "    params = {'q': q, 'k': k, 'head': {'w': jnp.ones((8, 3)), 'b': jnp.ones(3)}}\n"
        f"    tx = {chain}\n"
        "    return {'params': params, 'tx': tx, 'opt_state': tx.init(params)}\n"
    )
    head = {"w": np.ones((8, 3), np.float32), "b": np.ones(3, np.float32)}
    params = {"both": {"w": np.ones((6, 8), np.float32)}, "head": head}
    tx: Any = eval(chain, {"optax": optax})
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": tx.init(params)})
    split = {"op": "split", "at": "params/both/w", "to": "params/{q,k}/w", "axis": 1}
    plan = plan_from_document({"edits": [split | {"optimizer": "transform"}]})
    options = Options(like_init=f"{script}:make")
    notes = list(map(str, surgery.plan(str(tmp_path / "a"), plan, options=options).notes))
    if is_said is not None:
        assert any("the next updates of" in note for note in notes) == is_said
    rescale = {"op": "rescale", "at": "params/both", "by": 2, "optimizer": "transform"}
    plan = plan_from_document({"edits": [rescale, split]})
    surgery.plan(str(tmp_path / "a"), plan, options=options)  # powers are known for them as well


def test_nothing_is_said_of_what_only_looks_like_a_trust_ratio(tmp_path: Path) -> None:
    """Adam and LAMB keep the same state: only their names tell them apart."""
    source = saved(optax.lamb(0.1), tmp_path / "source")
    assert [len(notes_of(source, "stack", kind) or ()) for kind in (None, "adam", "lamb")] == [
        0,
        0,
        1,
    ]
