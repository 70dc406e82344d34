"""Kits: devices and meshes give the host's values to rounding, and keep every dtype."""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.compute.devices import partition_for
from surgery_cli.compute.host import HostKit
from surgery_cli.compute.kits import open_kit
from surgery_cli.errors import SurgeryError
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.typed_shardings import parse_mesh
from tests.compute.on_eight_devices import CASES, PLACEMENTS, result_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """The values of every case on devices, and facts about their placement."""
    folder = tmp_path_factory.mktemp("eight")
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    }
    subprocess.run(
        [sys.executable, HERE / "on_eight_devices.py", folder], env=environment, check=True
    )
    facts = json.loads((folder / "facts.json").read_text())
    with np.load(folder / "results.npz") as stored:
        values = {
            name: stored[name].view(getattr(ml_dtypes, dtype, dtype))
            for name, dtype in facts["dtypes"].items()
        }
    return values, facts


@pytest.mark.check_all
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_edit_on_devices_equals_the_hosts_to_rounding(
    eight: tuple[dict, dict], placement: str
) -> None:
    for name, dtype in CASES:
        ours = eight[0][f"{name}|{dtype}|{placement}"]
        hosts = result_of(name, dtype, HostKit(), in_blocks=name not in ("spectral", "orthogonal"))
        assert ours.dtype == hosts.dtype
        # one step of the output's dtype; reductions in float64 may differ in their order
        step = float(ml_dtypes.finfo(hosts.dtype).eps)
        np.testing.assert_allclose(
            ours.astype(np.float64),
            hosts.astype(np.float64),
            rtol=max(step, 1e-14),
            atol=1e-15,
            err_msg=f"{name} of {dtype}",
        )


@pytest.mark.check_all
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_random_values_and_casts_do_not_depend_on_the_device_at_all(
    eight: tuple[dict, dict], placement: str
) -> None:
    for name, dtype in CASES:
        if name in ("initializer", "bfloat16", "float16", "float8", "float64", "constant"):
            ours = eight[0][f"{name}|{dtype}|{placement}"]
            hosts = result_of(name, dtype, HostKit())
            assert ours.tobytes() == hosts.tobytes(), f"{name} of {dtype}"


@pytest.mark.check_all
def test_an_index_names_the_device_and_a_mesh_follows_the_stored_partition(
    eight: tuple[dict, dict],
) -> None:
    facts = eight[1]
    assert facts["one"] == [5]
    assert facts["shard"] == [1, 3, 3]
    assert facts["dtype"] == "float64"


@pytest.mark.check_all
def test_the_process_keeps_its_own_precision(eight: tuple[dict, dict]) -> None:
    assert eight[1]["still_32_bits"] == "float32"


def spec(shape: tuple[int, ...], partition: object = None) -> LeafSpec:
    sharding = json.dumps({"sharding_type": "NamedSharding", "partition_spec": partition})
    return LeafSpec(kind=LeafKind.ARRAY, shape=shape, dtype="float32", sharding=sharding)


@pytest.mark.parametrize(
    ("shape", "stored", "expected"),
    [
        ((8, 6), ["data", "model"], (("data",), ("model",))),
        ((8, 6), [["data", "model"], None], (("data", "model"), None)),
        ((8, 6), ["data"], (("data",), None)),
        ((8, 6), ["expert", "model"], (None, ("model",))),
        ((6, 6), ["data", "model"], (None, ("model",))),
        ((8, 64), ["expert", None], (None, ("data", "model"))),
        ((8, 64), None, (None, ("data", "model"))),
        ((7, 12), None, (None, ("data",))),
        ((7, 6), None, (None, ("model",))),
        ((7, 5), None, ()),
        ((), None, ()),
        ((0, 8), None, (None, ("data", "model"))),
    ],
)
def test_a_leaf_is_spread_as_stored_else_along_its_largest_divisible_axis(
    shape: tuple, stored: object, expected: tuple
) -> None:
    assert partition_for(shape, spec(shape, stored), {"data": 4, "model": 2}) == expected


def test_the_host_loads_no_accelerator_runtime() -> None:
    code = (
        "import sys; from surgery_cli.compute.kits import open_kit; open_kit('host');"
        "from surgery_cli.operations.table import operations; operations();"
        "print([m for m in ('jax', 'flax', 'orbax', 'tensorstore') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("device", "mesh", "said"),
    [
        ("gpus", None, "is not a device"),
        ("gpu:x", None, "is not a device"),
        ("host:1", None, "is not a device"),
        ("cpu:99", None, "there is no cpu:99 here"),
        ("tpu", None, "there is no tpu here"),
        ("host", "data=2", "cannot be laid over the host"),
        ("cpu:0", "data=2", "cannot be laid over 'cpu:0'"),
        ("cpu", "data=64,model=32", "needs 2048 devices"),
    ],
)
def test_a_device_that_is_not_there_is_an_error_that_says_what_is(
    device: str, mesh: str | None, said: str
) -> None:
    with pytest.raises(SurgeryError, match=said) as caught:
        open_kit(device, mesh)
    assert caught.value.exit_code == 2
    if "here" in said or "needs" in said:
        assert "cpu:0" in caught.value.problems[0].why


@pytest.mark.parametrize("text", ["data", "data=0", "data=x", "data=2,data=2", "=2", "data=2,"])
def test_a_mesh_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(SurgeryError, match="is not a mesh"):
        parse_mesh(text)
