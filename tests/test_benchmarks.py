"""The benchmark runs and its contenders agree; nothing here looks at a clock."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "benchmarks" / "bench.py"
ROWS = (
    "leaf kernels rename graft bfloat16 average inspect stats verify diff leaves-plan leaves-edit"
)


def _run(tmp_path: Path, *options: str) -> dict[str, dict[str, list[dict[str, float]]]]:
    result = tmp_path / "bench.json"
    command = [sys.executable, BENCH, "--size", "tiny", "--leaves", "30", "--repeats", "1"]
    places = ["--scratch", tmp_path / "scratch", "--json", result]
    done = subprocess.run(
        [*command, *options, *places], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["key"]: row["contenders"] for row in json.loads(result.read_text())["rows"]}


@pytest.mark.parametrize("part", [0, 1])
def test_every_row_runs_and_a_bare_loop_gets_the_same_values(tmp_path: Path, part: int) -> None:
    rows = ROWS.split()[part::2]
    measured = _run(
        tmp_path, "--rows", ",".join(rows), "--contenders", "surgery,cp -r,TensorStore loop"
    )
    assert list(measured) == rows


def test_the_script_with_orbax_gets_the_same_values(tmp_path: Path) -> None:
    measured = _run(tmp_path, "--rows", "moments,graft", "--contenders", "surgery,Orbax script")
    assert list(measured) == ["moments", "graft"]


def test_renames_and_grafts_add_no_tensor_bytes(tmp_path: Path) -> None:
    measured = _run(tmp_path, "--rows", "rename,graft", "--contenders", "surgery")
    kernel = 60 * 64 * 4
    for contenders in measured.values():
        assert contenders["surgery"][0]["new_bytes"] < 2 * kernel  # metadata alone
