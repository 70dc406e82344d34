"""From this disk into a bucket: bytes pass through the machine bit for bit, a few at a time, whatever fails then."""

import os
import re
import subprocess
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.server import Faults

MIB = 1 << 20
RANDOM = np.random.default_rng(0)
TREES = {
    "large": {name: RANDOM.standard_normal((6, 1 << 18), np.float32) for name in "pqrstuvwxyz"},
    "small": {name: RANDOM.standard_normal((6, 1 << 10), np.float32) for name in "pqrstuvwxyz"},
}
"""66 MiB in leaves of 6, and leaves of 24 KiB, none of which compress."""

EDIT = plan_of([operation_from_options("rescale", {"at": "p", "by": 0.5})])
LAYOUTS = {"ocdbt": {}, "a file a leaf": {"use_ocdbt": False}}
RUN = """
import re, sys
from surgery_cli.cli.main import run
try:
    run()
except SystemExit as ended:
    assert not ended.code
sys.stderr.write(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    for name, how in LAYOUTS.items():
        for size, tree in TREES.items() if name == "a file a leaf" else [("small", TREES["small"])]:
            with ocp.PyTreeCheckpointer(**how) as checkpointer:
                checkpointer.save(folder / size / name, jax.tree.map(jax.numpy.asarray, tree))
    return folder


@pytest.fixture(params=["gs", "s3"])
def service(request):
    return request.getfixturevalue({"gs": "bucket", "s3": "s3"}[request.param])


def hold(service, source, tree):
    """Hold a result against NumPy, and the objects that no edit touched against the files that they were."""
    written = open_checkpoint(f"{service.root}/new")
    for path in written.tree:
        (name,) = path
        np.testing.assert_array_equal(written.read(path), edited(name, tree[name]))
    files = {str(file.relative_to(source)): file for file in source.rglob("*") if file.is_file()}
    objects = [name.removeprefix("new/") for name in service.names()]
    kept = [name for name in objects if re.search(r"^[q-z]/|process_0/d/", name)]
    for name in kept:
        assert service.content(f"new/{name}") == files[name].read_bytes()
    count = sum(values.nbytes for values in tree.values())
    assert sum(files[name].stat().st_size for name in kept) > 0.7 * count
    assert not [name for name in service.names() if not name.startswith("new/")]


def edited(name, values):
    return np.float32(0.5 if name == "p" else 1) * values


def test_it_is_the_same_bit_for_bit_within_the_memory(bucket, here):
    source = here / "large" / "a file a leaf"
    words = [
        "rescale",
        source,
        f"{bucket.root}/new",
        "p",
        "--by",
        "0.5",
        "--memory",
        "8MiB",
        "--quiet",
    ]
    peaks = []
    for more in (["--dry-run"], []):
        command = [sys.executable, "-c", RUN, *map(str, words), *more]
        environment = {**os.environ, **bucket.environment}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        peaks.append(int(re.findall(r"\d+", done.stderr)[-1]) << 10)
    hold(bucket, source, TREES["large"])
    assert peaks[1] - peaks[0] < 60 * MIB


@pytest.mark.check_all
@pytest.mark.parametrize(
    ("service", "kind", "layout"),
    [
        ("gs", "reset", "a file a leaf"),
        ("gs", "lost", "ocdbt"),
        ("s3", "503", "ocdbt"),
        ("s3", "cut", "a file a leaf"),
    ],
    indirect=["service"],
)
def test_faults_change_no_result(service, here, kind, layout):
    service.faults = Faults(kind, every=6)
    source = here / "small" / layout
    surgery.apply(str(source), f"{service.root}/new", EDIT)
    service.faults = Faults()
    hold(service, source, TREES["small"])
    assert surgery.verify(f"{service.root}/new").agrees


def test_orbax_restores_what_came_from_the_disk(bucket, here):
    surgery.apply(str(here / "small/ocdbt"), f"{bucket.root}/new", EDIT)
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(f"{bucket.root}/new")
    for name, values in TREES["small"].items():
        np.testing.assert_array_equal(restored[name], edited(name, values))
