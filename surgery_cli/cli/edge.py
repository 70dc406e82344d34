"""The edge of the program: errors become messages and exit codes here, and nowhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from surgery_cli.cli import signals
from surgery_cli.cli.process import reuse_blocks
from surgery_cli.console.printable import LEGIBLE, escaped, over_progress
from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.slow_answers import told_to
from surgery_cli.settings.address_space import check_address_space
from surgery_cli.words.invocation import remember, typed
from surgery_cli.words.lists import listed
from surgery_cli.words.no_memory import is_of_memory
from surgery_cli.words.tasks import recipe_for

if TYPE_CHECKING:
    from typer._click.core import Command, Context, Parameter

USAGE: Final = 2
BUG: Final = 70
CLOSED_PIPE: Final = 128 + signal.SIGPIPE
"""What a shell reports for a program that SIGPIPE ended; as `git log | head` does."""


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a stream says that takes no more; with the name of a file it would be about that file."""


def run_command(command: Command, arguments: Sequence[str]) -> int:
    """Run ``command`` and return the exit code; whatever goes wrong has been said by then."""
    _open_standard_streams()
    remember(arguments)
    is_json = _asks_for_json(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a name that the locale cannot write is escaped rather than a crash
            stream.reconfigure(errors=LEGIBLE)
    try:
        with signals.caught():
            return _closing_pipes(lambda: _guarded(lambda: _invoke(command, arguments), is_json))
    except KeyboardInterrupt:
        signals.say_ended("interrupted")
        return 128 + signal.SIGINT
    except signals.Terminated as end:
        signals.say_ended("terminated")
        return 128 + end.number


def _open_standard_streams() -> None:
    """Open what the caller has closed (`>&-`) to nowhere: else the next file opened would be standard output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # in this order each gets its own number, the lowest that is free
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _invoke(command: Command, arguments: Sequence[str]) -> int:
    if "_SURGERY_COMPLETE" in os.environ:
        from surgery_cli.cli.options.completion import answer_shell

        answer_shell(command, list(arguments))
    _check_surroundings(arguments)
    with command.make_context("surgery", list(arguments)) as context:
        check_address_space()
        reuse_blocks()  # before the first thread, which would have an arena of its own
        with signals.never_missed(), told_to(_say):
            result = command.invoke(context)
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _say(line: str) -> None:
    """A word from a thread, over what is drawn of the progress."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{over_progress(sys.stderr)}note: {escaped(line)}\n")
        sys.stderr.flush()


def _check_surroundings(arguments: Sequence[str]) -> None:
    """Refuse what no command can work with.

    Raises:
        PlanError: an argument is not UTF-8, which TensorStore needs; or the working directory is gone.
    """
    for text in arguments:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PlanError(
                f"the argument '{text}' is not UTF-8",
                why="TensorStore opens names in UTF-8 only",
                fix="rename the file or directory, or type the text in UTF-8",
            ) from None
    try:
        Path.cwd()
    except OSError as error:
        raise PlanError(
            "the working directory cannot be read",
            why=error.strerror or str(error),
            fix="`cd` to a directory that exists",
        ) from None


def _guarded(act: Callable[[], int], is_json: bool) -> int:
    """The exit code of ``act``, with every exception but a closed pipe turned into one."""
    try:
        code = act()
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug keeps its traceback
        if signals.struck:  # inside an import of compiled code a signal becomes an error of its own
            raise signals.struck[0] from None
        return _report(error, is_json)
    if signals.struck:  # and may be lost in a callback
        raise signals.struck[0]
    return code


def _report(error: Exception, is_json: bool) -> int:
    """Say what went wrong, in its own way for each kind of error; the exit code."""
    from surgery_cli.console.printing import print_problems

    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.TyperException):
        return _report_usage(error, is_json)
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        return _report_unwritten(error)
    refusal = error if isinstance(error, SurgeryError) else _refusal_of_system(error)
    if refusal is None:
        return _report_bug(error, is_json)
    print_problems(refusal.problems, is_json=is_json)
    return refusal.exit_code


def _refusal_of_system(error: BaseException) -> SurgeryError | None:
    """The error for what the system refuses and no command expects: memory, a file; None for a bug of ours."""
    if is_of_memory(error):
        return PlanError(
            "there is not enough memory",
            why=str(error) or "the system gives no more",
            fix="raise `ulimit -v` and the limits of the container, or run where there is more",
        )
    if isinstance(error, OSError) and error.filename:
        from surgery_cli.store.filesystem.listing import unreadable

        return unreadable(path_at(os.fsdecode(error.filename)), error)
    return None


def _report_unwritten(error: OSError) -> int:
    """For what Typer prints by itself: the help, the version."""
    from surgery_cli.console.printing import discard, print_problems, unwritten

    discard(sys.stdout)
    problem = unwritten(error)
    print_problems(problem.problems, is_json=False)
    return problem.exit_code


def _report_usage(error: typer.TyperException, is_json: bool) -> int:
    from surgery_cli.console.printing import print_problems

    context = getattr(error, "ctx", None)
    # the parser of a command's options does not know whose they are
    command = next((f"surgery {word}" for word in typed()[:1] if word[:1] != "-"), "surgery")
    name = context.command_path if context is not None else command
    name_given = getattr(error, "option_name", None) if hasattr(error, "possibilities") else None
    # Typer's own words for a value that is none of the choices; and its guesses are far-fetched
    what = error.message if name_given else error.format_message().replace(": Value error, ", ": ")
    what = what.replace("Choose from:\n\t", "Choose from: ").replace(",\n\t", ", ")
    if not is_json and context is not None and what == context.get_help():
        sys.stderr.write(f"{what}\n")  # `surgery` alone
        return USAGE
    usage = context.get_usage() if context is not None else ""
    fix = f"`{name} --help` explains it"
    if name_given and context is not None:
        if close := _near_options(name_given, context):
            fix = f"did you mean {listed(close, word='or', mark='`')}? {fix}"
        elif elsewhere := _said_otherwise(name_given, name.split()[-1]):
            fix = f"{elsewhere}; {fix}"
        elif recipe := recipe_for(name_given, "`surgery {}`"):
            fix = f"{fix}; {recipe}"
    problem = Problem(
        f"{what[:1].lower()}{what[1:]}".rstrip("."), why=" ".join(usage.split()), fix=fix
    )
    print_problems([problem], is_json=is_json)
    return USAGE


def _said_otherwise(given: str, command: str) -> str:
    """How to say what an option of another command says."""
    if given == "--to":
        return (
            "what other programs read is written by `surgery export SRC DST --plan PLAN --to safetensors`, with this"
            " edit in the plan"
        )
    if (given, command) == ("--alpha", "extract-lora"):
        return "`--scale` says by what A·B will be multiplied: it is alpha / rank"
    return ""


def _near_options(given: str, context: Context) -> list[str]:
    """The options of the command that may have been meant, as they are typed.

    What the command cannot do without comes before a slip for another: `cast --dtype` is `--to`, "The new dtype".
    """
    from surgery_cli.tree.nearness import nearest

    words = set(given.lstrip("-").casefold().split("-"))
    needed = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.required and parameter.opts[0].startswith("--")
        if words <= set(re.findall(r"\w+", _summary(parameter).casefold()))
    ]
    if needed:
        return needed
    options = {
        spelled.lstrip("-"): spelled
        for parameter in context.command.params
        for spelled in parameter.opts
        if spelled.startswith("--")
    }
    return [options[name] for name in nearest(given.lstrip("-"), options, 2)]


def _summary(parameter: Parameter) -> str:
    """What an option is, up to what is said about it."""
    return re.split("[:.,;]", getattr(parameter, "help", None) or "", maxsplit=1)[0]


def _report_bug(error: Exception, is_json: bool) -> int:
    from surgery_cli import __version__
    from surgery_cli.console.printing import print_problems

    traceback.print_exception(error)
    what = f"this is a bug in surgery {__version__}: {type(error).__name__}: {error}"
    fix = "please report it, with the lines above and the command"
    if is_json:
        print_problems([Problem(what, fix=fix)], is_json=True)
    else:
        sys.stderr.write(f"{what}\n  {fix}\n")
    return BUG


def _closing_pipes(act: Callable[[], int]) -> int:
    """The exit code of ``act``; a reader that went away is no error to speak of."""
    from surgery_cli.console.printing import discard

    try:
        code = act()
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout, sys.stderr)
        return CLOSED_PIPE
    return code


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """True if `--json` was given, also where parsing does not get that far."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options
