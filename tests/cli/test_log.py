"""`log` tells the runs that a checkpoint came by, and their plans are plans: applied again they give the same."""

import json
import shutil

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from tests.cli.conftest import SAMPLES

SAMPLE = SAMPLES / "digits_standard"
PLANS = (
    ("rescale", "params/Dense_0/kernel", "--by", "0.5"),
    ("cast", "params/**", "--to", "bfloat16"),
    ("delete", "params/Conv_0"),
)


@pytest.fixture
def chain(surgery, tmp_path, monkeypatch):
    """Where each of three runs has read, the source first, and its result last."""
    places = [tmp_path / "start", *(tmp_path / f"run-{n}" for n in range(1, 4))]
    shutil.copytree(SAMPLE, places[0])
    for words, source, result in zip(PLANS, places[:-1], places[1:], strict=True):
        assert surgery(words[0], source, result, *words[1:]).code == 0
    return places


def entries(surgery, place):
    return json.loads(surgery("log", place, "--json").out)["entries"]


def test_what_no_run_wrote_has_nothing_on_record(surgery):
    ended = surgery("log", SAMPLE)
    assert (ended.code, entries(surgery, SAMPLE)) == (0, [])
    assert "nothing is on record: " in ended.out


def test_every_run_is_told_with_its_source_the_latest_first(surgery, chain):
    told = entries(surgery, chain[-1])
    assert [entry["number"] for entry in told] == [3, 2, 1]
    assert [entry["source"] for entry in told] == list(map(str, chain[-2::-1]))
    assert [entry["plan"]["edits"][0]["op"] for entry in told] == ["delete", "cast", "rescale"]
    # an earlier run is told as it was in the checkpoint that it wrote, but for what only the last can be asked for
    for n, place in enumerate(chain[1:-1], 1):
        then, now = entries(surgery, place)[0], told[-n]
        assert then | {"undoable": None} == now | {"undoable": None}
    lines = surgery("log", chain[-1]).out.splitlines()
    assert [line.split()[:2] for line in lines if line[:1].isdigit()] == [
        [n, "edited"] for n in "321"
    ]
    undone = [line for line in lines if line.endswith("prints the plan that undoes it")]
    assert undone == [f"   `surgery plan {chain[-1]} --inverse` prints the plan that undoes it"]


def test_all_that_a_plan_says_beside_its_edits_is_told(surgery, tmp_path):
    """The result hangs on what kind of optimizer was stated, and which slots, as much as on an edit."""
    (tmp_path / "p.json").write_text(
        json.dumps(
            {
                "edits": [{"op": "rescale", "at": "params/Dense_0/kernel", "by": 2}],
                "optimizer_kind": "adam",
                "optimizer": "transform",
                "seed": 3,
                "check": [{"id": "small", "at": "params/**", "norm": "0..1000"}],
                "reshard": {"chunk_bytes": "1MiB"},
            }
        )
    )
    assert surgery("apply", SAMPLE, tmp_path / "new", tmp_path / "p.json").code == 0
    lines = [" ".join(line.split()) for line in surgery("log", tmp_path / "new").out.splitlines()]
    for said in (
        "optimizer_kind adam",
        "optimizer transform",
        "seed 3",
        "check [{id: small, at: params/**, norm: 0..1000}]",
        "reshard chunk_bytes: 1MiB",
    ):
        assert said in lines


def test_of_a_run_the_record_is_in_its_step_and_the_source_is_said_with_its_step(
    surgery, tmp_path, monkeypatch
):
    source, run = f"{SAMPLES / 'digits_manager'}@250", tmp_path / "run"
    assert surgery("rescale", source, run, "params/Dense_0", "--by", "2").code == 0
    refused = surgery("apply", source, tmp_path / "new", run / "surgery.json")
    assert (refused.code, f"'{run}/250/surgery.json'" in refused.err) == (2, True)
    assert surgery("apply", source, tmp_path / "new", run / "250" / "surgery.json").code == 0
    monkeypatch.chdir(tmp_path)
    assert f"from {source}\n" in surgery("log", run).out
    assert entries(surgery, run)[0]["address"] == source


def test_the_plans_on_record_make_the_same_again(surgery, chain, tmp_path):
    place = chain[0]
    for n in (1, 2, 3):
        plan = tmp_path / f"{n}.yaml"
        plan.write_text(surgery("log", chain[-1], "--plan", str(n)).out)
        assert surgery("apply", place, tmp_path / f"again-{n}", plan).code == 0
        place = tmp_path / f"again-{n}"
    assert surgery("diff", place, chain[-1]).code == 0
    document = json.loads(surgery("log", chain[-1], "--plan", "2", "--json").out)
    assert document == entries(surgery, chain[-1])[1]["plan"]


def test_a_run_without_a_plan_is_named_with_those_that_have_one(surgery, chain, tmp_path):
    assert surgery("compact", chain[1], tmp_path / "small").code == 0
    ended = surgery("log", tmp_path / "small", "--plan", "2")
    assert ended.code == 2
    assert "run 2 is a copy" in ended.err
    assert "those with plans: 1\n" in ended.err
    assert "has 2 on record" in surgery("log", tmp_path / "small", "--plan", "7").err


def test_seals_are_told(surgery, tmp_path):
    place = shutil.copytree(SAMPLE, tmp_path / "sealed")
    assert surgery("seal", place).code == 0
    (first,) = entries(surgery, place)
    assert (first["kind"], first["number"]) == ("seal", 1)
    assert surgery("rescale", place, tmp_path / "new", "params/**", "--by", "2", "--seal").code == 0
    second, first_again = entries(surgery, tmp_path / "new")
    assert (second["kind"], bool(second["sealed"])) == ("edit", True)
    assert first_again == first
    (tmp_path / "new" / "note.txt").write_text("new")
    assert surgery("seal", tmp_path / "new", "--anew").code == 0
    assert [e["kind"] for e in entries(surgery, tmp_path / "new")] == ["edit", "seal"]


@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "in part"])
def test_a_rescue_takes_the_history_along_and_names_what_filled_it(
    surgery, chain, tmp_path, is_filled
):
    broken = chain[-1]
    before = entries(surgery, broken)
    (data,) = (file for file in broken.rglob("d/*") if file.stat().st_nlink == 1)
    data.write_bytes(b"")
    ways = ["--fill-from", SAMPLE] if is_filled else ["--allow-partial"]
    done = surgery("rescue", broken, tmp_path / "whole", *ways, "--json")
    assert done.code == 0, done.err
    first, *others = entries(surgery, tmp_path / "whole")
    assert others == [{k: v for k, v in one.items() if k != "undoable"} for one in before]
    fingerprint = before[-1]["source_fingerprint"]  # of a copy of it
    assert first.get("donors", {}) == ({str(SAMPLE): fingerprint} if is_filled else {})
    filled = [row for row in json.loads(done.out)["leaves"] if row.get("filled_from")]
    assert first.get("written_leaves", 0) == len(filled)
    assert bool(filled) == is_filled
    told = surgery("log", tmp_path / "whole").out.splitlines()
    assert any(one.startswith("   and ") and SAMPLE.name in one for one in told) == is_filled
    assert surgery("plan", tmp_path / "whole", "--inverse").code == 2


def test_what_is_on_record_of_leaves_stays_so_of_those_that_a_rescue_found(surgery, tmp_path):
    """The kind of the optimizer's state that was said, and draws: of a leaf that is filled, neither holds."""
    tx = optax.adamw(1e-3)
    params = {name: np.full((8, 4), n + 1.0, np.float32) for n, name in enumerate("ab")}
    state = {"params": params, "opt_state": tx.init(params)}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            items = {"state": ocp.args.StandardSave(state), "ema": ocp.args.StandardSave(params)}
            manager.save(step, args=ocp.args.Composite(**items))
    edited, noise = tmp_path / "edited", ("--std", "1", "--seed", "7")
    words = ("state/params/a", "ema/a", *noise, "--optimizer-kind", "adamw")
    assert surgery("noise", tmp_path / "run@2", edited, *words).code == 0
    for damaged in ("ema", "state"):
        broken, whole = tmp_path / f"broken-{damaged}", tmp_path / f"whole-{damaged}"
        shutil.copytree(edited / "2", broken)
        for file in (broken / damaged).rglob("d/*"):
            file.write_bytes(b"")
        assert surgery("rescue", broken, whole, "--fill-from", tmp_path / "run@1").code == 0
        told = surgery("rescale", whole, tmp_path / "x", "state/params/b", "--by", "2", "--dry-run")
        assert ("2 transform" in told.out) == (damaged == "ema"), told.out
        again = surgery("noise", whole, tmp_path / "x", "state/params/a", *noise, "--dry-run")
        assert again.code == 0, again.err
        assert ("by an earlier run, too" in again.out) == (damaged == "ema"), again.out


def test_a_run_keeps_its_number_when_it_is_sealed_anew_and_when_others_follow(
    surgery, chain, tmp_path
):
    def told(place):
        return [
            (one["number"], one["kind"], one.get("draft", "")) for one in entries(surgery, place)
        ]

    last, before = chain[-1], told(chain[-1])
    for n, text in enumerate(("old", "new")):
        (last / "note.txt").write_text(text)
        assert surgery("seal", last, *["--anew"][:n]).code == 0
    assert told(last) == [(4, "seal anew", ""), *before]
    assert [one["number"] for one in entries(surgery, last) if one.get("undoable")] == [3]
    (last / "note.txt").write_text("newer")
    assert surgery("seal", last, "--anew").code == 0
    assert told(last)[1:] == [(4, "seal anew", ""), *before]
    assert surgery("rescale", last, tmp_path / "next", "params/**", "--by", "2").code == 0
    assert told(tmp_path / "next")[1:] == told(last)


def test_a_record_that_was_changed_is_refused(surgery, chain):
    record = chain[-1] / "surgery.json"
    record.write_text(record.read_text().replace("0.5", "0.7"))
    ended = surgery("log", chain[-1])
    assert ended.code == 3
    assert "is not what was written" in ended.err


@pytest.mark.parametrize("file", ["_METADATA", "manifest.ocdbt"])
def test_runs_are_told_though_the_leaves_cannot_be_read(surgery, chain, file):
    before = entries(surgery, chain[-1])
    (chain[-1] / file).write_bytes(b"")
    assert entries(surgery, chain[-1]) == before
