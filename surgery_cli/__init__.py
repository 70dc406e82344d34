"""surgery: edit Orbax checkpoints without their model code, by reference where possible.

`import surgery_cli as surgery` gives the library: `open`, `inspect`, `plan`, `apply`, `diff`, `verify`, `check`,
`probe`, and a class for every operation (`surgery.Rescale(at="params/**/kernel", by=0.5)`). Each is loaded when it is
first asked for.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

__version__ = "0.1.0"


@cache
def _names_in_python() -> dict[str, str]:
    """The name of every operation by that in Python: `rescale` is `Rescale`, `add-scaled` is `AddScaled`."""
    return {name.title().replace("-", ""): name for name in _operations()}


def _operations() -> Mapping[str, Any]:
    from importlib import import_module

    table: Mapping[str, Any] = import_module("surgery_cli.operations.table").operations()
    return table


def __getattr__(name: str) -> Any:
    # the rooms of the program import this package: it must not load them
    from importlib import import_module
    from importlib.util import find_spec

    # `from surgery_cli import reports` asks here first: it is a room, which it then loads, and no name of the library
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is None:
        library = import_module("surgery_cli.library")
        if name in library.__all__:
            return getattr(library, name)
        if name in (names := _names_in_python()):
            return _operations()[names[name]]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    from importlib import import_module

    return sorted(
        [*import_module("surgery_cli.library").__all__, *_names_in_python(), "__version__"]
    )
