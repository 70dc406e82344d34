"""A file that is one of several is opened as it was named, and said to be one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAMES = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]


def shards(folder, names=NAMES):
    folder.mkdir()
    for number, name in enumerate(names):
        save_file({f"{number}.weight": np.ones((2, 2), np.float32)}, folder / name)
    return folder


def indexed(folder, names=NAMES, said="model.safetensors.index.json"):
    shards(folder, names)
    places = {f"{number}.weight": name for number, name in enumerate(names)}
    (folder / said).write_text(json.dumps({"weight_map": places}))
    return folder


def said_of_shards(surgery, file, new):
    """What `inspect`, a preview and what is applied say of it; the others of their notes are about formats."""
    edit = ("rescale", file, new, "**", "--by", "2", "--where-dtype", "float32")
    ways = (("inspect", file), (*edit, "--dry-run"), edit)
    found = []
    for words in ways:
        result = surgery(*words, "--json")
        assert result.code == 0, result.err
        document = result.document
        notes = [note for note in document["notes"] if "one of" in note]
        if words != ways[0]:
            assert notes == [note for note in document["consequences"] if "one of" in note]
        found.append(notes)
    assert found[0] == found[1] == found[2]
    return found[0]


def test_one_file_of_several_is_said_to_be_one(surgery, tmp_path):
    folder = indexed(tmp_path / "model")
    (said,) = said_of_shards(surgery, folder / NAMES[1], tmp_path / "new")
    assert said == (
        f"'{NAMES[1]}' is one of 3 files of a model, as 'model.safetensors.index.json' beside it says, and the 2 others"
        f" are not opened: '{folder}' opens all of them"
    )


def test_its_name_tells_where_no_index_does(surgery, tmp_path):
    folder = shards(tmp_path / "model")
    (said,) = said_of_shards(surgery, folder / NAMES[0], tmp_path / "new")
    assert "is one of 3 files of a model, as its name says, and the 2 others are not opened" in said
    (folder / "model.safetensors.index.json").write_text("{")  # no index, and the file is named
    assert said_of_shards(surgery, folder / NAMES[0], tmp_path / "new2") == [said]


def test_an_index_tells_of_files_with_any_names(surgery, tmp_path):
    folder = indexed(tmp_path / "model", ["first.safetensors", "second.safetensors"])
    (said,) = said_of_shards(surgery, folder / "first.safetensors", tmp_path / "new")
    assert said.startswith("'first.safetensors' is one of 2 files of a model, as 'model.safe")
    assert "and the other is not opened" in said


def test_so_it_is_with_shards_of_pytorch(surgery, tmp_path):
    shutil.copytree(FIXTURES / "torch" / "sharded", tmp_path / "model")
    file = tmp_path / "model" / "pytorch_model-00002-of-00002.bin"
    (said,) = said_of_shards(surgery, file, tmp_path / "new")
    assert said.startswith(
        f"'{file.name}' is one of 2 files of a model, as 'pytorch_model.bin.index.json' "
    )


def test_the_cache_of_a_hub_links_to_files_without_such_names(surgery, tmp_path):
    folder = shards(tmp_path / "snapshot")
    for name in NAMES:
        (folder / name).rename(tmp_path / f"blob{name[9]}")
        (folder / name).symlink_to(tmp_path / f"blob{name[9]}")
    (said,) = said_of_shards(surgery, folder / NAMES[0], tmp_path / "new")
    assert said.startswith(f"'{NAMES[0]}' is one of 3 files of a model, as its name says")


@pytest.mark.parametrize("names", [["model.safetensors"], ["model-00001-of-00001.safetensors"]])
def test_a_model_in_one_file_and_a_whole_folder_are_not(surgery, tmp_path, names):
    folder = indexed(tmp_path / "model", names)
    assert said_of_shards(surgery, folder / names[0], tmp_path / "new") == []
    assert said_of_shards(surgery, indexed(tmp_path / "whole"), tmp_path / "new2") == []
