"""NaN of every kind of bits, as damaged data hold it, are told as NaN, and nothing warns of them."""

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning.reading import plan_from_document

SIGNALING = {
    "bfloat16": 0x7F81,
    "float16": 0x7C01,
    "float32": 0x7F80_0001,
    "float64": 0x7FF0_0000_0000_0001,
    "float8_e5m2": 0x7D,
    "float8_e4m3fn": 0x7F,
}
EDITS = {
    "rescale": {"by": 2.0},
    "cast": {"to": "float16"},
    "noise": {"std": 0.1},
    "average": {"with": ["{other}"]},
    "interpolate": {"with": "{other}", "t": 0.5},
    "add-scaled": {"with": "{other}", "scale": 0.5},
}


def _bits(name: str, factor: int) -> np.ndarray:
    """Two NaN of either sign, infinity where there is one, and numbers."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    size = dtype.itemsize
    values = np.full((4, 2), factor, dtype)
    bits = values.view(f"u{size}").reshape(-1)
    bits[0], bits[1] = SIGNALING[name], SIGNALING[name] | 1 << (8 * size - 1)
    return values


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    for name, factor in (("one", 1), ("other", 2)):
        tree = {"params": {kind: {"kernel": _bits(kind, factor)} for kind in SIGNALING}}
        ocp.PyTreeCheckpointer().save(root / name, tree)
    return root


def test_looking_tells_them(saved) -> None:
    found = surgery.inspect(str(saved / "one"), stats=True, digests=True)
    assert [(row.statistics.nan, row.statistics.non_finite) for row in found.leaves] == [(2, 2)] * 6
    assert len(surgery.inspect(str(saved / "one"), only="bad").leaves) == 6
    assert len(surgery.verify(str(saved / "one")).findings) == 6


def test_what_is_the_same_and_what_differs_is_told(saved) -> None:
    assert surgery.diff(str(saved / "one"), str(saved / "one")).equal
    assert len(surgery.diff(str(saved / "one"), str(saved / "other")).changed) == 6


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_what_holds_them_keeps_them(name, saved, tmp_path) -> None:
    given = {
        field: [str(saved / "other")]
        if value == ["{other}"]
        else str(saved / "other")
        if value == "{other}"
        else value
        for field, value in EDITS[name].items()
    }
    plan = plan_from_document({"edits": [{"op": name, "at": "params/**", **given}]})
    surgery.apply(str(saved / "one"), str(tmp_path / "made"), plan)
    made = ocp.PyTreeCheckpointer().restore(tmp_path / "made")
    with np.errstate(invalid="ignore"):
        kept = {kind: int(np.isnan(leaf["kernel"]).sum()) for kind, leaf in made["params"].items()}
    assert kept == dict.fromkeys(SIGNALING, 2)
