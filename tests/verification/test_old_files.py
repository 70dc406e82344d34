"""The file `checkpoint` of older releases: what Orbax refuses of it, or takes for text, is found by all that look."""

import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.fixture_truths import FIXTURES
from tests.garbage import told_here

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

PLACES = {
    "folders": FIXTURES / "orbax-0.2.7" / "odd_lst",
    "database": FIXTURES / "orbax-0.5.10" / "odd_lst",
}


def values_of(place):
    """By path, as Orbax restores them; None where it does not."""
    import jax

    try:
        with told_here():
            tree = ocp.PyTreeCheckpointer().restore(place)
    except Exception:  # noqa: BLE001 - whatever Orbax says
        return None
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def is_alike(one, other):
    return (
        one is not None
        and one.keys() == other.keys()
        and all(np.array_equal(one[path], other[path]) for path in one)
    )


def is_found(place):
    """What both say; a file that cannot be read is said, too."""
    try:
        verdict = not surgery.verify(str(place)).agrees
    except SurgeryError:
        verdict = True
    (row,) = surgery.doctor(str(place), settled_seconds=0).places
    assert (row.state == "damaged") == verdict
    return verdict


CHANGES = {
    "text that is no UTF-8": (b"PLACEHOLDER://w", b"PLAC\xffHOLDER://w"),
    "a text that only looks like a place": (b"PLACEHOLDER://w", b"PLACEHOLDERR//w"),
    "a first byte of no dict": (b"\x82\xa1w", b"\xc2\xa1w"),
    "a key that is a number": (b"\xa1x\x92", b"\xcc\x78\x92"),
    "a key that is bytes": (b"\xa1x\x92", b"\xc4\x00\x92"),
    "a dict that claims more": (b"\x82\xa1w", b"\x83\xa1w"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", PLACES)
def test_what_orbax_does_not_restore_as_it_was_is_found(tmp_path, place, change):
    truth = values_of(PLACES[place])
    broken = Path(shutil.copytree(PLACES[place], tmp_path / "3"))
    assert not is_found(broken)
    assert is_alike(values_of(broken), truth)
    before, after = CHANGES[change]
    content = (broken / "checkpoint").read_bytes()
    assert content.count(before) == 1
    (broken / "checkpoint").write_bytes(content.replace(before, after))
    assert not is_alike(values_of(broken), truth)
    assert is_found(broken)


@pytest.mark.parametrize("place", PLACES)
def test_a_leaf_that_refers_to_the_array_of_another_is_found(tmp_path, place):
    """Releases differ: later ones restore a leaf's own array whatever name stands there."""
    broken = Path(shutil.copytree(PLACES[place], tmp_path / "3"))
    content = (broken / "checkpoint").read_bytes()
    (broken / "checkpoint").write_bytes(
        content.replace(b"\xb5PLACEHOLDER://x.1.c/d", b"\xb5PLACEHOLDER://x.1.a.b")
    )
    assert is_found(broken)


def test_a_leaf_that_has_lost_its_name_is_refused_as_orbax_does(tmp_path):
    """The array that the file refers to is there, and Orbax looks for that of the leaf's own name."""
    broken = Path(shutil.copytree(FIXTURES / "orbax-0.2.7" / "odd_none", tmp_path / "3"))
    content = (broken / "checkpoint").read_bytes()
    assert content.count(b"\xa1w\xaf") == 1
    (broken / "checkpoint").write_bytes(content.replace(b"\xa1w\xaf", b"\xa1s\xaf"))
    assert values_of(broken) is None
    with pytest.raises(SurgeryError) as refused:
        _ = open_checkpoint(str(broken)).tree
    assert "of 's' it refers to the array 'w'; Orbax restores 's'" in str(
        refused.value.problems[0].why
    )
    assert is_found(broken)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_rescued_refers_to_its_own_arrays(tmp_path, place):
    truth = values_of(PLACES[place])
    broken = Path(shutil.copytree(PLACES[place], tmp_path / "3"))
    content = (broken / "checkpoint").read_bytes()
    changed = content.replace(b"\xb5PLACEHOLDER://x.1.c/d", b"\xb5PLACEHOLDER://x.1.a.b")
    assert changed != content
    (broken / "checkpoint").write_bytes(changed)
    surgery.rescue(str(broken), str(tmp_path / "new"), allow_partial=True)
    assert is_alike(values_of(tmp_path / "new"), truth)
    assert not is_found(tmp_path / "new")


def test_leaf_folders_without_the_file_that_names_them_are_found(tmp_path):
    broken = Path(shutil.copytree(PLACES["folders"], tmp_path / "3"))
    (broken / "checkpoint").unlink()
    assert values_of(broken) is None
    assert is_found(broken)


def test_a_text_where_an_array_stands_is_rescued_as_the_array(tmp_path):
    truth = values_of(PLACES["folders"])
    broken = Path(shutil.copytree(PLACES["folders"], tmp_path / "3"))
    content = (broken / "checkpoint").read_bytes()
    (broken / "checkpoint").write_bytes(content.replace(b"PLACEHOLDER://w", b"PLACEHOLDXR://w"))
    surgery.rescue(str(broken), str(tmp_path / "new"), allow_partial=True)
    assert is_alike(values_of(tmp_path / "new"), truth)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("place", PLACES)
def test_flips_that_orbax_does_not_restore_from_are_found(tmp_path, place):
    truth = values_of(PLACES[place])
    broken = Path(shutil.copytree(PLACES[place], tmp_path / "3"))
    file = broken / "checkpoint"
    content = file.read_bytes()
    missed, harmful = [], 0
    for bit in range(0, 8 * len(content), 5):
        at, mask = bit // 8, 1 << bit % 8
        file.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
        if not is_alike(values_of(broken), truth):
            harmful += 1
            missed += [] if is_found(broken) else [(at, mask)]
    assert harmful > 30
    assert missed == []
