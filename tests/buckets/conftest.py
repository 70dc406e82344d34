"""Buckets on the loopback, which every library of this process takes for Google's and Amazon's."""

import pytest

from tests.buckets.google_server import GoogleServer
from tests.buckets.s3_server import S3Server
from tests.cli.conftest import surgery

__all__ = ["surgery"]


def _served(server):
    # one for the process: the libraries keep what they once read of the environment
    with server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def google():
    yield from _served(GoogleServer())


@pytest.fixture(scope="session")
def amazon():
    yield from _served(S3Server())


@pytest.fixture
def bucket(google):
    """The server, with one empty bucket: `gs://bkt`."""
    google.reset()
    return google


@pytest.fixture
def s3(amazon):
    """The server, with one empty bucket: `s3://bkt`."""
    amazon.reset()
    return amazon


@pytest.fixture(params=["gs", "s3"])
def service(request):
    """Each of the two, for what both must do."""
    return request.getfixturevalue("bucket" if request.param == "gs" else "s3")
