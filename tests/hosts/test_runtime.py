"""What is used of JAX's private parts is there, and does what is relied on: a contract, for the next release of JAX."""

import inspect
import platform
import subprocess
import sys
import time

import pytest
from jax._src.clusters import ClusterEnv
from jaxlib import _jax

from surgery_cli.errors import PlanError
from surgery_cli.hosts.runtime import find_seat
from surgery_cli.settings.run import Options
from tests.hosts.companies import REPOSITORY, Processes, free_port

USED_OF_A_CLIENT = {
    "connect",
    "shutdown",
    "key_value_set_bytes",
    "key_value_try_get_bytes",
    "key_value_dir_get_bytes",
}


def test_jax_has_what_is_used_of_it():
    assert set(dir(_jax.DistributedRuntimeClient)) >= USED_OF_A_CLIENT
    assert "missed_heartbeat_callback" in _jax.get_distributed_runtime_client.__doc__
    assert "recoverable" in (
        _jax.get_distributed_runtime_client.__doc__ + _jax.get_distributed_runtime_service.__doc__
    )
    for made in (_jax.get_distributed_runtime_client, _jax.get_distributed_runtime_service):
        assert "heartbeat_timeout" in made.__doc__
    parameters = inspect.signature(ClusterEnv.auto_detect_unset_distributed_params).parameters
    assert list(parameters) == [
        "coordinator_address",
        "num_processes",
        "process_id",
        "local_device_ids",
        "cluster_detection_method",
        "initialization_timeout",
    ]


def test_a_board_keeps_what_it_promises():
    done = subprocess.run(
        [sys.executable, "-m", "tests.hosts.board_contract"], cwd=REPOSITORY, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"SLURM_JOB_ID": "70000", "SLURM_STEP_NODELIST": "node[1-3]", "SLURM_NTASKS": "3",
          "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "3"}, 2),
        ({"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1:34911", "OMPI_COMM_WORLD_SIZE": "3",
          "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, 1),
    ],
    ids=["slurm", "open-mpi"],
)  # fmt: skip
def test_jax_finds_the_processes_of_a_cluster(monkeypatch, environment, number):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seat = find_seat(Options(distributed=True))
    assert (seat.number, seat.among) == (number, 3)
    assert seat.address.rpartition(":")[2].isdigit()


@pytest.mark.parametrize(
    ("told", "refusal"),
    [
        ({}, "does not know which processes there are"),
        ({"coordinator": "10.0.0.1:1234", "processes": 2}, "does not know `--process N`"),
        ({"coordinator": "10.0.0.1", "processes": 2, "process": 0}, "no address of process 0"),
        ({"coordinator": "10.0.0.1:1234", "processes": 2, "process": 2}, "no process 2 of 2"),
    ],
)
def test_what_is_told_of_processes_must_go_together(told, refusal):
    with pytest.raises(PlanError, match=refusal):
        find_seat(Options(distributed=True, **told))


@pytest.mark.check_all
def test_processes_that_all_fail_alike_say_so_each(tmp_path):
    ended = Processes(2, "compact", tmp_path / "none", tmp_path / "new").ended()
    assert [each.code for each in ended] == [2, 2]
    assert ended[0].err.startswith("error: ")
    assert all(line.startswith("[1/2] ") for line in ended[1].err.splitlines())


JOINING = """
import sys
from surgery_cli.errors import SurgeryError
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.runtime import Seat, connect
sys.stdout.write(".\\n")
sys.stdout.flush()
try:
    seat = Seat(sys.argv[1], int(sys.argv[2]), 3)
    member = Membership(connect(seat), seat, print)
    sys.stdout.write("joined\\n")
    sys.stdout.flush()
    if "silent" not in sys.argv:
        member.start()
        member.meet(print)
except SurgeryError as error:
    (problem,) = error.problems
    sys.stdout.write(f"{problem.what}; {problem.why}")
    sys.stdout.flush()
"""


@pytest.fixture
def joining():
    """Start a process that joins two others; it is ended with the test."""
    started = []

    def start(address, number, *words):
        process = subprocess.Popen(
            [sys.executable, "-c", JOINING, address, str(number), *words],
            cwd=REPOSITORY, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == ".\n"
        return process

    yield start
    for one in started:
        one.kill()
        one.communicate()


def test_two_processes_of_one_number_are_told_so(joining):
    port = free_port()
    first = joining(f"127.0.0.1:{port}", 0)
    assert first.stdout.readline() == "joined\n"
    again = joining(f"localhost:{port}", 0)  # which finds the port taken
    assert "another process 0" in again.communicate(timeout=300)[0]
    second = joining(f"127.0.0.1:{port}", 1)
    assert second.stdout.readline() == "joined\n"
    other = joining(f"localhost:{port}", 1)  # as from another machine
    said = other.communicate(timeout=300)[0]
    assert f"another process 1 of the 3 runs on '{platform.node()}'" in said
    assert second.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere JAX tells, once all are there")
def test_two_processes_of_one_number_on_one_machine_are_told_at_once():
    """Without process 0, to which each of them waits for minutes to be connected."""
    words = [sys.executable, "-c", JOINING, f"127.0.0.1:{free_port()}", "1"]
    given = {"cwd": REPOSITORY, "stdout": subprocess.PIPE, "text": True}
    one, other = (subprocess.Popen(words, **given) for _ in range(2))
    try:
        while one.poll() is None and other.poll() is None:
            time.sleep(0.05)
        ended, waiting = (one, other) if one.poll() is not None else (other, one)
        assert "another process 1 of the 3 runs on this machine" in ended.stdout.read()
        assert waiting.poll() is None
    finally:
        for each in (one, other):
            each.kill()
            each.communicate()
