"""Where only values tell the kind of an optimizer, little is read, only if it matters, and all of it is counted."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import reports, surgery
from surgery_cli.engine.grid import block_shape
from surgery_cli.plan import operation_from_options, plan_of
from surgery_cli.surgery import optimizers

SHAPE = (64, 16)
BYTES = 64 * 16 * 4


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adam's state of one kernel whose first half never got a gradient, in chunks of four rows."""
    gradients = np.random.default_rng(0).normal(0, 0.01, SHAPE).astype(np.float32)
    gradients[:32] = 0
    params = {"kernel": np.ones(SHAPE, np.float32)}
    adam = optax.scale_by_adam()
    _, state = adam.update({"kernel": gradients}, adam.init(params))
    path = tmp_path_factory.mktemp("looking") / "source"
    tree = {"params": params, "opt_state": (state, optax.EmptyState())}
    with ocp.PyTreeCheckpointer() as checkpointer:
        arguments = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=256), tree)
        checkpointer.save(path, tree, save_args=arguments)
    return path


def _preview(source: Path, **fields: str) -> reports.Preview:
    fields = {"at": "params", "by": "0.5", **fields}
    return surgery.plan(str(source), plan_of([operation_from_options("rescale", fields)]))


def test_slots_that_are_kept_are_not_read(source: Path) -> None:
    found = _preview(source, optimizer="keep")

    assert found.bytes_read == BYTES
    assert not found.notes


@pytest.mark.parametrize(("rows", "blocks"), [(4, 9), (16, 3), (64, 1)])
def test_slots_are_read_until_a_block_has_seen_a_gradient(
    source: Path, monkeypatch: pytest.MonkeyPatch, rows: int, blocks: int
) -> None:
    monkeypatch.setattr(optimizers, "block_shape", partial(block_shape, limit=rows * 16 * 4))

    found = _preview(source)

    (note,) = found.notes
    assert note.endswith("to tell which optimizer keeps them: `adam`")
    looked = 2 * blocks * rows * 16 * 4
    assert found.bytes_read == looked + 3 * BYTES
