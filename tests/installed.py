"""What not every release has that `pyproject.toml` allows: a test that asks for it is skipped with the older ones."""

from __future__ import annotations

from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from tests.packaging.oldest import pins


def installed(module: ModuleType, name: str) -> Any:
    """``module.name``; skips where it is missing and the release is older than the one that `constraints.txt` pins.

    Raises:
        AttributeError: a release that should have it has none.
    """
    package = module.__name__.partition(".")[0]
    if not hasattr(module, name) and is_older(package):
        pytest.skip(f"{package} {version(package)} has no `{name}`")
    return getattr(module, name)


def is_older(package: str) -> bool:
    """True where the release is older than the one that `constraints.txt` pins."""
    return Version(version(package)) < Version(pins()[package])
