"""Who types a task where a command or an operation is wanted is told which recipe of the cookbook it is."""

import pytest

from surgery_cli.cli.main import Commands
from surgery_cli.words.tasks import TASKS, recipe_for
from tests.cli.conftest import SAMPLES
from tests.cli.test_nearness import COMMANDS, UNRELATED
from tests.pages.recipes import operations_of, recipes

SAID = Commands(name="surgery").list_commands(None)


def test_the_table_is_that_of_the_page():
    page = recipes()
    assert [(task.title, task.words) for task in TASKS] == [
        (recipe.title, ", ".join(recipe.words)) for recipe in page.values()
    ]
    for task in TASKS:
        assert task.operation in operations_of(page[task.title])
        assert task.operation in SAID


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_a_task_is_found_by_each_of_its_names_however_it_is_written(task):
    for name in (task.title, *task.words.split(", ")):
        for typed in (name, name.replace(" ", "-"), name.replace(" ", "_").upper()):
            assert f"'{task.title}' (`{task.operation}`)" in recipe_for(typed), typed
        assert f"'{task.title}'" in recipe_for(name.replace(" ", ""))


def test_commands_and_other_words_are_no_tasks_that_are_something_else():
    assert [word for word in UNRELATED if recipe_for(word)] == []
    for name in COMMANDS:
        if told := recipe_for(name):
            assert f"`{name}`" in told, told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("cast", "--to", "bf16"),
            "'bf16' is no dtype that a leaf can be cast to\n  perhaps bfloat16\n",
        ),
        (("reinit", "--init", "xavier"), "there is no initializer 'xavier'\n"),
    ],
)
def test_a_name_that_is_wrong_of_all_leaves_is_said_once(surgery, words, said, tmp_path):
    operation, *options = words
    sample = SAMPLES / "digits_standard"
    ended = surgery(operation, sample, tmp_path / "new", "params", *options)
    assert said in ended.err
    assert ended.err.count("error: ") == 1


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("rescale", "letters_scanned", "new", "params/layers_0/mlp", "--by", "2"), "Scan to list"),
        (("rescale", "letters_scanned", "new", "params/layers_*", "--by", "2"), "Scan to list"),
        (("rescale", "letters_run", "new", "params/layers/mlp", "--by", "2"), "List to scan"),
        (("replace", "letters_run", "new", "params", "--with", "letters_scanned"), "Scan to list"),
        (("replace", "letters_scanned", "new", "params", "--with", "letters_run"), "List to scan"),
    ],
)
def test_layers_that_stand_otherwise_than_a_path_says_name_the_recipe(
    surgery, words, title, monkeypatch
):
    monkeypatch.chdir(SAMPLES)
    assert f"docs/cookbook.md has it: '{title}'" in surgery(*words).err


def test_the_recipe_is_named_wherever_a_task_is_typed(surgery, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("edits:\n  - op: model_soup\n    at: params\n")
    sample = SAMPLES / "digits_standard"
    told = "docs/cookbook.md has it: 'Average the last five' (`"
    for words in (
        ("model-soup", sample, tmp_path / "new", "params"),
        ("operations", "model_soup"),
        ("plan", sample, plan),
        ("rename", sample, tmp_path / "new", "params", "--model-soup", "5"),
    ):
        said = surgery(*words)
        assert said.code == 2
        assert told in " ".join(said.err.split()), said.err
