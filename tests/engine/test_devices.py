"""Edits from the command line on a device and over a mesh of eight: the host's values, to rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

PLACEMENTS = {
    "host": [],
    "device": ["--device", "cpu:5"],
    "mesh": ["--device", "cpu", "--mesh", "data=4,model=2"],
}
EDITS = {
    "rescale": ["rescale", "SRC", "params", "--by", "0.3"],
    "normalize": ["normalize", "SRC", "params"],
    "average": ["average", "SRC", "params", "--with", "OTHER"],
    "reinit": ["reinit", "SRC", "params/dense", "--init", "lecun_normal", "--seed", "3"],
}
RUNNER = """
import json, sys
from surgery_cli.cli.main import run
for words in json.loads(sys.stdin.read()):
    try:
        run(words)
    except SystemExit as end:
        assert end.code == 0, (words, end.code)
import jax
print(jax.device_count())
"""


def _state(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "params": {
            "dense": random.standard_normal((64, 48), np.float32),
            "odd": random.standard_normal((7, 5), np.float32),
        }
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every edit in every placement, from one process with eight CPU devices."""
    folder = tmp_path_factory.mktemp("devices")
    with ocp.PyTreeCheckpointer() as checkpointer:
        for seed, name in enumerate(("SRC", "OTHER")):
            checkpointer.save(folder / name, _state(seed))
    commands = [
        [
            *(str(folder / word) if word in ("SRC", "OTHER") else word for word in words[:2]),
            str(folder / f"{edit}-{placement}"),
            *(str(folder / word) if word in ("SRC", "OTHER") else word for word in words[2:]),
            *options,
            "--quiet",
        ]
        for edit, words in EDITS.items()
        for placement, options in PLACEMENTS.items()
    ]
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(commands),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "8"
    return folder


def _params(path: Path) -> dict[str, np.ndarray]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)["params"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("placement", ["device", "mesh"])
@pytest.mark.parametrize("edit", EDITS)
def test_a_placement_gives_the_hosts_values_to_rounding(
    results: Path, edit: str, placement: str
) -> None:
    before, host, there = (
        _params(results / name) for name in ("SRC", f"{edit}-host", f"{edit}-{placement}")
    )
    assert host.keys() == there.keys() == before.keys()
    for name, values in host.items():
        np.testing.assert_allclose(there[name], values, rtol=3e-7, atol=0)
    assert not np.array_equal(there["dense"], before["dense"])


@pytest.mark.parametrize("placement", ["device", "mesh"])
def test_random_values_do_not_depend_on_the_placement(results: Path, placement: str) -> None:
    host, there = (_params(results / f"reinit-{name}") for name in ("host", placement))
    np.testing.assert_array_equal(there["dense"], host["dense"])
