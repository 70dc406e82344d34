"""What is on disk may be odd, forbidden or gone, and memory short: an error of its kind, never a bug of ours."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import flax.serialization
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.numpy

from surgery_cli import surgery as use_cases
from surgery_cli.cli import signals
from surgery_cli.errors import CheckpointError, SurgeryError
from surgery_cli.planning import operation_from_options, plan_of

TREE = {"w": jnp.arange(12.0).reshape(3, 4), "l": [np.ones(2, np.float32)]}
DOUBLE = plan_of([operation_from_options("rescale", {"at": "**", "by": "2"})])


def _pytree(**settings):
    def make(path):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**settings)) as checkpointer:
            checkpointer.save(path, args=ocp.args.PyTreeSave(TREE))

    return make


def _root(path):
    with ocp.CheckpointManager(path) as manager:
        items = {"state": ocp.args.StandardSave(TREE), "config": ocp.args.JsonSave({"a": 1})}
        manager.save(3, args=ocp.args.Composite(**items), metrics={"loss": 1.0})
        manager.wait_until_finished()
    use_cases.apply(str(path), f"{path}-edited", DOUBLE)
    shutil.rmtree(path)
    Path(f"{path}-edited").rename(path)  # with a record


def _msgpack(path):
    path.write_bytes(flax.serialization.msgpack_serialize({"w": np.asarray(TREE["w"])}))


def _safetensors(path):
    path.mkdir()
    safetensors.numpy.save_file({"w": np.asarray(TREE["w"])}, path / "model.safetensors")


KINDS = {
    "ocdbt": _pytree(use_ocdbt=True, use_zarr3=False),
    "ocdbt3": _pytree(use_ocdbt=True, use_zarr3=True),
    "leaves": _pytree(use_ocdbt=False, use_zarr3=False),
    "leaves3": _pytree(use_ocdbt=False, use_zarr3=True),
    "root": _root,
    "msgpack": _msgpack,
    "safetensors": _safetensors,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One checkpoint of each kind, never written to."""
    place = tmp_path_factory.mktemp("whole")
    for name, make in KINDS.items():
        make(place / name)
    return place


def _copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


def _remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


ODD = [
    "|O", "<f999", "", None, -1, 0, 2**63, 2**70, 1.5, [], {}, [[]], "\0", "..", "/abs", True,
    "9" * 5000, [2**40, 2**40], ["x"], {"a": 1}, "bfloat16", "zstd", [-1],
]  # fmt: skip
WHOLE = [
    b"", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"{}", b"[]", b"null", b'"x"', b"\0" * 99,
]  # fmt: skip


def _places(document, place=()):
    yield place
    if isinstance(document, dict | list):
        inner = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in list(inner)[:20]:
            yield from _places(value, (*place, key))


def _mutated_json(document, chance):
    place = chance.choice(list(_places(document)))
    if not place:
        return chance.choice(ODD)
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    if chance.random() < 0.25:
        del holder[place[-1]]
    else:
        holder[place[-1]] = chance.choice(ODD)
    return document


def _mutated(raw, chance):
    way = chance.randrange(10)
    if way < 6:
        try:
            return json.dumps(_mutated_json(json.loads(raw), chance)).encode()
        except ValueError:
            pass
    if way == 6:
        return raw[: chance.randrange(len(raw) + 1)]
    if way == 7:
        at = chance.randrange(len(raw) + 1)
        return raw[:at] + bytes([chance.choice([0xFF, 0x80, 0, 0xC3])]) + raw[at:]
    if way == 8:
        return chance.choice(WHOLE)
    changed = bytearray(raw)
    for _ in range(chance.randrange(1, 5)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _used(path, new):
    """Whatever reads metadata: SurgeryErrors are what is asked for, everything else would be exit code 70."""
    for act in (
        lambda: use_cases.inspect(str(path), optimizer=True),
        lambda: use_cases.verify(str(path)),
        lambda: use_cases.apply(str(path), str(new), DOUBLE),
    ):
        with contextlib.suppress(SurgeryError):
            act()
    _remove(new)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_no_metadata_is_so_odd_that_it_is_a_bug_or_takes_long(kind, whole, tmp_path):
    """A larger run of the same is a loop around this test with other seeds."""

    def late(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    try:
        for number in range(12):
            chance = random.Random(f"{kind} {number}")
            case = _copy(whole / kind, tmp_path / "case")
            files = [p for p in sorted(case.rglob("*")) if p.is_file()] or [case]
            file = chance.choice(files)
            content = _mutated(file.read_bytes(), chance)
            file.unlink()  # never through a link
            file.write_bytes(content)
            signal.alarm(120)
            _used(case, tmp_path / "new")
            signal.alarm(0)
            _remove(case)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("content", WHOLE, ids=range(len(WHOLE)))
@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("leaves", "w/.zarray"),
        ("leaves3", "w/zarr.json"),
        ("ocdbt", "_METADATA"),
        ("ocdbt", "_sharding"),
        ("ocdbt", "_CHECKPOINT_METADATA"),
        ("ocdbt", "array_metadatas/process_0"),
        ("ocdbt", "manifest.ocdbt"),
        ("root", "3/_CHECKPOINT_METADATA"),
        ("root", "3/surgery.json"),
        ("safetensors", "model.safetensors"),
        ("msgpack", ""),
    ],
)
def test_every_metadata_file_may_hold_anything(kind, file, content, whole, tmp_path):
    case = _copy(whole / kind, tmp_path / "case")
    (case / file if file else case).write_bytes(content)
    _used(case, tmp_path / "new")


@pytest.mark.parametrize("dtype", ["|O", "<f999", "<U4", "|V7", 7, None])
def test_a_dtype_that_is_none_names_the_array(dtype, whole, tmp_path):
    case = _copy(whole / "leaves", tmp_path / "case")
    document = json.loads((case / "w" / ".zarray").read_text())
    (case / "w" / ".zarray").write_text(json.dumps(document | {"dtype": dtype}))
    with pytest.raises(CheckpointError):
        use_cases.inspect(str(case))


watched: list[Path] = []
"""What is removed when so many more files below it have been opened."""
left: list[int] = [0]


def _take_away(event, arguments):
    if not watched or event not in ("open", "os.scandir", "os.listdir"):
        return
    if str(arguments[0]).startswith(str(watched[0])):
        left[0] -= 1
        if left[0] <= 0:
            gone = watched.pop()
            gone.rename(gone.with_name("moved"))


sys.addaudithook(_take_away)


@pytest.mark.parametrize("kind", ["ocdbt", "leaves", "root", "msgpack"])
def test_a_source_that_vanishes_while_it_is_read_is_an_error_of_the_checkpoint(
    kind, whole, tmp_path, surgery
):
    for moment in range(1, 40, 5):
        case = _copy(whole / kind, tmp_path / "case")
        watched[:], left[0] = [case], moment
        ended = surgery("rescale", case, tmp_path / "new", "**", "--by", "2", "-q")
        is_gone = not watched
        watched.clear()
        assert ended.code in ((2, 3) if is_gone else (0,)), (moment, ended.err)
        assert "bug" not in ended.err
        if is_gone:
            assert not (tmp_path / "new").exists()
            assert list(tmp_path.glob(".*")) == []
        else:
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
            (tmp_path / "new").unlink(missing_ok=True)
            (tmp_path / ".new.surgery.json").unlink(missing_ok=True)
        _remove(case if case.exists() else tmp_path / "moved")


AS_NOBODY = """
import os, sys
import ml_dtypes, tensorstore
from surgery_cli.cli.main import run

def ended(source, new):
    try: run(["rescale", source, new, "**", "--by", "2", "-q"])
    except SystemExit as end: return int(end.code or 0)

place, *names = sys.argv[1:]
# everything is loaded by now, and TensorStore has no threads yet, with which nothing can be forked
assert ended(f"{place}/whole", f"{place}/warm") == 0
for name in names:
    child = os.fork()
    if child == 0:
        sys.stderr = open(f"{place}/{name}.err", "w")
        if os.geteuid() == 0:
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
        code = ended(f"{place}/{name}", f"{place}/{name}-new")
        sys.stderr.flush()
        os._exit(code)
    with open(f"{place}/{name}.code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
"""Runs the same command on each of the checkpoints, without the rights of root."""


@pytest.mark.parametrize("kind", ["ocdbt", "leaves", "msgpack"])
def test_a_file_without_permission_is_named(kind, whole):
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        _copy(whole / "msgpack", place / "whole")
        files = [p for p in sorted((whole / kind).rglob("*")) if p.is_file()] or [whole / kind]
        shut = {f"case{number}": file for number, file in enumerate(files)}
        for case, file in shut.items():
            _copy(whole / kind, place / case)
            (place / case / file.relative_to(whole / kind)).chmod(0)
        command = [sys.executable, "-c", AS_NOBODY, place, *shut]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for case, file in shut.items():
            code, said = (
                int((place / f"{case}.code").read_text()),
                (place / f"{case}.err").read_text(),
            )
            assert code in (0, 3), (file, said)
            assert "bug" not in said
            # what nothing refers to is not read
            assert code == 0 or case in said


@pytest.mark.parametrize("limit", [100_000, 250_000, 350_000])
def test_too_little_memory_to_load_the_libraries_is_said(limit, checkpoint):
    command = f"ulimit -v {limit}; exec {sys.executable} -m surgery_cli inspect {checkpoint}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: `ulimit -v {limit}` is not enough to load")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("/x/_tensorstore.so: failed to map segment from shared object"),
    ],
)
def test_memory_that_is_not_there_is_no_bug(error, surgery, checkpoint, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(use_cases, "inspect", fail)
    ended = surgery("inspect", checkpoint)
    assert (ended.code, ended.err.splitlines()[0]) == (2, "error: there is not enough memory")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_an_import_turns_into_an_error_is_still_the_signal(
    number, surgery, checkpoint, monkeypatch
):
    def loading(*_, **__):
        try:
            os.kill(os.getpid(), number)
        except (KeyboardInterrupt, signals.Terminated):
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(use_cases, "inspect", loading)
    ended = surgery("inspect", checkpoint)
    assert ended.code == 128 + number
    assert "bug" not in ended.err
