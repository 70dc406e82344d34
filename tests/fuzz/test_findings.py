"""What fuzzing found: each case stays mended."""

import json
import shutil
import struct
import time
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import tensorstore as ts

from surgery_cli import surgery as use_cases
from surgery_cli.errors import CheckpointError, PlanError, SurgeryError
from surgery_cli.operations.order_files import order_in
from surgery_cli.planning import plan_from_document
from surgery_cli.planning.plan_files import parse
from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath, PathPattern
from tests.fuzz.readers import leaves_of, resealed
from tests.fuzz.seeds import SAMPLES
from tests.store.test_torch_file import TORCH


def test_packed_arrays_without_axes_stay_without(tmp_path):
    np.savez_compressed(tmp_path / "m.npz", a=np.array(True), b=np.float32(2.5))
    read = leaves_of(tmp_path / "m.npz")
    assert {name: value.shape for name, value in read.items()} == {"a": (), "b": ()}
    (path,) = (path for path in ArrayFile(str(tmp_path / "m.npz")).tree if path == LeafPath(("b",)))
    assert ArrayFile(str(tmp_path / "m.npz")).read(path).shape == ()


def test_keys_that_are_no_utf8_belong_to_nobody(tmp_path):
    place = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "run")
    before = leaves_of(place)
    database = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{place}/"}).result()
    database[b"\xff\xfe/.zarray"] = database["opt_state.0.count/.zarray"]
    database[b"\xff\xfe/0"] = database["opt_state.0.count/0"]

    after = leaves_of(place)
    assert list(after) == list(before)
    (place / "_METADATA").unlink()
    with pytest.raises(CheckpointError, match="which is not UTF-8"):
        _ = open_checkpoint(str(place)).tree


def test_braces_that_are_nested_without_end_are_refused_at_once():
    with pytest.raises(PlanError, match="nested too deeply"):
        PathPattern("{a," * 2_000 + "}" * 2_000)


@pytest.mark.parametrize(
    "text",
    ["a{99999999999}", f"a{{{'9' * 4301}}}", "(?a)(?u)x", "(?L)x", "(?(99999999999)a|b)", "[", "(" * 8000 + ")" * 8000],
    ids=lambda text: text[:14],
)  # fmt: skip
def test_whatever_python_finds_wrong_with_a_regular_expression_is_said_of_the_pattern(text):
    """Some of it are errors of other types: OverflowError, ValueError, RecursionError."""
    with pytest.raises(PlanError, match="is not a valid pattern"):
        PathPattern(f"re:{text}")


def test_nobody_is_warned_of_what_regular_expressions_may_mean_one_day():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PathPattern("re:[[a]b").match(LeafPath(("ab",)))
        assert PathPattern("re:(a)(?(0_1)b)").match(LeafPath(("ab",)))


def test_what_is_left_of_names_with_control_characters_is_told(tmp_path):
    """A `_METADATA` that does not read, with a name in it that does not either."""
    place = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "run")
    content = (place / "_METADATA").read_text()
    broken = content.replace("('opt_state'", "('opt\x0f_state'", 1)[:-2]
    (place / "_METADATA").write_text(broken)
    with pytest.raises(CheckpointError):
        use_cases.inspect(str(place))
    assert use_cases.rescue(str(place)).whole == 28


@pytest.mark.parametrize("at", ["params/Dense_{0..9007199254740993}", "params/Dense_*"])
def test_series_of_numbers_far_apart_are_counted_before_they_are_written_out(tmp_path, at):
    source = SAMPLES / "digits_standard"
    moved = plan_from_document(
        {"edits": [{"op": "rename", "at": "params/Dense_1", "to": "params/Dense_9007199254740993"}]}
    )
    use_cases.apply(str(source), str(tmp_path / "far"), moved)
    stack = plan_from_document({"edits": [{"op": "stack", "at": f"{at}/bias", "to": "params/all"}]})
    with pytest.raises(PlanError, match="leaves are read at most"):
        use_cases.plan(str(tmp_path / "far"), stack)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verified", 0.5),
        ("history", [{"draft": []}]),
        ("inverse", {"edits": [], "sources": 7}),
        ("inverse", {"edits": [], "sources": {"source": {}}}),
        ("inverse", {"sources": {"source": "gone"}}),
        *[
            ("inverse", {"edits": [{"at": at, "with": "source"}], "sources": {"source": "gone"}})
            for at in (7, None, {"a": 1}, ["w", 7])
        ],
    ],
)
def test_records_with_other_things_in_them_are_refused(tmp_path, field, value):
    """Their own digest is good: somebody wrote them so."""
    made = tmp_path / "made"
    edit = {"op": "rescale", "at": "params/Dense_1/kernel", "by": 0.5}
    use_cases.apply(
        str(SAMPLES / "digits_standard"), str(made), plan_from_document({"edits": [edit]})
    )
    record = json.loads((made / "surgery.json").read_text()) | {field: value}
    (made / "surgery.json").write_bytes(resealed(json.dumps(record, indent=1).encode()))
    for ask in (use_cases.log, use_cases.inverse, use_cases.verify):
        with suppress(SurgeryError):
            ask(str(made))
    with pytest.raises(CheckpointError, match="cannot be understood"):
        use_cases.inverse(str(made)) if field == "inverse" else use_cases.log(str(made))


def test_a_share_that_is_missing_where_nothing_is_named_is_no_bug():
    plan = plan_from_document({"edits": [{"op": "prune", "at": "params/nothing"}]})
    with pytest.raises(PlanError, match="takes a share or a pattern"):
        use_cases.plan(str(SAMPLES / "digits_standard"), plan)


def test_brackets_that_stay_open_are_counted_before_yaml_is_read(tmp_path):
    began = time.process_time()
    with pytest.raises(PlanError, match="brackets are open at once"):
        parse("a: " + "[" * 20_000, "YAML", "p.yaml")
    assert time.process_time() - began < 5
    escapes = "edits: [" + ", ".join(['"a/[[]x]"'] * 900) + "]"
    assert len(parse(escapes, "YAML", "p.yaml").value["edits"]) == 900


@pytest.mark.parametrize(
    "content",
    [
        b"\x93NUMPY",
        b"\x93NUMPY\x01",
        b"\x93NUMPY\x01\x00\x04\x00\0\0\0\0",
        b"\x93NUMPY\x01\x00\x0c\x00{'descr': 7} ",
        b"\x93NUMPY\x01\x00\x10\x00{'shape': (3,)} ",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"(" * 50,
        b"\x93NUMPY\x01\x00\xff\x0f" + b"[" * 4095,
    ],
)
def test_files_that_only_begin_like_an_order_are_none(tmp_path, content):
    with pytest.raises(PlanError, match="holds no order"):
        order_in("order.npy", lambda _: content)


@pytest.mark.parametrize("other", [{"kind": "none"}, 7, None, ["text"]], ids=str)
def test_a_sharding_that_is_no_text_is_none(tmp_path, other):
    place = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "odd")
    file = place / "_sharding"
    shardings = json.loads(file.read_text())
    file.write_text(json.dumps(dict.fromkeys(shardings, other)))
    tree = open_checkpoint(str(place)).tree
    assert [*tree] == [*open_checkpoint(str(SAMPLES / "digits_standard")).tree]
    assert {spec.sharding for spec in tree.values()} == {None}


def _with_entries_at(content, offset):
    """A zip archive whose list says of every entry that it begins there, in the eight bytes that zip64 has for it."""
    end = content.rfind(b"PK\x05\x06")
    (at,) = struct.unpack("<I", content[end + 16 : end + 20])
    start, made = at, b""
    while content[at : at + 4] == b"PK\x01\x02":
        name, extra, comment = struct.unpack("<HHH", content[at + 28 : at + 34])
        head = bytearray(content[at : at + 46 + name])
        head[30:34], head[42:46] = struct.pack("<HH", 12, 0), b"\xff" * 4
        made += bytes(head) + struct.pack("<HHQ", 1, 8, offset)
        at += 46 + name + extra + comment
    tail = bytearray(content[end:])
    tail[12:16] = struct.pack("<I", len(made))
    return content[:start] + made + tail


@pytest.mark.parametrize("offset", [10**6, 1 << 61, (1 << 63) - 40, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("name", ["state.pt", "plain.npz", "packed.npz"])
def test_entries_of_archives_that_lie_where_no_file_reaches_are_damage(tmp_path, name, offset):
    place = tmp_path / name
    if name == "state.pt":
        shutil.copyfile(TORCH / name, place)
    else:
        save = np.savez if name == "plain.npz" else np.savez_compressed
        save(place, a=np.arange(5.0), b=np.ones((2, 3)))
    place.write_bytes(_with_entries_at(place.read_bytes(), offset))
    with pytest.raises(CheckpointError) as refused:
        leaves_of(place)
    assert "permissions" not in str(refused.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_entries_whose_name_is_damaged_in_the_list_alone_are_not_left_out(tmp_path, save):
    """NumPy refuses such an array, and takes one that was no array for what it is."""
    save(tmp_path / "m.npz", a=np.arange(5.0), b=np.ones((2, 3)))
    content = (tmp_path / "m.npz").read_bytes()
    at = content.rfind(b"b.npy")
    (tmp_path / "m.npz").write_bytes(content[:at] + b"b.nqy" + content[at + 5 :])
    with np.load(tmp_path / "m.npz") as found, pytest.raises(zipfile.BadZipFile):
        _ = found["b.nqy"]
    with pytest.raises(CheckpointError, match="differ"):
        leaves_of(tmp_path / "m.npz")


@pytest.mark.parametrize("start", [-(1 << 70), -1, 1 << 61, 1 << 70])
def test_places_that_no_file_has_hold_no_bytes(tmp_path, start):
    """Places are computed from what files say, and may come out below 0, too."""
    place = tmp_path / "file"
    place.write_bytes(b"bytes")
    assert filesystem.read(place, start, 3) == b""
