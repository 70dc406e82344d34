"""What `--like-init` proposes between any two optimizers: no field becomes another's, and nothing mends it."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest

from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.script.abstract_tree import abstract_tree
from surgery_cli.script.contract import breaches
from surgery_cli.script.optimizer_call import factories, optimizer_of
from surgery_cli.script.other_optimizers import other_states
from surgery_cli.script.repairs import mends
from tests.installed import is_older
from tests.optimizer import factory_trials

STATES = {
    kind: call
    for kind, call in factory_trials.STATES.items()
    if call.partition("(")[0] in factories() or not is_older("optax")
}

PARAMS = {
    f"Dense_{number}": {"bias": jnp.zeros(6), "kernel": jnp.zeros((4, 6))} for number in range(2)
} | {"head": {"kernel": jnp.zeros((6, 3))}}
PLACES = {
    "alone": lambda state: optax.chain(state, optax.scale(-0.1)),
    "behind": lambda state: optax.chain(optax.clip_by_global_norm(1.0), state, optax.scale(-0.1)),
    "with_schedule": lambda state: optax.chain(state, optax.scale_by_schedule(lambda n: 0.1 / (n + 1))),
    "with_plateau": lambda state: optax.chain(
        optax.chain(state, optax.scale(-0.1)), optax.contrib.reduce_on_plateau()
    ),
    "injected": lambda state: optax.inject_hyperparams(lambda scale: optax.chain(state, optax.scale(scale)))(
        scale=-0.1
    ),
    "in_steps": lambda state: optax.MultiSteps(state, 2),
}  # fmt: skip


@functools.cache
def tree_of(kind, place):
    def made():
        tx = PLACES[place](optimizer_of(STATES[kind]))
        return {"params": PARAMS, "opt_state": tx.init(PARAMS), "step": jnp.int32(0)}

    tree = abstract_tree(made).tree
    return tree, survey(tree).slots


@pytest.mark.sampled(24)
@pytest.mark.parametrize("there", PLACES)
@pytest.mark.parametrize("here", PLACES)
@pytest.mark.parametrize("before", STATES)
def test_no_field_is_taken_for_another_optimizers(before, here, there):
    stored, slots_here = tree_of(before, here)
    for after in STATES:
        wanted, slots_there = tree_of(after, there)
        found = mends(breaches(stored, wanted), stored, wanted, slots_here, slots_there)
        others = other_states(slots_here, slots_there)
        for mend in found:
            inside = [state for state in others if mend.path.is_below(state)]
            if inside and mend.what not in ("dtype", "shape"):
                assert not mend.edits, (before, after, mend)
            for edit in mend.edits:
                if edit["op"] == "rename":
                    assert renames_within_fields(edit, slots_here, slots_there), (
                        before,
                        after,
                        edit,
                    )


def renames_within_fields(edit, slots_here, slots_there):
    names = {str(old): new for old, new in edit.get("moves", {}).items()}
    if isinstance(edit.get("at"), str):
        names[edit["at"]] = edit["to"]
    here = {str(slot.node): slot.name for slot in slots_here.values()}
    there = {str(slot.node): slot.name for slot in slots_there.values()}
    return all(
        here.get(old) is None or there.get(new) is None or here[old] == there[new]
        for old, new in names.items()
    )


def test_a_family_elsewhere_is_no_other_optimizer():
    with jax.ensure_compile_time_eval():
        pairs = [tree_of("adam", place)[1] for place in ("alone", "behind")]
    assert other_states(*pairs) == {}
    assert other_states(tree_of("adam", "alone")[1], tree_of("lion", "alone")[1])
