"""Write docs/schemas/*.json and docs/json.md from the structs that documents are: `python docs/make_schemas.py`."""

import ast
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from surgery_cli import document, reports
from surgery_cli.probing.interface.documents import Probe
from surgery_cli.proof.surgery_json import Record

PAGE = Path(__file__).with_name("json.md")
SCHEMAS = Path(__file__).with_name("schemas")


class Printed(NamedTuple):
    """A document: its struct, and what prints or writes it, as the page says it."""

    struct: type[msgspec.Struct]
    by: str


PRINTED: Final = {
    "inspect": Printed(reports.Inspection, "`inspect`"),
    "preview": Printed(reports.Preview, "`plan`, and every command that writes with `--dry-run`"),
    "report": Printed(
        reports.Report, "`apply`, every edit command, `compact`, `export`, `reshard`"
    ),
    "inverse": Printed(reports.InversePlan, "`plan --inverse`"),
    "diff": Printed(reports.Difference, "`diff`"),
    "verify": Printed(reports.Verdict, "`verify`"),
    "check": Printed(reports.Checked, "`check`"),
    "assert": Printed(reports.Judgement, "`assert`, where every rule holds"),
    "seal": Printed(reports.Seal, "`seal`"),
    "log": Printed(reports.History, "`log`"),
    "derive": Printed(reports.Derivation, "`derive`"),
    "probe": Printed(Probe, "`probe`"),
    "doctor": Printed(reports.Examination, "`doctor`"),
    "rescue": Printed(reports.Rescued, "`rescue`"),
    "clean": Printed(reports.Cleaning, "`clean`"),
    "lint": Printed(document.Linted, "`lint`, where nothing is wrong"),
    "operations": Printed(document.OperationList, "`operations`"),
    "version": Printed(document.Versions, "`version`"),
    "failure": Printed(reports.Failure, "every command that fails, whatever it is"),
    "surgery": Printed(Record, "every result, as its file `surgery.json`"),
}
"""Every document by the name of its schema."""

ABOVE = """\
# JSON

With `--json` a command prints one JSON document on standard output and nothing else; where it fails, that document
has `problems`, and the exit code says of what kind they are ([commands](commands.md#exit-codes)). `check`, `diff` and
`verify` write the same to a file, beside what they print (`--output json=FILE`). In Python the documents are structs
with the same names, and `to_dict()` gives what is shown here.

Each has a JSON Schema (draft 2020-12), made by `docs/make_schemas.py` from the struct that is printed; the tests hold
what commands print against it.

```sh
surgery inspect sample_checkpoints/digits_manager --json > inspect.json
surgery verify sample_checkpoints/digits_manager --output json=verdict.json
```

## What is promised

- `schema_version` is 1, and rises only when a key goes, or changes its type or its meaning.
- Keys are added without that: ignore those that you do not know. The schemas allow them everywhere.
- A key that the schema requires is always there; others are left out where they say nothing.
- Numbers that JSON cannot write are the texts `"nan"`, `"inf"` and `"-inf"`.
- Texts meant for people (`notes`, `why`, `fix`, `chosen`, and the like) may be said in other words at any time. What is
  of use to a program stands in keys of its own.
- The text is ASCII, and bytes in a name that is not UTF-8 are lone surrogates, as in Python.

The JSON Schema of plan files is what `surgery schema` prints.

"""


def pages() -> dict[Path, str]:
    """Every file that is made, by its path."""
    found = {
        SCHEMAS / f"{name}.json": json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"
        for name in PRINTED
    }
    return {PAGE: page(), **found}


def page() -> str:
    """The reference of all documents, as Markdown."""
    lines = ["| document | printed by | schema |", "|---|---|---|"]
    parts: dict[str, str] = {}
    for name, (struct, by) in PRINTED.items():
        title = struct.__name__
        lines.append(f"| [{title}](#{title.lower()}) | {by} | [{name}.json](schemas/{name}.json) |")
        for part, found in _Definitions.of(struct).items():
            if part != "float" and part not in parts:
                parts[part] = _section(part, found)
    documents = [struct.__name__ for struct, _ in PRINTED.values()]
    below = [parts[name] for name in documents]
    below += ["## What stands in them\n"]
    below += [parts[name].replace("## ", "### ", 1) for name in sorted(parts.keys() - {*documents})]
    return ABOVE + "\n".join([*lines, "", *below]).rstrip() + "\n"


def _section(name: str, found: Mapping[str, Any]) -> str:
    required = found.get("required", [])
    rows = [
        f"| `{key}` | {_in_words(kind)} | {'' if key in required else 'may be left out'} |"
        f" {_cell(kind.get('description', ''))} |"
        for key, kind in found["properties"].items()
    ]
    head = [f"## {name}", "", found.get("description", ""), "", "| key | type | | meaning |"]
    return "\n".join([*head, "|---|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _in_words(kind: Mapping[str, Any]) -> str:
    """A schema's type for a reader."""
    if "anyOf" in kind:
        return " or ".join(_in_words(way) for way in kind["anyOf"])
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return "number" if name == "float" else f"[{name}](#{name.lower()})"
    if "enum" in kind:
        return ", ".join(f"`{json.dumps(value)}`" for value in kind["enum"])
    if "const" in kind:
        return f"`{json.dumps(kind['const'])}`"
    match kind.get("type"):
        case "array" if "items" in kind:
            return f"list of {_in_words(kind['items'])}"
        case "object" if isinstance(kind.get("additionalProperties"), dict):
            return f"object of {_in_words(kind['additionalProperties'])}"
        case None:
            return "anything"
        case said:
            return {"string": "text", "boolean": "true or false"}.get(said, said)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document."""
    struct, by = PRINTED[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"surgery: {by.replace('`', '')}",
        "$ref": f"#/$defs/{struct.__name__}",
        "$defs": _Definitions.of(struct),
    }


_FLOAT: Final = {
    "description": "A number, or the text of one that JSON cannot write.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}
_PLAIN: Final = {str: "string", int: "integer", bool: "boolean", types.NoneType: "null"}


class _Definitions:
    """The schemas of a struct and of all that stand in it, by their names."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.structs: dict[str, type] = {}

    @classmethod
    def of(cls, struct: type[msgspec.Struct]) -> dict[str, Any]:
        """Those of one document."""
        made = cls()
        made.of_type(struct)
        return made.found

    def of_type(self, hint: Any) -> dict[str, Any]:
        """The schema of a type that a field has."""
        if hint is Any:
            return {}
        if hint is float:
            self.found["float"] = _FLOAT
            return {"$ref": "#/$defs/float"}
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            assert self.structs.setdefault(hint.__name__, hint) is hint, "two structs of one name"
            if hint.__name__ not in self.found:
                self.found[hint.__name__] = {}  # it may stand in itself
                self.found[hint.__name__] = self._of_struct(hint)
            return {"$ref": f"#/$defs/{hint.__name__}"}
        if isinstance(hint, type) and (
            of := next((p for p in _PLAIN if issubclass(hint, p)), None)
        ):
            return {"type": _PLAIN[bool if hint is bool else of]}
        return self._of_many(typing.get_origin(hint), typing.get_args(hint))

    def _of_many(self, origin: Any, inner: tuple[Any, ...]) -> dict[str, Any]:
        if origin is typing.Annotated:
            return self.of_type(inner[0])
        if origin is typing.Literal:
            return {"enum": list(inner)}
        if origin in (list, tuple):
            return {"type": "array", "items": self.of_type(inner[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of_type(inner[1])}
        assert origin in (types.UnionType, typing.Union), origin
        ways = [self.of_type(one) for one in inner if one is not msgspec.UnsetType]
        ways = [way for at, way in enumerate(ways) if way not in ways[:at]]
        return ways[0] if len(ways) == 1 else {"anyOf": ways}

    def _of_struct(self, struct: type[msgspec.Struct]) -> dict[str, Any]:
        hints = typing.get_type_hints(struct, include_extras=True)
        said = _meanings(struct)
        properties, required = {}, []
        for field in msgspec.structs.fields(struct):
            meaning = {"description": said[field.name]} if field.name in said else {}
            properties[field.encode_name] = {**self.of_type(hints[field.name]), **meaning}
            if field.required or _is_always_there(struct, field):
                required.append(field.encode_name)
        if "schema_version" in properties:
            properties["schema_version"] = {"const": document.SCHEMA_VERSION}
        return {
            "description": _plain(inspect.getdoc(struct) or ""),
            "type": "object",
            "properties": properties,
            "required": required,
        }


def _is_always_there(struct: type[msgspec.Struct], field: Any) -> bool:
    """True if a field with a default is written all the same; a record may be of an earlier version."""
    is_kept = struct.__struct_config__.omit_defaults or field.default is msgspec.UNSET
    return not is_kept and struct is not Record


def _meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What the source says below each field."""
    found: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if kind.__module__.startswith("surgery_cli."):
            found |= dict(_said(kind))
    return found


def _said(kind: type) -> Iterator[tuple[str, str]]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    for field, text in itertools.pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            yield field.target.id, _plain(inspect.cleandoc(ast.literal_eval(text.value)))


def _plain(text: str) -> str:
    """A docstring's text with code as Markdown has it."""
    return re.sub(r"``(.+?)``", r"`\1`", text)


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
