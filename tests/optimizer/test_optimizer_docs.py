"""The page on optimizers is made from the registry that the tests hold."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.optimizer.optax_registry import OPTIMIZERS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_what_its_script_makes_of_the_registry() -> None:
    script = runpy.run_path(str(DOCS / "make_optimizers.py"))
    assert (DOCS / "optimizers.md").read_text() == script["page"](), (
        "run `python docs/make_optimizers.py`"
    )


def test_every_configuration_has_a_row() -> None:
    rows = [line for line in (DOCS / "optimizers.md").read_text().splitlines() if "| " in line]
    names = {row.split("|")[1].strip() for row in rows}
    assert set(OPTIMIZERS) <= names


def test_every_edit_of_values_has_its_default_policy_on_the_page() -> None:
    lines = (DOCS / "optimizers.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if "| `" in line]
    edits = {edit: row[2] for row in rows for edit in row[1].strip().split(", ")}
    defaults = {
        "transform": ("rescale", "normalize", "clip", "prune", "mask"),
        "warm": (
            "replace",
            "reinit",
            "average",
            "swa",
            "ema",
            "interpolate",
            "set",
            "interpolate-positions",
        ),
        "keep": ("add-scaled", "noise", "shrink-and-perturb", "map", "cast", "ties", "karcher"),
    }
    for policy, names in defaults.items():
        assert all(f"`{policy}`" in edits[f"`{name}`"] for name in names)
