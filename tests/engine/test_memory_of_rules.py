"""Rules read within `--memory`, or it is said how much they take: every rule on values, however leaves are stored."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import plan_from_document
from surgery_cli.rules.table import RULES
from surgery_cli.settings.run import Options
from surgery_cli.surgery import memory as memory_module
from tests.engine.test_promised_memory import RUN

MIB = 1 << 20
SHAPE = (4096, 6144)
"""96 MiB of float32, in chunks of 768 KiB: more than can be decoded at once within the memory of these tests."""
MEMORY = 64 * MIB
STARTED = 48 * MIB
"""What is loaded only when values are read: codecs, and stacks for as many threads as work at once."""

ON_VALUES: dict[str, Any] = {
    "finite": True,
    "norm": "..1e9",
    "absmax": "..1e9",
    "std": "..1e9",
    "zeros": "..1",
    "equal_to": "twin",
    "equal_in": "OTHER",
    "unchanged": True,
    "digests_of": "OTHER.json",
}
"""Every rule that looks at values, as a plan states it of the leaf `w`."""
OTHERS = {"rows": "rows", "columns": "rows", "one": "columns", "rows3": "columns"}
"""How a leaf is stored, and the checkpoint with the same values that it is held against."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same two equal leaves in ``rows``, ``columns``, ``one`` chunk each, and rows of zarr 3."""
    folder = tmp_path_factory.mktemp("rules")
    values = np.random.default_rng(5).standard_normal(SHAPE, np.float32)
    tree = {"w": jax.numpy.asarray(values), "twin": jax.numpy.asarray(values)}
    for name, is_zarr3 in (("one", False), ("one3", True)):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_zarr3=is_zarr3)) as checkpointer:
            checkpointer.save(folder / name, args=ocp.args.PyTreeSave(tree))
    for name, source, spec in (
        ("rows", "one", "x"),
        ("columns", "one", "None,x"),
        ("rows3", "one3", "x"),
    ):
        words = ["reshard", source, name, "--mesh", "x=128", "--spec", f"*={spec}", "-q"]
        ran(folder, *words)
    for name in ("rows", "columns"):
        ran(folder, "seal", name, "--to", f"{name}.json", "-q")
    return folder


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def peak_of(folder: Path, *words: str) -> tuple[int, str]:
    """The most bytes of memory that a process had, and what it said beside its document."""
    done = ran(folder, *words)
    *said, peak = done.stderr.splitlines()
    return int(peak.split()[-1]) * 1024, "\n".join([*said, peak])


def stated(rule: str, stored: str) -> dict[str, Any]:
    value = ON_VALUES[rule]
    if isinstance(value, str):
        value = value.replace("OTHER", OTHERS[stored])
    return {"at": "w", rule: value}


def promised(said: str) -> float:
    """The bytes that a leaf takes, as it was said; 0 if nothing was."""
    found = re.search(r"takes about ([0-9.]+) (MiB|GiB) at once, more than", said)
    return 0.0 if found is None else float(found[1]) * MIB * (1024 if found[2] == "GiB" else 1)


def test_every_rule_on_values_is_tried() -> None:
    on_values = {rule.__struct_encode_fields__[0] for rule in RULES if hasattr(rule, "sees")}
    assert on_values == set(ON_VALUES)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("stored", OTHERS)
@pytest.mark.parametrize("rule", ON_VALUES)
def test_a_rule_takes_what_it_may_or_says_what_it_takes(
    saved: Path, tmp_path: Path, rule: str, stored: str
) -> None:
    """In a plan with an edit: what is held against the source, too, is read for that alone."""
    plan = saved / f"{rule}-{stored}.json"
    rescaled = {"op": "rescale", "at": "w", "by": 1}
    plan.write_text(json.dumps({"edits": [rescaled, {"op": "assert", **stated(rule, stored)}]}))
    words = ["apply", stored, str(tmp_path / "new"), plan.name, "--memory", f"{MEMORY // MIB}MiB"]
    base, _ = peak_of(saved, "inspect", stored, "--json")
    preview = json.loads(ran(saved, *words, "--dry-run", "--json").stdout)
    peak, _ = peak_of(saved, *words, "--json")
    said = " ".join(preview["notes"])
    assert peak - base < max(promised(said), MEMORY) + STARTED
    is_one_chunk = stored == "one"
    assert is_one_chunk == (promised(said) > MEMORY)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stored", OTHERS)
@pytest.mark.parametrize("rule", [name for name in ON_VALUES if name != "unchanged"])
def test_so_does_a_policy(saved: Path, rule: str, stored: str) -> None:
    policy = saved / f"policy-{rule}-{stored}.json"
    policy.write_text(json.dumps({"rules": [{"id": "one", **stated(rule, stored)}]}))
    base, _ = peak_of(saved, "inspect", stored, "--json")
    peak, said = peak_of(saved, "check", stored, policy.name, "--memory", f"{MEMORY // MIB}MiB")
    assert peak - base < max(promised(said), MEMORY) + STARTED
    assert (stored == "one") == (promised(said) > MEMORY)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("pair", [("rows", "columns"), ("rows", "rows3"), ("one", "columns")])
def test_so_does_what_proposes_a_plan(saved: Path, pair: tuple[str, str]) -> None:
    base, _ = peak_of(saved, "inspect", pair[0], "--json")
    peak, said = peak_of(saved, "derive", *pair, "--memory", f"{MEMORY // MIB}MiB")
    takes = re.findall(r"take(?:s about| up to) ([0-9.]+) MiB at once, more than", said)
    most = max((float(one) * MIB for one in takes), default=MEMORY)
    assert peak - base < max(most, MEMORY) + STARTED


def test_what_no_memory_is_there_for_is_refused_before_it_is_read(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = memory_module.room()._replace(bytes=100 * MIB, is_deadly=True)
    monkeypatch.setattr(memory_module, "room", lambda: there)
    rules = plan_from_document({"edits": [], "check": [{"at": "w", "std": "..9"}]}).check
    with pytest.raises(CheckpointError, match="'w' does not fit into memory"):
        surgery.check(str(saved / "one"), rules)
    assert surgery.check(str(saved / "rows"), rules).holds


EDITS: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "rescale": [{"op": "rescale", "at": "w", "by": 1}],
    "transpose": [{"op": "transpose", "at": "w"}],
    "slice": [{"op": "slice", "at": "w", "slices": "0:1000"}],
    "average": [{"op": "average", "at": "w", "with": "OTHER"}],
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("memory", [MEMORY, 4096 * MIB])
@pytest.mark.parametrize("other", ["rows", "columns"])
@pytest.mark.parametrize("rule", ["equal_in", "unchanged", "digests_of"])
@pytest.mark.parametrize("edit", EDITS)
def test_a_preview_says_what_the_run_reads_of_leaves_with_digests_on_record(
    saved: Path, tmp_path: Path, edit: str, rule: str, other: str, memory: int
) -> None:
    """Over blocks that are those of what is read, or are cut by it: they are read once more then."""
    source = str(saved / ("columns" if edit == "average" and other == "rows" else "rows"))
    value = ON_VALUES[rule]
    stated = [*EDITS[edit], {"op": "assert", "at": "twin", rule: value, "std": "..9"}]
    stated = [
        {
            key: one.replace("OTHER", str(saved / other)) if isinstance(one, str) else one
            for key, one in edit.items()
        }
        for edit in stated
        if edit.get("with") is None or str(saved / other) != source
    ]
    if len(stated) == 1:  # `unchanged` says nothing where nothing changes
        stated.insert(0, EDITS["rescale"][0])
    plan, options = plan_from_document({"edits": stated}), Options(memory_bytes=memory)
    new = str(tmp_path / "new")
    preview = surgery.plan(source, plan, destination=new, options=options)
    report = surgery.apply(source, new, plan, options=options)
    assert preview.bytes_read == report.bytes_read


def test_each_leaf_is_named_once_however_many_rules_look_at_it(saved: Path) -> None:
    stated = [{"at": ["w", "twin"], name: ON_VALUES[name]} for name in ("norm", "std", "finite")]
    stated += [{"at": "w", "equal_in": str(saved / "columns")}]
    rules = plan_from_document({"edits": [], "check": stated}).check
    said: list[str] = []
    surgery.check(str(saved / "one"), rules, options=Options(memory_bytes=MIB), say=said.append)
    assert said[0].count("'w'") <= 2
    assert said[0].count("'twin'") <= 2
    assert "more" not in said[0].split(" take up to ")[0]
