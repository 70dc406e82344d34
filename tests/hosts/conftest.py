"""What `make check-all` adds to the tests of many hosts."""

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "check_all: part of `make check-all` alone")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--every-combination"):
        return
    for item in items:
        if "check_all" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="part of `make check-all`"))
