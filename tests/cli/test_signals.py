"""What is said when a signal ends a command."""

import signal

import pytest

from surgery_cli.cli import commands, edge
from surgery_cli.store import staging


@pytest.fixture(autouse=True)
def nothing_completed_before(monkeypatch):
    monkeypatch.setattr(staging, "completed", [])


@pytest.mark.parametrize(
    ("blow", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (edge.Terminated(signal.SIGTERM), 143, "terminated"),
    ],
)
def test_a_signal_during_the_report_says_that_the_destination_is_complete(
    surgery, checkpoint, tmp_path, monkeypatch, blow, code, said
):
    def strike(*_):
        raise blow

    monkeypatch.setattr(commands, "print_document", strike)
    new = tmp_path / "new"
    ended = surgery("compact", checkpoint, new)
    assert ended.code == code
    assert ended.err.endswith(f"{said}; '{new}' is complete, only its report is missing\n")
    monkeypatch.undo()
    assert surgery("verify", new, "--like", checkpoint).code == 0


def test_a_signal_before_the_destination_stands_says_that_nothing_was_left(
    surgery, checkpoint, tmp_path, monkeypatch
):
    def strike(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(staging, "sync_tree", strike)
    ended = surgery("compact", checkpoint, tmp_path / "new")
    assert ended.code == 130
    assert ended.err.endswith("interrupted; nothing was left behind\n")
    assert list(tmp_path.iterdir()) == []
