"""Pages whose console blocks show what commands print: run as they stand, or written anew (`UPDATE_PAGES=1`)."""

import os
import re
import shlex
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CONSOLE = re.compile(r"(?<=^```console\n)\$ (.*)\n((?:.*\n)*?)(?=```$)", re.MULTILINE)
# seconds, digests, names of data files, times, and bytes that depend on the filesystem or on compression
CHANGING = re.compile(
    r"\d+\.\d s$|sha256:[0-9a-f]{12,64}|(?<=/d/)[0-9a-f]{32}|(?<=linked )[\d.]+ \w+|(?<=copied )[\d.]+ \w+"
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?\S*",
    re.MULTILINE,
)


def plain(text):
    """What must be the same each time that a command is run."""
    return CHANGING.sub("…", text).rstrip("\n")


def hold(page, run):
    """Each command of the page prints what is shown below it; ``run`` takes its words, and gives what it prints."""
    text = page.read_text(encoding="utf-8")
    printed = {found[1]: run(words_of(found[1])) for found in CONSOLE.finditer(text)}
    if "UPDATE_PAGES" in os.environ:
        page.write_text(CONSOLE.sub(lambda at: _shown(at, printed), text), encoding="utf-8")
        return printed
    for found in CONSOLE.finditer(text):
        assert plain(printed[found[1]]) == plain(found[2]), found[1]
    return printed


def words_of(line):
    """The words of a command after `surgery`."""
    program, *words = shlex.split(line, comments=True)
    assert program == "surgery", line
    return words


def _shown(found, printed):
    """A block with what was printed; as it stands where nothing has changed but what is another each time."""
    if plain(printed[found[1]]) == plain(found[2]):
        return found[0]
    text = printed[found[1]].rstrip("\n")
    return f"$ {found[1]}\n{text}\n" if text else f"$ {found[1]}\n"
