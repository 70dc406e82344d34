"""What the notes of where leaves are take grows with the leaves, not with what each of them was once a part of."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document
from surgery_cli.surgery import previews
from tests.layout.states import save
from tests.steps import counted


def _edits(count: int, donor: str) -> list[dict[str, Any]]:
    come = {"op": "merge", "at": "params", "with": donor, "from": "params"} if donor else None
    layers = f"params/layer_{{0..{count - 1}}}"
    joined = [
        {"op": "stack", "at": f"{layers}/kernel", "to": "params/k"},
        {"op": "repeat", "at": "params/k", "axis": 1, "times": 2},
        {"op": "unstack", "at": "params/k", "to": f"params/l_{{0..{count - 1}}}/kernel"},
    ]
    return [*([come] if come else []), *joined]


@pytest.mark.parametrize("leaves", ["of the tree", "of a donor"])
def test_leaves_that_were_taken_out_of_joined_ones_cost_the_same_each(
    leaves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))
    split, whole = (
        jax.device_put(np.ones(4, np.float32), NamedSharding(mesh, P(*axes))) for axes in ("x", ())
    )
    steps = []

    def counting(*arguments: Any) -> Any:
        found, count = counted(notes_of, *arguments)
        steps.append(count)
        return found

    notes_of = previews.placement_notes
    monkeypatch.setattr(previews, "placement_notes", counting)
    for count in (20, 40, 80):
        layers = {f"layer_{n}": {"kernel": split if n else whole} for n in range(count)}
        saved = save(tmp_path / f"layers_{count}", {"params": layers})
        source = saved
        if leaves == "of a donor":
            source = save(tmp_path / f"here_{count}", {"params": {"w": whole}})
        edits = _edits(count, "" if source is saved else str(saved))
        notes = surgery.plan(str(source), plan_from_document({"edits": edits})).notes
        assert any("whole on each device, and in 4 parts before" in note for note in notes)
    assert steps[2] - steps[1] < 2.2 * (steps[1] - steps[0])
