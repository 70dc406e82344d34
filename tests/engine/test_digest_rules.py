"""The rule `digests_of`: leaves are held against a manifest, in the pass of all other rules on values."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.document import json_text
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.planning import plan_from_document

RNG = np.random.default_rng(7)
MIB = 1 << 20
BIG = RNG.standard_normal((3072, 2048)).astype(np.float32)
"""24 MiB: two blocks, wherever the chunks end."""
LEAVES = {
    "big": BIG,
    "half": jnp.asarray(RNG.standard_normal((40, 30)), jnp.bfloat16),
    "count": np.int32(7),
    "python": 3.5,
    "text": "adam",
    "key": jax.random.key(3),
    "empty": {},
}


def saved(path: Path, leaves: dict[str, Any], chunk_bytes: int | None = None) -> Path:
    arguments = jax.tree.map(lambda _: ocp.SaveArgs(), leaves)
    arguments["big"] = ocp.SaveArgs(chunk_byte_size=chunk_bytes)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, dict(leaves), save_args=arguments)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("digests") / "source", LEAVES)


@pytest.fixture(scope="module")
def manifest(source: Path) -> str:
    return written(source)


def written(checkpoint: Path) -> str:
    """The manifest of a checkpoint, beside it."""
    file = checkpoint.with_name(f"{checkpoint.name}.json")
    surgery.seal(str(checkpoint), to=file)
    return str(file)


def check(checkpoint: Path, *rules: dict[str, Any]) -> Any:
    plan = plan_from_document({"edits": [], "check": list(rules)})
    return surgery.check(str(checkpoint), plan.check)


def found(report: Any) -> list[tuple[str | None, str]]:
    return [(one.path, one.why) for rule in report.rules for one in rule.findings]


def test_leaves_of_every_kind_are_what_the_manifest_says(source: Path, manifest: str) -> None:
    report = check(source, {"digests_of": manifest}, {"finite": True})
    assert (report.holds, found(report)) == (True, [])
    # the empty one has no values: the manifest says of it that it is empty
    assert [rule.leaves for rule in report.rules] == [len(LEAVES), len(LEAVES) - 1]
    assert report.rules[0].by_values == len(LEAVES) - 1


def test_a_manifest_that_somebody_else_wrote_by_the_documented_rule_holds(
    source: Path, tmp_path: Path
) -> None:
    """SHA-256 over dtype, shape and grid as JSON, then the SHA-256 of each block's bytes in C order."""
    grid = (1000, 512)
    digest = hashlib.sha256(b'["float32",[3072,2048],[1000,512]]')
    for row in range(0, 3072, 1000):
        for column in range(0, 2048, 512):
            block = BIG[row : row + 1000, column : column + 512]
            digest.update(hashlib.sha256(np.ascontiguousarray(block).tobytes()).digest())
    leaf = {"path": "big", "digest": f"sha256:{digest.hexdigest()}", "grid": grid}
    file = tmp_path / "theirs.json"
    file.write_text(json.dumps({"leaves": [leaf]}))
    assert check(source, {"at": "big", "digests_of": str(file)}).holds
    leaf["grid"] = (1000, 1024)
    file.write_text(json.dumps({"leaves": [leaf]}))
    assert not check(source, {"at": "big", "digests_of": str(file)}).holds


@pytest.mark.parametrize("chunk_bytes", [MIB, 20 * MIB, 100_000])
def test_other_chunks_are_no_other_values_and_all_rules_still_read_once(
    manifest: str, tmp_path: Path, chunk_bytes: int
) -> None:
    other = saved(tmp_path / "other", LEAVES, chunk_bytes)
    report = check(other, {"digests_of": manifest}, {"at": "big", "norm": "1.."}, {"finite": True})
    assert (report.holds, found(report)) == (True, [])
    assert report.bytes_read == sum(np.asarray(x).nbytes for x in (BIG, LEAVES["half"])) + (
        np.int32(7).nbytes + np.float64(3.5).nbytes + jax.random.key_data(LEAVES["key"]).nbytes
    )
    norm = report.rules[1]
    assert norm.least == pytest.approx(float(np.linalg.norm(BIG.astype(np.float64))), rel=1e-12)


def test_what_is_missing_more_or_other_is_named_leaf_by_leaf(manifest: str, tmp_path: Path) -> None:
    wrong = BIG.copy()
    wrong[3071, 2047] += 1
    other = {**LEAVES, "big": wrong, "new": np.ones(3), "empty": [], "text": "sgd"}
    del other["count"]
    report = check(saved(tmp_path / "other", other), {"digests_of": manifest})
    assert report.holds is False
    said = dict(found(report))
    assert sorted(said, key=str) == ["big", "count", "empty", "new", "text"]
    assert said["count"] == "it is missing, and the manifest has its digest"
    assert said["new"] == "it is float64[3], and the manifest has no digest of it"
    assert said["empty"] == "it is [], in the manifest something else"
    record = json.loads(Path(manifest).read_text())["digests"]
    assert said["big"].endswith(f"in the manifest `{record['big']['digest'][:19]}…`")


def test_a_manifest_with_types_tells_a_number_from_an_array_and_asks_for_no_others(
    source: Path, tmp_path: Path
) -> None:
    file = tmp_path / "typed.json"
    file.write_text(json_text(surgery.inspect(str(source), digests=True)))
    other = saved(tmp_path / "other", {"big": BIG, "python": np.full((), 3.5)})
    report = check(other, {"at": "*", "where_dtype": "float*", "digests_of": str(file)})
    assert dict(found(report)) == {"python": "it is an array, in the manifest scalar"}
    report = check(other, {"at": "*", "where_ndim": 2, "digests_of": str(file)})
    assert [path for path, _ in found(report)] == ["half"]


def test_patterns_choose_what_is_held_against_the_manifest(manifest: str, tmp_path: Path) -> None:
    other = {"big": BIG, "half": LEAVES["half"] * 2}
    place = saved(tmp_path / "other", other)
    assert check(place, {"at": "big", "digests_of": manifest}).holds
    report = check(place, {"at": ["half", "count"], "digests_of": manifest})
    assert sorted(path or "" for path, _ in found(report)) == ["count", "half"]
    report = check(place, {"at": "nothing", "digests_of": manifest})
    assert report.holds  # neither side has any


@pytest.mark.parametrize("chunk_bytes", [None, MIB])
def test_a_plan_is_judged_by_it_before_the_commit(
    source: Path, tmp_path: Path, chunk_bytes: int | None
) -> None:
    """What is written is judged while it is written; in other blocks than those on record, it is read for that."""
    result = {**LEAVES, "big": BIG * np.float32(2)}
    wanted = written(saved(tmp_path / "wanted", result, chunk_bytes))
    edits: list[dict[str, Any]] = [{"op": "rescale", "at": "big", "by": 2}]
    rules = [{"at": "big", "digests_of": wanted}, {"at": "big", "finite": True}]
    plan = plan_from_document({"edits": edits, "check": rules})
    plain = surgery.apply(
        str(source), str(tmp_path / "plain"), plan_from_document({"edits": edits})
    )
    report = surgery.apply(str(source), str(tmp_path / "new"), plan)
    assert all(one.holds for one in report.checks)
    assert surgery.plan(str(source), plan).bytes_read == report.bytes_read
    assert report.bytes_read in (plain.bytes_read, plain.bytes_read + BIG.nbytes)
    edits[0]["by"] = 3
    wrong = plan_from_document({"edits": edits, "check": rules})
    with pytest.raises(ValueRefusal, match=r"'big' breaks `digests of .*wanted\.json`"):
        surgery.apply(str(source), str(tmp_path / "wrong"), wrong)
    assert not (tmp_path / "wrong").exists()


def test_a_donor_in_other_chunks_is_judged_in_the_blocks_on_record(
    source: Path, tmp_path: Path
) -> None:
    donor = saved(tmp_path / "donor", {"big": BIG[::-1].copy()}, MIB)
    rules = [{"at": "big", "digests_of": written(donor)}]
    edits = [{"op": "replace", "at": "big", "with": str(donor)}]
    plan = plan_from_document({"edits": edits, "check": rules})
    report = surgery.apply(str(source), str(tmp_path / "new"), plan)
    assert report.checks[0].holds
    assert surgery.plan(str(source), plan).bytes_read == report.bytes_read


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("not json", "is not a manifest"),
        ("{}", "is not a manifest"),
        (f"{'0' * 64}  manifest.ocdbt\n", "has no digest of any leaf"),
        ("directory", "is a directory"),
    ],
)
def test_what_is_no_manifest_is_refused_once(
    source: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    file = tmp_path / "manifest.json"
    if content == "directory":
        file.mkdir()
    elif content is not None:
        file.write_text(content)
    with pytest.raises(PlanError, match=said) as caught:
        check(source, {"digests_of": str(file)})
    assert [problem.field for problem in caught.value.problems] == ["digests_of"]


def test_one_item_of_several_is_held_against_the_record_of_its_step(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        trees = {"params": {"w": np.ones(3, ml_dtypes.bfloat16)}, "ema": {"w": np.zeros(3)}}
        items = {name: ocp.args.PyTreeSave(tree) for name, tree in trees.items()}
        manager.save(5, args=ocp.args.Composite(**items))
    record = written(tmp_path / "run")
    assert check(tmp_path / "run", {"digests_of": record}).holds
    plan = plan_from_document({"edits": [], "check": [{"digests_of": record}]})
    chosen = surgery.Options(item="params")
    report = surgery.check(str(tmp_path / "run"), plan.check, options=chosen)
    assert (report.holds, report.rules[0].leaves) == (True, 1)
