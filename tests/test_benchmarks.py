"""The benchmark runs and its contenders agree; nothing here looks at a clock."""

import json
import subprocess
import sys
from pathlib import Path

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


def test_rows_run_and_a_bare_loop_gets_the_same_values(tmp_path: Path) -> None:
    rows = ["bfloat16", "average", "diff", "leaves-edit"]
    measured = _run(tmp_path, "--rows", ",".join(rows), "--contenders", "surgery,TensorStore loop")
    assert list(measured) == rows


def test_the_script_with_orbax_gets_the_same_values(tmp_path: Path) -> None:
    measured = _run(tmp_path, "--rows", "moments,graft", "--contenders", "surgery,Orbax script")
    assert list(measured) == ["moments", "graft"]
