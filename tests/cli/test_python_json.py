"""JSON as Python's own module writes it: metrics and settings that are not finite are no damage, and stay so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

W = np.arange(3, dtype=np.float32)
ODD = {"a": math.nan, "b": [math.inf, -math.inf], "c": {"d": None}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A step with such numbers in each document that takes some."""
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave({"params": {"w": W}}, custom_metadata=ODD),
            cfg=ocp.args.JsonSave(ODD),
        )
        manager.save(1, args=items, metrics={"loss": math.nan}, custom_metadata=ODD)
        manager.wait_until_finished()
    return tmp_path / "run"


def _same(found: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return found.keys() == value.keys() and all(_same(found[key], value[key]) for key in value)
    if isinstance(value, list):
        return len(found) == len(value) and all(map(_same, found, value))
    return found == value or (isinstance(value, float) and math.isnan(value) and math.isnan(found))


def _held(step: Path) -> None:
    """See that Orbax gives everything back."""
    handlers = ocp.CompositeCheckpointHandler(
        state=ocp.PyTreeCheckpointHandler(),
        cfg=ocp.JsonCheckpointHandler(),
        metrics=ocp.JsonCheckpointHandler(filename="metrics"),
    )
    with ocp.Checkpointer(handlers) as checkpointer:
        found = checkpointer.restore(step)
        metadata = checkpointer.metadata(step)
    assert _same(found.cfg, ODD)
    assert found.state["params"]["w"].shape == (3,)
    assert _same(metadata.item_metadata.state.custom_metadata, ODD)
    assert _same(metadata.custom_metadata, ODD)


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "RUN@1"),
        ("doctor", "RUN", "--settled", "0"),
        ("inspect", "RUN@1", "--stats"),
        ("diff", "RUN@1", "RUN@1"),
        ("check", "RUN@1", "policy.yaml"),
    ],
    ids=lambda words: words[0],
)
def test_what_looks_calls_nothing_of_it_damaged(surgery, run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text("rules:\n- {at: params, finite: true}\n")
    _held(run / "1")

    result = surgery(*(word.replace("RUN", str(run)) for word in words))

    assert result.code == 0
    assert "damaged" not in result.out + result.err
    assert "not JSON" not in result.out + result.err


@pytest.mark.parametrize("command", ["rescale", "rescue", "rename"])
def test_what_writes_keeps_it(surgery, run, tmp_path, command):
    words = {
        "rescale": ("params", "--by", "2"),
        "rename": ("params/w", "--to", "params/v"),
        "rescue": ("--allow-partial",),
    }
    new = tmp_path / "new"

    result = surgery(command, run / "1", new, *words[command])

    assert result.code == 0
    if command != "rename":
        _held(new)
    assert surgery("verify", new).code == 0


def test_what_is_no_json_of_pythons_either_is_damage(surgery, run):
    file = run / "1" / "cfg" / "metadata"
    file.write_text(file.read_text().replace("NaN", "NaN NaN"))
    result = surgery("verify", f"{run}@1")
    assert (result.code, "cfg/metadata" in result.out) == (1, True)
