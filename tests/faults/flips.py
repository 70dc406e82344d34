"""A bit flips in a file of a result: `verify` finds every one in a sealed result, and of others it is counted."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from tests.faults.machine import Case, Verdict

CHUNK = re.compile(r"\d+(\.\d+)*")


def draw(case: Case, chance: Random) -> str:
    """Which file, which byte and which bit, each as a share of what there is."""
    sealed = chance.choice(("sealed", "open"))
    return f"{sealed} {chance.random():.6f} {chance.random():.6f} {chance.randrange(8)}"


def strike(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Run the command, seal what came of it, flip the bit and verify."""
    how, file_at, byte_at, bit = words.split()
    if case.row.result.endswith(".json"):  # a record alone, which is no checkpoint
        return []
    case.lay()
    ended = case.run()
    assert ended.code == 0, ended.said
    result = case.place / case.row.result
    if how == "sealed":
        sealed = case.commands(["seal", str(result)], case.place)
        assert sealed.code == 0, sealed.said
    files = sorted(p for p in result.rglob("*") if p.is_file() and p.stat().st_size) or [result]
    file = files[int(float(file_at) * len(files))]
    content = bytearray(file.read_bytes())
    content[int(float(byte_at) * len(content))] ^= 1 << int(bit)
    file.unlink()  # never through a link
    file.write_bytes(content)
    verified = case.commands(["verify", str(result)], case.place)
    verdict = Verdict(case.row.name, words, verified, "found" if verified.code else "silent")
    if verified.late:
        verdict.blame("hang", "it did not end")
    if verified.code not in (0, 1, 3):
        verdict.blame("exit", f"{verified.code}: {verified.said[-500:]}")
    if verdict.state == "silent":
        verdict.state = _of_silence(case, how, file.relative_to(case.place), verdict)
    verdict.state = f"{how}: {verdict.state}"
    return [verdict]


def _of_silence(case: Case, how: str, file: Path, verdict: Verdict) -> str:
    """A flip that nothing found is harmless where Orbax restores what is expected; else it is in values, or counts."""
    if how == "sealed":
        verdict.blame("flip", f"in sealed '{file}', and `verify` is silent")
        return "silent"
    if case.is_right():
        return "silent and harmless"
    if not _holds_values(file):
        verdict.blame("flip", f"in '{file}', it does harm, and `verify` is silent: {case.why}")
    return "silent, in values"


def _holds_values(file: Path) -> bool:
    """True of data files of databases, chunks (`0.0` in zarr 2, `c/0/0` in zarr 3), and formats that are one file."""
    return (
        "d" in file.parts
        or CHUNK.fullmatch(file.name) is not None
        or (file.suffix in ("", ".safetensors", ".npz") and not file.name.startswith("_"))
    )
