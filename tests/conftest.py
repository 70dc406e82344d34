"""What all tests share: eight CPU devices for JAX, stated before anything imports it."""

import os

import pytest

DEVICES = "--xla_force_host_platform_device_count=8"
if DEVICES not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-combination",
        action="store_true",
        help="in tests/judge, all states in all layouts under all edits (2 minutes), not the chosen ones",
    )
