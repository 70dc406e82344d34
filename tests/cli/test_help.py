"""What a command says of itself: `-h`, `help`, `version`, three uses of each; and what the shell completes."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from surgery_cli import __version__
from surgery_cli.cli.commands.table import examples_of
from surgery_cli.cli.main import app
from surgery_cli.operations.table import operations
from surgery_cli.words.topics import TOPIC_OF, TOPICS
from tests import json_schemas
from tests.cli.command_lines import commands

ROOT = Path(__file__).parents[2]
SIMPLE = {"schema": 2, "version": 2}
"""Commands that cannot be used in three ways."""


@pytest.mark.parametrize("name", commands())
def test_every_command_shows_three_uses_which_are_command_lines_of_it(name):
    examples = examples_of(name)

    assert len(set(examples)) == len(examples) >= SIMPLE.get(name, 3)
    group = typer.main.get_command(app)
    for example in examples:
        words = shlex.split(example.partition(" > ")[0].replace("*.yaml", "a.yaml"))
        assert words[:2] == ["surgery", name]
        above = group.make_context("surgery", words[1:])
        _, command, rest = group.resolve_command(above, words[1:])
        command.make_context(name, rest, parent=above)


@pytest.mark.parametrize("name", ["inspect", "rescale", "version"])
def test_help_says_what_the_option_says(surgery, name):
    assert surgery("help", name).out.rstrip() == surgery(name, "-h").out.rstrip() != ""
    assert surgery(name, "-h").out == surgery(name, "--help").out


def test_help_alone_lists_the_commands(surgery):
    assert surgery("help").out.rstrip() == surgery("-h").out.rstrip()
    assert "  rescale " in surgery("help").out


def test_help_for_what_is_no_command_names_the_nearest(surgery):
    ended = surgery("help", "rescal")
    assert ended.code == 2
    assert "did you mean `surgery rescale`?" in ended.err


def test_version_begins_with_our_own(surgery):
    first, *others = surgery("version").out.splitlines()
    assert [f"{first}\n"] == [surgery("--version").out] == [f"surgery {__version__}\n"]
    assert others[0].startswith("  orbax-checkpoint ")


def completed(line, shell="bash"):
    """What the shell is offered at the end of a line, which it takes apart in its own way."""
    script = (
        "import sys\nfrom surgery_cli.cli.main import run\n"
        "try:\n    run([])\n"
        "finally:\n    assert not {'jax', 'orbax', 'flax'} & set(sys.modules)\n"
    )
    words = line.split(" ")
    if shell == "bash":  # as `COMP_WORDBREAKS` has it
        words = " ".join(words).replace("@", " @ ").replace("=", " = ").split(" ")
        words = [w for w in words[:-1] if w] + (
            [words[-1]] if words[-1] or line[-1] not in "@=" else []
        )
        told = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        told = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    process = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **told, "_SURGERY_COMPLETE": f"complete_{shell}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.stderr == ""
    return process.stdout.split()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("surgery help insp", ["inspect"]),
        ("surgery operations resc", ["rescale"]),
        ("surgery inspect RUN@", ["@250", "@500", "@latest"]),
        ("surgery inspect RUN@2", ["@250"]),
        ("surgery inspect RUN@500 params/De", ["params/Dense_0", "params/Dense_1"]),
        ("surgery inspect RUN --step 2", ["250"]),
        ("surgery inspect RUN --item de", ["default"]),
        ("surgery inspect RUN --sta", ["--stats"]),
        ("surgery rescale RUN new params --optimizer tr", ["transform"]),
        ("surgery rescale RUN new params --except params/Dense_1/k", ["params/Dense_1/kernel"]),
        ("surgery rescale RUN new params --link=re", ["reflink"]),
        ("surgery rescale RUN new params --optimizer-kind adamw", ["adamw"]),
        ("surgery rescale RUN new params --limit", ["--limit"]),
        ("surgery diff RUN RUN --output markd", ["markdown="]),
        ("surgery reinit RUN new params --init lecun_n", ["lecun_normal"]),
        ("surgery average RUN new params --with RUN@2", ["@250"]),
    ],
)
def test_bash_completes_commands_steps_choices_and_paths(checkpoint, line, offered):
    assert completed(line.replace("RUN", str(checkpoint))) == offered


def test_other_shells_are_offered_whole_words(checkpoint):
    (offered,) = completed(f"surgery inspect {checkpoint}@2", "fish")
    assert offered == f"{checkpoint}@250"


def test_other_shells_replace_the_option_with_its_value(checkpoint):
    (offered,) = completed(f"surgery rescale {checkpoint} new params --link=re", "fish")
    assert offered == "--link=reflink"


def test_every_choice_is_completed():
    """Of what is typed, only free numbers, names and texts are left to the user."""
    bare = {}
    for name, command in commands().items():
        for parameter in command.params:
            has_choices = re.fullmatch(r"[a-z0-9_-]+(\|[a-z0-9_-]+)+", parameter.metavar or "")
            if has_choices and not offers(parameter):
                bare.setdefault(" ".join([parameter.opts[0], parameter.metavar]), []).append(name)
    assert bare == {}


def offers(parameter):
    own = getattr(parameter, "_custom_shell_complete", None)
    return own is not None or bool(getattr(parameter.type_descriptor, "choices", None))


def test_each_topic_is_told_on_one_screen(surgery):
    for name in (*TOPICS, "options"):
        told = surgery("help", name)
        assert (told.code, told.err) == (0, "")
        assert len(told.out.splitlines()) < (70 if name == "options" else 25)


def test_patterns_are_told_as_their_page_tells_them(surgery):
    page = (ROOT / "docs/patterns.md").read_text().partition("\n- ")[0]
    rows = [
        tuple(row.strip("| ").split(" | ")) for row in re.findall(r"^\| `.*\|$", page, re.MULTILINE)
    ]
    assert rows == [(left, right) for left, right in TOPICS["patterns"].rows]
    told = surgery("help", "patterns").out
    assert all(sign in told for sign in ("**", "{a,b}", "[*]", "%2F"))


@pytest.mark.parametrize("name", ["plans", "policies"])
def test_the_files_of_topics_mean_something(surgery, tmp_path, name):
    topic = TOPICS[name]
    file = tmp_path / topic.file
    file.write_text(topic.example)
    assert surgery("lint", file).code == 0
    assert len(topic.example.splitlines()) + 1 >= 4
    for command in (command for command, of in TOPIC_OF.items() if of == name):
        assert all(
            f"  {line}\n" in surgery(command, "-h").out for line in topic.example.splitlines()
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", commands())
def test_help_names_every_option_and_every_word_that_it_takes(surgery, name):
    """Options that are told elsewhere, too; and each of a policy's and of `--twins` choices has its clause."""
    command = commands()[name]
    told = surgery(name, "-h").out
    shared = surgery("help", "options").out
    for parameter in command.params:
        if parameter.param_type_name != "option" or parameter.hidden:
            continue
        assert re.search(rf"(^|[ ,]){re.escape(parameter.opts[0])}\b", told, re.MULTILINE), (
            parameter.opts
        )
        for choice in (
            parameter.metavar.split("|")
            if parameter.metavar and parameter.name.endswith(("optimizer", "twins"))
            else ()
        ):
            assert choice == "CKPT" or f"`{choice}`" in parameter.help
    assert (
        all(name in told for name in re.findall(r"^  (--[a-z-]+)", shared, re.MULTILINE))
        or name not in operations()
        or not operations()[name].writes
    )


def test_a_choice_that_is_missing_is_asked_for_on_one_line(surgery):
    """The words of the library that reads options come as prose, for every option that must be given."""
    for name, command in commands().items():
        places = [
            p.name.upper() for p in command.params if p.param_type_name == "argument" and p.required
        ]
        if any(p.required for p in command.params if p.param_type_name == "option"):
            said = surgery(name, *places).err
            assert "missing option" in said, said
            assert "\\n" not in said
            assert "\\t" not in said
    assert "Choose from: safetensors, msgpack, " in surgery("export", "a", "b").err


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words", ["--help", "rescale -h", "help patterns", "help options", "operations", "lint {plan}"]
)
def test_what_reads_no_checkpoint_loads_nothing_that_does(words):
    plan = ROOT / "plans" / "linen-to-nnx.yaml"
    script = (
        "import sys\n"
        "from surgery_cli.cli.main import run\n"
        "try:\n    run(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('LOADED', *sys.modules)\n"
    )
    command = [sys.executable, "-c", script, *words.format(plan=plan).split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert [n for n in loaded if n.startswith(("surgery_cli.store.", "surgery_cli.engine."))] == []


def test_a_script_can_read_the_versions(surgery):
    found = surgery("version", "--json").document
    json_schemas.check("version", found)
    told = dict(line.split() for line in surgery("version").out.splitlines())
    assert {"surgery": found["version"], **found["libraries"]} == told
    assert told["numpy"] == np.__version__
