"""surgery: edit Orbax checkpoints without their model code, by reference where possible.

`import surgery_cli as surgery` gives the library: `open`, `inspect`, `plan`, `apply`, `diff`, `verify`, `check`,
`probe`, and a class for every operation (`surgery.Rescale(at="params/**/kernel", by=0.5)`). Each is loaded when it is
first asked for.
"""

from functools import cache
from typing import Any

__version__ = "0.1.0"


@cache
def _operation_classes() -> dict[str, Any]:
    """Every operation under its name in Python: `rescale` is `Rescale`, `add-scaled` is `AddScaled`."""
    from importlib import import_module

    table = import_module("surgery_cli.operations.table").operations()
    return {name.title().replace("-", ""): kind for name, kind in table.items()}


def __getattr__(name: str) -> Any:
    # the rooms of the program import this package: it must not load them
    from importlib import import_module
    from importlib.util import find_spec

    # `from surgery_cli import reports` asks here first: it is a room, which it then loads, and no name of the library
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is None:
        library = import_module("surgery_cli.library")
        if name in library.__all__:
            return getattr(library, name)
        if name in (classes := _operation_classes()):
            return classes[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    from importlib import import_module

    return sorted(
        [*import_module("surgery_cli.library").__all__, *_operation_classes(), "__version__"]
    )
