"""The examples of `reshard --help` are commands that work."""

import shlex

import jax.numpy as jnp
import orbax.checkpoint as ocp
import pytest

from surgery_cli.cli.commands.table import COMMANDS
from tests.cli.conftest import surgery

__all__ = ["surgery"]  # a fixture

EXAMPLES = COMMANDS["reshard"][1]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_works(surgery, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    layer = {"kernel": jnp.ones((32, 4)), "bias": jnp.ones(32)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "runs" / "big", {"params": {"layer": layer}})
    done = surgery(*shlex.split(line)[1:])
    assert done.code == 0, done.err
