"""What the tests of buckets share: the command line, as another folder has it; the servers are those of all tests."""

from tests.cli.conftest import surgery

__all__ = ["surgery"]
