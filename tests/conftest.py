"""What all tests share: eight CPU devices for JAX and what it compiled, stated before anything imports it."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests import covers, turns
from tests.json_schemas import documents_keep_their_schemas

__all__ = ["documents_keep_their_schemas"]  # a fixture of every test

DEVICES = "--xla_force_host_platform_device_count=8"

# Thousands of computations are compiled, most of them to run once on a few numbers: nearly half the time goes if XLA
# does not look for the fastest code. No bit may depend on this, as it would on a lower optimization level: with
# --every-combination all is compiled as it is for users.
PLAIN_CODE = (
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_llvm_disable_expensive_passes=true",
)
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def flag_xla(*flags: str) -> None:
    given = os.environ.get("XLA_FLAGS", "").split()
    os.environ["XLA_FLAGS"] = " ".join(given + [flag for flag in flags if flag not in given])


flag_xla(DEVICES)

# The same small computations are compiled again and again: once in a session is enough, for all of its processes.
# Name a directory in the environment to keep what was compiled for the next session.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Hundreds of processes are started, which would all compile anew what they import where none may write bytecode, as in
# many a container. A folder for all of it would not do: what was installed lies compiled beside its sources.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts the tests in the background has their interrupts ignored, and so had all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-combination",
        action="store_true",
        help="all states in all layouts under all edits (tests/judge, 2 minutes), all operations on slots of every kind"
        " (tests/optimizer/test_every_operation.py), runs struck at every moment (tests/store/test_resume.py), and"
        " whole products where a test is marked with the cover that is enough (tests/covers.py); not the chosen ones",
    )
    parser.addoption(
        "--turn",
        choices=[*map(str, range(turns.TURNS)), "all"],
        help="which of the slow tests run (tests/turns.py): where no tests are named, those whose turn the commit has",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("every_combination") and not any("::" in word for word in config.args):
        covers.thin(config, items)
    if (turn := config.getoption("turn")) != "all":
        turns.take_turns(config, items, int(turn))


def pytest_configure(config: pytest.Config) -> None:
    """A flag that a release of XLA does not know ends the process, so others than the pinned one get none.

    The turn is settled once, for all processes.
    """
    config.option.turn = turns.resolved(config.option.turn, config)
    for mark in (covers.MARK, covers.SAMPLED, covers.CHECK_ALL):
        config.addinivalue_line("markers", mark)
    pinned = CONSTRAINTS.read_text("utf-8").split()
    if not config.getoption("every_combination") and f"jaxlib=={version('jaxlib')}" in pinned:
        flag_xla(*PLAIN_CODE)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage in what is imported and collected: it stays, and looking took a quarter of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave what was imported out of each look for garbage: it stays, and looking took a third of the tests' time.

    Frozen things do not count in the share from which on Python looks at everything, which it then did all the time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests wait for processes, servers and disks."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print whose turn it was, and the table of the oracle (see tests/oracle), whichever process tried what."""
    if (turn := terminalreporter.config.getoption("turn")) != "all":
        terminalreporter.write_line(
            f"of the slow tests, those of turn {turn} of 0 to {turns.TURNS - 1}: `--turn all` runs all of them"
        )
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    found = [value for r in reports for name, value in r.user_properties if name == "oracle"]
    if found:
        from tests.oracle.table import table

        seed = found[0][0]
        terminalreporter.section(f"oracle of training, sample {seed} (ORACLE_SEED={seed})")
        terminalreporter.write_line(
            table((name, verdict) for _, some in found for name, verdict in some)
        )


@pytest.fixture(autouse=True)
def nothing_was_typed():
    """What a test calls is no command that a test before it has typed in this process."""
    from surgery_cli.words import invocation

    invocation.remember(())


# Buckets on the loopback, which every library of this process takes for the services: one of each, whoever asks.


def _served(server, scheme):
    from surgery_cli.store import filesystem

    # one for the process: the libraries keep what they once read of the environment
    with server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        # a test before it may have asked for an address of the service itself, and its client is kept
        vars(filesystem._SERVICES[f"{scheme}://"]._service._service).pop("_client", None)
        yield server


def _forget(scheme):
    """Let us, and fsspec's clients, by which Orbax looks for marks, forget what was listed for earlier tests."""
    import fsspec

    from surgery_cli.store import filesystem

    filesystem.forget(f"{scheme}://bkt")
    for client in fsspec.get_filesystem_class(scheme)._cache.values():
        client.invalidate_cache()


@pytest.fixture(scope="session")
def google():
    from tests.buckets.google_server import GoogleServer

    yield from _served(GoogleServer(), "gs")


@pytest.fixture(scope="session")
def amazon():
    from tests.buckets.s3_server import S3Server

    yield from _served(S3Server(), "s3")


@pytest.fixture
def bucket(google):
    """The server, with one empty bucket: `gs://bkt`."""
    google.reset()
    _forget("gs")
    return google


@pytest.fixture
def s3(amazon):
    """The server, with one empty bucket: `s3://bkt`."""
    amazon.reset()
    _forget("s3")
    return amazon


@pytest.fixture(params=["gs", "s3"])
def service(request):
    """Each of the two, for what both must do."""
    return request.getfixturevalue("bucket" if request.param == "gs" else "s3")
