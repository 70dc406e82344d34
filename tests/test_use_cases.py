"""The use cases stand under their names whatever was loaded before, and what none asks for is not loaded."""

import ast
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from surgery_cli import loading, surgery
from surgery_cli.cli.commands.table import COMMANDS, function_of
from surgery_cli.operations.table import operations

SAMPLE = Path(__file__).parents[1] / "sample_checkpoints" / "digits_standard"


def _said_of_types() -> dict[str, str]:
    """What type checkers read: the names with the module of each."""
    tree = ast.parse(Path(surgery.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        one.name: str(node.module)
        for node in imports
        for one in node.names
        if one.asname == one.name
    }


def test_what_is_loaded_is_what_type_checkers_are_told() -> None:
    assert {
        name: f"surgery_cli.{place}" for name, place in surgery._PLACES.items()
    } == _said_of_types()


def test_a_use_case_keeps_its_name_when_the_file_of_that_name_is_loaded() -> None:
    names = [name for name in surgery._PLACES if find_spec(f"surgery_cli.surgery.{name}")]
    script = (
        "from importlib import import_module\n"
        "from surgery_cli import surgery\n"
        f"for name in {names}: import_module(f'surgery_cli.surgery.{{name}}')\n"
        f"print(*(getattr(surgery, name).__module__ for name in {names}))\n"
    )
    assert names
    assert _printed(script) == [f"surgery_cli.{surgery._PLACES[name]}" for name in names]


@pytest.mark.parametrize("name", surgery._PLACES)
def test_a_use_case_is_what_its_place_has(name) -> None:
    assert (
        getattr(surgery, name) is vars(import_module(f"surgery_cli.{surgery._PLACES[name]}"))[name]
    )


def test_one_thread_loads_after_the_other(monkeypatch) -> None:
    """Two that load `a.b` and `a` in another order wait for each other, which Python ends with an error in one."""
    for name in surgery._PLACES:  # asked for anew, and afterwards what they were
        monkeypatch.setitem(vars(surgery), name, getattr(surgery, name))
    at_once, most = [], []

    def slow(place: str) -> str:
        at_once.append(place)
        most.append(len(at_once))
        time.sleep(0.005)
        at_once.remove(place)
        return place

    monkeypatch.setattr(loading, "resolve_name", slow)
    asked = [
        *(partial(surgery._UseCases.__getattr__, surgery, name) for name in surgery._PLACES),
        *(partial(operations().__getitem__, name) for name in operations()),
        *(partial(function_of, name) for name in COMMANDS),
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda ask: ask(), asked))
    assert len(most) == len(asked)
    assert set(most) == {1}


def test_what_is_no_use_case_is_not_found() -> None:
    with pytest.raises(AttributeError, match="no attribute 'shrink'"):
        _ = surgery.shrink


def test_looking_loads_neither_what_writes_nor_what_looks_at_broken_checkpoints() -> None:
    script = (
        "import sys\n"
        "from surgery_cli import surgery\n"
        f"surgery.inspect({str(SAMPLE)!r})\n"
        "print(*(name for name in sys.modules if name.startswith('surgery_cli.')))\n"
    )
    loaded = set(_printed(script))
    assert "surgery_cli.surgery.inspect" in loaded
    assert not loaded & {"surgery_cli.surgery.apply", "surgery_cli.salvage.glance"}


def _printed(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()
