"""What is suggested in place of a name that does not exist: slips of the finger find it, other words find nothing."""

import re

import pytest

from surgery_cli.cli.main import Commands
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.planning import fields_of
from surgery_cli.planning.command_line import option_name
from surgery_cli.tree.nearness import nearest

COMMANDS = Commands(name="surgery").list_commands(None)
FIELDS = {name: [field.name for field in fields_of(kind)] for name, kind in operations().items()}
FAMILIES = {"commands": COMMANDS, "optimizers": sorted(FACTORIES), **FIELDS}
UNRELATED = [
    "help",
    "wrong",
    "version",
    "please",
    "tensor",
    "train",
    "model",
    "config",
    "batch",
    "loss",
    "gpu",
    "machine",
    "number",
    "yes",
    "true",
    "quit",
    "banana",
    "kangaroo",
    "zebra",
    "xyz",
    "qqq",
    "foo",
    "what",
    "python",
]


def slips(name, step=1):
    """The name with one error of typing, at every ``step``-th place."""
    for at in range(0, len(name), step):
        yield name[:at] + name[at + 1 :]
        yield name[:at] + name[at] + name[at:]
        yield name[:at] + "x" + name[at + 1 :]
    for at in range(0, len(name) - 1, step):
        yield name[:at] + name[at + 1] + name[at] + name[at + 2 :]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("family", FAMILIES)
def test_one_slip_in_any_name_is_understood(family):
    names = FAMILIES[family]
    step = 1 + len(names) // 20  # looking up one name takes as long as there are names
    lost = [
        (name, typed)
        for name in names
        if len(name) > 3
        for typed in slips(name, step)
        if typed not in names and name not in nearest(typed, names)
    ]
    assert not lost


@pytest.mark.parametrize("family", FAMILIES)
def test_words_that_are_no_slip_suggest_nothing(family):
    """Nothing of which more than every third letter is another, and which does not begin alike."""
    far = {
        (word, found)
        for word in UNRELATED
        for found in nearest(word, FAMILIES[family])
        if not (found.startswith(word) or word.startswith(found))
    }
    assert not far


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("norm", "normalize"),
        ("insert", "insert-item"),
        ("reset", "reset-optimizer"),
        ("optimizer", "reset-optimizer"),
        ("Rescale", "rescale"),
        ("normalise", "normalize"),
    ],
)
def test_a_part_of_a_name_and_other_letters_are_understood(typed, meant):
    assert nearest(typed, COMMANDS)[:1] == [meant]


def test_the_command_line_suggests_what_is_near_and_nothing_else(surgery):
    for typed, told in [
        (("xyzzy",), "there is no command 'xyzzy'"),
        (("renaem",), "did you mean `surgery rename`?"),
        (("inspect", "a", "--digets"), "did you mean `--digests`?"),
        (("rescale", "a", "b", "c", "--dryrun"), "did you mean `--dry-run`?"),
    ]:
        assert told in surgery(*typed).err
    for typed in (("xyzzy",), ("inspect", "a", "--wrong"), ("rescale", "a", "b", "c", "--wrong")):
        said = surgery(*typed).err
        assert "mean" not in said
        assert "Possible" not in said


OTHER_WORDS = {
    ("cast", "--dtype"): "--to",
    ("set", "--value"): "--to",
    ("rescale", "--factor"): "--by",
    ("reinit", "--initializer"): "--init",
    ("mask", "--mask"): "--by",
    ("map", "--function"): "--with",
    ("noise", "--standard-deviation"): "--std",
}


@pytest.mark.parametrize(("name", "typed"), OTHER_WORDS)
def test_what_a_command_needs_is_found_by_what_it_is(surgery, name, typed):
    said = surgery(name, "a", "b", "c", typed, "1").err
    assert f"did you mean `{OTHER_WORDS[name, typed]}`?" in said
    assert "--where" not in said


def test_the_word_for_what_a_command_needs_never_leads_to_a_filter(surgery):
    """Of each option without which a command does nothing, the last word of what it is says which is meant."""
    tried = 0
    for name, kind in operations().items():
        options = {option_name(field) for field in fields_of(kind)}
        for field in fields_of(kind):
            word = re.split("[:.,;]", field.description)[0].split()[-1].casefold()
            if field.name == "at" or not field.required or not word.isalpha():
                continue
            if f"--{word}" in options:
                continue
            tried += 1
            said = surgery(name, "a", "b", "c", f"--{word}", "1").err
            assert option_name(field) in said.partition("did you mean ")[2].partition("?")[0], said
    assert tried > 20
