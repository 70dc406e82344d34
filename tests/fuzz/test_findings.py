"""What fuzzing found: each case stays mended."""

import shutil
import warnings

import numpy as np
import pytest
import tensorstore as ts

from surgery_cli import surgery as use_cases
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath, PathPattern
from tests.fuzz.readers import leaves_of
from tests.fuzz.seeds import SAMPLES


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


def test_nobody_is_warned_of_what_regular_expressions_may_mean_one_day():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PathPattern("re:[[a]b").match(LeafPath(("ab",)))


def test_what_is_left_of_names_with_control_characters_is_told(tmp_path):
    """A `_METADATA` that does not read, with a name in it that does not either."""
    place = shutil.copytree(SAMPLES / "digits_standard", tmp_path / "run")
    content = (place / "_METADATA").read_text()
    broken = content.replace("('opt_state'", "('opt\x0f_state'", 1)[:-2]
    (place / "_METADATA").write_text(broken)
    with pytest.raises(CheckpointError):
        use_cases.inspect(str(place))
    assert use_cases.rescue(str(place)).whole == 28
