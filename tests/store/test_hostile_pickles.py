"""Pickles that would run code, or ask for more than there is, in PyTorch files: nothing of them ever runs."""

import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgery_cli.errors import CheckpointError
from surgery_cli.store.files.torch_file import TorchFile
from tests.fixture_truths import FIXTURES

STATE = (FIXTURES / "torch" / "state.pt").read_bytes()
TRAINING = (FIXTURES / "torch" / "training.pt").read_bytes()


def archive(content: bytes, **entries: bytes) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as made:
        made.writestr("archive/data.pkl", content)
        for name, inside in {"version": b"3", **entries}.items():
            made.writestr(f"archive/{name.replace('_', '/')}", inside)
    return body.getvalue()


def pickle_of(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as made:
        return next(made.read(name) for name in made.namelist() if name.endswith("data.pkl"))


def read_all(path: Path) -> None:
    file = TorchFile(path)
    for leaf in file.tree:
        file.read(leaf)


def refusal(folder: Path, content: bytes) -> str:
    (folder / "m.pt").write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        _ = TorchFile(folder / "m.pt").tree
    assert refused.value.exit_code == 3
    return str(refused.value)


def touching(call: str, mark: Path) -> dict[str, bytes]:
    """Pickles that make a file, or would, by every way that pickles have to run code."""
    text = str(mark).encode()
    unicode = b"X" + struct.pack("<I", len(text)) + text
    module, name = call.encode().rsplit(b".", 1)
    function = b"c" + module + b"\n" + name + b"\n"
    short = b"\x8c" + bytes([len(module)]) + module + b"\x8c" + bytes([len(name)]) + name
    return {
        "REDUCE": b"\x80\x02" + function + unicode + b"\x85R.",
        "REDUCE in a dict": b"\x80\x02}X\x01\x00\x00\x00w" + function + unicode + b"\x85Rs.",
        "REDUCE, then dropped": b"\x80\x02" + function + unicode + b"\x85R0}.",
        "STACK_GLOBAL": b"\x80\x04" + short + b"\x93" + unicode + b"\x85R.",
        "INST": b"(" + unicode + b"i" + module + b"\n" + name + b"\n.",
        "OBJ": b"(" + function + unicode + b"o.",
        "NEWOBJ": b"\x80\x02" + function + unicode + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04" + function + unicode + b"\x85}\x92.",
        "BUILD": b"\x80\x02" + function + b"}" + unicode + unicode + b"sb.",
        "persistent id": b"\x80\x02" + function + unicode + b"\x85RQ.",
        "by a record": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n"
        + (b"(" + function + function + unicode + b"\x85}tR."),
        "in a default": b"\x80\x02ccollections\ndefaultdict\n"
        + function
        + unicode
        + b"\x85R\x85R.",
        "EXT1": b"\x80\x02\x82\x01" + unicode + b"\x85R.",
        "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    }


@pytest.mark.parametrize("call", ["os.system", "builtins.open", "builtins.eval", "torch.load"])
def test_no_way_to_run_code_runs_any(tmp_path: Path, call: str) -> None:
    mark = tmp_path / "mark"
    for way, content in touching(call, mark).items():
        said = refusal(tmp_path, archive(content))
        if not way.startswith(("EXT", "OBJ", "NEWOBJ_EX")):
            assert f"`{call}`" in said, way
            assert "tensor record" in said
        assert not mark.exists(), way


class _Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_class_whose_pickle_makes_a_folder_makes_none(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"w": [_Bomb(tmp_path / "mark")]}, protocol=protocol)
    said = refusal(tmp_path, archive(content))
    assert "mkdir` is not a tensor record" in said or protocol == 0
    assert not (tmp_path / "mark").exists()
    pickle.loads(content)
    assert (tmp_path / "mark").exists()


def _nested(count: int, opener: bytes, closer: bytes) -> bytes:
    return b"\x80\x02" + opener * count + closer * count + b"."


def _tensor(shape: str = "K\x02\x85", stride: str = "K\x01\x85", offset: str = "K\x00") -> bytes:
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x02tQ"
        + (offset + shape + stride).encode("latin1")
        + b"\x89}tR."
    )


def _numpy(
    dtype: bytes, shape: bytes, order: bytes = b"X\x01\x00\x00\x00C", raw: bytes = b""
) -> bytes:
    """A NumPy array as protocol 5 has it; ``shape`` and ``order`` are opcodes."""
    return (
        b"\x80\x05}X\x01\x00\x00\x00acnumpy._core.numeric\n_frombuffer\n(\x96"
        + struct.pack("<Q", len(raw))
        + raw
        + b"cnumpy\ndtype\n(X"
        + struct.pack("<I", len(dtype))
        + dtype
        + b"\x89\x88tR(K\x03X\x01\x00\x00\x00<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + shape
        + order
        + b"tRs."
    )


LONG = "\x8a\x08" + "\xff" * 7 + "\x0f"
HOSTILE = {
    "deep lists": _nested(50_000, b"]", b"a"),
    "deep tuples": b"\x80\x02)" + b"\x85" * 50_000 + b".",
    "an escape that Python warns of": b"S'\\e'\n.",
    "an escape that Python warns of, in Unicode": b"V\\ud8\n.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "a wide list in itself": b"\x80\x02]q\x00(" + b"h\x00" * 50_000 + b"e.",
    "lists that double": b"\x80\x02]q\x00" + b"0](h\x00h\x00eq\x00" * 100 + b".",
    "dicts that double": b"\x80\x02}q\x00" + b"0}(K\x01h\x00K\x02h\x00uq\x00" * 100 + b".",
    "a far place of the memo": b"\x80\x02}r\xff\xff\xff\x7f0j\xff\xff\xff\x7e.",
    "a text of four gigabytes": b"\x80\x02X\xff\xff\xff\xffabc",
    "bytes of exabytes": b"\x80\x04\x8e" + b"\xff" * 8 + b"abc",
    "a frame of exabytes": b"\x80\x04\x95" + b"\xff" * 8 + b"}.",
    "a huge number": b"\x80\x02}X\x01\x00\x00\x00n\x8b"
    + struct.pack("<i", 50_000)
    + b"\x7f" * 50_000
    + b"s.",
    "a number of text": b"I" + b"9" * 100_000 + b"\n.",
    "a tuple as a key": b"\x80\x02}))s.",
    "a list as a key": b"\x80\x02}])s.",
    "keys that print alike": b"\x80\x02}(K\x01K\x01X\x01\x00\x00\x001K\x02u.",
    "nothing": b"",
    "an empty dict": b"\x80\x02}.",
    "no end": b"\x80\x02}",
    "more taken than put": b"\x80\x020000.",
    "a mark that is missing": b"\x80\x02e.",
    "a state of a list": b"\x80\x02]}b.",
    "a state of a dict": b"\x80\x02}}X\x01\x00\x00\x00aK\x01sb.",
    "a tensor beyond its storage": _tensor("K\x03\x85"),
    "a tensor before its storage": _tensor(offset="J\xff\xff\xff\xff"),
    "a negative stride": _tensor(stride="J\xff\xff\xff\xff\x85"),
    "a huge shape": _tensor(LONG + LONG + "\x86", "K\x00K\x00\x86"),
    "a huge stride": _tensor(stride=LONG + "\x85"),
    "a shape of text": _tensor("X\x01\x00\x00\x00a\x85"),
    "more strides than axes": _tensor(stride="K\x01K\x01\x86"),
    "a storage that is not there": _tensor().replace(b"\x00\x00\x000X\x03", b"\x00\x00\x001X\x03"),
    "a storage above": _tensor().replace(
        b"X\x01\x00\x00\x000X", b"X\x0d\x00\x00\x00../../version0X"
    ),
    "bytes of a number": b"\x80\x02cbuiltins\nbytes\nK\x05\x85R.",
    "an array of more than there is": _numpy(b"f4", b"K\x02\x85", raw=bytes(4)),
    "an array of floats of three bytes": _numpy(b"f3", b"K\x00\x85"),
    "an empty array of exabytes": _numpy(
        b"f4", b"(" + (LONG + "K\x00" + LONG).encode("latin1") + b"t"
    ),
    "an array of a negative length": _numpy(b"f4", b"J\xff\xff\xff\xff\x85"),
    "an array of an unknown order": _numpy(b"f4", b"K\x01\x85", b"X\x01\x00\x00\x00Z", bytes(4)),
    "an array of axes that are not there": _numpy(
        b"f4", b"K\x01\x85", b"X\x01\x00\x00\x00KK\x01\x85", bytes(4)
    ),
    "an array of texts": _numpy(b"U1", b"K\x01\x85", raw=bytes(4)),
    "an array of dates": _numpy(b"M8", b"K\x01\x85", raw=bytes(8)),
    "an array of objects": _numpy(b"O8", b"K\x01\x85", raw=bytes(8)),
    "an array of long doubles": _numpy(b"f16", b"K\x01\x85", raw=bytes(16)),
    "conjugated": _tensor().replace(b"}tR", b"}}X\x04\x00\x00\x00conj\x88stR"),
}


NO_LEAVES = (
    *("a huge number", "a tuple as a key", "a list as a key", "keys that print alike"),
    *("a state of a dict", "conjugated"),
    *(f"an array of {what}" for what in ("texts", "dates", "objects", "long doubles")),
)
"""What a whole file may say, and no tree can hold."""


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_checkpoint_is_refused_in_bounded_time_and_memory(
    tmp_path: Path, what: str
) -> None:
    said = refusal(tmp_path, archive(HOSTILE[what], data_0=bytes(8)))
    is_plain = what not in NO_LEAVES
    assert ("is not a whole PyTorch checkpoint" in said) == is_plain
    assert ("holds something that is no leaf" in said) != is_plain
    assert len(said) < 1000


def test_the_worst_of_them_take_little_memory(tmp_path: Path) -> None:
    """In a process of its own, whose memory is bounded by the system."""
    script = (
        "import resource, sys, pathlib\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, 1 << 29))\n"
        "from surgery_cli.errors import CheckpointError\n"
        "from surgery_cli.store.files.torch_file import TorchFile\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        TorchFile(pathlib.Path(name)).tree\n"
        "    except CheckpointError:\n"
        "        print('refused')\n"
    )
    files = []
    for number, content in enumerate(HOSTILE.values()):
        files.append(tmp_path / f"{number}.pt")
        files[-1].write_bytes(archive(content, data_0=bytes(8)))
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["refused"] * len(files), done.stderr


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.sampled_from([pickle_of(STATE), pickle_of(TRAINING)]),
    cut=st.floats(0, 1),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=4),
)
def test_cut_and_flipped_pickles_give_a_checkpoint_error_or_a_tree(
    tmp_path: Path, content: bytes, cut: float, flips: list[tuple[float, int]]
) -> None:
    changed = bytearray(content)
    for at, mask in flips:
        changed[int(at * (len(changed) - 1))] ^= mask
    storages = {f"data_{n}": bytes(5056) for n in range(40)}
    whole = archive(
        bytes(changed) if cut > 0.5 else bytes(changed[: int(cut * len(changed))]), **storages
    )
    (tmp_path / "m.pt").write_bytes(whole)
    with suppress(CheckpointError):
        read_all(tmp_path / "m.pt")


def test_flipped_and_cut_archives_give_a_checkpoint_error_or_a_tree(tmp_path: Path) -> None:
    source = random.Random(0)
    for _ in range(150):
        changed = bytearray(STATE[: source.choice([len(STATE), source.randrange(len(STATE))])])
        for _ in range(source.randrange(4)):
            changed[source.randrange(len(changed))] ^= source.randrange(1, 256)
        (tmp_path / "m.pt").write_bytes(changed)
        with suppress(CheckpointError):
            read_all(tmp_path / "m.pt")


def test_an_entry_that_stands_twice_or_claims_more_than_there_is_is_refused(tmp_path: Path) -> None:
    body = io.BytesIO(archive(_tensor(), data_0=bytes(8)))
    with zipfile.ZipFile(body, "a") as made, pytest.warns(UserWarning, match="Duplicate name"):
        made.writestr("archive/data/0", b"12345678")
    assert "stands twice" in refusal(tmp_path, body.getvalue())
    whole = archive(_tensor(), data_0=bytes(8))
    at = whole.rindex(b"PK\x01\x02", 0, whole.index(b"archive/data/0", whole.index(b"PK\x01\x02")))
    for size in (4, 7, 9, 1 << 31):
        lying = bytearray(whole)
        lying[at + 20 : at + 28] = struct.pack("<II", size, size)
        (tmp_path / "m.pt").write_bytes(lying)
        with pytest.raises(CheckpointError):
            read_all(tmp_path / "m.pt")
