"""What releases of Orbax have saved, and nobody has damaged, is whole for a rescue, under the names of `inspect`."""

import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.salvage.place import find_broken
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.fixture_truths import FIXTURES, finished, is_true, truth_key, truths
from tests.salvage.test_corpus import restored

DATABASES = sorted(
    {
        str(file.parent.relative_to(FIXTURES)).split("/ocdbt")[0]
        for file in FIXTURES.glob("orbax-*/**/manifest.ocdbt")
    }
)
AGGREGATES = sorted(
    str(file.parent.relative_to(FIXTURES)) for file in FIXTURES.glob("orbax-*/**/checkpoint")
)
SAMPLE_CHECKPOINTS = FIXTURES.parent.parent / "sample_checkpoints"
SAMPLES = ("digits_standard", "digits_v1", "letters_maxtext", "letters_run/100")
"""With values in data files: those of the fixtures are so small that they stand in nodes, too."""
UNSTORED_ZEROS = {"orbax-0.8.0/sharded4_zarr3": {"opt_state/0/count"}}
"""Leaves of which Orbax stored no chunk, as it is all zero: where anything is damaged, it may be a lost one."""


def _states(report):
    return {row.path: row.why for row in report.leaves if row.state != "whole"}


def _step(name):
    """The directory of a checkpoint's step, which a rescue is asked for."""
    location = open_checkpoint(str(FIXTURES / name)).location
    return location.step_directory or FIXTURES / name


def assert_restored_alike(one, other):
    """Orbax restores two directories to one tree, nesting and types of nodes among it."""
    is_sharded = (one / "_sharding").exists()  # over more devices than there are here
    back = restored if is_sharded else ocp.PyTreeCheckpointer().restore
    left, right = back(one), back(other)
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(finished()))
def test_every_leaf_is_whole_with_its_true_values_under_the_names_of_inspect(name, tmp_path):
    step = _step(name)
    report = surgery.rescue(str(step), str(tmp_path / "rescued"))

    assert _states(report) == {}
    assert not [note for note in report.notes if "two saves" in str(note)]
    assert {row.path for row in report.leaves} == {
        row.path for row in surgery.inspect(str(step)).leaves
    }
    assert surgery.verify(str(tmp_path / "rescued")).findings == []
    (found,) = surgery.doctor(str(step), settled_seconds=0).places
    assert found.state == "whole", found.why
    written, truth = open_checkpoint(str(tmp_path / "rescued")), truths(name)
    arrays = {truth_key(path): path for path, spec in written.tree.items() if spec.has_array}
    for key in truth.keys() & arrays.keys():
        assert is_true(written.read(arrays[key]), truth[key]), key


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_without_its_manifests_is_whole(name, tmp_path):
    """A merge may have copied small values out of the nodes of a process: two places of one value are no dispute."""
    shutil.copytree(FIXTURES / name, tmp_path / "broken")
    for manifest in (tmp_path / "broken").rglob("manifest.ocdbt"):
        manifest.unlink()

    report = surgery.rescue(str(tmp_path / "broken"))

    assert report.whole > 0
    assert _states(report).keys() == UNSTORED_ZEROS.get(name, set())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", AGGREGATES)
def test_orbax_restores_what_was_rescued_of_an_aggregate_as_what_was_saved(name, tmp_path):
    surgery.rescue(str(FIXTURES / name), str(tmp_path / "rescued"))
    assert_restored_alike(FIXTURES / name, tmp_path / "rescued")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", AGGREGATES)
def test_a_leaf_folder_that_is_gone_is_named_by_the_aggregate(name, tmp_path):
    before = surgery.rescue(str(FIXTURES / name))
    folders = [file.parent for file in (FIXTURES / name).glob("*/.zarray")]
    for folder in folders:
        broken = tmp_path / folder.name / "broken"
        shutil.copytree(FIXTURES / name, broken)
        shutil.rmtree(broken / folder.name)

        report = surgery.rescue(str(broken))

        assert (report.whole, report.lost) == (before.whole - 1, 1)
        (lost,) = _states(report)
        assert lost.replace("/", ".") == folder.name
        with pytest.raises(CheckpointError, match="1 is not"):
            surgery.rescue(str(broken), str(tmp_path / "rescued"))


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
@pytest.mark.parametrize("name", AGGREGATES)
def test_values_before_the_break_of_an_aggregate_are_found_and_the_others_never_called_whole(
    name, share, tmp_path
):
    broken = tmp_path / "broken"
    shutil.copytree(FIXTURES / name, broken)
    raw = (broken / "checkpoint").read_bytes()
    (broken / "checkpoint").write_bytes(raw[: int(len(raw) * share)])

    report = surgery.rescue(str(broken))

    assert report.lost or "is damaged" in str(report.notes)
    whole = {row.path: row.digest for row in report.leaves if row.state == "whole"}
    true = {row.path: row.digest for row in surgery.rescue(str(FIXTURES / name)).leaves}
    assert whole.items() <= true.items() or not (broken / "_METADATA").exists()
    assert {digest for digest in whole.values() if digest} <= set(true.values())
    assert find_broken(broken).items == {"": broken}


@pytest.mark.parametrize("name", AGGREGATES)
def test_the_aggregate_alone_tells_the_tree_where_metadata_is_cut(name, tmp_path):
    if not (FIXTURES / name / "_METADATA").exists():
        pytest.skip("it has no other file that tells the tree")
    broken = tmp_path / "broken"
    shutil.copytree(FIXTURES / name, broken)
    raw = (broken / "_METADATA").read_bytes()
    (broken / "_METADATA").write_bytes(raw[: len(raw) // 2])

    report = surgery.rescue(str(broken), str(tmp_path / "rescued"))

    assert (_states(report), report.structure_lacks) == ({}, [])
    assert_restored_alike(FIXTURES / name, tmp_path / "rescued")


@pytest.mark.parametrize("name", SAMPLES)
def test_data_files_under_the_names_of_a_copy_that_stopped_are_as_good_as_under_their_own(
    name, tmp_path
):
    places = {}
    for which in ("own", "copied"):
        places[which] = tmp_path / which
        shutil.copytree(SAMPLE_CHECKPOINTS / name, places[which])
        data = [f for f in places[which].rglob("d/*") if f.is_file()]
        largest = max(data, key=lambda file: (file.stat().st_size, file.name))
        largest.write_bytes(largest.read_bytes()[: largest.stat().st_size * 9 // 10])
        if which == "copied":
            largest.rename(largest.with_name(f".{largest.name}.Xy12Qa"))

    own, copied = (surgery.rescue(str(place)) for place in places.values())

    assert {row.path: (row.state, row.missing, row.digest) for row in copied.leaves} == {
        row.path: (row.state, row.missing, row.digest) for row in own.leaves
    }
