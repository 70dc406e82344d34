"""Write docs/library.md, and the stub that tells editors the names of the library: `python docs/make_library.py`."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import surgery_cli as surgery
from surgery_cli import library
from surgery_cli.operations.table import operations

PAGE = Path(__file__).with_name("library.md")
STUB = Path(surgery.__file__).with_suffix(".pyi")

ABOVE = """\
# The library

`import surgery_cli as surgery` gives the commands as functions, every operation as a class, and checkpoints as mappings
of lazy arrays. Made by `docs/make_library.py` from the docstrings; [a notebook](library.ipynb) shows it at work.

```python
import surgery_cli as surgery

checkpoint = surgery.open("runs/mnist")
kernel = checkpoint["params/Dense_0/kernel"]      # shape and dtype are known, nothing is read
kernel[:2, ...]                                   # reads the chunks under two rows

halved = surgery.Rescale(at="params/Dense_0/kernel", by=0.5)
print(surgery.plan("runs/mnist", halved).notes)   # nothing is written
report = surgery.apply("runs/mnist", "runs/mnist-edited", halved)
assert report.verified
```

- **A plan** is its text (YAML or JSON), a `pathlib.Path` of its file, a dict like the file, or an operation or a list
  of them. Text is never taken for a path, nor the other way.
- **A result** is [the document that `--json` prints](json.md), as a struct: `report.leaves`,
  `report.to_dict()`; a notebook shows it as a table. What `verify` and `check` give is true if it agrees, or holds:
  `assert surgery.verify("runs/mnist", strict=True)`. Without `strict`, one digest on record is enough for that; where
  nothing could be compared it is false, though `agrees` and the exit code of the command say that nothing was
  found wrong. What `probe` gives is true if nothing was found, which is exit code 0. A difference and what `inspect`
  gives are neither: asked so, they raise `TypeError`. What `plan` and `apply` give is true: what is wrong, they raise.
- **An error** is that of the command line: `SurgeryError` with `problems`, each with `what`, `why` and `fix`.
  `PlanError` is what exits with 2, `CheckpointError` with 3, `WriteError` with 4, `ValueRefusal` with 1.
- Nothing is printed, and no state is kept between calls. Importing loads nothing heavy until something is asked for.
"""

FUNCTIONS = ("open", "inspect", "plan", "apply", "diff", "verify", "check", "probe", "limits")
CLASSES = ("OpenCheckpoint", "Leaf")


def public_name(operation: str) -> str:
    """The class of an operation as the library has it."""
    return operation.title().replace("-", "")


def stub() -> str:
    """What type checkers and editors read in place of the package's `__getattr__`."""
    lines = ['"""Made by docs/make_library.py from the table of operations."""', ""]
    lines += [f"from surgery_cli.library import {name} as {name}" for name in library.__all__]
    lines += sorted(
        f"from {kind.__module__} import {kind.__name__} as {public_name(name)}"
        for name, kind in operations().items()
    )
    return "\n".join([*lines, "", "__version__: str", ""])


def page() -> str:
    """The reference, as Markdown."""
    return "\n".join([ABOVE, *_sections(), ""])


def _sections() -> Iterator[str]:
    yield "## Functions\n"
    for name in FUNCTIONS:
        function = getattr(library, name)
        yield f"### `{name}`\n\n```python\n{name}{_signature(function)}\n```\n\n{_said(function)}\n"
    yield "## What `open` gives\n"
    for name in CLASSES:
        kind = getattr(library, name)
        yield f"### `{name}`\n\n{_said(kind)}\n"
        yield "| | |\n|---|---|"
        for member, value in vars(kind).items():
            text = inspect.getdoc(value) or ""
            if not member.startswith("_") and text:
                called = "" if isinstance(value, property) else "(…)"
                yield f"| `.{member}{called}` | {text.splitlines()[0]} |"
        yield ""
    yield "## Operations\n"
    yield "Fields are the keys of a plan ([operations](operations.md) has them all); `except` is `except_` in Python.\n"
    yield "| class | what it does |\n|---|---|"
    for name, kind in operations().items():
        first = (inspect.getdoc(kind) or "").splitlines()[0]
        yield f"| `surgery.{public_name(name)}` | {first} |"


def _signature(function: Callable[..., object]) -> str:
    """The parameters, one a line where there are many."""
    text = (
        re.sub(r"(?<=[:>] )'([^']*)'", r"\1", str(inspect.signature(function)))
        .replace("surgery_cli.", "")
        .replace("4294967296", "4 << 30")
    )
    if len(text) < 90:
        return text
    inner, _, returns = text[1:].rpartition(") -> ")
    depth, parts, part = 0, [], ""
    for character in inner:
        depth += character in "[({"
        depth -= character in "])}"
        if character == "," and not depth:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    lines = "".join(f"    {one},\n" for one in [*parts, part.strip()])
    return f"(\n{lines}) -> {returns}"


def _said(thing: object) -> str:
    """A docstring of Google's style as Markdown: arguments and errors as lists."""
    lines = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        if line in ("Args:", "Raises:"):
            lines.append(f"{line.removesuffix(':')}:\n")
        elif line.startswith("    "):
            name, _, meaning = line.strip().partition(": ")
            lines.append(f"- `{name}`: {meaning}")
        else:
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    STUB.write_text(stub())
