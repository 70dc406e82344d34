"""What stands before a commit is handed in: the use cases know of a gate, not of the probe."""

from pathlib import Path
from typing import NamedTuple

import pytest

from surgery_cli import surgery
from surgery_cli.errors import ValueRefusal
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.apply import apply

SAMPLE = Path(__file__).parents[2] / "sample_checkpoints" / "digits_standard"
PLAN = plan_of([operation_from_options("rescale", {"at": "params/Dense_1", "by": 0.5})])


class Passed(NamedTuple):
    note: str
    bytes_read: int


class Counting:
    """Lets pass what has the leaves that it counted in the source, and no other."""

    def __init__(self, source: Checkpoint, more: int) -> None:
        self.wanted = len(source.tree) + more

    def check(self, result: Checkpoint) -> Passed:
        if len(result.tree) != self.wanted:
            raise ValueRefusal(f"not {self.wanted} leaves")
        return Passed("counted", 7)


def _apply(target: Path, more: int) -> object:
    (target.parent / "model.py").write_text("never = 'imported'\n")
    options = surgery.Options(probe=f"{target.parent / 'model.py'}:never")
    return apply(
        str(SAMPLE), str(target), PLAN,
        options=options, open_gate=lambda source, options, say: Counting(source, more),
    )  # fmt: skip


def test_a_result_that_passes_appears_and_says_so(tmp_path: Path) -> None:
    before = surgery.apply(str(SAMPLE), str(tmp_path / "plain"), PLAN)
    report = _apply(tmp_path / "new", 0)
    assert "counted" in report.notes
    assert report.bytes_read == before.bytes_read + 7
    assert (tmp_path / "new").is_dir()


def test_a_result_that_does_not_pass_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(ValueRefusal, match="leaves"):
        _apply(tmp_path / "new", -1000)
    assert [path.name for path in tmp_path.iterdir()] == ["model.py"]
