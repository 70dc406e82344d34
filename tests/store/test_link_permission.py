"""Files of somebody else that Linux lets nobody link: they are copied, and the preview says so."""

import errno
import os
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document
from surgery_cli.store.filesystem import link_permission


@pytest.fixture
def of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint on ext4 whose files belong to another user, who lets everybody read them."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(
            tmp_path / "source", {"a": np.random.default_rng(0).random(9000), "b": np.ones(3)}
        )
    (tmp_path / "protected").write_text("1\n")
    monkeypatch.setattr(link_permission, "_PROTECTED", tmp_path / "protected")
    monkeypatch.setattr(link_permission, "_capabilities", lambda: 0)
    monkeypatch.setattr(link_permission, "_kind_of_filesystem", lambda _: "ext4")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(os, "access", lambda place, *_, **__: "source" not in str(place))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    return tmp_path / "source"


def test_what_cannot_be_linked_is_counted_as_copied(of_another: Path, tmp_path: Path) -> None:
    plan = plan_from_document({"edits": [{"op": "rescale", "at": "b", "by": 2}]})
    new = str(tmp_path / "new")
    before = surgery.plan(str(of_another), plan, destination=new)
    done = surgery.apply(str(of_another), new, plan)
    assert before.bytes_linked == done.bytes_linked == 0
    assert before.bytes_copied == pytest.approx(done.bytes_copied, rel=0.05)
    assert before.bytes_copied > 9000 * 4


@pytest.mark.parametrize("by", ["owner", "capability", "reflinks", "setting"])
def test_what_can_be_linked_is_told_from_it(
    by: str, of_another: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = next(path for path in of_another.rglob("*") if path.is_file())
    assert link_permission.is_sharing_forbidden(file)
    if by == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid)
    elif by == "capability":
        monkeypatch.setattr(link_permission, "_capabilities", lambda: 1 << 3)
    elif by == "reflinks":
        monkeypatch.setattr(link_permission, "_kind_of_filesystem", lambda _: "btrfs")
    else:
        (tmp_path / "protected").write_text("0\n")
    assert not link_permission.is_sharing_forbidden(file)
