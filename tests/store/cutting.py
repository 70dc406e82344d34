"""Commands that are struck at a moment which is counted: see ``cut_runs``."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


class Runs:
    """Commands in forks of a process that has imported everything."""

    def __init__(self, *modules, machine=""):
        """``machine``: the mark of another one, on which they say that they run."""
        self._modules = modules
        self._machine = machine

    def __enter__(self):
        paths = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "cut_runs.py"), *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "CUT_RUNS_MACHINE": self._machine},
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def __call__(self, *args, cut=None):
        self._ask({"args": [str(arg) for arg in args], "cut": cut})
        return self._hear()

    def begin(self, *args):
        """The number of the process that runs the command; ``stopped`` waits for it, and ``go_on`` ends it."""
        return self(*args, cut=["stop", 0, ""])["pid"]

    def stopped(self):
        """The outcome if the command has come to its end; None if its process was stopped."""
        heard = self._hear()
        return None if "stopped" in heard else heard

    def go_on(self):
        """Wake it up; the outcome."""
        self._ask({})
        return self._hear()

    def _ask(self, asked):
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def _hear(self):
        return json.loads(self._process.stdout.readline())
