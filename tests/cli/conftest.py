"""Running `surgery` inside the test process, and the checkpoints that the commands are tried on."""

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "sample_checkpoints"


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)


@cache
def kept(build):
    """As ``build``, but once for each command: thousands of command lines are run in a process that has all of them."""
    return cache(build)


@pytest.fixture
def surgery(capsys, monkeypatch):
    """Runs a command line; gives exit code, standard output and standard error."""
    from surgery_cli.cli import main

    monkeypatch.setattr(main, "_built", kept(main._built))
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main.run([os.fspath(word) for word in arguments])
        out, err = capsys.readouterr()
        return Result(end.value.code, out, err)

    return call


@pytest.fixture
def checkpoint():
    """A CheckpointManager root with the steps 250 and 500 of a small CNN; never written to."""
    return SAMPLES / "digits_manager"


@pytest.fixture
def own_checkpoint(tmp_path):
    """A flat checkpoint that a test may damage."""
    return Path(shutil.copytree(SAMPLES / "digits_standard", tmp_path / "own"))
