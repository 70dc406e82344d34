"""Processes of one run that were not told the same: every option that is not of one host is compared."""

import threading
from types import SimpleNamespace

import msgspec
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.runtime import Seat
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import settings_of
from surgery_cli.settings.run import Options
from surgery_cli.surgery.agreement import agree
from tests.hosts.companies import BoardInMemory

OF_HOST = {"coordinator", "process", "processes", "memory_bytes", "bytes_per_second"}
PREPARED = SimpleNamespace(
    checkpoint=SimpleNamespace(location=SimpleNamespace(root="src")),
    draft=SimpleNamespace(digest="sha256:0"),
    compact={},
)


def refusal(first, second):
    """What a second process that was told something else is told; '' where both go on."""
    board, said = BoardInMemory(), [""]

    def take_part(number, options):
        try:
            agree(Membership(board, Seat("", number, 2), lambda _: None), PREPARED, "dst", options)
        except PlanError as error:
            said[0] = str(error)

    other = threading.Thread(target=take_part, args=[1, second], daemon=True)
    other.start()
    take_part(0, first)
    other.join(60)
    return said[0]


def otherwise(settings, name):
    """The settings with another value of one; nothing here looks at what it means."""
    return msgspec.structs.replace(settings, **{name: "something else"})


@pytest.mark.parametrize("name", settings_of(Options))
def test_an_option_on_one_process_alone_is_refused_by_name(name):
    found = refusal(Options(), otherwise(Options(), name))
    assert (found == "") is (name in OF_HOST)
    assert name in OF_HOST or f"`{settings_of(Options)[name].option}`" in found


@pytest.mark.parametrize("name", settings_of(CallOptions))
def test_so_is_how_the_probe_calls_the_model(name):
    calls = otherwise(CallOptions(), name)
    assert settings_of(CallOptions)[name].option in refusal(Options(), Options(probe_options=calls))
