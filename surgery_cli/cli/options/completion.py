"""What the shell completes: commands, places, steps, leaves and choices, from what was typed before.

Nothing here reads a tensor or says a word: where something cannot be told, nothing is offered.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from surgery_cli.console.arguments import complete_checkpoint
from surgery_cli.words.topics import OPTIONS, TOPICS

if TYPE_CHECKING:
    from typer._click.core import Command

_BROKEN_AT: Final = "@:="
"""Where bash, by `COMP_WORDBREAKS`, takes one word for several."""


def complete_command(context: typer.Context, incomplete: str) -> list[str]:
    """Names of commands."""
    group = context.parent.command if context.parent is not None else None
    names = group.list_commands(context) if isinstance(group, TyperGroup) else []
    return _starting(names, incomplete)


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Names of what `help` explains."""
    return [*complete_command(context, incomplete), *_starting([*TOPICS, OPTIONS], incomplete)]


def complete_operation(incomplete: str) -> list[str]:
    """Names of operations."""
    from surgery_cli.operations.table import operations

    return _starting(operations(), incomplete)


def complete_leaf(context: typer.Context, incomplete: str) -> list[str]:
    """Paths inside the checkpoint that was named before; none if it cannot be opened."""
    from surgery_cli import surgery

    checkpoint = _checkpoint(context)
    return surgery.complete_path(checkpoint, incomplete) if checkpoint else []


def complete_step(context: typer.Context, incomplete: str) -> list[str]:
    """Numbers of the finished steps of the root that was named before."""
    return _starting(map(str, _located(context, lambda found: found.steps)), incomplete)


def complete_item(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the trees of the step that was named before."""
    return _starting(_located(context, lambda found: filter(None, found.items)), incomplete)


def complete_output(context: typer.Context, incomplete: str) -> list[str]:
    """Formats of the command's results, and files behind `FORMAT=`."""
    from surgery_cli.console.formats.table import formats_of

    name, equals, place = incomplete.partition("=")
    if equals:
        return [f"{name}={found}" for found in complete_checkpoint(place)]
    return _starting((f"{one}=" for one in formats_of(context.info_name or "")), incomplete)


def complete_limit(incomplete: str) -> list[str]:
    """Names of limits; their values are the user's."""
    from surgery_cli.inputs.limits import LIMITS

    return _starting((f"{name}=" for name in LIMITS), incomplete)


def complete_initializer(incomplete: str) -> list[str]:
    """Names of initializers."""
    from surgery_cli.operations.initializers import INITIALIZERS

    return _starting(INITIALIZERS, incomplete)


def complete_kind(incomplete: str) -> list[str]:
    """Factories of optimizers."""
    from surgery_cli.optimizer.knowledge.factories import FACTORIES

    at, equals, begun = incomplete.rpartition("=")
    return [at + equals + name for name in _starting(FACTORIES, begun)]


def completion_of(
    spelled: str, metavar: str, choices: Iterable[str] = ()
) -> Callable[..., list[str]] | None:
    """What completes the value of an option; None where only its reader knows what it may be."""
    if known := tuple(choices):
        return lambda incomplete: _starting(known, incomplete)
    name = spelled.partition(" ")[0]
    if name in _BY_NAME:
        return _BY_NAME[name]
    form = metavar.partition(":")[0].removeprefix("[NAME=]")
    return complete_checkpoint if form in _PLACES or form.startswith("FILE") else None


_BY_NAME: Final[dict[str, Callable[..., list[str]]]] = {
    "--step": complete_step,
    "--item": complete_item,
    "--params": complete_leaf,
    "--except": complete_leaf,
    "--from": complete_leaf,
    "--init": complete_initializer,
    "--limit": complete_limit,
    "--optimizer-kind": complete_kind,
    "--output": complete_output,
}
_PLACES: Final = ("CKPT", "OTHER", "PLAN", "ROOT", "DIR", "SPEC", "CKPT|FILE", "DST")


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _checkpoint(context: typer.Context) -> str:
    """The checkpoint that was named before, as it was typed; '' if none was."""
    given = context.params
    named = next((given[n] for n in ("source", "checkpoint", "a") if given.get(n)), "")
    if not named:  # behind an option without its value nothing has been read yet
        typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
        named = next(iter(_words(typed)[2:3]), "")
    return named if isinstance(named, str) and not named.startswith("-") else ""


def _words(line: str) -> list[str]:
    import shlex

    try:
        return shlex.split(line)
    except ValueError:  # a quote is open
        return []


def _located(context: typer.Context, asked: Callable[[Any], Iterable[Any]]) -> Iterable[Any]:
    from surgery_cli.errors import SurgeryError
    from surgery_cli.store.locate.location import locate

    try:
        return asked(locate(_checkpoint(context)))
    except SurgeryError:
        return ()


def answer_shell(command: Command, arguments: list[str]) -> None:
    """Print what may stand at the cursor, and exit; the shell has said in variables where that is."""
    shell = os.environ["_SURGERY_COMPLETE"].partition("_")[2]
    begun = _mend_words() if shell == "bash" else ""
    if shell == "zsh":  # one line for each word, which Typer's form for zsh does not keep as it is
        told = {"_SURGERY_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        os.environ.update(told)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            command.main(arguments, prog_name="surgery")
    finally:
        lines = [line for line in printed.getvalue().split("\n") if line]
        offered = [_option_typed() + line.removeprefix(begun) for line in lines]
        print(zsh_code(offered) if shell == "zsh" else "\n".join(offered))  # noqa: T201 - the shell reads this


def zsh_code(offered: Iterable[str]) -> str:
    """What zsh evaluates to offer words, each with what it is behind a tab, and no space behind a directory.

    Every word is quoted as `$'…'` without a blank: the shell splits what it is about to evaluate.
    """
    words: dict[str, list[str]] = {"compadd": [], "compadd -S ''": [], "compadd -Q -S ''": []}
    described = []
    for line in offered:
        word, tab, meaning = line.partition("\t")
        if tab:
            described.append(_zsh_quoted(word.replace(":", "\\:") + f":{meaning}"))
        elif word.startswith("~"):  # quoted, the shell would not expand it
            words["compadd -Q -S ''"].append(_zsh_quoted(re.sub(r"([^\w~/.@-])", r"\\\1", word)))
        else:
            words["compadd -S ''" if word[-1] in "/=" else "compadd"].append(_zsh_quoted(word))
    code = [f"{how} -- {' '.join(those)}" for how, those in words.items() if those]
    if described:
        code.append(f"local -a offered; offered=({' '.join(described)}); _describe '' offered")
    return "; ".join(code)


def _zsh_quoted(text: str) -> str:
    """As `$'…'`, all but plain characters by their bytes."""
    pieces = re.sub(rb"[^\w./@:=,+-]", lambda found: b"\\x%02x" % ord(found[0]), os.fsencode(text))
    return f"$'{pieces.decode()}'"


def _option_typed() -> str:
    """`--name=` of the word at the cursor where its value is completed: all shells but bash replace the whole word."""
    typed = os.environ.get("_TYPER_COMPLETE_ARGS", "").rpartition(" ")[2]
    name, equals, _ = typed.partition("=")
    return name + equals if equals and name.startswith("--") else ""


def _mend_words() -> str:
    """Put words together again that bash has taken apart (`run`, `@`, `5`); what of the last one it replaces not."""
    import shlex

    pieces, at = _words(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    if not pieces:
        return ""
    words: list[str] = []
    cursor, is_glued = 0, False
    for number, piece in enumerate([*pieces, ""] if at == len(pieces) else pieces):
        is_break = bool(piece) and not piece.strip(_BROKEN_AT)
        if words[1:] and (is_glued or is_break):
            words[-1] += piece
        else:
            words.append(piece)
        is_glued = is_break
        if number == at:
            cursor = len(words) - 1
            break
    last = words[-1]
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = shlex.join(words), str(cursor)
    kept = last.removesuffix(_replaced(pieces, at))
    # values come without their option
    return kept.partition("=")[2] if last.startswith("--") else kept


def _replaced(pieces: list[str], at: int) -> str:
    """What bash replaces: the piece at the cursor, or what comes behind a break; with an `@` in front of it, though.

    Source: GNU Readline, `rl_special_prefixes`, to which bash adds that sign.
    """
    piece = pieces[at] if at < len(pieces) else ""
    if piece and not piece.strip(_BROKEN_AT):
        return piece[-1:] if piece.endswith("@") else ""
    before = pieces[at - 1] if at > 1 else ""
    is_host = before.endswith("@") and not before.strip(_BROKEN_AT)
    return f"@{piece}" if is_host else piece
