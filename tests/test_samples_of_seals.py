"""A sample reads what it says, proves no more, and all turns together prove everything, each part once."""

import hashlib
import json
import shutil
from collections import Counter
from itertools import product

import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.proof.surgery_json import Record, encoded
from surgery_cli.settings.sample import sample_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.surgery import expected_digests, sampling
from tests.cli.conftest import surgery as command  # noqa: F401 - a fixture

UNIT = 16 << 20
"""Blocks of leaves and pieces of files are no larger than this."""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """A sealed checkpoint with a leaf of two blocks, each in a file of two pieces, that no test writes to.

    Not in a database: how many chunks come into one file of it, TensorStore decides by how long each takes.
    """
    place = tmp_path_factory.mktemp("sealed") / "big"
    numbers = np.random.default_rng(0)
    tree = {"big": numbers.standard_normal((5000, 2048), np.float32)}
    tree |= {f"small_{n}": numbers.standard_normal((300, 100), np.float32) for n in range(9)}
    saving = {name: ocp.SaveArgs(chunk_byte_size=21 << 20) for name in tree}
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(place, tree, save_args=saving)
    surgery.seal(str(place))
    return place, tree


@pytest.fixture
def own(sealed, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(sealed[0], tmp_path / "own")


def turns(place, count, **options):
    return [
        surgery.verify(str(place), sample=f"{n}/{count}", **options) for n in range(1, count + 1)
    ]


def data_file(place):
    return place / "big/0.0"


def test_the_record_has_the_digests_of_blocks_and_pieces(sealed):
    place, tree = sealed
    record = json.loads((place / "surgery.json").read_text())
    assert list(record["leaf_blocks"]) == ["big"]
    grid = record["digests"]["big"]["grid"]
    starts = product(*(range(0, size, step) for size, step in zip((5000, 2048), grid, strict=True)))
    blocks = [tree["big"][a : a + grid[0], b : b + grid[1]] for a, b in starts]
    assert record["leaf_blocks"]["big"] == "".join(
        hashlib.sha256(np.ascontiguousarray(block)).hexdigest() for block in blocks
    )
    assert {*record["file_blocks"]} == {"big/0.0", "big/1.0"}
    for name, pieces in record["file_blocks"].items():
        raw = (place / name).read_bytes()
        assert (pieces["bytes"], pieces["piece"]) == (len(raw), UNIT)
        assert pieces["digests"] == "".join(
            hashlib.sha256(raw[at : at + UNIT]).hexdigest() for at in range(0, len(raw), UNIT)
        )


@pytest.mark.parametrize("count", [1, 3, 20])
def test_turns_read_each_part_once_and_as_many_bytes_each(sealed, count):
    checkpoint = open_checkpoint(str(sealed[0]))
    expected = expected_digests.on_record(checkpoint)
    files = {key: sealed[0] / key for key in expected.files}
    read, sizes = Counter(), []
    for turn in range(1, count + 1):
        chosen = sampling.drawn(checkpoint, files, expected, sample_of(f"{turn}/{count}"), None)
        for parts in (chosen.leaves, chosen.files):
            read.update((of, part) for of, some in parts.items() for part in (some or [None]))
        sizes.append(chosen.sampled.bytes)
    assert set(read.values()) == {1}
    assert {of for of, _ in read} == {*checkpoint.tree, *files}
    total = chosen.sampled.all_bytes
    assert sum(sizes) == total
    assert all(abs(size - total / count) <= UNIT for size in sizes)


def test_each_damage_is_found_in_one_turn_and_the_findings_say_where(own):
    file = data_file(own)
    raw = bytearray(file.read_bytes())
    raw[UNIT + 5] ^= 1
    file.write_bytes(raw)
    found = Counter((f.path, f.what) for turn in turns(own, 7) for f in turn.findings)
    whole = Counter((f.path, f.what) for f in surgery.verify(str(own)).findings)
    assert found == whole
    assert {what for _, what in found} >= {"file changed"}
    (piece,) = (
        f.detail for turn in turns(own, 7) for f in turn.findings if f.what == "file changed"
    )
    assert piece == f"not what was sealed: bytes {UNIT:,} to {len(raw):,}"


def test_a_flipped_value_is_named_with_its_block_and_found_in_one_turn(sealed, own):
    array = np.array(sealed[1]["big"])
    array[1500, 17] += 1
    record = (own / "surgery.json").read_bytes()
    shutil.rmtree(own)
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(own, {**sealed[1], "big": array})
    (own / "surgery.json").write_bytes(record)
    manifest = own.with_name("record.json")
    manifest.write_bytes(record)
    grid = json.loads(record)["digests"]["big"]["grid"]
    row = 1500 // grid[0] * grid[0]
    column = 17 // grid[1] * grid[1]
    verdicts = turns(own, 5)
    values = [f for turn in verdicts for f in turn.findings if f.what == "values"]
    assert [f.path for f in values] == ["big"]
    place = f"[{row}:{min(row + grid[0], 5000)}, {column}:{min(column + grid[1], 2048)}]"
    assert values[0].detail == f"not what is on record: {place}"


def test_names_and_sizes_of_files_are_held_against_the_seal_in_every_turn(own):
    (own / "notes.txt").write_text("mine")
    (own / "commit_success.txt").unlink()
    with data_file(own).open("ab") as file:
        file.write(b"more")
    for turn in turns(own, 5):
        found = {(f.path.rsplit("/")[-1], f.what) for f in turn.findings}
        assert found - {("big", "unreadable")} == {  # that in the turn which reads the chunk alone
            ("notes.txt", "file added"),
            ("commit_success.txt", "file missing"),
            (data_file(own).name, "file changed"),
        }


def test_a_share_is_drawn_by_its_seed_and_is_no_smaller_than_was_asked(sealed):
    first = surgery.verify(str(sealed[0]), sample="20%").sample
    again = surgery.verify(str(sealed[0]), sample="20%", seed=first.seed).sample
    assert again == first
    assert 0.2 * first.all_bytes <= first.bytes <= 0.2 * first.all_bytes + UNIT
    drawn = {
        surgery.verify(str(sealed[0]), sample="5%", seed=seed).sample.bytes for seed in range(8)
    }
    assert len(drawn) > 1
    whole = surgery.verify(str(sealed[0]), sample="100%").sample
    assert whole.bytes == whole.all_bytes
    assert (whole.leaves, whole.files) == (whole.all_leaves, whole.all_files)


def test_a_seal_without_blocks_is_sampled_by_whole_leaves_and_files(own):
    raw = (own / "surgery.json").read_bytes()
    fields = json.loads(raw)
    del fields["leaf_blocks"], fields["file_blocks"]
    (own / "surgery.json").write_bytes(encoded(msgspec.convert(fields, Record)))
    verdicts = turns(own, 3)
    assert all(turn.sample.leaves_in_part == turn.sample.files_in_part == 0 for turn in verdicts)
    assert sum(turn.sample.leaves for turn in verdicts) == 10


def test_the_page_says_what_was_read_and_never_that_the_whole_agrees(sealed, own, command):  # noqa: F811
    shown = command("verify", sealed[0], "--sample", "2/9")
    first = shown.out.splitlines()[0]
    assert shown.code == 0
    assert first.startswith("sample 2/9, 2")
    files = len(json.loads((sealed[0] / "surgery.json").read_text())["files"])
    assert f" % of all bytes, 0 of 10 leaves and 1 in part, 0 of {files} files: " in first
    assert first.endswith(": nothing differs there; the rest was not looked at")
    assert "agrees" not in shown.out
    drawn = command("verify", sealed[0], "--sample", "5%", "--seed", "7")
    assert drawn.out.startswith("sample 5% (--seed 7), ")
    assert command("verify", sealed[0], "--sample", "2/9", "--strict").code == 0
    everything = command("verify", sealed[0], "--sample", "100%").out.splitlines()[0]
    assert everything.endswith(": agrees: all of it was read")
    (own / "surgery.json").unlink()
    unsealed = command("verify", own, "--sample", "2/9")
    assert "nothing was found wrong there, but nothing could be compared" in unsealed.out
    assert command("verify", own, "--sample", "2/9", "--strict").code == 1


@pytest.mark.parametrize("sample", ["0%", "101%", "5", "0/3", "4/3", "1/0", "a/b", ""])
def test_what_is_no_part_is_refused(sealed, sample):
    with pytest.raises(PlanError, match="is no part of a checkpoint"):
        surgery.verify(str(sealed[0]), sample=sample)


def test_a_sample_of_what_is_not_read_and_a_seed_of_what_is_not_drawn_are_refused(sealed):
    place = str(sealed[0])
    for options in ({"like": place, "sample": "5%"}, {"seed": 3}, {"sample": "1/2", "seed": 3}):
        with pytest.raises(PlanError, match="leave"):
            surgery.verify(place, **options)
