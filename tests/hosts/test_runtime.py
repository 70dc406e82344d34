"""What is used of JAX's private parts is there, and does what is relied on: a contract, for the next release of JAX."""

import inspect
import subprocess
import sys

import pytest
from jax._src.clusters import ClusterEnv
from jaxlib import _jax

from surgery_cli.errors import PlanError
from surgery_cli.hosts.runtime import find_seat
from surgery_cli.settings.run import Options
from tests.hosts.companies import REPOSITORY, Processes

USED_OF_A_CLIENT = {
    "connect",
    "key_value_set_bytes",
    "blocking_key_value_get_bytes",
    "key_value_dir_get_bytes",
}


def test_jax_has_what_is_used_of_it():
    assert set(dir(_jax.DistributedRuntimeClient)) >= USED_OF_A_CLIENT
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
    # in a process of its own: JAX aborts whoever was connected once the board is gone
    done = subprocess.run(
        [sys.executable, "-m", "tests.hosts.board_contract"], cwd=REPOSITORY, capture_output=True,
        text=True, timeout=60, check=False,
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
