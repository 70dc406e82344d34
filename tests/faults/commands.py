"""Commands with one fault each: the shim is built, and a process that forks them is started and asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Fault(NamedTuple):
    """What strikes a command, in the shim's words: ``do`` at the ``at``-th call that it can strike."""

    do: str = "KILL"
    at: int = 0
    good: bool = False
    reads: bool = False
    deny: str = ""

    def words(self, scope: Path) -> str:
        more = [" for=good"] * self.good + [" on=all"] * self.reads
        more += [f" deny={self.deny}"] if self.deny else []
        return f"scope={scope} at={self.at} do={self.do}{''.join(more)}"


class Ended(NamedTuple):
    """How a command has ended: ``code`` is negative for a signal; or it stands still, and can go on."""

    child: int
    stopped: bool
    late: bool = False
    code: int = 0
    said: str = ""
    counted: int = 0


def built(folder: Path) -> Path:
    """The shim, compiled."""
    assert COMPILER is not None
    library = folder / "shim.so"
    command = [COMPILER, "-O1", "-shared", "-fPIC", "-pthread", "-o", library, HERE / "shim.c"]
    subprocess.run(command, check=True)
    return library


class Commands:
    """A context: inside, it runs commands in forks of a process that has imported everything."""

    def __init__(self, folder: Path, seconds: float = 60) -> None:
        self._shim = built(folder)
        self._seconds = seconds

    def __enter__(self) -> Self:
        paths = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        known = {"LD_PRELOAD": str(self._shim), "PYTHONPATH": paths, "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "forks.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **known},
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def __call__(
        self,
        args: list[str],
        scope: Path,
        fault: Fault | None = None,
        *,
        log: Path | None = None,
        small: bool = False,
        after: tuple[float, str] | None = None,
        powerless: bool = False,
    ) -> Ended:
        """Run a command until it ends or stops. ``after``: so many seconds, and which signal comes then.

        ``powerless``: as a user who may do what modes say, and no more; root may do all.
        """
        asked = {
            "args": args,
            "fault": (fault or Fault()).words(scope),
            "small": small,
            "seconds": self._seconds,
            "powerless": powerless,
        }
        if log is not None:
            asked["log"] = str(log)
        if after is not None:
            asked["after"], asked["signal"] = after
        return self._ask(asked)

    def go_on(self, ended: Ended) -> Ended:
        """Let a command go on that stood still."""
        return self._ask({"child": ended.child})

    def kill(self, ended: Ended) -> Ended:
        """End one that stands still, for good."""
        os.kill(ended.child, signal.SIGKILL)
        return self.go_on(ended)

    def _ask(self, asked: dict[str, object]) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))
