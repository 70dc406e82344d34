"""Rules on values: judged on the leaf as it stands there, read no more often than need be, by NumPy in float64."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError, ValueRefusal
from surgery_cli.planning import plan_from_document

RNG = np.random.default_rng(5)
MIB = 1 << 20
BIG = np.tile(RNG.standard_normal((512, 512), np.float32), (24, 1))
"""24 MiB, which is two blocks, stored in chunks of 1 MiB."""
LEAVES = {
    "big": BIG,
    "half": RNG.standard_normal((40, 30)).astype(ml_dtypes.bfloat16),
    "sparse": RNG.standard_normal((40, 30)).astype(np.float32) * (RNG.random((40, 30)) < 0.25),
    "far": RNG.standard_normal(1000) + 1e9,
    "count": np.arange(12, dtype=np.int32),
    "wave": (RNG.standard_normal(50) + 1j * RNG.standard_normal(50)).astype(np.complex64),
    "bad": np.array([1.0, np.nan, np.inf, -np.inf, np.nan], np.float32),
    "loud": np.array([1.0, np.inf], np.float32),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checks") / "source"
    arguments = {name: ocp.SaveArgs() for name in LEAVES}
    arguments["big"] = ocp.SaveArgs(chunk_byte_size=MIB)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, dict(LEAVES), save_args=arguments)
    return path


def applied(source: Path, new: Path, *edits: dict[str, Any]) -> Any:
    return surgery.apply(str(source), str(new), plan_from_document({"edits": list(edits)}))


def judged(source: Path, *edits: dict[str, Any]) -> Any:
    return surgery.judge(str(source), plan_from_document({"edits": list(edits)}))


def stating(at: str, **rules: Any) -> dict[str, Any]:
    return {"op": "assert", "at": at, **rules}


def measured(values: np.ndarray) -> dict[str, float]:
    """What the rules measure, by NumPy in float64."""
    wide = np.abs(values) if values.dtype.kind == "c" else values
    wide = wide.astype(np.float64)
    return {
        "norm": float(np.linalg.norm(wide)),
        "absmax": float(np.abs(wide).max()),
        "std": float(wide.std()),
        "zeros": float((wide == 0).mean()),
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rule", ["norm", "absmax", "std", "zeros"])
@pytest.mark.parametrize("name", [name for name in LEAVES if name not in ("bad", "loud")])
def test_a_measure_is_numpys_and_bounds_hold_just_around_it(
    source: Path, name: str, rule: str
) -> None:
    expected = measured(LEAVES[name])[rule]
    low, high = expected * (1 - 1e-9), expected * (1 + 1e-9)
    (found,) = judged(source, stating(name, **{rule: f"{low!r}..{high!r}"})).checks
    assert found.holds
    assert found.by_values == 1
    assert found.least == found.most == pytest.approx(expected, rel=1e-12)
    if expected:
        with pytest.raises(ValueRefusal) as refused:
            judged(source, stating(name, **{rule: f"..{low!r}"}))
        (problem,) = refused.value.problems
        assert problem.path == name
        assert f"'{name}' breaks `{rule} .." in problem.what
        assert f"its {rule} is `{expected:.4g}`" in problem.why


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ({"finite": True}, "it holds `2 NaN` and `2 infinities`"),
        ({"finite": True, "allow": "inf"}, "it holds `2 NaN`"),
        ({"norm": "0.."}, "it has no norm: `4 values` NaN or infinite"),
        ({"absmax": "..1e300"}, "it has no absmax"),
    ],
)
def test_nan_and_infinities_break_rules(source: Path, rules: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueRefusal, match="'bad' breaks") as refused:
        judged(source, stating("bad", **rules))
    assert found in refused.value.problems[0].why


def test_an_infinity_may_be_allowed(source: Path) -> None:
    judged(source, stating("loud", finite=True, allow="inf"))
    with pytest.raises(ValueRefusal, match="'loud' breaks `finite`"):
        judged(source, stating("loud", finite=True))
    judged(source, {"op": "assert", "except": ["bad", "loud"], "finite": True})


def test_nothing_is_compared_with_itself(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="would hold of every checkpoint"):
        judged(source, stating("half", unchanged=True))
    judged(source, {"op": "rescale", "at": "sparse", "by": 2}, stating("half", unchanged=True))


def test_every_leaf_that_breaks_a_rule_is_named_at_once_and_nothing_is_left(
    source: Path, tmp_path: Path
) -> None:
    edits = [
        {"op": "rescale", "at": ["half", "sparse"], "by": 2},
        stating("**", finite=True, where_dtype="float*"),
        stating("{half,sparse}", absmax="..1e-3"),
    ]
    with pytest.raises(ValueRefusal) as refused:
        applied(source, tmp_path / "new", *edits)
    # of what is not written as well as of what would have been
    assert {p.path for p in refused.value.problems} == {"bad", "loud", "half", "sparse"}
    with pytest.raises(ValueRefusal) as refused:
        applied(source, tmp_path / "new", edits[0], edits[2])
    assert [p.path for p in refused.value.problems] == ["half", "sparse"]
    assert list(tmp_path.iterdir()) == []


def test_an_assert_between_two_edits_judges_what_the_first_made(
    source: Path, tmp_path: Path
) -> None:
    norm = measured(LEAVES["sparse"])["norm"]
    around = [f"{norm * by * 0.999}..{norm * by * 1.001}" for by in (1, 3, 6)]
    edits = [
        stating("sparse", norm=around[0], unchanged=True),
        {"op": "rescale", "at": "sparse", "by": 3},
        stating("sparse", norm=around[1]),
        {"op": "rename", "at": "sparse", "to": "thin"},
        {"op": "rescale", "at": "thin", "by": 2},
        stating("thin", norm=around[2]),
    ]
    report = applied(source, tmp_path / "new", *edits)
    assert [check.edit for check in report.checks] == [1, 1, 3, 6]
    assert all(check.holds for check in report.checks)
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new")
    np.testing.assert_array_equal(restored["thin"], LEAVES["sparse"] * 3 * 2)
    wrong = [*edits[:2], stating("sparse", norm=around[2]), *edits[4:]]
    wrong[3]["at"] = "sparse"
    with pytest.raises(ValueRefusal, match="'sparse' breaks"):
        applied(source, tmp_path / "other", *wrong[:4])


def test_what_is_written_is_not_read_again_to_be_judged(source: Path, tmp_path: Path) -> None:
    edits = [{"op": "rescale", "at": "big", "by": 2}]
    plain = applied(source, tmp_path / "plain", *edits)
    rule = stating("big", finite=True, norm="1..", std="..9", zeros=0)
    report = applied(source, tmp_path / "judged", *edits, rule)
    assert report.bytes_read == plain.bytes_read
    first = applied(source, tmp_path / "first", rule, *edits)
    assert first.bytes_read == plain.bytes_read + BIG.nbytes
    copy, only = applied(source, tmp_path / "copy"), applied(source, tmp_path / "only", rule)
    assert only.bytes_read - copy.bytes_read == BIG.nbytes
    assert only.bytes_written == copy.bytes_written
    assert judged(source, rule).bytes_read == BIG.nbytes


@pytest.mark.parametrize("place", [0, 1])
def test_a_preview_counts_what_rules_read_and_says_that_they_are_open(
    source: Path, tmp_path: Path, place: int
) -> None:
    edits = [{"op": "rescale", "at": "big", "by": 2}]
    edits.insert(place, stating("big", norm="1..", dtype="float32"))
    edits.append(stating("half", equal_in=str(source)))
    preview = surgery.plan(str(source), plan_from_document({"edits": edits}))
    assert [(check.rule, check.holds) for check in preview.checks] == [
        ("dtype float32", True),
        ("norm 1..", None),
        (f"equal in {source}", None),
    ]
    assert preview.bytes_read == applied(source, tmp_path / "new", *edits).bytes_read


def test_results_stand_in_the_record(source: Path, tmp_path: Path) -> None:
    applied(source, tmp_path / "new", stating("{half,sparse}", norm="1..100", dtype="floating"))
    record = json.loads((tmp_path / "new" / "surgery.json").read_text())
    norms = [measured(LEAVES[name])["norm"] for name in ("half", "sparse")]
    assert record["checks"] == [
        {"edit": 1, "rule": "dtype floating", "leaves": 2},
        {
            "edit": 1,
            "rule": "norm 1..100",
            "leaves": 2,
            "by_values": 2,
            "least": pytest.approx(min(norms)),
            "most": pytest.approx(max(norms)),
        },
    ]
    assert record["plan"]["edits"][0]["norm"] == "1..100"


def test_equal_leaves_are_told_from_others(source: Path, tmp_path: Path) -> None:
    other = {name: value.copy() for name, value in LEAVES.items()}
    other["sparse"][3, 4] += 1
    other["big"][-1, -1] += 1
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "other", other)
    there = str(tmp_path / "other")
    judged(source, stating("{half,far,bad,loud,wave,count}", equal_in=there))
    with pytest.raises(ValueRefusal) as refused:
        judged(source, stating("**", equal_in=there))
    assert {p.path: p.why for p in refused.value.problems} == {
        "big": "`1 of 6,291,456` values differ",
        "sparse": "`1 of 1,200` values differ",
    }
    judged(source, stating("sparse", equal_in=str(source)))
    copied = {"op": "replace", "at": "sparse", "with": there}
    with pytest.raises(ValueRefusal, match="'sparse' breaks `unchanged`"):
        applied(source, tmp_path / "new", copied, stating("sparse", unchanged=True))
    applied(
        source,
        tmp_path / "back",
        {"op": "copy", "at": "sparse", "to": "was"},
        copied,
        {"op": "rescale", "at": "half", "by": 2},
        {"op": "rescale", "at": "half", "by": 0.5},
        stating("half", unchanged=True),
        {"op": "replace", "at": "sparse", "with": str(source)},
        stating("sparse", unchanged=True, equal_to="was"),
    )


def test_numbers_of_an_optimizer_may_be_infinite_and_never_nan(tmp_path: Path) -> None:
    params = {"w": jnp.ones((4, 3))}
    tx = optax.chain(optax.adam(1e-3), optax.contrib.reduce_on_plateau())
    state = tx.init(params)
    assert any(np.isinf(leaf).any() for leaf in jax.tree.leaves(state))
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "good", {"params": params, "opt_state": state})
        bad = jax.tree.map(
            lambda x: jnp.where(jnp.isinf(x), jnp.nan, x) if x.shape == () else x, state
        )
        checkpointer.save(tmp_path / "bad", {"params": params, "opt_state": bad})
    (check,) = judged(tmp_path / "good", stating("**", finite=True)).checks
    (apart,) = check.apart
    assert apart.leaves == ["opt_state/1/best_value"]
    assert apart.what == "1 leaf infinite as the optimizer starts with it, which is let through"
    with pytest.raises(ValueRefusal, match="best_value' breaks `finite`"):
        judged(tmp_path / "bad", stating("**", finite=True))


def test_values_that_are_not_those_on_record_are_not_judged(source: Path, tmp_path: Path) -> None:
    applied(source, tmp_path / "new", {"op": "rescale", "at": "sparse", "by": 2})
    record = tmp_path / "new" / "surgery.json"
    text = json.loads(record.read_text())
    assert judged(tmp_path / "new", stating("sparse", finite=True)).sources_checked == 1
    digest = text["digests"]["sparse"]["digest"]
    text["digests"]["sparse"]["digest"] = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    text["content"] = ""
    record.write_text(json.dumps(text))
    with pytest.raises(CheckpointError, match="not what its digest on record says"):
        judged(tmp_path / "new", stating("sparse", finite=True))


def test_rules_broken_by_what_is_written_and_by_what_stays_are_named_together(
    source: Path, tmp_path: Path
) -> None:
    plan = plan_from_document(
        {
            "edits": [{"op": "rescale", "at": "sparse", "by": 2.0}],
            "check": [
                {"id": "written", "at": "sparse", "unchanged": True},
                {"id": "stays", "at": "loud", "finite": True},
                {"id": "both", "at": ["sparse", "big"], "norm": "..1e-9"},
                {"id": "warned", "at": "bad", "finite": True, "severity": "warning"},
            ],
        }
    )
    with pytest.raises(ValueRefusal) as caught:
        surgery.apply(str(source), str(tmp_path / "new"), plan)
    assert [(problem.path, problem.field) for problem in caught.value.problems] == [
        ("sparse", "unchanged"),
        ("loud", "finite"),
        ("big", "norm"),
        ("sparse", "norm"),
    ]
    assert not (tmp_path / "new").exists()
