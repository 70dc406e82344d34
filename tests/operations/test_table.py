"""What the table says of the operations holds of their files, and only those that are asked for are loaded."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

import surgery_cli.operations
from surgery_cli.cli.commands.table import COMMANDS, function_of
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations


@pytest.mark.parametrize("name", operations())
def test_an_operation_stands_under_the_name_that_plans_say(name) -> None:
    assert operations()[name].__struct_config__.tag == name


def test_every_operation_that_there_is_a_file_of_is_listed() -> None:
    package = surgery_cli.operations
    files = [import_module(f"{package.__name__}.{m.name}") for m in iter_modules(package.__path__)]
    found = {
        kind
        for file in files
        for kind in vars(file).values()
        if isinstance(kind, type) and issubclass(kind, Operation)
    }
    named = {kind for kind in found if kind.__struct_config__.tag != kind.__name__}
    assert named == set(operations().values())


def test_what_is_no_operation_is_not_found() -> None:
    assert "shrink" not in operations()
    assert operations().get("shrink") is None


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_found_where_the_table_says(name) -> None:
    assert callable(function_of(name))


def test_an_edit_loads_the_file_of_its_own_operation_alone() -> None:
    script = (
        "import sys\n"
        "from surgery_cli.cli.commands.table import command_of\n"
        "from surgery_cli.planning.reading import plan_from_document\n"
        "command_of('rescale')\n"
        "plan_from_document({'edits': [{'op': 'rescale', 'at': 'a', 'by': 2.0}]})\n"
        "print(*(name.rpartition('.')[2] for name in sys.modules if '.operations.' in name))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    files = {kind.__module__.rpartition(".")[2] for kind in operations().values()}
    assert files & set(done.stdout.split()) == {"rescale"}
