"""Documents on standard output, as text or as one JSON document; problems on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from surgery_cli.errors import Problem

if TYPE_CHECKING:
    from surgery_cli.cli.options import Output
    from surgery_cli.cli.rendering.page import Page
    from surgery_cli.surgery import Listener


def print_document(document: Any, output: Output, render: Callable[[Any, Page], None]) -> None:
    """Print ``document``: as JSON if that was asked for, else as ``render`` puts it on a page."""
    if output.json:
        from surgery_cli.reports import as_builtins

        print_json(as_builtins(document))
        return
    from surgery_cli.cli.rendering.page import page_on

    render(document, page_on(sys.stdout))


def print_json(value: Any) -> None:
    """One JSON document, in ASCII, so that no locale can break it."""
    import msgspec

    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    sys.stdout.write(msgspec.json.format(text, indent=2) + "\n")


def print_problems(problems: Sequence[Problem], *, is_json: bool) -> None:
    """Problems for people on standard error; with ``--json`` also as the one document on standard output."""
    if is_json:
        from surgery_cli.reports import Failure, as_builtins

        print_json(as_builtins(Failure(problems=list(problems))))
        return
    from surgery_cli.cli.rendering.page import page_on
    from surgery_cli.cli.rendering.problems import render

    render(problems, page_on(sys.stderr))


@contextlib.contextmanager
def progress(output: Output) -> Iterator[Listener | None]:
    """A listener that shows progress on standard error while the block runs; None with ``--quiet``."""
    if output.quiet:
        yield None
        return
    from surgery_cli.cli.progress import ProgressLine

    with ProgressLine(sys.stderr) as line:
        yield line
