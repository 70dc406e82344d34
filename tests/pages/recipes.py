"""The recipes of the cookbook, read from the page, and a folder in which they are cooked."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from surgery_cli.cli.main import run

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "cookbook.md"

SECTION = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WORDS = re.compile(r"^\*(.+)\*$", re.MULTILINE)
STATUS = re.compile(r"\s+# exit code (\d+)$")


class Recipe(NamedTuple):
    """A task of the page: what else it is called, and its blocks by language."""

    title: str
    words: tuple[str, ...]
    blocks: tuple[tuple[str, str], ...]

    @property
    def lines(self):
        return [line for _, text in self.blocks for line in text.splitlines()]

    @property
    def commands(self):
        """The lines of its shell blocks, each with the exit code that it has."""
        shell = "".join(text for language, text in self.blocks if language == "sh")
        for line in shell.replace("\\\n", " ").splitlines():
            status = STATUS.search(line)
            yield STATUS.sub("", line), int(status[1]) if status else 0

    @property
    def files(self):
        """What its other blocks hold, by the name in their first line."""
        for language, text in self.blocks:
            if language != "sh":
                yield text.partition("\n")[0].removeprefix("# "), text


def recipes():
    """Every recipe of the page by its title."""
    found = {}
    for title, text in SECTION.findall(PAGE.read_text()):
        words = WORDS.search(text)[1].split(", ")
        found[title] = Recipe(title, tuple(words), tuple(BLOCK.findall(text)))
    return found


class Kitchen:
    """A copy of the samples, in which recipes run as a reader would run them."""

    def __init__(self, folder):
        self.folder = folder
        self.cooked = {}

    def __truediv__(self, name):
        return self.folder / name

    def cook(self, title):
        """Run the recipe, once; each command ends as the page says. Gives what they printed."""
        if title not in self.cooked:
            recipe = recipes()[title]
            for name, text in recipe.files:
                (self.folder / name).write_text(text)
            with contextlib.chdir(self.folder):
                self.cooked[title] = "".join(cooked(*command) for command in recipe.commands)
        return self.cooked[title]


def cooked(line, status):
    """What the command prints; it ends with that exit code."""
    command, _, file = line.partition(" > ")
    words = shlex.split(command, comments=True)
    assert words.pop(0) == "surgery", line
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        run(words)
    text = out.getvalue()
    assert (end.value.code or 0) == status, f"{line}\n{text}{err.getvalue()}"
    if file:
        Path(file).write_text(text)
    return text + err.getvalue()


def operations_of(recipe):
    """The operations of its plans and commands, in order."""
    plans = "".join(text for language, text in recipe.blocks if language == "yaml")
    commands = [shlex.split(line)[1] for line, _ in recipe.commands]
    return [*re.findall(r"\bop: ([\w-]+)", plans), *commands]
