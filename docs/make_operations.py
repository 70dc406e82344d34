"""Write docs/operations.md from the operations' own fields: `python docs/make_operations.py`."""

from pathlib import Path

from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of

PAGE = Path(__file__).with_name("operations.md")


def page() -> str:
    """The reference of all operations, as Markdown."""
    lines = [
        "# Operations",
        "",
        "Each is an entry under `edits:` in a plan file, and a command of the same name. This page is made by",
        "`docs/make_operations.py` from the operations' own fields; `surgery operations NAME` shows the same.",
        "",
        "An `axis` may count other things in one leaf than in the leaf beside it (inputs here, outputs there): the",
        "preview names two of them. With `missing: skip` it names the leaves that stay, as they are missing elsewhere.",
        "",
    ]
    for name, kind in operations().items():
        first, _, rest = (kind.__doc__ or "").partition("\n")
        lines += [f"## {name}", "", first.strip(), ""]
        if body := " ".join(line.strip() for line in rest.strip().splitlines()):
            lines += [body, ""]
        lines += _table(field for field in fields_of(kind) if not field.is_common)
        lines += ["```yaml", *_as_list_entry(kind.example), "```", ""]
    first = next(iter(operations().values()))
    lines += ["## Fields of every operation", ""]
    lines += _table(field for field in fields_of(first) if field.is_common)
    lines += ["Some have no effect in some operations, which refuse them:", ""]
    lines += _refusals()
    return "\n".join(lines).rstrip() + "\n"


def _refusals() -> list[str]:
    """Which operations refuse which fields that all have, and why; those with the same reason in a line."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for name, kind in operations().items():
        for field, why in kind.unused_fields.items():
            fields, names = found.setdefault(why, ([], []))
            fields += [f"`{field}`"] * (f"`{field}`" not in fields)
            names += [f"`{name}`"] * (f"`{name}`" not in names)
    return [f"- {', '.join(f)} in {', '.join(n)}: {why}." for why, (f, n) in found.items()]


def _table(fields) -> list[str]:
    rows = [
        f"| `{f.name}` | {_cell(f.type_text)} | {_default(f)} | {_cell(f.description)} |"
        for f in fields
    ]
    head = ["| field | type | default | meaning |", "|---|---|---|---|"]
    return [*head, *rows, ""] if rows else []


def _as_list_entry(example: str) -> list[str]:
    """The example as an entry under `edits:`."""
    lines = example.strip().splitlines()
    if lines[0].startswith("- "):
        return lines
    return [("- " if number == 0 else "  ") + line for number, line in enumerate(lines)]


def _default(field) -> str:
    if field.required:
        return "required"
    return "" if field.default in (None, (), "", {}) else f"`{field.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
