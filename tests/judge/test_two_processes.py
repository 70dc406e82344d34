"""A checkpoint that two processes saved together is edited, and both restore the result together."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of

SCRIPT = Path(__file__).with_name("two_processes.py")


def together(*words: str) -> None:
    """Run the script in two processes that know each other, to the end of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(number), port, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    printed = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(printed)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("two_processes") / "root"
    together("save", str(root))
    assert (root / "7" / "default" / "ocdbt.process_1").is_dir()
    return root


@pytest.mark.check_all
@pytest.mark.parametrize("compact", ["never", "always"])
def test_both_processes_restore_what_was_edited(root: Path, tmp_path: Path, compact: str) -> None:
    fields = {"at": "params/dense/kernel", "by": "0.5", "optimizer": "transform"}
    plan = plan_of([operation_from_options("rescale", fields)], optimizer_kind="adam")

    report = surgery.apply(
        str(root), str(tmp_path / "edited"), plan, options=surgery.Options(compact=compact)
    )

    assert report.checked == 3
    together("restore", str(tmp_path / "edited"), "0.5")
