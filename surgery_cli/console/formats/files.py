"""The option `--output FORMAT=FILE`: what a command prints, written to files for other programs as well."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from surgery_cli.console.formats.table import FORMATS, formats_of, text_of
from surgery_cli.document import Failure
from surgery_cli.errors import DestinationError, PlanError, SurgeryError
from surgery_cli.inputs.addresses import named_output
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.lists import listed

OutputTo = Annotated[
    tuple[str, ...],
    setting(
        f"Write the result to FILE, too, for other programs: {', '.join(FORMATS)}; repeatable.",
        Group.OUTPUT,
        "FORMAT=FILE",
        named_output,
        option="--output",
    ),
]


class OutputFile(NamedTuple):
    """A file that takes the document of a command."""

    format: str
    path: Path


def output_files(given: Sequence[str], command: str, *looked_at: str) -> list[OutputFile]:
    """What `--output` was given, checked before any work; ``looked_at`` are the checkpoints of the command.

    Raises:
        PlanError: the format is none of the command's.
        DestinationError: the file cannot be made, or would stand in a checkpoint.
    """
    files = [_read(text, command) for text in given]
    for _, path in files:
        _check(path, looked_at)
    return files


def _read(text: str, command: str) -> OutputFile:
    name, _, file = text.partition("=")
    known = formats_of(command)
    if not file:
        fix = f"e.g. `--output {next(iter(known))}=FILE`"
        raise PlanError(f"`--output` takes FORMAT=FILE, not '{text}'", fix=fix)
    if name not in known:
        close = listed(nearest(name, known) or known, word="or", mark="`")
        raise PlanError(f"`{command}` has no output format '{name}'", fix=f"use {close}")
    return OutputFile(name, Path(file).expanduser())


def _check(path: Path, looked_at: Sequence[str]) -> None:
    from surgery_cli.store.locate.argument import Argument

    folder = path.absolute().parent
    if path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise DestinationError(
            f"'{path}' cannot be made",
            why="it is a directory"
            if path.is_dir()
            else f"'{folder}' is no directory that can be written into",
            fix="name another file",
        )
    for text in looked_at:
        try:
            inside = folder.resolve().is_relative_to(Argument.read(text, None, None).path.resolve())
        except SurgeryError:  # what cannot be opened is said when it is
            continue
        if inside:
            raise DestinationError(
                f"'{path}' would stand inside '{text}'",
                why="a checkpoint that is looked at stays as it is",
                fix="name a file outside of it",
            )


def write_files(document: Any, files: Sequence[OutputFile]) -> None:
    """Write the document to every file.

    Raises:
        WriteError: one does not take it.
    """
    from surgery_cli.store.filesystem.write_failures import write_errors

    for name, path in files:
        text = text_of(name, document)
        with write_errors(str(path)):
            _put(path, text)


@contextlib.contextmanager
def failures_written(files: Sequence[OutputFile]) -> Iterator[None]:
    """Write what fails while the block runs to every file, so that no program mistakes silence for success.

    Raises:
        SurgeryError: what the block raises.
    """
    try:
        yield
    except SurgeryError as error:
        write_files(Failure(problems=list(error.problems)), files)
        raise


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all; into what is no file (a pipe) as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    file = path.resolve()
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
