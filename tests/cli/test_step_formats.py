"""Where steps are named in several formats, no command takes one for the newest; each is had by its name."""

import shlex
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.operations.table import operations
from surgery_cli.planning.command_line import example_command
from tests.cli.command_lines import commands

LAYER = {"kernel": np.arange(6, dtype="f4").reshape(2, 3), "bias": np.ones(3, "f4")}
TREE = {"params": {"Dense_0": LAYER, "Dense_1": LAYER}, "step": 3}
MODEL = """
import flax.linen as nn
class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x)
"""
LINES = {
    "inspect": ["ROOT", "ROOT@latest"],
    "plan": ["ROOT edit.yaml", "one donor.yaml"],
    "apply": ["ROOT DST edit.yaml", "one DST donor.yaml"],
    "derive": ["ROOT one", "one ROOT"],
    "diff": ["ROOT one", "one ROOT"],
    "verify": ["ROOT", "one --like ROOT"],
    "check": ["ROOT policy.yaml"],
    "seal": ["ROOT"],
    "log": ["ROOT"],
    "probe": [
        "ROOT --model model.py:Model --input x=float32[1,2]",
        "one --model model.py:Model --input x=float32[1,2] --against ROOT",
    ],
    "reshard": ["ROOT DST --spec params=None", "one DST --like ROOT"],
    "export": ["ROOT DST --to npz"],
    "compact": ["ROOT DST"],
    "rescue": ["broken DST --fill-from ROOT", "broken DST --like ROOT"],
}
"""Every command that opens a checkpoint, with the root at every place for one."""

NO_NEWEST = {"doctor", "clean", "lint", "operations", "schema", "help", "version"}
"""They look at a directory as a whole, or at none."""


def edits():
    """Every edit's own example, of the root and with it as a donor."""
    for name, kind in operations().items():
        words = shlex.split(example_command(kind))[2:]
        yield name, ["ROOT" if word == "SRC" else word for word in words]
        donors = [word for word in words if word.startswith("runs/")]
        if donors:
            given = {"SRC": "one", **dict.fromkeys(donors, "one"), donors[0]: "ROOT"}
            yield name, [given.get(word, word) for word in words]


CASES = [
    *((name, line.split()) for name, lines in LINES.items() for line in lines),
    *((name, words) for name, words in edits() if name in commands()),
]


def test_every_command_is_asked():
    assert set(commands()) == {*LINES, *NO_NEWEST, *(name for name, _ in edits())} & set(commands())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with ocp.CheckpointManager(folder / "run") as manager:
        manager.save(1, args=ocp.args.StandardSave(TREE))
    (folder / "edit.yaml").write_text("edits:\n- {op: rescale, at: params, by: 2}\n")
    (folder / "donor.yaml").write_text("edits:\n- {op: replace, at: params, with: mixed}\n")
    (folder / "policy.yaml").write_text("rules:\n- {at: params, finite: true}\n")
    (folder / "model.py").write_text(MODEL)
    (folder / "map.py").write_text("def halve(x):\n    return x / 2\n")
    shutil.copytree(folder / "run/1", folder / "one")
    shutil.copytree(folder / "run/1", folder / "broken")
    (folder / "broken/default/_METADATA").unlink()
    for step in ("1", "step_2"):
        shutil.copytree(folder / "run/1", folder / "mixed" / step)
    return folder


@pytest.mark.parametrize(("name", "words"), CASES)
def test_no_command_takes_one_for_the_newest(saved, tmp_path, surgery, monkeypatch, name, words):
    monkeypatch.chdir(saved)
    before = sorted(map(str, saved.rglob("*")))
    new = tmp_path / "new"
    given = {"ROOT": "mixed", "ROOT@latest": "mixed@latest", "DST": new}
    ended = surgery(name, *(given.get(word, word) for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert "named in 2 formats: `N` (1), `step_N` (step_2)" in ended.err
    assert f"name one, as '{saved}/mixed/1' or '{saved}/mixed/step_2'" in ended.err
    assert not new.exists()
    assert sorted(map(str, saved.rglob("*"))) == before


def test_doctor_says_that_there_is_no_newest(saved, surgery):
    found = surgery("doctor", saved / "mixed")
    assert found.code == 0
    assert "steps are named in 2 formats: `N` (1), `step_N` (step_2)" in found.out
    assert "formats" not in surgery("doctor", saved / "run").out


def test_a_folder_that_holds_no_step_has_no_part_in_how_steps_are_named(saved, tmp_path, surgery):
    root = shutil.copytree(saved / "run", tmp_path / "run")
    (root / "0800").mkdir()
    assert "formats" not in surgery("doctor", root).out
    assert surgery("inspect", root).code == 0


def test_doctor_takes_nothing_from_a_step_of_another_format(saved, tmp_path, surgery):
    """Before `3` there is `1`; of `step_2`, whose number is nearer, a script that names steps so knows nothing."""
    root = shutil.copytree(saved / "mixed", tmp_path / "mixed")
    shutil.copytree(root / "1", root / "3")
    shutil.copytree(root / "1", root / "4")
    for file in (root / "3/default/d").iterdir():
        file.write_bytes(file.read_bytes()[:-8])
    (root / "4/default/_METADATA").unlink()
    assert f"--like {root}/1`" in _todo(surgery, root, "4")
    (root / "1/default/_METADATA").unlink()
    assert "--like" not in _todo(surgery, root, "4")
    assert "step_2" not in _todo(surgery, root, "3")


def _todo(surgery, root, step):
    places = surgery("doctor", root, "--settled", "0", "--json").document["places"]
    return next(place["todo"] for place in places if place["path"] == step)


def test_a_mean_over_steps_names_them_one_by_one(saved, tmp_path, surgery):
    root = shutil.copytree(saved / "mixed", tmp_path / "mixed")
    shutil.copytree(root / "1", root / "3")
    for command in ("swa", "ema --decay 0.5", "average"):
        name, *options = command.split()
        for steps in ("1..3", "last:2"):
            line = [name, f"{root}@3", tmp_path / "new", "params", "--steps", steps, *options]
            ended = surgery(*line)
            assert ended.code == 2
            assert "are named in 2 formats: `N`, `step_N`" in ended.err
            assert "--steps 100,200" in ended.err
        line = [name, f"{root}@3", tmp_path / name, "params", "--steps", "1,3", *options]
        assert surgery(*line).code == 0


@pytest.mark.parametrize(
    ("steps", "number", "expected"),
    [
        (["1", "step_2"], 1, "5"),
        (["1", "step_2"], 2, "step_5"),
        (["0500", "1000"], 1000, "0005"),
    ],
)
@pytest.mark.parametrize("where", ["run", "new"])
def test_a_new_step_is_called_as_those_of_its_own_format(
    saved, tmp_path, surgery, steps, number, expected, where
):
    for name in steps:
        shutil.copytree(saved / "run/1", tmp_path / "run" / name)
    line = ["rescale", f"{tmp_path}/run@{number}", tmp_path / where, "params", "--by", "2"]
    ended = surgery(*line, "--as-step", "5")
    assert ended.code == 0, ended.err
    assert (tmp_path / where / expected / "default").is_dir()
    if where == "run":
        newest = "newest step stays 1000" if number == 1000 else f"before it was {number}"
        assert newest in ended.out


def test_force_does_not_remove_steps_of_several_runs(saved, tmp_path, surgery):
    shutil.copytree(saved / "mixed", tmp_path / "mixed")
    ended = surgery(*["rescale", saved / "one", tmp_path / "mixed", "params", "--by=2", "--force"])
    assert ended.code == 2
    assert "which is not one checkpoint that can be read" in ended.err
    assert "named in 2 formats" in ended.err
    assert sorted(place.name for place in (tmp_path / "mixed").iterdir()) == ["1", "step_2"]


def test_a_broken_step_is_named_where_several_have_its_number(saved, tmp_path, surgery):
    shutil.copytree(saved / "run/1", tmp_path / "run/2")
    shutil.copytree(saved / "run/1", tmp_path / "run/step_2")
    ended = surgery("rescue", f"{tmp_path}/run@2")
    assert ended.code == 2
    assert "'2' and 'step_2' stand there" in ended.err
    shutil.move(tmp_path / "run/step_2", tmp_path / "run/2.orbax-checkpoint-tmp")
    assert (
        f"{tmp_path}/run/2" in surgery("rescue", f"{tmp_path}/run@2", "--json").document["broken"]
    )
