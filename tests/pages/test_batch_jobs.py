"""The scripts of the page of batch jobs are run from it, against a server that stands for the bucket."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from surgery_cli import surgery as library
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import SAMPLES, uploaded

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "batch-jobs.md").read_text()


def script(title):
    """The first block of code below a title, for the bucket of the tests."""
    section = PAGE[PAGE.index(f"\n## {title}\n") :]
    return section.split("```")[1].partition("\n")[2].replace("gs://my-bucket", "gs://bkt")


def run(text, folder, *, fails="", **environment):
    """As a shell does it that stops at what fails; `surgery` is ours. ``fails``: with 2, and says so."""
    (folder / "surgery").write_text(f'#!/bin/sh\nexec {sys.executable} -m surgery_cli "$@"\n')
    (folder / "surgery").chmod(0o755)
    place = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PATH": place, "PYTHONPATH": root, **environment}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if fails else 0), done.stdout + done.stderr
    assert fails in done.stderr
    return done.stdout


@pytest.fixture
def digits(bucket):
    return uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/runs/digits")


def check_cast(address, step):
    with ocp.CheckpointManager(epath.Path(address)) as manager:
        assert manager.all_steps() == [step]
        restored = manager.restore(step)
    kernel = restored["params"]["Dense_1"]["kernel"]
    assert np.asarray(kernel).dtype == ml_dtypes.bfloat16


def test_what_was_looked_at_is_done_and_verified(digits, tmp_path):
    said = run(script("One machine beside the bucket"), tmp_path)
    assert "0 unchecked: agrees" in said
    check_cast("gs://bkt/runs/digits-bf16", 500)


@pytest.mark.parametrize("title", ["One machine beside the bucket", "A Slurm array"])
def test_what_is_wrong_is_said_by_a_script_and_is_its_exit_code(bucket, tmp_path, title):
    uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/elsewhere/digits")
    run(script(title), tmp_path, fails="does not exist", SLURM_ARRAY_TASK_ID="250")


def test_a_task_of_an_array_casts_its_step(digits, tmp_path):
    run(script("A Slurm array"), tmp_path, SLURM_ARRAY_TASK_ID="250")
    check_cast("gs://bkt/runs/digits-bf16-250", 250)


def test_a_task_that_starts_again_on_another_node_clears_what_the_first_has_left(
    bucket, digits, tmp_path
):
    text, new = script("A Slurm array"), "$run-bf16-$step"
    place = ".digits-bf16-250.surgery-tmp-lock"
    said = {"machine": "feedbeef", "builds": "gs://bkt/runs/digits-bf16-250"}
    of_another = {"run": "x", **msgspec.to_builtins(Owner.here()), **said}
    bucket.put("bkt", f"runs/{place}", json.dumps(of_another).encode())
    run(text, tmp_path, fails="another run is writing to", SLURM_ARRAY_TASK_ID="250")
    (advised,) = re.findall(r'`(surgery clean "\$run.*?)`', PAGE)
    assert new in advised
    again = text.replace("surgery cast", f"{advised}\nsurgery cast")
    run(again, tmp_path, SLURM_ARRAY_TASK_ID="250")
    check_cast("gs://bkt/runs/digits-bf16-250", 250)


def test_a_step_of_a_workflow_reports_and_asserts(digits, tmp_path):
    library.seal(digits)
    commands = script("A GitHub Actions step").rpartition("run: |\n")[2]
    run(re.sub(r"^ +", "", commands, flags=re.MULTILINE), tmp_path)
    assert json.loads((tmp_path / "checkpoint.json").read_text())["agrees"]


@pytest.mark.parametrize("title", ["A TPU VM slice", "An xpk job"])
def test_commands_for_clusters_are_commands_here(digits, bucket, tmp_path, title):
    uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/runs/base")
    (command,) = re.findall(r'--command="(.*?)"', script(title), flags=re.DOTALL)
    command = re.sub(r"\s*pip install[^&]*&&", "", command).replace("params/head", "params/Dense_1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    alone = f"--distributed --coordinator {place} --processes 1 --process 0"  # no cluster says so
    run(command.replace("--distributed", alone), tmp_path)
