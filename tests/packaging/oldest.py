"""The oldest versions that `pyproject.toml` allows, as constraints for pip: `python -m tests.packaging.oldest`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bounds() -> dict[str, str]:
    """The lower bound of every package that the program needs, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {}
    for requirement in project["dependencies"]:
        name, bound = re.fullmatch(r"([\w.-]+)>=([\d.]+)", requirement).groups()
        found[name] = bound
    return found


def pins() -> dict[str, str]:
    """The release of every package that `constraints.txt` pins, by its name in lower case."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {name.lower(): release for name, _, release in (line.partition("==") for line in lines)}


if __name__ == "__main__":
    print("\n".join(f"{name}=={bound}" for name, bound in bounds().items()))  # noqa: T201
