"""A bucket on the loopback, which every library of this process takes for Google's."""

import pytest

from tests.buckets.google_server import Faults, GoogleServer
from tests.cli.conftest import surgery

__all__ = ["surgery"]


@pytest.fixture(scope="session")
def google():
    # one for the process: the libraries keep what they once read of the environment
    with GoogleServer() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def bucket(google):
    """The server, with one empty bucket: `gs://bkt`."""
    google.buckets = {"bkt": {}}
    google.faults = Faults()
    google.log.clear()
    return google
