"""The benchmark runs and its contenders agree; nothing here looks at a clock."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "benchmarks" / "bench.py"


def _run(tmp_path: Path, *options: str) -> tuple[dict[str, dict[str, list[dict]]], str]:
    """What was measured, by row and contender, and what was printed."""
    result = tmp_path / "bench.json"
    command = [sys.executable, BENCH, "--size", "tiny", "--leaves", "30", "--repeats", "1"]
    places = ["--scratch", tmp_path / "scratch", "--json", result]
    done = subprocess.run(
        [*command, *options, *places], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(result.read_text())["rows"]
    return {row["key"]: row["contenders"] for row in rows}, done.stdout


@pytest.mark.check_all
def test_rows_run_and_a_bare_loop_gets_the_same_values(tmp_path: Path) -> None:
    rows = ["bfloat16", "average", "diff", "leaves-edit"]
    measured, _ = _run(
        tmp_path, "--rows", ",".join(rows), "--contenders", "surgery,TensorStore loop"
    )
    assert sorted(measured) == sorted(rows)


@pytest.mark.check_all
def test_what_must_be_reached_is_said_of_the_rows_that_were_measured(tmp_path: Path) -> None:
    rows = {
        "leaf": "one leaf",
        "logical": "huge checkpoint",
        "large": "large leaf",
        "large-reshard": "large leaf resharded",
    }
    measured, printed = _run(
        tmp_path,
        "--rows",
        ",".join(rows),
        "--contenders",
        "surgery,surgery on cpu,surgery on the common size",
        "--device",
        "cpu",
    )

    assert list(measured["leaf"]) == ["surgery", "surgery on cpu"]
    lines = printed[printed.index("what must be reached") :].splitlines()
    works = [line.split(":")[0].strip() for line in lines[1:]]
    assert set(works) == set(rows.values())


def test_the_readme_s_table_is_made_from_the_measurements(tmp_path: Path) -> None:
    def run(wall: float, peak: float) -> dict[str, float]:
        return {"wall_seconds": wall, "peak_bytes": peak, "new_bytes": 14.6e6}

    row = {
        "key": "leaf",
        "name": "one leaf",
        "contenders": {
            "surgery": [run(0.8, 140e6), run(0.9, 150e6), run(0.7, 130e6)],
            "Orbax script": [run(12.0, 4e9)],
            "cp -r": [run(0.5, 2e7)],
        },
    }
    (tmp_path / "bench.json").write_text(json.dumps({"rows": [row]}))

    done = subprocess.run(
        [sys.executable, BENCH.with_name("summary.py"), tmp_path / "bench.json"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == (
        "| one leaf | **0.80 s** | 140 MB | 14.6 MB | 12.0 s (15.0 ×, 4,000 MB) | 0.50 s |  |"
    )


@pytest.mark.check_all
def test_the_script_with_orbax_gets_the_same_values_and_rows_in_a_bucket_count_requests_and_bytes(
    tmp_path: Path,
) -> None:
    on_disk = [
        "scan",
        "moments",
        "stack",
        "reshard",
        "graft",
        "unstack",
        "transpose",
        "vocabulary",
        "unscan",
        "looks",
    ]
    in_bucket = ["bucket-leaf", "bucket-inspect"]
    rows = on_disk + in_bucket
    measured, printed = _run(
        tmp_path, "--rows", ",".join(rows), "--contenders", "surgery,Orbax script"
    )
    assert measured.keys() == set(rows)
    (edited,) = measured["bucket-leaf"]["surgery"]
    assert edited["requests"] > edited["bucket_files"] > 0
    assert edited["up_bytes"] > 0
    for (inspected,) in (measured[row]["surgery"] for row in in_bucket[1:]):
        assert inspected["requests"] < 50
    assert "gs:// one leaf: bytes up over the leaf's" in printed


@pytest.mark.check_all
def test_a_numpy_script_merges_to_the_same_values(tmp_path: Path) -> None:
    result = tmp_path / "peers.json"
    command = [sys.executable, BENCH.with_name("peers.py"), "--size", "tiny", "--repeats", "1"]
    places = ["--members", "2", "--scratch", tmp_path / "scratch", "--json", result]
    done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(json.loads(result.read_text())) == ["linear", "ties", "slerp"]
