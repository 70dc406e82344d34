"""YAML 1.2 by its core schema: no other tags, no merge keys, no repeated keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import NESTING, PLAN_VALUES
from surgery_cli.inputs.numbers import FLOAT, LONGEST_NUMBER, decimal
from surgery_cli.planning.text import Mark, PlanText, refuse_twice, shown, with_pairs_joined
from surgery_cli.tree.nested import Position

_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{s + w: float(s + "inf") for s in ("", "+", "-") for w in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_OPEN_BY_LEVEL: Final = 8
_QUOTES_HELP: Final = (
    "put single quotes around text that begins with `*`, `[`, `{`, `!` or `&`, "
    "or that holds `: ` or a backslash"
)


def scalar(text: str) -> Any:
    """The value of unquoted text by the core schema of YAML 1.2.

    >>> scalar("1e-3"), scalar("0x1f"), scalar("no"), scalar("null"), scalar("true")
    (0.001, 31, 'no', None, True)

    What has more digits than any number of a plan, or would be 0 and is not, stays text, and is refused as such.

    Source: https://yaml.org/spec/1.2.2/#1032-tag-resolution
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > LONGEST_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return decimal(text) if re.fullmatch(FLOAT, text) else text


def parse_yaml(text: str, file: str) -> PlanText:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    _refuse_open_brackets(text, file)
    try:
        events: Iterator[Any] = YAML().parse(text)
        return _YamlDocument(events, file).read()
    except ReaderError as error:
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise PlanError(
            f"the plan holds the control character U+{code:04X}",
            why="YAML allows none but tabs and line ends",
            fix="remove it",
            file=file,
            line=text.count("\n", 0, error.position) + 1,
        ) from None
    except MarkedYAMLError as error:
        raise _invalid(error, text, file) from None
    except YAMLError as error:
        raise PlanError("not valid YAML", why=str(error), fix=_QUOTES_HELP, file=file) from None


def _refuse_open_brackets(text: str, file: str) -> None:
    """Refuse very many brackets that are open at once, whose reading takes the cube of their number.

    Those inside of quotes count, too: patterns have pairs of them, or a few more that open.

    Raises:
        PlanError: there are more than any plan needs.
    """
    most = _OPEN_BY_LEVEL * NESTING.most
    if text.count("[") + text.count("{") <= most:
        return
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth = depth + 1 if bracket[0] in "[{" else max(depth - 1, 0)
        if depth > most:
            raise PlanError(
                "the plan is nested too deeply to be one",
                why=f"over {most:,} brackets are open at once, {_OPEN_BY_LEVEL} times the limit `nesting`",
                fix="see `surgery schema`",
                file=file,
                line=text.count("\n", 0, bracket.start()) + 1,
            )


def _invalid(error: Any, text: str, file: str) -> PlanError:
    """What the parser found, and what is most often behind it: columns that do not agree, else missing quotes."""
    said = str(error.problem or error.context)
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else None
    lines = text.splitlines()
    line = lines[number] if number is not None and number < len(lines) else ""
    is_out_of_line = (
        said.startswith("mapping values") and re.split(r"[\[{'\"]", line)[0].count(": ") < 2
    )
    what, why, fix = f"not valid YAML: {said}", str(error.context or ""), _QUOTES_HELP
    if r"'\t'" in said:
        what, fix = "a tab cannot indent in YAML", "indent with spaces"
    elif "<block end>" in said or "<document start>" in said or is_out_of_line:
        column = len(line) - len(line.lstrip())
        what = f"the line begins in column {column + 1}, which fits nothing around it"
        why = f"`{line.strip()}`: what belongs together begins in one column"
        fix = "the fields of an edit stand below the `o` of its `- op:`"
    elif said.endswith("got '{'") and "${" in line:
        fix = "between braces or brackets, put text that holds `${…}` in quotes"
    elif "or '}'" in said or "or ']'" in said:
        fix = "close the bracket that is open, and part its entries with commas"
    elif "expected ':'" in said:
        fix = "a field is `name: value`, with a colon and a space"
    place = {} if mark is None else Mark(mark.line + 1, mark.column + 1)._asdict()
    return PlanError(what, why=why, fix=fix, file=file, **place)


class _YamlDocument:
    """Builds plain values from parser events, by the core schema alone: no tags, no merge keys."""

    def __init__(self, events: Iterator[Any], file: str) -> None:
        self.events = events
        self.file = file
        self.marks: dict[Position, Mark] = {}
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.count = 0

    def read(self) -> PlanText:
        value, documents = None, 0
        for event in self.events:
            kind = type(event).__name__
            if kind in ("StreamStartEvent", "StreamEndEvent", "DocumentEndEvent"):
                continue
            if kind != "DocumentStartEvent":
                value = self.value(event, ())
                continue
            documents += 1
            if documents > 1:
                self.refuse(
                    event, "a second YAML document begins here", fix="keep one plan per file"
                )
            if event.version not in (None, (1, 2)):
                self.refuse(event, "the plan says that it is not YAML 1.2", fix="remove `%YAML`")
        return PlanText(value=value, file=self.file, marks=self.marks)

    def value(self, event: Any, position: Position) -> Any:
        kind = type(event).__name__
        if kind == "AliasEvent":
            if event.anchor not in self.anchors:
                self.refuse(
                    event,
                    f"`*{event.anchor}` is an alias in YAML, and no `&{event.anchor}` stands before it",
                    fix=f"if it is a pattern, put it in quotes: '*{event.anchor}'",
                )
            anchored, size = self.anchors[event.anchor]
            self.tally(event, size)
            return anchored
        is_text = kind == "ScalarEvent" and event.tag == "tag:yaml.org,2002:str"
        if event.tag not in (None, "!") and not is_text:
            name = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.refuse(
                event,
                f"the tag `{name}` means nothing in a plan",
                fix="remove it, or quote the text",
            )
        if len(position) > NESTING.most:
            self.refuse(
                event,
                "the plan is nested too deeply to be one",
                fix="see `surgery schema`; it may have as many levels as `--limit nesting` says",
            )
        found: Any
        start = self.count
        self.tally(event, 1)
        if kind == "ScalarEvent":
            found = self.scalar(event)
        elif kind == "SequenceStartEvent":
            found = self.sequence(position)
        else:
            found = self.mapping(position)
        if event.anchor is not None:
            self.anchors[event.anchor] = (found, self.count - start)
        return found

    def scalar(self, event: Any) -> Any:
        is_plain = event.style is None and event.tag is None
        return scalar(event.value) if is_plain else with_pairs_joined(event.value)

    def sequence(self, position: Position) -> list[Any]:
        found: list[Any] = []
        for event in self.events:
            if type(event).__name__ == "SequenceEndEvent":
                break
            at = (*position, len(found))
            self.marks[at] = _mark(event)
            found.append(self.value(event, at))
        return found

    def mapping(self, position: Position) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self.events:
            if type(event).__name__ == "MappingEndEvent":
                break
            key = self.value(event, position)
            if not isinstance(key, str):
                self.refuse(
                    event,
                    f"the key {shown(key)} is not text",
                    fix="put it in quotes if it is a name",
                )
            if key == "<<":
                self.refuse(
                    event,
                    "merge keys (`<<`) are not part of YAML 1.2",
                    fix="repeat the fields, or put the common value in `vars:`",
                )
            at = (*position, key)
            if key in found:
                refuse_twice(key, self.marks[at], _mark(event), self.file)
            self.marks[at] = _mark(event)
            found[key] = self.value(next(self.events), at)
        return found

    def tally(self, event: Any, size: int) -> None:
        self.count += size
        if self.count > PLAN_VALUES.most:
            self.refuse(
                event,
                f"the plan holds more than {PLAN_VALUES.most:,} values",
                fix="use fewer aliases; if they are meant, raise `--limit plan-values`",
            )

    def refuse(self, event: Any, what: str, *, fix: str) -> NoReturn:
        raise PlanError(what, fix=fix, file=self.file, **_mark(event)._asdict())


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def yaml_of(document: Any) -> str:
    """Plain values as YAML, in block style, keys in their order; what it reads is what was given."""
    from io import StringIO

    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 1 << 20
    stream = StringIO()
    writer.dump(document, stream)
    return stream.getvalue()
