"""A setting is declared once, and reaches the command line, the Python API, plans, their schema and the docs."""

from pathlib import Path

import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.console.arguments import Output
from surgery_cli.errors import PlanError
from surgery_cli.planning import fields_of, schema
from surgery_cli.probing import ProbeOptions, command
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import given, settings_of
from surgery_cli.settings.limits import Limits
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import AbovePlan
from tests.cli.command_lines import commands

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "options.md").read_text()

TYPED = {
    "N": "3", "NAME": "other", "AT": "target", "[AT=]KIND": "adamw", "SIZE": "1MiB", "AXIS=N,...": "data=2",
    "FILE.py:FUNCTION": "t.py:f", "FILE.py:MODEL": "t.py:f", "FILE.py:NAME": "t.py:f", "sha256:...": "sha256:0",
    "[NAME=]SPEC": "int32[2]", "X": "0.5", "NAME=VALUE": "a=1", "NAME=SEED": "a=1", "NAME=AT": "a=b", "AXIS": "batch",
    "PATH": "Dense_0", "PATTERN": "Dense_*", "CLASS": "Dense", "METHOD": "*", "CKPT": "other", "FILE.npz": "x.npz",
    "FILE.svg": "x.svg", "HOST:PORT": "10.0.0.1:1234",
}  # fmt: skip
"""A value other than the default for every form that an option may have."""


def typed(command, kind, name):
    """What is typed to give the setting ``name`` another value than it has by default."""
    option = next(p for p in commands()[command].params if p.name == name)
    if option.is_flag:
        return [option.opts[0]]
    default = getattr(kind(), name)
    others = [word for word in (option.metavar or "").split("|") if word != default]
    return [option.opts[0], TYPED.get(option.metavar) or others[-1]]


@pytest.fixture
def caught(monkeypatch):
    """The options of every call of a use case; nothing is done."""
    found = []

    def catch(*_, options, **__):
        found.append(options)
        raise PlanError("caught")

    monkeypatch.setattr(use_cases, "plan", catch)
    monkeypatch.setattr(command, "run_probe", catch)
    return found


RUN = ["keep", "a", "b", "params", "--dry-run"]
PROBE = ["probe", "a", "--model", "t.py:f"]


@pytest.mark.parametrize("kind", [Options, ProbeOptions, CallOptions, Output, Limits])
def test_every_field_is_a_setting_with_a_description_or_a_struct_of_settings(kind):
    for field in fields_of(kind):
        assert (
            field.description
            if field.attribute in settings_of(kind)
            else field.default == CallOptions()
        )


@pytest.mark.parametrize("name", settings_of(Options))
def test_every_setting_of_a_run_is_an_option_of_what_writes_and_a_field_of_the_api(
    surgery, caught, name
):
    surgery(*RUN, *typed("keep", Options, name))
    (options,) = caught
    assert list(given(options)) == [name]
    assert not given(options.probe_options)


@pytest.mark.parametrize("name", settings_of(CallOptions))
def test_every_setting_of_a_call_is_an_option_of_what_writes(surgery, caught, name):
    surgery(*RUN, *typed("keep", CallOptions, name))
    (options,) = caught
    assert list(given(options.probe_options)) == [name]


@pytest.mark.parametrize("name", settings_of(ProbeOptions))
def test_every_setting_of_a_probe_is_an_option_and_a_field_of_the_api(surgery, caught, name):
    surgery(*PROBE, *typed("probe", ProbeOptions, name))
    (options,) = caught
    assert list(given(options)) == [name]


def test_what_is_not_typed_is_what_the_api_does_by_default(surgery, caught):
    surgery(*RUN)
    surgery(*PROBE)
    assert caught == [Options(), ProbeOptions()]


@pytest.mark.parametrize("name", AbovePlan.__struct_fields__)
def test_what_stands_above_a_plan_is_a_key_of_plans_under_the_same_words(name):
    described = {field.attribute: field.description for field in fields_of(Options)}
    assert schema()["properties"][name]["description"] == described[name]


def test_no_other_setting_of_a_run_is_a_key_of_plans():
    keys = schema()["properties"].keys()
    assert keys & set(Options.__struct_fields__) == set(AbovePlan.__struct_fields__)


@pytest.mark.parametrize("name", list(commands()))
def test_every_option_stands_in_the_help_under_a_heading(surgery, name):
    """There with what it does; or, where edits share it, with its name alone, and all of it in `help options`."""
    says, shared = surgery(name, "-h").out, "\n" + surgery("help", "options").out
    for option in commands()[name].params:
        if option.param_type_name == "option" and not option.hidden:
            assert option.rich_help_panel, option.opts
            heading = f"\n{option.rich_help_panel}:\n"
            if heading not in says:
                assert option.opts[0] in says[says.index(f"\n  {option.rich_help_panel}: ") :]
            explained = says if heading in says else shared
            assert option.opts[0] in explained[explained.index(heading) :]


@pytest.mark.parametrize("kind", [Options, ProbeOptions, CallOptions, Output, Limits])
def test_every_setting_stands_in_the_docs(kind):
    for declared in settings_of(kind).values():
        assert all(f"`{name}" in PAGE for name in declared.option.split())
