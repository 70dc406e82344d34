"""While one block is on the device, the next one is already on its way there: transfers and arithmetic overlap."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.compute import kits
from surgery_cli.compute.host import HostKit
from surgery_cli.planning import operation_from_options, plan_of


class WaitingKit(HostKit):
    """A device from which nothing comes back before two threads have put a block there."""

    def __init__(self) -> None:
        self.putting: set[int] = set()
        self.two_are_there = threading.Event()

    def put(self, block: Any, spec: Any) -> Any:
        self.putting.add(threading.get_ident())
        if len(self.putting) > 1:
            self.two_are_there.set()
        self.two_are_there.wait(60)
        return super().put(block, spec)


@pytest.mark.parametrize(
    ("name", "fields"), [("rescale", {"by": 0.5}), ("average", {"with_": "OTHER"})]
)
def test_a_block_is_put_on_the_device_while_another_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any]
) -> None:
    params = {f"w{i}": np.full((8, 8), i, np.float32) for i in range(4)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        for folder in ("SRC", "OTHER"):
            checkpointer.save(tmp_path / folder, params)
    kit = WaitingKit()
    monkeypatch.setattr(kits, "open_kit", lambda device, mesh: kit)
    given = {k: str(tmp_path / v) if v == "OTHER" else v for k, v in fields.items()}
    plan = plan_of([operation_from_options(name, {"at": "w*", **given})])

    report = surgery.apply(str(tmp_path / "SRC"), str(tmp_path / "edited"), plan)

    assert report.verified
    assert kit.two_are_there.is_set()
