"""States from another checkpoint beside params, or under a clock, that are not theirs: it is said, in every way in."""

import functools

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.optimizer.knowledge.kinds import KINDS
from surgery_cli.script.optimizer_call import optimizer_of
from tests.optimizer.factory_trials import STATES

CALLS = STATES | {
    "mechanic": "mechanize(adam(0.1))",
    "sam": "sam(opaque_mode=False, optimizer=sgd(0.1), adv_optimizer=sgd(0.1))",
    "schedule_free": "schedule_free_adamw(0.1)",
}
HOLDING = {
    kind.name: names
    for kind in KINDS
    if (names := [name for name, field in kind.fields.items() if field.is_params_like])
    and "memory" not in kind.clocks.values()
}
"""The fields in which a state keeps copies of params."""


def params(scale):
    return {"a": {"kernel": jnp.full((4, 6), scale), "bias": jnp.full(6, scale)}}


def saved(path, tx, scale, count=None):
    state = tx.init(params(scale))
    if count is not None:
        state = optax.tree_utils.tree_set(state, count=jnp.int32(count))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params(scale), "opt_state": state})
    return path


def plan_of(tmp_path, edits, **sources):
    path = tmp_path / "plan.json"
    document = {"sources": {name: str(place) for name, place in sources.items()}, "edits": edits}
    path.write_bytes(msgspec.json.encode(document))
    return path


@pytest.mark.parametrize("kind", HOLDING)
def test_copies_of_other_params_are_said(tmp_path, surgery, kind):
    tx = optimizer_of(CALLS[kind])
    old = saved(tmp_path / "old", optax.adam(0.1), 1.0)
    saved(tmp_path / "same", tx, 1.0)
    fresh = saved(tmp_path / "fresh", tx, 2.0)
    edits = [
        {"op": "delete", "at": "opt_state"},
        {"op": "insert-item", "at": "opt_state", "with": "fresh", "from": "opt_state"},
    ]
    plan = plan_of(tmp_path, edits, fresh=fresh)
    said = surgery("plan", old, plan, "--json").document["notes"]
    nodes = [note.split("'")[1] for note in said if "keeps copies of params" in note]
    assert sorted(node.rpartition("/")[2] for node in nodes) == sorted(HOLDING[kind])
    named = surgery(
        "replace",
        tmp_path / "same",
        tmp_path / "x",
        "opt_state",
        "--with",
        fresh,
        "--dry-run",
        "--json",
    )
    assert [n for n in named.document["notes"] if "keeps copies" in n]

    more = [{"op": "replace", "at": node, "with": "old", "from": "params"} for node in nodes]
    plan = plan_of(tmp_path, edits + more, fresh=fresh, old=old)
    mended = surgery("apply", old, tmp_path / "new", plan, "--json")
    assert (mended.code, [n for n in mended.document["notes"] if "keeps copies" in n]) == (0, [])
    with ocp.PyTreeCheckpointer() as checkpointer:
        back = checkpointer.restore(tmp_path / "new")
    for node in nodes:
        copies = functools.reduce(
            lambda tree, key: tree[int(key) if isinstance(tree, list) else key],
            node.split("/"),
            back,
        )
        for one, other in zip(jax.tree.leaves(copies), jax.tree.leaves(params(1.0)), strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize(("counted", "taken"), [("old", "fresh"), ("fresh", "old")])
def test_slots_under_a_clock_of_another_checkpoint_are_said(tmp_path, surgery, counted, taken):
    old = saved(tmp_path / "old", optax.adam(0.1), 1.0, count=150)
    fresh = saved(tmp_path / "fresh", optax.adam(0.1), 2.0, count=0)
    edits = [
        {"op": "delete", "at": "opt_state"},
        {"op": "insert-item", "at": "opt_state", "with": taken, "from": "opt_state"},
        {"op": "replace", "at": "opt_state/0/count", "with": counted},
    ]
    notes = surgery("plan", old, plan_of(tmp_path, edits, old=old, fresh=fresh), "--json").document[
        "notes"
    ]
    begin = f"'opt_state/0/count' comes from '{counted}', and 4 slots that it drives from '{taken}'"
    assert [note for note in notes if note.startswith(begin)]
    edits[-1]["with"] = taken
    notes = surgery("plan", old, plan_of(tmp_path, edits, old=old, fresh=fresh), "--json").document[
        "notes"
    ]
    assert not [note for note in notes if "that it drives" in note]
