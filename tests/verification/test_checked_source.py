"""What is read and has a digest on record is held against it: damage is found, and never passed on as verified."""

import shutil

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.engine.checked_source import CheckedSource, Recorded
from surgery_cli.engine.digests import digest_reading, leaf_digest
from surgery_cli.engine.grid import block_shape, windows
from surgery_cli.engine.reading import CountedSource
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import plan_from_document
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath

W = LeafPath(("w",))


def save(path, tree):
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(path, tree)
    return path


def flip_a_byte(checkpoint, leaf):
    """Change one byte of the middle of a leaf's only chunk: random values decode to others, without a word."""
    (chunk,) = (path for path in (checkpoint / leaf).iterdir() if path.name != ".zarray")
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    shutil.copy(
        chunk, chunk.with_suffix(".copy")
    )  # another file: links of other checkpoints stay whole
    chunk.with_suffix(".copy").write_bytes(content)
    chunk.with_suffix(".copy").replace(chunk)


def run(source, destination, *edits):
    document = {"edits": list(edits)}
    return surgery.apply(str(source), str(destination), plan_from_document(document))


def edit(op, at, **fields):
    return {"op": op, "at": at, **fields}


@pytest.fixture
def recorded(tmp_path):
    """A checkpoint that `surgery` wrote: leaves `w`, `v` and `u` with digests on record; `x` has none."""
    random = np.random.default_rng(0)
    tree = {name: random.normal(size=(40, 30)).astype(np.float32) for name in "wvux"}
    save(tmp_path / "source", tree)
    run(tmp_path / "source", tmp_path / "recorded", edit("rescale", "{w,v,u}", by=2))
    return tmp_path / "recorded"


READS = {
    "its own edit": lambda path: [edit("rescale", "w", by=2)],
    "a measurement": lambda path: [edit("normalize", "w")],
    "a donor": lambda path: [edit("replace", "x", **{"with": str(path), "from": "w"})],
    "a member of an average": lambda path: [edit("average", "**", **{"with": [str(path)]})],
}


@pytest.mark.parametrize("read", READS)
def test_a_damaged_leaf_that_is_read_refuses_the_run_by_name(recorded, tmp_path, read):
    edits = READS[read](recorded)
    source = recorded if read in ("its own edit", "a measurement") else tmp_path / "source"
    if source != recorded:  # else the values would be taken by reference
        edits.append(edit("rescale", "x", by=3))
    run(source, tmp_path / "whole", *edits)
    flip_a_byte(recorded, "w")
    with pytest.raises(CheckpointError, match=r"'w' in '.*recorded' is not what its digest") as e:
        run(source, tmp_path / "damaged", *edits)
    assert e.value.exit_code == 3
    assert not (tmp_path / "damaged").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"source", "recorded", "whole"}


MENDS = {
    "replace": edit("replace", "w", **{"with": 1.0}),
    "reinit": edit("reinit", "w", init="lecun_normal"),
    "delete": edit("delete", "w"),
    "another leaf": edit("rescale", "v", by=2),
}


@pytest.mark.parametrize("mend", MENDS)
def test_a_damaged_leaf_that_is_not_read_refuses_nothing(recorded, tmp_path, mend):
    flip_a_byte(recorded, "w")
    run(recorded, tmp_path / "mended", MENDS[mend])
    found = [finding.path for finding in surgery.verify(str(tmp_path / "mended")).findings]
    assert found == (["w"] if mend == "another leaf" else [])


def test_a_replacement_by_a_donor_mends_a_damaged_leaf_even_where_it_brings_infinities(tmp_path):
    infinite = np.full((4, 4), np.inf, np.float32)
    save(tmp_path / "donor", {"w": infinite})
    save(tmp_path / "source", {"w": infinite, "x": infinite})
    run(tmp_path / "source", tmp_path / "recorded", edit("rescale", "w", by=2))
    save(tmp_path / "other", {"w": np.full((4, 4), -np.inf, np.float32)})
    shutil.rmtree(tmp_path / "recorded/w")
    shutil.copytree(tmp_path / "other/w", tmp_path / "recorded/w")
    donor = str(tmp_path / "donor")
    run(tmp_path / "recorded", tmp_path / "out", edit("replace", "w", **{"with": donor}))
    assert surgery.verify(str(tmp_path / "out")).agrees


def test_a_leaf_that_is_taken_by_reference_keeps_its_digest_under_its_new_name(recorded, tmp_path):
    flip_a_byte(recorded, "w")
    report = run(recorded, tmp_path / "renamed", edit("rename", "w", to="head"))
    assert report.sources_checked == 0
    verdict = surgery.verify(str(tmp_path / "renamed"))
    assert [(finding.path, finding.what) for finding in verdict.findings] == [("head", "values")]


def test_a_leaf_that_is_grafted_brings_its_digest_along(recorded, tmp_path):
    taken = edit("replace", "x", **{"with": str(recorded), "from": "w"})
    run(tmp_path / "source", tmp_path / "grafted", taken)
    assert surgery.verify(str(tmp_path / "grafted")).checked == 1
    flip_a_byte(recorded, "w")
    run(tmp_path / "source", tmp_path / "damaged", taken)
    assert [f.path for f in surgery.verify(str(tmp_path / "damaged")).findings] == ["x"]


def test_the_report_counts_what_was_held_against_the_record_and_no_more(recorded, tmp_path):
    report = run(recorded, tmp_path / "out", edit("rescale", "{w,x}", by=2))
    assert report.sources_checked == 1  # nothing is on record of `x`, and nobody read `v` and `u`
    assert report.bytes_read == 2 * 40 * 30 * 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_reads_of_any_blocks_find_a_change_of_any_element(tmp_path, seed):
    """The recorded grid and the blocks of a read are drawn apart: what one does not cover of the other is read anew."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.integers(1, 12, size=random.integers(0, 4)))
    values = random.normal(size=shape).astype(random.choice([np.float32, np.float16]))
    checkpoint = open_checkpoint(str(save(tmp_path / "c", {"w": values})))
    spec = checkpoint.tree[W]
    grid, block = (tuple(int(random.integers(1, n + 1)) for n in shape) for _ in range(2))
    expected = leaf_digest(checkpoint, W, spec, digest_reading(spec, 1 << 30, grid), grid)

    def checked(source):
        recorded = Recorded("c", lambda path: expected, checkpoint.tree.__getitem__)
        counted = CountedSource(source)
        checking = CheckedSource(counted, recorded)
        reads = list(windows(shape, block))
        random.shuffle(reads)
        for window in reads:
            checking.read(W, window)
        assert checking.complete(1 << 20) == 1
        return counted.read_bytes

    whole = checked(checkpoint)
    covers = all(b % g == 0 or b == n for n, g, b in zip(shape, grid, block, strict=True))
    assert (whole == values.nbytes) >= covers
    assert values.nbytes <= whole <= 2 * values.nbytes
    at = tuple(int(random.integers(n)) for n in shape)

    class Changed:
        def read(self, path, window=None):
            changed = values.copy()
            changed[at] += 1
            return changed[window]

    with pytest.raises(CheckpointError, match="'w'"):
        checked(Changed())


def test_a_digest_of_another_shape_is_a_mismatch(tmp_path):
    save(tmp_path / "c", {"w": np.zeros((4, 4), np.float32)})
    save(tmp_path / "d", {"w": np.zeros((16,), np.float32)})
    run(tmp_path / "c", tmp_path / "e", edit("replace", "w", **{"with": 1.0}))
    shutil.copy(tmp_path / "e/surgery.json", tmp_path / "d/surgery.json")
    with pytest.raises(CheckpointError, match="'w'"):
        run(tmp_path / "d", tmp_path / "f", edit("rescale", "w", by=2))


def test_a_leaf_of_many_blocks_is_held_against_its_record_in_the_pass_that_reads_it(tmp_path):
    big = np.random.default_rng(0).normal(size=(5000, 1700)).astype(np.float32)  # 34 MB
    tree = {"w": big}
    saved = {"w": ocp.SaveArgs(chunk_byte_size=1 << 21)}
    with ocp.PyTreeCheckpointer(use_ocdbt=True) as checkpointer:
        checkpointer.save(tmp_path / "c", tree, save_args=saved)
    run(tmp_path / "c", tmp_path / "d", edit("rescale", "w", by=2))
    spec = open_checkpoint(str(tmp_path / "d")).tree[W]
    assert len(list(windows(spec.shape, block_shape(spec, spec.write_shape)))) > 1
    report = run(tmp_path / "d", tmp_path / "e", edit("rescale", "w", by=2))
    assert (report.sources_checked, report.bytes_read) == (1, big.nbytes)


@pytest.fixture
def trained(tmp_path):
    """Params and Adam's state as `surgery` wrote them, with every leaf on record; `b` is the smallest."""
    random = np.random.default_rng(0)
    params = {"w": random.normal(size=(40, 30)).astype(np.float32), "b": np.ones(30, np.float32)}
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    for _ in range(3):
        gradients = {
            name: random.normal(size=p.shape).astype(np.float32) for name, p in params.items()
        }
        _, state = optimizer.update(gradients, state, params)
    tree = {"params": params, "opt_state": state}
    save(tmp_path / "saved", jax.tree.map(np.asarray, tree))
    surgery.seal(str(tmp_path / "saved"))
    return tmp_path / "saved"


@pytest.mark.parametrize("leaf", ["opt_state.0.nu.b", "opt_state.0.mu.b"])
def test_slots_that_tell_an_optimizer_are_held_against_the_record_before_they_are_believed(
    trained, tmp_path, leaf
):
    rescaled = edit("rescale", "params/w", by=2)
    run(trained, tmp_path / "whole", rescaled)
    flip_a_byte(trained, leaf)
    document = plan_from_document({"edits": [rescaled]})
    with pytest.raises(CheckpointError, match=leaf.replace(".", "/")):
        surgery.plan(str(trained), document)
