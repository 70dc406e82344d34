"""A run takes no more memory beside its start than its preview says, where leaves are stored in one large chunk."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.operations.averaging import Averaging
from surgery_cli.operations.merging import Merging
from surgery_cli.operations.step_means import OverSteps
from surgery_cli.operations.table import operations

MIB = 1 << 20
SHAPE = (2560, 4096)
LEAF = 40 * MIB
"""What a leaf of that shape takes in float32."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``one`` and ``other`` have their leaf in one chunk, ``many`` and ``many3`` (zarr 3) in chunks of 1 MiB.

    ``two``, ``two1`` and ``two2`` have it twice as large, in two chunks; ``matrix`` has 8 MiB.
    """
    folder = tmp_path_factory.mktemp("promised")
    matrix = np.random.default_rng(9).standard_normal((1024, 2048), np.float32)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder / "matrix", {"w": matrix})
    packed = np.random.default_rng(8).standard_normal(SHAPE, np.float32)
    (folder / "packed.msgpack").write_bytes(flax.serialization.to_bytes({"w": packed}))
    kinds = [("one", None), ("many", MIB), ("many3", MIB), ("other", None)]
    kinds += [(f"two{n}", LEAF) for n in ("", 1, 2)]
    for seed, (name, chunk_bytes) in enumerate(kinds):
        shape = (2 * SHAPE[0], SHAPE[1]) if name.startswith("two") else SHAPE
        values = np.random.default_rng(seed).standard_normal(shape, np.float32)
        tree = {"w": jax.numpy.asarray(values), "b": jax.numpy.arange(4.0)}
        chunks = jax.tree.map(lambda _, n=chunk_bytes: ocp.SaveArgs(chunk_byte_size=n), tree)
        handler = ocp.PyTreeCheckpointHandler(use_zarr3=name == "many3")
        with ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(folder / name, args=ocp.args.PyTreeSave(tree, save_args=chunks))
    return folder


RUN = """
import re, sys
from surgery_cli.cli.main import run
try:
    run()
except SystemExit as ended:
    assert not ended.code or sys.argv[1] == "diff"
status = open("/proc/self/status").read()  # what `getrusage` says was the parent's, before the program began
sys.stderr.write(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1])
"""


def _run(folder: Path, words: list[str], memory: str = "1MiB") -> tuple[str, int]:
    """What surgery prints, and the most bytes of memory that its process had."""
    command = [sys.executable, "-c", RUN, *words, "--memory", memory, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout, int(done.stderr.split()[-1]) * 1024


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "words",
    [
        ["rescale", "one", "NEW", "w", "--by", "0.5"],
        ["compact", "one", "NEW"],
        ["average", "many", "NEW", "w", "--with", "one"],
        ["replace", "many3", "NEW", "w", "--with", "one"],
        ["reinit", "one", "NEW", "w", "--init", "lecun_normal"],
        ["resize", "one", "NEW", "w", "--axis", "0", "--size", "2688"],
    ],
    ids=lambda words: words[0],
)
def test_the_peak_is_within_what_was_said(saved: Path, tmp_path: Path, words: list[str]) -> None:
    words = [word.replace("NEW", str(tmp_path / "new")) for word in words]
    preview, base = _run(saved, [*words, "--dry-run"])
    said = [re.search(r"takes about ([0-9.]+) MiB", note) for note in json.loads(preview)["notes"]]
    (promised,) = [float(found[1]) * MIB for found in said if found]
    _, peak = _run(saved, words)
    started = 24 * MIB  # what is loaded only when values are read: codecs, threads and their stacks
    assert 40 * MIB < peak - base < promised + started
    if words[0] == "resize":  # of elements that only move, nothing is computed beside
        assert promised < 200 * MIB


MERGES = [
    ["average"],
    ["breadcrumbs", "--density", "0.5", "--outliers", "0.01"],
    ["breadcrumbs", "--density", "0.5", "--outliers", "0.01", "--consensus", "ties"],
    ["dare", "--density", "0.5"],
    ["dare", "--density", "0.5", "--consensus", "ties"],
    ["interpolate", "--t", "0.3"],
    ["interpolate", "--t", "0.3", "--method", "slerp"],
    ["interpolate", "--t", "0.3", "--method", "nuslerp", "--base", "other"],
    ["karcher"],
    ["model-stock"],
    ["task-arithmetic"],
    ["ties", "--density", "0.5"],
]
"""How each operation is called that merges checkpoints, in each of its ways."""


def _each(merges: list[list[str]], quick: list[str]) -> list[Any]:
    """Each takes seconds: one is enough in `make check`."""
    rest = [pytest.param(one, marks=pytest.mark.check_all) for one in merges if one != quick]
    return [quick, *rest]


def _members(saved: Path, tmp_path: Path, kind: str, count: int) -> list[str]:
    """The options that name so many checkpoints less one, which share their files."""
    words = []
    for number in range(1, count):
        member = tmp_path / f"member{number}"
        shutil.copytree(saved / kind, member, copy_function=os.link)
        words += ["--with", str(member)]
    return words


def test_every_merge_is_tried_in_every_way() -> None:
    ways = set()
    for name, edit in operations().items():
        if issubclass(edit, Merging | Averaging) and not issubclass(edit, OverSteps):
            fields = {one.name: one for one in msgspec.structs.fields(edit)}
            own = fields.get("method") or fields.get("consensus")
            values = msgspec.json.schema(own.type).get("enum", []) if own else [None]
            ways |= {
                (name, None if own is None or own.default == each else each) for each in values
            }
    options = ("--method", "--consensus")
    tried = {
        (name, next((b for a, b in itertools.pairwise(words) if a in options), None))
        for name, *words in MERGES
    }
    assert tried == ways


@pytest.mark.check_all
@pytest.mark.parametrize(
    "merge", _each(MERGES, ["ties", "--density", "0.5"]), ids=lambda words: "-".join(words[::2])
)
def test_a_merge_of_leaves_in_large_chunks_takes_what_may_be_used_and_no_more_than_was_said(
    saved: Path, tmp_path: Path, merge: list[str]
) -> None:
    """The chunk is to the memory as one of 73 MB is to 256 MiB; the leaf has two of them."""
    memory = 140 * MIB
    count = 2 if merge[0] == "interpolate" else 4
    words = [merge[0], "two", str(tmp_path / "new"), "w", *merge[1:]]
    words = [str(saved / "two2") if word == "other" else word for word in words]
    words += _members(saved, tmp_path, "two1", count)
    preview, base = _run(saved, [*words, "--dry-run"], "140MiB")
    done, peak = _run(saved, words, "140MiB")
    said = json.loads(preview)
    takes = [re.search(r"takes about ([0-9.]+) MiB", note) for note in said["notes"]]
    promised = max([memory, *(float(found[1]) * MIB for found in takes if found)])
    started = 24 * MIB
    assert peak - base < promised + started
    assert peak - base < memory + 200_000_000
    at_most = said.get("bytes_read_at_most", said["bytes_read"])
    assert said["bytes_read"] <= json.loads(done)["bytes_read"] <= at_most


MANY = [words for words in MERGES if words[0] != "interpolate" and "--consensus" not in words]


@pytest.mark.check_all
@pytest.mark.parametrize("merge", _each(MANY, ["average"]), ids=lambda words: words[0])
def test_the_peak_of_a_merge_of_twenty_is_within_what_was_said_which_grows_little_with_the_members(
    saved: Path, tmp_path: Path, merge: list[str]
) -> None:
    words = [merge[0], "one", str(tmp_path / "new"), "w", *merge[1:]]
    words += _members(saved, tmp_path, "other", 20)
    preview, base = _run(saved, [*words, "--dry-run"])
    (note,) = json.loads(preview)["notes"][-1:]
    found = re.search(r"takes about ([0-9.]+) MiB", note)
    assert found is not None, note
    promised = float(found[1]) * MIB
    _, peak = _run(saved, words)
    assert peak - base < promised + 24 * MIB
    assert promised < 12 * LEAF  # the members alone are twenty


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        ["reinit", "matrix", "NEW", "w", "--init", "orthogonal"],
        ["normalize", "matrix", "NEW", "w", "--norm", "spectral"],
    ],
    ids=lambda words: words[-1],
)
def test_the_peak_of_an_edit_that_needs_the_whole_leaf_is_near_what_was_said(
    saved: Path, tmp_path: Path, words: list[str]
) -> None:
    words = [word.replace("NEW", str(tmp_path / "new")) for word in words]
    preview, base = _run(saved, [*words, "--dry-run"])
    (note,) = [note for note in json.loads(preview)["notes"] if "needs the whole leaf" in note]
    found = re.search(r"takes about ([0-9.]+) MiB", note)
    assert found is not None
    promised = float(found[1]) * MIB
    _, peak = _run(saved, words)
    started = 32 * MIB  # as above, and a second store that reads back
    assert 0.6 * promised < peak - base < promised + started


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "many", "--stats", "--digests"],
        ["verify", "many3"],
        ["seal", "many", "--to", "NEW"],
        ["diff", "many", "many3"],
    ],
    ids=lambda words: words[0],
)
def test_what_only_looks_takes_no_more_than_it_may(
    saved: Path, tmp_path: Path, words: list[str]
) -> None:
    words = [word.replace("NEW", str(tmp_path / "seal.json")) for word in words]
    _, base = _run(saved, ["inspect", "many"], "1MiB")
    _, peak = _run(saved, words, "40MiB")
    started = 48 * MIB  # as above, of codecs for both sides and for as many threads as work at once
    assert peak - base < 40 * MIB + started


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "words", [["verify"], ["inspect", "--stats"], ["seal", "--anew", "--to", "NEW"]], ids=" ".join
)
def test_of_parts_of_a_large_chunk_none_stays_while_the_next_is_read(
    tmp_path: Path, words: list[str]
) -> None:
    """Of 95 MiB each, which take three parts; the last is small enough for the heap to keep what is freed."""
    drawn = np.random.default_rng(3)
    tree = {name: drawn.standard_normal((2500, 10000), np.float32) for name in "ab"}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "large", jax.tree.map(jax.numpy.asarray, tree))
    _run(tmp_path, ["seal", "large"])
    words = [words[0], "large", *words[1:]]
    words = [word.replace("NEW", str(tmp_path / "seal.json")) for word in words]
    _, base = _run(tmp_path, ["inspect", "large"])
    _, peak = _run(tmp_path, words, "256MiB")
    assert peak - base < 256 * MIB


def test_a_leaf_that_comes_along_in_a_file_is_not_held_whole(saved: Path, tmp_path: Path) -> None:
    words = ["compact", "packed.msgpack", str(tmp_path / "new.msgpack")]
    _, base = _run(saved, [*words, "--dry-run"])
    _, peak = _run(saved, words, "40MiB")
    assert (tmp_path / "new.msgpack").read_bytes() == (saved / "packed.msgpack").read_bytes()
    assert peak - base < 40 * MIB + 40 * MIB  # it had been four times the leaf
