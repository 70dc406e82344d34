"""One command per operation, from its own fields: what is typed becomes the operation."""

import json
import shlex
from pathlib import Path

import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.cli.commands.edits import SHARED_WITH_PLANS
from surgery_cli.console.arguments import Output
from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of
from surgery_cli.planning.command_line import example_command, option_name, option_words
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import settings_of
from surgery_cli.settings.limits import Limits
from surgery_cli.settings.reshard import chunk_limit_of
from surgery_cli.settings.run import Options
from surgery_cli.settings.values import memory_of, tolerance_of

NAMES = list(operations())
WRITING = [name for name, kind in operations().items() if kind.writes]


@pytest.fixture
def typed(surgery, monkeypatch):
    """What reaches the use case from a command line: the only edit as plain values, and the options."""
    import msgspec

    caught = []

    def capture(source, plan, *, destination=None, options=None, say=None):
        caught.append((source, destination, plan, options))
        raise PlanError("caught")

    monkeypatch.setattr(use_cases, "plan", capture)

    def call(*words):
        result = surgery(*words, "--dry-run")
        assert caught, result.err
        _, _, plan, options = caught.pop()
        (edit,) = plan.edits
        return msgspec.to_builtins(edit), options

    return call


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_every_edit_shows_all_its_fields_and_an_example(surgery, name):
    result = surgery(name, "--help")

    assert result.code == 0
    places = "SRC DST" if name in WRITING else "SRC"
    assert f"\n  surgery {name} {places} " in result.out
    for field in fields_of(operations()[name]):
        is_shared = name not in WRITING and field.name in SHARED_WITH_PLANS
        assert (
            field.name == "at" or field.is_unused or is_shared or option_name(field) in result.out
        )


@pytest.mark.parametrize("name", WRITING)
def test_the_example_in_the_help_is_the_edit_in_the_docs(typed, name):
    from surgery_cli.planning.yaml_text import parse_yaml

    documented = parse_yaml(operations()[name].example, "example").value
    if isinstance(documented, list):
        (documented,) = documented
    words = shlex.split(example_command(operations()[name]))[1:]

    edit, _ = typed(*words)

    defaults = {field.name: field.default for field in fields_of(operations()[name])}
    paths = operations()[name].path_fields
    shown = {**defaults, **documented, **_absolute(documented, paths)}
    assert json.loads(json.dumps({**defaults, **edit})) == json.loads(json.dumps(shown))


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", WRITING)
def test_every_flag_can_be_said_both_ways(typed, name, value):
    """What a plan can say, a command can: `normalize: false`, where leaving it out says true."""
    words = shlex.split(example_command(operations()[name]))[1:]
    for field in (f for f in fields_of(operations()[name]) if f.is_flag):
        others = [word for word in words if word != option_name(field)]
        edit, _ = typed(*others, *option_words(field, value))

        assert edit.get(field.name, field.default) is value


def test_a_check_can_be_said_the_other_way_round(surgery, tmp_path):
    import numpy as np

    source = tmp_path / "a.npz"
    np.savez(source, w=np.zeros(2))

    assert surgery("assert", source, "b", "--no-exists").code == 0
    assert surgery("assert", source, "w", "--no-exists").code == 2
    assert surgery("assert", source, "w", "--exists").code == 0


def _absolute(documented, paths):
    """Fields that name files as a command takes them: relative to the working directory."""

    def absolute(text):
        return str(Path.cwd() / text) if "/" in str(text) else text

    given = {
        name: documented[name] for name in paths if isinstance(documented.get(name), str | list)
    }
    return {
        name: absolute(value) if isinstance(value, str) else [absolute(text) for text in value]
        for name, value in given.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_field_hides_behind_an_option_that_every_command_has(name):
    kinds = (Options, CallOptions, Output, Limits)
    shared = {
        word[2:] for kind in kinds for s in settings_of(kind).values() for word in s.option.split()
    }
    own = {option_name(field)[2:] for field in fields_of(operations()[name])}

    assert own & {*shared, "dry-run", "help"} <= SHARED_WITH_PLANS


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (
            ["rescale", "a", "b", "p/*", "q", "--by", "1e-3", "--except", "p/x", "--except", "p/y"],
            {"op": "rescale", "at": ["p/*", "q"], "by": 0.001, "except": ["p/x", "p/y"]},
        ),
        (
            ["normalize", "a", "b", "p", "--axis", "0,1", "--to", "2", "--norm", "l1"],
            {"op": "normalize", "at": "p", "axis": [0, 1], "to": 2.0, "norm": "l1"},
        ),
        (
            ["normalize", "a", "b", "p", "--axis", "-1"],
            {"op": "normalize", "at": "p", "axis": -1},
        ),
        (
            ["replace", "a", "b", "p", "--with", "0", "--cast"],
            {"op": "replace", "at": "p", "with": 0, "cast": True},
        ),
        (["cast", "a", "b", "--to", "bfloat16"], {"op": "cast", "to": "bfloat16"}),
        (
            ["rename", "a", "b", "--move", "p=q", "--move", "q=p"],
            {"op": "rename", "moves": {"p": "q", "q": "p"}},
        ),
        (
            ["keep", "a", "b", "p", "--where-ndim", "2", "--expect", "3", "--optional"],
            {"op": "keep", "at": "p", "where_ndim": 2, "expect": 3, "optional": True},
        ),
        (
            ["reinit", "a", "b", "p", "--init", "zeros", "--optimizer", "reset", "--note", "new"],
            {"op": "reinit", "at": "p", "init": "zeros", "optimizer": "reset", "note": "new"},
        ),
    ],
)
def test_what_is_typed_becomes_the_fields_of_the_edit(typed, words, fields):
    edit, _ = typed(*words)

    assert {k: list(v) if isinstance(v, tuple) else v for k, v in edit.items()} == fields


def test_writing_options_reach_the_use_case(typed):
    words = [
        "--step",
        "3",
        "--item",
        "state",
        "--as-step",
        "4",
        "--params",
        "target",
        "--seed",
        "7",
    ]
    words += ["--device", "gpu:1", "--mesh", "data=2", "--memory", "512MiB", "--optimizer", "keep"]
    words += ["--optimizer-kind", "adamw", "--optimizer-kind", "opt_state/1=sgd"]
    words += ["--allow-non-finite", "--force", "--link", "never", "--compact", "always"]

    _, options = typed("delete", "a", "b", "p", *words)

    assert options == use_cases.Options(
        step=3,
        item="state",
        as_step=4,
        params="target",
        seed=7,
        device="gpu:1",
        mesh="data=2",
        memory_bytes=536870912,
        optimizer="keep",
        optimizer_kind={"": "adamw", "opt_state/1": "sgd"},
        allow_non_finite=True,
        force=True,
        link="never",
        compact="always",
    )


def test_options_that_are_not_given_are_the_use_cases_own_defaults(typed):
    _, options = typed("delete", "a", "b", "p")

    assert options == use_cases.Options()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4294967296),
        ("4G", 4294967296),
        ("4gi", 4294967296),
        ("4GB", 4000000000),
        ("1.5 kB", 1500),
        ("100 MiB", 104857600),
        ("2T", 2199023255552),
        ("512", 512),
        ("512B", 512),
    ],
)
def test_a_size_is_a_number_and_a_unit(text, size):
    assert chunk_limit_of(text) == size


@pytest.mark.parametrize(
    "text", ["", "0", "0.5", "0.0001KiB", "-1GiB", "4 GiBs", "GiB", "4PiB", "1e9", "9" * 400]
)
def test_what_is_no_size_is_refused(surgery, checkpoint, tmp_path, text):
    ended = surgery("reshard", checkpoint, tmp_path / "new", f"--chunk-bytes={text}")
    assert (ended.code, ended.out) == (2, "")
    assert "is not a size" in ended.err
    assert ("it must be more than 0" in ended.err) == (text in ("0", "0.5", "0.0001KiB", "-1GiB"))


@pytest.mark.parametrize("text", ["0", "-1", "-2GiB", "0.0MiB"])
@pytest.mark.parametrize("option", ["--memory", "--rate"])
def test_no_bytes_are_no_size_wherever_one_is_taken(surgery, checkpoint, tmp_path, option, text):
    ended = surgery("cast", checkpoint, tmp_path / "new", "--to", "bfloat16", f"{option}={text}")
    assert ended.code == 2
    assert f"'{text}' is not a size" in ended.err
    assert "  it must be more than 0: a byte at least" in ended.err


@pytest.mark.parametrize("text", ["1", "10", "10B", "5KiB", "1023KiB"])
def test_memory_that_is_less_than_anything_takes_is_refused(text):
    with pytest.raises(PlanError, match="is less than anything takes") as caught:
        memory_of(text)
    assert "`--memory 1MiB`" in caught.value.problems[0].fix


@pytest.mark.parametrize("option", ["--rtol", "--atol"])
@pytest.mark.parametrize("text", ["nan", "inf", "-1e-6", "1/0", "much"])
def test_a_tolerance_that_is_no_number_is_refused(surgery, option, text):
    code, _, error = surgery("diff", "a", "b", f"{option}={text}")
    assert code == 2
    assert f"'{text}' is no finite number from 0 on" in error


def test_a_tolerance_may_be_a_fraction():
    assert tolerance_of("1/3") == 1 / 3
    assert tolerance_of("1e-5") == 1e-5
