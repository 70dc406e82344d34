"""Commands that are struck at a moment which is counted: see ``cut_runs``."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


class Runs:
    """Commands in forks of a process that has imported everything."""

    def __init__(self, *modules):
        self._modules = modules

    def __enter__(self):
        paths = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "cut_runs.py"), *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def __call__(self, *args, cut=None):
        asked = {"args": [str(arg) for arg in args], "cut": cut}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())
