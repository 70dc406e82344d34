"""What all tests share: eight CPU devices for JAX and what it compiled, stated before anything imports it."""

import os
import tempfile

import pytest

DEVICES = "--xla_force_host_platform_device_count=8"
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()

# The same small computations are compiled again and again: once in a session is enough, for all of its processes.
# Name a directory in the environment to keep what was compiled for the next session.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-combination",
        action="store_true",
        help="in tests/judge, all states in all layouts under all edits (2 minutes), not the chosen ones",
    )
