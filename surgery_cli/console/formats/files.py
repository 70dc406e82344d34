"""The options `--output FORMAT=FILE` and `--html FILE`: what a command prints, written to files as well."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from surgery_cli.console.descriptors import append, descriptor_of, is_writable, printed_to
from surgery_cli.console.formats.table import FORMATS, formats_of, text_of
from surgery_cli.document import Failure
from surgery_cli.errors import DestinationError, PlanError, SurgeryError, WriteError
from surgery_cli.inputs.addresses import named_output, written_address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.lists import listed

if TYPE_CHECKING:
    from surgery_cli.console.page import Page

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
HtmlTo = Annotated[
    str | None,
    setting(
        "Write the result to FILE, too, as a page for a browser that needs no network.",
        Group.OUTPUT,
        "FILE",
        written_address,
    ),
]


_STEP: Final = re.compile(r"(?<=.)@[0-9]+\Z", re.DOTALL)


class _Unwritten(WriteError):
    """One of the files was not written: that is not what became of the command."""


class OutputFile(NamedTuple):
    """A file that takes the document of a command."""

    format: str
    path: Path


def output_files(
    given: Sequence[str], html: str | None, command: str, *looked_at: str | None
) -> list[OutputFile]:
    """What `--output` and `--html` were given, checked before any work.

    ``looked_at`` are the places that the command reads or makes.

    Raises:
        PlanError: the format is none of the command's, or two are to be one file.
        DestinationError: the file cannot be made, or would stand in a checkpoint.
    """
    files = [_read(text, command) for text in given]
    if html is not None:
        files.append(OutputFile("html", Path(html).expanduser()))
    seen: dict[Path, str] = {}
    for name, path in files:
        _check(path, [text for text in looked_at if text])
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise PlanError(
                f"'{path}' is to be {other} and {name}", fix="name a file for each of them"
            )
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
    if why := _hindrance(path):
        raise DestinationError(f"'{path}' cannot be made", why=why, fix="name another file")
    real = path.resolve()
    for text, place in ((one, place) for one in looked_at for place in _places_of(one)):
        if real.is_relative_to(place):
            raise DestinationError(
                f"'{path}' would stand inside '{text}'"
                if real != place
                else f"'{path}' is '{text}'",
                why="a checkpoint holds what its writer put there, and nothing else",
                fix="name a file outside of it",
            )


def _hindrance(path: Path) -> str:
    """Why nothing can be written there; "" if it can, as far as can be told before."""
    if (descriptor := descriptor_of(path)) is not None:
        return "" if is_writable(descriptor) else "no file is open there that can be written"
    if path.is_dir():
        return "it is a directory"
    if _is_special(path):
        return "" if os.access(path, os.W_OK) else "it may not be written"
    if stream := printed_to(path):
        return f"what is printed goes there: `{stream}` puts both there"
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"'{folder}' is no directory that can be written into"
    return ""


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _places_of(text: str) -> Iterator[Path]:
    """Where on this disk an argument may stand: by its whole text, and without the step behind it."""
    from surgery_cli.inputs.buckets import BucketPath, path_at

    for named in dict.fromkeys((text, _STEP.sub("", text))):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # said when it is opened
            place = path_at(named)
            if not isinstance(place, BucketPath):
                yield place.resolve()


def write_files(
    document: Any, files: Sequence[OutputFile], render: Callable[[Any, Page], None]
) -> None:
    """Write the document to every file; ``render`` is how people read it.

    Raises:
        WriteError: one does not take it.
    """
    for name, path in files:
        text = text_of(name, document, render)
        try:
            _put(path, text)
        except OSError as error:
            raise _Unwritten(
                f"'{path}' cannot be written",
                why=error.strerror or str(error),
                fix="what the command did to checkpoints is done; only this file is missing",
            ) from None


@contextlib.contextmanager
def failures_written(files: Sequence[OutputFile]) -> Iterator[None]:
    """Write what fails while the block runs to every file, so that no program mistakes silence for success.

    Raises:
        SurgeryError: what the block raises.
    """
    try:
        yield
    except _Unwritten:
        raise
    except SurgeryError as error:
        from surgery_cli.console import problems

        failure = Failure(problems=list(error.problems))
        write_files(failure, files, lambda failed, page: problems.render(failed.problems, page))
        raise


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all; into what is no file (a pipe), or is open (`/dev/stdout`), as it is."""
    if (descriptor := descriptor_of(path)) is not None:
        append(descriptor, text)
        return
    if _is_special(path):
        path.write_text(text, encoding="utf-8")
        return
    file = path.resolve()
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
