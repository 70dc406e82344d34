"""The command `lint`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surgery_cli.console.arguments import Output, complete_checkpoint
from surgery_cli.console.page import Page
from surgery_cli.console.printing import print_report
from surgery_cli.document import Linted, LintedFile
from surgery_cli.errors import Gathering
from surgery_cli.inputs.addresses import Address, address
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.words.quantities import counted

_Plans = Annotated[
    list[Address],
    typer.Argument(
        parser=address,
        autocompletion=complete_checkpoint,
        metavar="PLAN...",
        help="Plans and policies: .yaml, .toml or .json.",
        show_default=False,
    ),
]


def lint(plans: _Plans, *, output: Output) -> int:
    """See that plans and policies mean something: keys, values, patterns, variables that nothing uses.

    No checkpoint is looked at, and variables may be left open; exit code 2 if something is wrong.
    """
    from surgery_cli.planning import lint as linted

    gathering, files = Gathering(), []
    for file in plans:
        with gathering.catching():
            kind, entries = linted(file, _content)
            files.append(LintedFile(file=file, kind=kind, entries=entries))
    gathering.raise_if_any()
    print_report(Linted(files=files), output, _render)
    return 0


def _content(file: Path) -> bytes:
    """What reads a plan; that of buckets is loaded where one lies there."""
    if not isinstance(file, BucketPath):
        return file.read_bytes()
    from surgery_cli.store.filesystem.small_files import read_anew

    return read_anew(file)


def _render(document: Linted, page: Page) -> None:
    for found in document.files:
        entry = "edit" if found.kind == "plan" else "rule"
        page.line(f"{found.file}: {found.kind} of {counted(found.entries, entry)}")
