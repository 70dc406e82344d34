"""What Orbax refuses to restore though every file stands is found by all that look, and no edit carries it along.

Each damage of a registry in each layout, with Orbax's own restore as the judge.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of

LAYOUTS = {
    "ocdbt": {},
    "ocdbt-zarr3": {"use_zarr3": True},
    "per-leaf": {"use_ocdbt": False},
    "per-leaf-zarr3": {"use_ocdbt": False, "use_zarr3": True},
}
TREE = {"w": np.arange(12, dtype="f4").reshape(3, 4), "opt": [np.ones(3, "f4"), np.zeros(2, "f4")]}
TARGET = jax.tree.map(ocp.utils.to_shape_dtype_struct, TREE)


def save(place, seed=0, **handler):
    tree = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf + seed), TREE)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**handler)) as checkpointer:
        checkpointer.save(place, args=ocp.args.PyTreeSave(tree))


def is_restored(place):
    """By the handler of one of the scripts that may have saved it: where metadata do not say zarr 3, it does."""
    return any(_is_restored(place, zarr3) for zarr3 in (False, True))


def _is_restored(place, zarr3):
    args = ocp.args.PyTreeRestore(
        TARGET, restore_args=ocp.checkpoint_utils.construct_restore_args(TARGET)
    )
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_zarr3=zarr3)) as checkpointer:
        try:
            found = checkpointer.restore(place, args=args)
        except Exception:  # noqa: BLE001 - whatever Orbax says
            return False
    both = (jax.tree.leaves(tree, is_leaf=lambda leaf: leaf is None) for tree in (found, TREE))
    return all(np.array_equal(here, there) for here, there in zip(*both, strict=True))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    for name, handler in LAYOUTS.items():
        save(root / name, **handler)
        assert is_restored(root / name)
    return root


def metadata_of(other):
    """The file of the same tree saved in another layout."""

    def harm(place):
        shutil.copy(place.parent.parent / "saved" / other / "_METADATA", place / "_METADATA")

    return harm


def changed(change):
    """``_METADATA`` with a change made to its document."""

    def harm(place):
        file = place / "_METADATA"
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))

    return harm


def field(name, value):
    return changed(lambda document: document.update({name: value}))


def entry(keys, **fields):
    def change(document):
        document["tree_metadata"][str(keys)]["value_metadata"].update(fields)

    return changed(change)


def key_type(keys, at, number):
    def change(document):
        document["tree_metadata"][str(keys)]["key_metadata"][at]["key_type"] = number

    return changed(change)


def lacks_field(keys, name):
    return changed(
        lambda document: document["tree_metadata"][str(keys)]["value_metadata"].pop(name)
    )


def without(name):
    return changed(lambda document: document.pop(name))


DAMAGES = {
    "nothing": lambda place: None,
    **{f"metadata of {name}": metadata_of(name) for name in LAYOUTS},
    **{
        f"{name} {value}": field(name, value)
        for name in ("use_ocdbt", "use_zarr3")
        for value in (True, False, None)
    },
    **{f"no {name}": without(name) for name in ("use_ocdbt", "use_zarr3")},
    "no leaf named": field("tree_metadata", {}),
    "an array to be skipped": entry(("w",), skip_deserialize=True),
    "an array that is None": entry(("w",), value_type="None", skip_deserialize=True),
    "an index that is a name": key_type(("opt", "0"), 1, 2),
    "another index that is a name": key_type(("opt", "1"), 1, 2),
    "a name that is an index": key_type(("w",), 0, 1),
    "the first entry of a list is lost": changed(
        lambda document: document["tree_metadata"].pop(str(("opt", "0")))
    ),
    "nothing said of skipping": lacks_field(("w",), "skip_deserialize"),
    **{
        f"blocks of {value}": entry(("w",), write_shape=value) for value in (False, None, 7, [3, 4])
    },
}


OTHER_TREES = [name for name in DAMAGES if "name" in name or name == "an array that is None"]
"""The damages that leave metadata of another tree, which a rescue goes by."""


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_orbax_refuses_is_found_and_refused_and_nothing_else_is(
    saved, tmp_path, layout, damage
):
    (tmp_path / "saved").symlink_to(saved)
    place = tmp_path / "run/1"
    shutil.copytree(saved / layout, place)
    DAMAGES[damage](place)
    restored = is_restored(place)

    assert calls_whole(tmp_path / "run") == (
        ["doctor", "verify", "seal", "edit"] if restored else []
    )
    rescued = tmp_path / "rescued"
    try:
        surgery.rescue(str(place), str(rescued))
    except SurgeryError:
        assert not rescued.exists()
    else:
        assert is_restored(rescued) or (_is_readable(rescued) and damage in OTHER_TREES)


def _is_readable(place):
    """True if Orbax restores the tree that it has become, whatever that is."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(place) is not None


def test_a_tree_emptied_of_all_that_is_no_array_is_found(tmp_path):
    """Texts stand in a file of their own, so that no array tells that anything was saved."""
    place = tmp_path / "run/1"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place, {"name": "of the run"})
        assert surgery.verify(str(place)).agrees
        field("tree_metadata", {})(place)
        with pytest.raises(ValueError, match="empty"):
            checkpointer.restore(place)
    (found,) = surgery.verify(str(place)).findings
    assert "it names no leaf: Orbax" in str(found)
    (row,) = surgery.doctor(str(tmp_path / "run"), settled_seconds=0).places
    assert row.state == "damaged"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tree_emptied_of_arrays_is_refused_whatever_else_names_them(saved, tmp_path, layout):
    """Releases up to 0.9 wrote no `array_metadatas`."""
    place = shutil.copytree(saved / layout, tmp_path / "run/1")
    shutil.rmtree(place / "array_metadatas", ignore_errors=True)
    field("tree_metadata", {})(place)
    assert not is_restored(place)
    assert calls_whole(tmp_path / "run") == []
    with pytest.raises(SurgeryError, match="names no leaf"):
        surgery.inspect(str(place))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unknown", range(4))
@pytest.mark.parametrize("custom", ["absent", None, {}, {"note": "hi"}], ids=str)
def test_fields_of_a_step_that_orbax_refuses_are_found_and_no_others(tmp_path, custom, unknown):
    place = tmp_path / "run/1"
    save(place)
    file = place / "_CHECKPOINT_METADATA"
    document = json.loads(file.read_text()) | {"custom_metadata": custom}
    document |= {f"of another program {number}": number for number in range(unknown)}
    if custom == "absent":
        del document["custom_metadata"]
    file.write_text(json.dumps(document))
    with ocp.PyTreeCheckpointer() as checkpointer:
        try:
            is_read = checkpointer.metadata(place) is not None
        except ValueError:
            is_read = False

    assert surgery.verify(str(place)).agrees == is_read
    surgery.rescue(str(place), str(tmp_path / "rescued"))
    assert surgery.verify(str(tmp_path / "rescued")).agrees
    with ocp.PyTreeCheckpointer() as checkpointer:
        assert checkpointer.metadata(tmp_path / "rescued") is not None


STEP_FILES = ["_CHECKPOINT_METADATA", "orbax.checkpoint"]


@pytest.mark.parametrize("gone", [[], *([file] for file in STEP_FILES), STEP_FILES])
def test_what_v1_does_not_recognise_is_found_and_said_of_an_edit(tmp_path, gone):
    place = tmp_path / "run/1"
    v1.save(place, {"w": jax.numpy.ones((4, 4))})
    for file in gone:
        (place / file).unlink()
    new = tmp_path / "new"
    done = surgery.apply(str(place), str(new), plan_of([Rescale(at="w", by=2.0)]))

    for step in (place, new):
        is_loaded = _is_loaded(step)
        (row,) = surgery.doctor(str(step), settled_seconds=0).places
        assert (row.state == "whole") == is_loaded
        assert surgery.verify(str(step)).agrees == is_loaded
        assert any("v1 of Orbax" in str(note) for note in done.notes) != is_loaded
    if not is_loaded:
        assert "`surgery rescue" in row.todo
        surgery.rescue(str(place), str(tmp_path / "rescued"))
        assert _is_loaded(tmp_path / "rescued")


def _is_loaded(place):
    try:
        return v1.load(place) is not None
    except Exception:  # noqa: BLE001 - whatever Orbax says
        return False


def calls_whole(root: Path) -> list[str]:
    """The commands that find nothing wrong with a step."""
    place, new = str(root / "1"), str(root.parent / "new")
    said = {
        "doctor": lambda: surgery.doctor(str(root), settled_seconds=0).places[0].state == "whole",
        "verify": lambda: surgery.verify(place).agrees,
        "seal": lambda: not surgery.seal(place).notes,
        "edit": lambda: surgery.apply(place, new, plan_of([Rescale(at="w", by=2.0)])).verified,
    }
    found = []
    for name, asked in said.items():
        try:
            found += [name] if asked() else []
        except SurgeryError:
            continue
    return found
