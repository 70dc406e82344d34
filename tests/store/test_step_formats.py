"""Which step a script finds in a root depends on the format of its names: Orbax's own managers are the judges."""

import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.store.locate.location import locate
from surgery_cli.store.locate.step_formats import renumbered, step_formats

PREFIXES = (None, "step", "checkpoint", "1")
WIDTHS = (None, 1, 2, 3, 4, 5, 6)
ROOTS = [
    ["1", "step_2"],
    ["step_1", "2"],
    ["checkpoint_3", "step_3"],
    ["1", "02"],
    ["01", "2"],
    ["1", "1_0"],
    ["0"],
    ["0", "00"],
    ["0", "7", "10"],
    ["00", "07", "10", "123"],
    ["5", "0010", "12345"],
    ["0500", "1000", "20000"],
    ["step_0500", "step_1000", "step_20000"],
    ["step_0500", "step_1000", "1000"],
    ["0010", "000100", "123456"],
    ["1", "checkpoint_2", "step_03"],
]


@pytest.fixture(scope="module")
def step(tmp_path_factory) -> Path:
    """A step as a manager writes it."""
    root = tmp_path_factory.mktemp("saved")
    with ocp.CheckpointManager(root) as manager:
        manager.save(1, args=ocp.args.StandardSave({"w": np.ones(2, "f4")}))
    return root / "1"


def root_of(step: Path, root: Path, names: list[str]) -> Path:
    for name in names:
        shutil.copytree(step, root / name)
    return root


def seen_by_managers(root: Path) -> list[list[int]]:
    """Which steps every manager sees that sees any."""
    found = []
    for prefix in PREFIXES:
        for width in WIDTHS:
            form = ocp.path.step.standard_name_format(
                step_prefix=prefix, step_format_fixed_length=width
            )
            found.append(sorted(one.step for one in form.find_all(root)))
    return [steps for steps in found if steps]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", ROOTS, ids=" ".join)
def test_a_newest_step_there_is_where_one_manager_sees_all_steps(step, tmp_path, names):
    root = root_of(step, tmp_path / "run", names)
    every = sorted(step_name(name).number for name in names)
    is_one_run = every in seen_by_managers(root)
    assert (len(step_formats(names)) == 1) == is_one_run
    for ask in (str(root), f"{root}@latest"):
        if is_one_run:
            assert locate(ask).step == every[-1]
            continue
        with pytest.raises(PlanError, match=f"named in {len(step_formats(names))} formats") as said:
            locate(ask)
        (problem,) = said.value.problems
        assert all(name in problem.what for name in names)
        assert str(root / names[-1]) in problem.fix


@pytest.mark.parametrize("names", ROOTS, ids=" ".join)
def test_each_format_reads_what_its_manager_sees(step, tmp_path, names):
    root = root_of(step, tmp_path / "run", names)
    for one, read in step_formats(names).items():
        form = ocp.path.step.standard_name_format(
            step_prefix=one.prefix or None, step_format_fixed_length=one.width or None
        )
        assert {found.path.name for found in form.find_all(root)} == set(read)
        assert {form.build_name(n) for n in (0, 7, 1234567)} == {
            one.name(n) for n in (0, 7, 1234567)
        }


@pytest.mark.parametrize("names", ROOTS, ids=" ".join)
def test_a_step_is_named_by_its_number_or_its_folder(step, tmp_path, names):
    root = root_of(step, tmp_path / "run", names)
    numbers = [step_name(name).number for name in names]
    for name, number in zip(names, numbers, strict=True):
        assert locate(str(root / name)).step_directory == root / name
        if numbers.count(number) > 1:
            with pytest.raises(PlanError, match=f"2 directories for step {number}"):
                locate(f"{root}@{number}")
            continue
        found = locate(f"{root}@{number}")
        assert found.step_name == name
        assert ("named in" in found.chosen) == (len(step_formats(names)) > 1)


def test_what_is_not_finished_is_of_no_format(step, tmp_path):
    root = root_of(step, tmp_path / "run", ["1", "3"])
    shutil.copytree(step, root / "step_7.orbax-checkpoint-tmp")
    shutil.copytree(step / "default", root / "step_8/default.orbax-checkpoint-tmp")
    assert locate(str(root)).step == 3


@pytest.mark.parametrize(
    ("name", "among", "expected"),
    [
        ("3", ["3", "step_12"], "7"),
        ("step_12", ["3", "step_12"], "step_7"),
        ("1000", ["0500", "1000"], "0007"),
        ("step_1000", ["0500", "step_1000"], "step_7"),
        ("12345", ["12345"], "7"),
    ],
)
def test_a_new_step_is_called_as_the_run_calls_its_own(name, among, expected):
    assert renumbered(name, 7, among) == expected


def test_what_may_be_of_two_formats_gives_no_new_name():
    with pytest.raises(PlanError, match="what step 7 would be called is not known"):
        renumbered("12345", 7, ["5", "0010", "12345"])
