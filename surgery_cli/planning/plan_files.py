"""The text of a plan, from a file or standard input, read as YAML 1.2, TOML or JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TextIO, TypeAlias

from surgery_cli.errors import PlanError
from surgery_cli.inputs.buckets import BucketPath, NothingThere, ServiceRefusal
from surgery_cli.inputs.limits import PLAN
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.planning.json_text import parse_json
from surgery_cli.planning.text import PlanText, nearest_fix, refuse_halves, shown
from surgery_cli.planning.toml_text import parse_toml
from surgery_cli.planning.yaml_text import parse_yaml
from surgery_cli.words.lists import quoted

Kind: TypeAlias = Literal["plan", "policy"]
"""What a file is read as, in the words of messages."""

_ORDERS: Final[dict[Kind, str]] = {
    "plan": "`surgery plan SRC PLAN` and `surgery apply SRC DST PLAN`",
    "policy": "`surgery check CKPT POLICY`",
}

_MOST_NAMED: Final = 4


def format_of(path: Path, kind: Kind = "plan") -> str:
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise PlanError(
            f"'{path}' is not named like a {kind}",
            why="its format is told by its suffix: .yaml, .yml, .toml or .json",
            fix="rename it, or pass YAML as standard input: `… - < FILE`",
            file=str(path),
        )
    return found


def file_text(path: Path, content: Callable[[Path], bytes], kind: Kind = "plan") -> str:
    """The text of a plan or policy; ``content`` reads it."""
    if isinstance(path, BucketPath):
        return _text_in_bucket(path, content, kind)
    try:
        if path.is_dir():
            raise PlanError(
                f"'{path}' is a directory, not a {kind}",
                why=f"a {kind} is a .yaml, .yml, .toml or .json file",
                fix=f"the order is {_ORDERS[kind]}",
                file=str(path),
            )
        format_of(path, kind)
        refuse_special(path, PlanError, file=str(path))
        PLAN.check(path.stat().st_size, f"the {kind} '{path}'", PlanError)
        return _decoded(content(path), str(path))
    except FileNotFoundError:
        parent = path.parent
        beside = (
            [f.name for f in parent.iterdir() if f.suffix in FORMATS] if parent.is_dir() else []
        )
        in_steps = sorted(map(str, parent.glob(f"*/{path.name}")))
        raise PlanError(
            f"there is no {kind} '{path}'",
            why="" if parent.is_dir() else f"there is no directory '{parent}'",
            fix=f"a run has one in each of its steps: {quoted(in_steps, _MOST_NAMED)}"
            if in_steps
            else nearest_fix(path.name, sorted(beside), otherwise="check its name"),
            file=str(path),
        ) from None
    except OSError as error:
        raise PlanError(
            f"the {kind} '{path}' cannot be read", why=error.strerror or str(error), file=str(path)
        ) from None


def _text_in_bucket(path: BucketPath, content: Callable[[Path], bytes], kind: Kind) -> str:
    format_of(path, kind)
    try:
        return _decoded(content(path), str(path))
    except FileNotFoundError as error:
        found = error.beside if isinstance(error, NothingThere) else []
        beside = sorted(name for name in found if name.endswith(tuple(FORMATS)))
        raise PlanError(
            f"there is no {kind} '{path}'",
            fix=nearest_fix(path.name, beside, otherwise="check its name"),
            file=str(path),
        ) from None
    except OSError as error:
        fix = error.fix if isinstance(error, ServiceRefusal) else ""
        raise PlanError(
            f"the {kind} '{path}' cannot be read",
            why=error.strerror or str(error),
            fix=fix,
            file=str(path),
        ) from None


def refuse_no_mapping(text: PlanText) -> None:
    """See that a plan says something.

    Raises:
        PlanError: nothing stands in it, or it is no mapping.
    """
    if text.value is None or text.value == {}:
        who = "the command that should have written it" if text.file else "what should have made it"
        raise PlanError(
            "it holds no plan" if text.file else "`{}` is no plan",
            why=f"nothing stands in it: {who} may have failed",
            fix="look at that command; a plan without edits, which only copies, is `edits: []`"
            if text.file
            else "a plan without edits, which only copies, is `edits: []`",
            file=text.file or None,
        )
    if not isinstance(text.value, dict):
        is_list = isinstance(text.value, list)
        raise PlanError(
            "a plan is a mapping of `edits` and other keys",
            why=f"this one is {shown(text.value)}",
            fix="put `edits:` in front of the list" if is_list else "begin with `edits:`",
            file=text.file,
        )


STANDARD_INPUT: Final = "standard input"


def standard_input(stdin: TextIO, name: str = STANDARD_INPUT) -> str:
    """The text that a stream holds, which messages call by its ``name``."""
    buffer = getattr(stdin, "buffer", None)
    given = (stdin if buffer is None else buffer).read(PLAN.most + 1)
    PLAN.check(len(given), name, PlanError)
    return _decoded(given, name) if isinstance(given, bytes) else str(given).removeprefix("\ufeff")


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlanError(
            f"'{file}' is not UTF-8 text",
            why=f"the byte 0x{content[error.start]:02x} at offset {error.start}",
            fix="save it as UTF-8, if it is a plan at all",
            file=file,
            line=content.count(b"\n", 0, error.start) + 1,
        ) from None


FORMATS: Final = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML", ".json": "JSON"}
"""The formats by file suffix."""


def parse(text: str, format: str, file: str) -> PlanText:
    """Parse a document; ``file`` is its name in messages.

    Raises:
        PlanError: the text is not in that format, repeats a key, or uses what the three formats do not share.
    """
    if not text.strip():
        return PlanText(value=None, file=file)
    readers = {"YAML": parse_yaml, "TOML": parse_toml, "JSON": parse_json}
    try:
        read = readers[format](text, file)
        refuse_halves(read)
    except RecursionError:
        raise PlanError(
            "the plan is nested too deeply to be one", fix="see `surgery schema`", file=file
        ) from None
    except ValueError as error:  # a number of more than 4300 digits, an escape beyond Unicode
        raise PlanError(
            f"not valid {format}: it holds a value that cannot be read",
            why=str(error).partition(";")[0],
            fix="look for a number of very many digits, or for an escape that is no character",
            file=file,
        ) from None
    return read
