"""Documents on standard output, as text or as one JSON document; problems on standard error."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from surgery_cli.errors import Problem, WriteError

if TYPE_CHECKING:
    from surgery_cli.console.arguments import Output
    from surgery_cli.console.page import Page
    from surgery_cli.engine.progress import Listener
    from surgery_cli.words.notes import Note


def print_document(document: Any, output: Output, render: Callable[[Any, Page], None]) -> None:
    """Print ``document``: as JSON if that was asked for, else as ``render`` puts it on a page."""
    if output.json:
        print_json(document)
        return
    from surgery_cli.console.page import page_on

    with _writing():
        render(document, page_on(sys.stdout))


def print_report(
    document: Any,
    output: Output,
    render: Callable[[Any, Page], None],
    *,
    consequences: Sequence[Note] = (),
    is_good: bool = True,
) -> None:
    """Print what a command has done or found; with ``--quiet`` only what nobody should miss, on standard error.

    What the document takes for granted is among that. ``is_good`` is False where the exit code is another than 0: why
    is then said with ``--quiet``, too.
    """
    if output.json or not output.quiet:
        print_document(document, output, render)
        return
    from surgery_cli.console.page import page_on

    with _complaining():
        page = page_on(sys.stderr)
        page.remarks("assumed", _assumed_in(document))
        page.notes(consequences)
        if not is_good:
            from surgery_cli.console.findings import render_wrong

            render_wrong(document, page, render, is_whole=output.verbose)


def print_assumed(document: Any, output: Output) -> None:
    """Say on standard error what a document takes for granted that is printed in part, for another program."""
    if not output.json:  # there it stands in the document
        print_aside(document, lambda found, page: page.remarks("assumed", _assumed_in(found)))


def _assumed_in(document: Any) -> list[str]:
    """What a document takes for granted; lint's, a rescue's and others say nothing of that."""
    return [taken.sentence for taken in getattr(document, "assumptions", ())]


def print_aside(document: Any, render: Callable[[Any, Page], None]) -> None:
    """Put a document on standard error, beside what another program reads on standard output."""
    from surgery_cli.console.page import page_on

    with _complaining():
        render(document, page_on(sys.stderr))


def print_json(document: Any) -> None:
    """One JSON document and nothing else."""
    from surgery_cli.document import json_text

    print_text(json_text(document))


def print_text(text: str) -> None:
    """Print text that another program reads: in UTF-8, whatever the locale has, as files are read."""
    with _writing():
        if not text.isascii() and _encoding(sys.stdout) != "utf-8":
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode())
        else:
            sys.stdout.write(text)


def _encoding(stream: TextIO) -> str:
    return codecs.lookup(stream.encoding or "utf-8").name


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Write to standard output and flush it; a full disk is no bug, a closed pipe no error to speak of."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout)
        raise unwritten(error) from None


def unwritten(error: OSError) -> WriteError:
    """The error for a report that did not get out."""
    return WriteError(
        "standard output cannot be written",
        why=error.strerror or str(error),
        fix="what the command did to checkpoints is done; only its report is missing",
    )


def discard(*streams: TextIO) -> None:
    """Send what is still buffered nowhere, so that Python does not fail on it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def print_problems(problems: Sequence[Problem], *, is_json: bool) -> None:
    """Problems for people on standard error; with ``--json`` as the one document on standard output instead.

    What one stream does not take is said on the other; what neither takes, the exit code alone tells.
    """
    if is_json:
        from surgery_cli.document import Failure

        try:
            print_json(Failure(problems=list(problems)))
        except WriteError as error:
            problems = [*problems, *error.problems]
        else:
            return
    from surgery_cli.console.page import page_on
    from surgery_cli.console.problems import render

    with _complaining():
        render(problems, page_on(sys.stderr))


@contextlib.contextmanager
def _complaining() -> Iterator[None]:
    """Write to standard error and flush it; what it does not take, the exit code alone tells."""
    try:
        yield
        sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:
        discard(sys.stderr)


@contextlib.contextmanager
def progress(output: Output) -> Iterator[Listener | None]:
    """A listener that shows progress on standard error while the block runs; None with ``--quiet``."""
    if output.quiet:
        yield None
        return
    from surgery_cli.console.progress import ProgressLine

    with ProgressLine(sys.stderr) as line:
        yield line


def saying(output: Output) -> Callable[[str], None]:
    """Takes lines for standard error, such as what user code is imported; with ``--quiet`` consequences only."""
    from surgery_cli.console.printable import escaped, over_progress
    from surgery_cli.words.notes import Consequence, Explained

    begin = over_progress(sys.stderr)

    def say(line: str) -> None:
        label = "note: " if isinstance(line, Consequence) else ""
        if label or not output.quiet:
            said = line.line if isinstance(line, Explained) else line
            sys.stderr.write(f"{begin}{label}{escaped(said)}\n")

    return say
