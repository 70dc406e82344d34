"""Sizes and counts behind the options of all commands: nothing, less than that, and more than anybody has."""

import re

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.cli.command_lines import commands

NUMBERS = ("0", "-1", "1000000000", "9" * 26)
NO_SIZES = ("0", "-1GiB", "much", "9" * 26)
LINES = {
    "probe": ["CKPT", "--model", "none.py:Model", "--input", "float32[1]"],
    "inspect": ["CKPT", "--layout"],
    "reshard": ["CKPT", "NEW", "--dry-run"],
    "export": ["CKPT", "NEW", "--to", "safetensors", "--dry-run"],
    "rescale": ["CKPT", "NEW", "params/Dense_0", "--by", "2", "--dry-run"],
}
"""The settings that there are, on commands that take them."""

BESIDE = {
    ("inspect", "--mesh"): ["--spec", "**=None"],
    ("reshard", "--mesh"): ["--spec", "**=None"],
    ("rescale", "--process"): ["--distributed", "--coordinator", "127.0.0.1:1", "--processes", "2"],
    ("rescale", "--processes"): ["--distributed", "--coordinator", "127.0.0.1:1"],
    ("rescale", "--ensemble"): ["--probe", "none.py:Model"],
}
"""What is given with an option that alone would say nothing."""


def settings(*metavars):
    """Each once, but for those that mean another thing with each command."""
    found = {
        (parameter.opts[0], name if parameter.opts[0] == "--mesh" else ""): name
        for name in LINES
        for parameter in commands()[name].params
        if parameter.param_type_name == "option" and parameter.metavar in metavars
    }
    return [(name, option) for (option, _), name in found.items()]


@pytest.fixture
def ended(surgery, checkpoint, tmp_path):
    def run(name, option, value):
        places = {"CKPT": checkpoint, "NEW": tmp_path / "new"}
        words = [places.get(word, word) for word in LINES[name]]
        more = BESIDE.get((name, option), [])
        return surgery(name, *words, f"{option}={value}", *more)

    return run


@pytest.mark.parametrize("value", NO_SIZES)
@pytest.mark.parametrize(("name", "option"), settings("SIZE"))
def test_what_is_no_size_is_refused_by_the_option_s_own_name(ended, name, option, value):
    refused = ended(name, option, value)
    assert refused.code == 2
    assert set(re.findall(r"--[a-z-]+", refused.err)) == {option}


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize(("name", "option"), settings("N", "AXIS=N,..."))
def test_a_count_is_refused_in_words_or_is_one(ended, name, option, value):
    if option == "--mesh":
        value = f"fsdp={value}"
    result = ended(name, option, value)
    assert result.code in (0, 1, 2, 3)
    assert "Traceback" not in result.err
    if value.endswith("-1"):
        assert result.code in (2, 3)


@pytest.mark.parametrize("shape", [(1 << 20,), (1 << 22,)])
def test_more_than_the_memory_that_is_allowed_is_taken_where_it_must_be_and_said(
    surgery, tmp_path, shape
):
    """For one block of less than 16 MiB, and for a stored chunk; as help, README and docs say."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", {"w": np.ones(shape, np.float32)})
    done = surgery(
        "cast",
        tmp_path / "ck",
        tmp_path / "new",
        "w",
        "--to",
        "bfloat16",
        "--quiet",
        "--memory",
        "1MiB",
    )
    assert done.code == 0
    assert "at once, more than `--memory` allows: " in done.err
    assert "; the run goes on with that much, which `--memory " in done.err
