"""Values that refuse an edit end the run with that refusal, whatever else is on its way."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.compute import kits
from surgery_cli.compute.host import HostKit
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning import operation_from_options, plan_of


class RefusingKit(HostKit):
    """Refuses the block of zeros while another block is in hand, which goes on a moment later."""

    def __init__(self) -> None:
        self.other_is_there = threading.Event()
        self.refused = threading.Event()

    def put(self, block: Any, spec: Any) -> Any:
        if block.flat[0] == 0:
            self.other_is_there.wait(60)
            self.refused.set()
            raise ValueRefusal("these values are refused")
        self.other_is_there.set()
        self.refused.wait(60)
        time.sleep(0.1)  # what a refusal ends has time to end before this block is written
        return super().put(block, spec)


def test_a_refusal_is_reported_and_not_what_it_does_to_other_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "SRC", {f"w{i}": np.full((8, 8), i, "f") for i in range(9)})
    monkeypatch.setattr(kits, "open_kit", lambda device, mesh: RefusingKit())
    plan = plan_of([operation_from_options("rescale", {"at": "w*", "by": 0.5})])

    with pytest.raises(ValueRefusal, match="these values are refused"):
        surgery.apply(str(tmp_path / "SRC"), str(tmp_path / "new"), plan)

    assert not (tmp_path / "new").exists()
