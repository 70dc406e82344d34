"""Slots that are averaged under a counter which is not: the note says what that counter does, as optax has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

PARAMS = {"w": np.ones((3, 4), np.float32)}
KINDS: dict[str, tuple[Any, str, str]] = {
    "multi-steps": (optax.MultiSteps(optax.sgd(0.1), 5), "mini_step", "cycle"),
    "apply-every": (optax.apply_every(5), "count", "cycle"),
    "adam": (optax.adam(0.1), "0/count", "corrected"),
    "adafactor": (optax.adafactor(0.1), "0/count", "decay"),
}


def gradients(number: int) -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(number).normal(size=(3, 4)).astype(np.float32)}


def saved(path: Path, tx: Any, steps: int) -> Path:
    state = tx.init(PARAMS)
    for number in range(steps):
        _, state = tx.update(gradients(number), state, PARAMS)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": PARAMS, "opt_state": state})
    return path


@pytest.mark.parametrize("way", ["average", "replace"])
@pytest.mark.parametrize("name", KINDS)
def test_the_note_says_of_slots_under_another_count_what_the_count_does(
    surgery, tmp_path: Path, name: str, way: str
) -> None:
    tx, clock, word = KINDS[name]
    one, other = saved(tmp_path / "a", tx, 1), saved(tmp_path / "b", tx, 4)
    at = {"multi-steps": "opt_state/acc_grads", "apply-every": "opt_state/grad_acc"}
    slots = at.get(name, "opt_state/0/{mu,nu,v,v_row,v_col}")
    done = surgery(way, one, tmp_path / "c", slots, "--with", other, "--json")
    (note,) = [n for n in done.document["notes"] if f"under 'opt_state/{clock}'" in n]
    assert "come from where it stands at 4, and it stays at 1" in note
    said = {
        each for each in ("corrected", "decay", "cycle") if each in note.partition(": they ")[2]
    }
    assert said == {word}


def test_optax_divides_no_accumulator_by_what_its_count_says() -> None:
    """It is a place: the same accumulator one place later goes out one step earlier, as it is."""
    tx = optax.MultiSteps(optax.sgd(1.0), 3)
    _, state = tx.update(gradients(0), tx.init(PARAMS), PARAMS)
    gathered = np.asarray(state.acc_grads["w"])
    later = state._replace(mini_step=jnp.asarray(2, jnp.int32))
    held, _ = tx.update(gradients(1), state, PARAMS)
    out, _ = tx.update(gradients(1), later, PARAMS)
    assert not np.any(jax.tree.leaves(held)[0])
    mean = gathered + (gradients(1)["w"] - gathered) / 3
    np.testing.assert_allclose(out["w"], -mean, rtol=1e-6)
