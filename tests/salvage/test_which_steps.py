"""Which steps a run has: `doctor`, `rescue` by number, of the newest or of the only one, and readers say the same."""

import shutil
from typing import NamedTuple

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization

from tests.cli.conftest import surgery

__all__ = ["surgery"]

TREE = {"params": {"w": np.arange(3000, dtype=np.float32)}, "count": np.int32(3)}
FORMATS, NONE = "several formats", "no step"


class Layout(NamedTuple):
    """What stands in a folder, by name; its steps; what `@latest` is to a rescue, and to readers."""

    things: dict[str, str]
    steps: set[str]
    latest: str
    read: str = "the same"
    """What readers take: the newest that is no remains."""


def orbax(*names):
    return dict.fromkeys(names, "step")


def flax(*numbers, prefix="checkpoint_"):
    return dict.fromkeys((f"{prefix}{number}" for number in numbers), "file")


LAYOUTS = {
    "Orbax": Layout(orbax("9", "10"), {"9", "10"}, "10"),
    "Orbax, padded": Layout(orbax("000009", "000010"), {"000009", "000010"}, "000010"),
    "Orbax, a prefix of its own": Layout(orbax("it_9", "it_10"), {"it_9", "it_10"}, "it_10"),
    "Orbax, the newest lost its tree": Layout(
        orbax("9") | {"10": "remains"}, {"9", "10"}, "10", "9"
    ),
    "Orbax, so under a prefix of its own": Layout(
        orbax("it_9") | {"it_10": "remains"}, {"it_9", "it_10"}, "it_10", "it_9"
    ),
    "Orbax, the newest was killed": Layout(
        orbax("9") | {"10.orbax-checkpoint-tmp-7": "step"},
        {"9", "10.orbax-checkpoint-tmp-7"},
        "9",
    ),
    "Orbax, two formats": Layout(orbax("9", "step_10"), {"9", "step_10"}, FORMATS),
    "Orbax, padded and not": Layout(orbax("0009", "10"), {"0009", "10"}, FORMATS),
    "Orbax, a folder of logs": Layout(orbax("9", "10") | {"logs_2024": "logs"}, {"9", "10"}, "10"),
    "Orbax, an empty folder": Layout(
        orbax("9", "10") | {"11": "empty folder"}, {"9", "10", "11"}, "11", "10"
    ),
    "Orbax, empty folders of others": Layout(
        orbax("9", "10") | {"tensorboard_700": "empty folder"}, {"9", "10"}, "10"
    ),
    "Orbax, files that are no steps": Layout(
        orbax("9", "10") | {"seed_42": "text", "done_10": "empty file"}, {"9", "10"}, "10"
    ),
    "Orbax, of one": Layout(orbax("9") | {"logs_2024": "logs"}, {"9"}, "9"),
    "Orbax, remains of one": Layout({"9": "remains"}, {"9"}, "9", NONE),
    "Flax": Layout(flax(9, 10), {"checkpoint_9", "checkpoint_10"}, "checkpoint_10"),
    "Flax, without a prefix": Layout(flax(9, 10, prefix=""), {"9", "10"}, "10"),
    "Flax, the newest is cut": Layout(
        flax(9) | {"checkpoint_10": "cut"}, {"checkpoint_9", "checkpoint_10"}, "checkpoint_10"
    ),
    "Flax, another network beside it": Layout(
        flax(9) | flax(99, prefix="ema_") | {"checkpoint_10": "cut"},
        {"checkpoint_9", "checkpoint_10", "ema_99"},
        FORMATS,
    ),
    "Flax, an empty file": Layout(
        flax(9) | {"checkpoint_10": "empty file"},
        {"checkpoint_9", "checkpoint_10"},
        "checkpoint_10",
        "checkpoint_9",
    ),
    "Flax, an empty file of a prefix of its own": Layout(
        flax(9, prefix="m_") | {"m_10": "empty file", "done_10": "empty file"},
        {"m_9", "m_10"},
        "m_10",
        "m_9",
    ),
    "Flax, an empty folder": Layout(
        flax(9) | {"checkpoint_10": "empty folder"},
        {"checkpoint_9", "checkpoint_10"},
        "checkpoint_10",
        "checkpoint_9",
    ),
    "Flax, files and folders of others": Layout(
        flax(9, 10) | {"seed_42": "text", "logs_2024": "logs"},
        {"checkpoint_9", "checkpoint_10"},
        "checkpoint_10",
    ),
}


def make(place, kind):
    """Put one thing somewhere."""
    whole = serialization.msgpack_serialize(serialization.to_state_dict(TREE))
    match kind:
        case "step" | "remains":
            with ocp.CheckpointManager(place.parent / "made") as manager:
                manager.save(1, args=ocp.args.StandardSave(TREE))
            shutil.move(place.parent / "made" / "1", place)
            shutil.rmtree(place.parent / "made")
            if kind == "remains":  # its values, in the database of the process that wrote them
                (place / "_CHECKPOINT_METADATA").unlink()
                for name in ("_METADATA", "_sharding", "manifest.ocdbt"):
                    (place / "default" / name).unlink(missing_ok=True)
                shutil.rmtree(place / "default" / "array_metadatas", ignore_errors=True)
        case "logs":
            place.mkdir()
            (place / "events").write_text("x")
        case "empty folder":
            place.mkdir()
        case _:
            content = {"file": whole, "cut": whole[:-9], "text": b"hello", "empty file": b""}[kind]
            place.write_bytes(content)


@pytest.fixture(params=["disk", "gs"])
def where(request):
    return request.param


@pytest.fixture(params=LAYOUTS)
def run(request, where, tmp_path, bucket):
    """The address of a run, and what it is; in a bucket no folder is empty."""
    layout = LAYOUTS[request.param]
    (tmp_path / "run").mkdir()
    for name, kind in layout.things.items():
        make(tmp_path / "run" / name, kind)
    if where == "disk":
        return str(tmp_path / "run"), layout
    bucket.upload(tmp_path / "run", "gs://bkt/run")
    for name, kind in layout.things.items():
        if kind in ("step", "remains") and "tmp" not in name:
            bucket.put("bkt", f"run/{name}/commit_success.txt", b"")
    empty = {name for name, kind in layout.things.items() if kind == "empty folder"}
    if not empty:
        return "gs://bkt/run", layout
    latest = layout.read if layout.latest in empty else layout.latest
    return "gs://bkt/run", layout._replace(steps=layout.steps - empty, latest=latest)


def number(name):
    return int(name.partition(".")[0].rpartition("_")[2])


def is_empty(layout, name):
    return layout.things[name].startswith("empty")


def check_rescued(ended, root, layout, name):
    if is_empty(layout, name):
        assert ended.code == 3
        assert f"nothing is left in '{root}/{name}'" in ended.out
    else:
        assert ended.document["broken"] == f"{root}/{name}"


def test_doctor_lists_the_steps_and_no_others(surgery, run):
    root, layout = run
    rows = surgery("doctor", root, "--settled", "0", "--json").document["places"]
    listed = {row["path"]: row["step"] for row in rows if "step" in row}
    assert listed == {name: number(name) for name in layout.steps}


def test_a_rescue_finds_each_of_them_by_its_number_and_no_others(surgery, run):
    root, layout = run
    for name in layout.steps:
        check_rescued(surgery("rescue", f"{root}@{number(name)}", "--json"), root, layout, name)
    for name in layout.things.keys() - layout.steps:
        if number(name) in map(number, layout.steps):
            continue
        ended = surgery("rescue", f"{root}@{number(name)}")
        assert ended.code == 2
        assert f"{root}@{number(name)}' does not exist" in ended.err


def test_the_newest_is_the_same_to_a_rescue_and_to_readers(surgery, run):
    """Names alone had told a rescue what a step is: of two networks it took the one that had the larger number."""
    root, layout = run
    ended, read = (surgery(name, f"{root}@latest", "--json") for name in ("rescue", "inspect"))
    if layout.latest == FORMATS:
        for one in (ended, read):
            assert one.code == 2
            assert "are named in 2 formats" in one.out
        return
    check_rescued(ended, root, layout, layout.latest)
    expected = layout.latest if layout.read == "the same" else layout.read
    if expected == NONE:
        assert read.code != 0
    elif layout.things[expected] == "cut":
        assert f"'{root}/{expected}'" in read.out
    else:
        assert f"step {number(expected)} (newest finished" in read.document["chosen"]


def test_of_the_only_one_no_number_is_to_be_said(surgery, run):
    root, layout = run
    ended = surgery("rescue", root, "--json")
    if len(layout.steps) == 1:
        check_rescued(ended, root, layout, *layout.steps)
        return
    assert ended.code == 2
    assert f"'{root}' is no one checkpoint" in ended.out
    assert all(f"'{name}'" in ended.out for name in layout.steps)


def test_an_empty_step_is_in_the_way_of_no_other_of_its_number(surgery, tmp_path):
    """What is in it is nothing: it is no second checkpoint that would have to be told from the first."""
    root = tmp_path / "run"
    root.mkdir()
    for name, kind in {"checkpoint_11": "empty folder", "ckpt_11": "file"}.items():
        make(root / name, kind)
    assert surgery("rescue", f"{root}@11", "--json").document["broken"] == f"{root}/ckpt_11"
    assert surgery("inspect", f"{root}@11").code == 0
    assert "too" not in surgery("doctor", root, "--settled", "0").out
    ended = surgery("rescue", root)
    assert ended.code == 2
    assert "'checkpoint_11' and 'ckpt_11' stand there, and 'checkpoint_11' is empty" in ended.err
