"""What looks at values prints the same document whatever memory it may use, of every layout and of the samples."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.document import compact_json
from surgery_cli.engine import bounded_reads, grid, judged_reads, looks
from surgery_cli.planning import plan_from_document
from surgery_cli.settings.run import Options
from tests.judge.layouts import LAYOUTS, Layout
from tests.judge.targets import LAYERS

SAMPLES = Path(__file__).parents[2] / "sample_checkpoints"
LITTLE, MUCH = 1, 10 << 30


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves of a few values have many blocks, which are read in parts, and tiles that end anywhere in them."""
    monkeypatch.setattr(bounded_reads, "LEAST_BYTES", 16)
    monkeypatch.setattr(judged_reads, "BLOCK_BYTES", 16)
    monkeypatch.setattr(looks, "TILE_ELEMENTS", 7)
    monkeypatch.setattr(grid.block_shape, "__defaults__", (64,))


def _state(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    drawn = {name: random.standard_normal(shape) for name, shape in LAYERS.items()}
    draw = {name: jax.numpy.asarray(values, np.float32) for name, values in drawn.items()}
    return {"params": draw, "opt_state": {"mu": {name: draw[name] / 3 for name in draw}}}


def _documents(a: str, b: str, manifest: Path, memory: int) -> list[str]:
    found = [
        surgery.inspect(a, stats=True, digests=True, memory_bytes=memory),
        surgery.diff(a, b, memory_bytes=memory),
        surgery.verify(a, like_manifest=manifest, memory_bytes=memory),
    ]
    return [*map(compact_json, found), *_judged(a, b, manifest, memory)]


def _judged(a: str, b: str, manifest: Path, memory: int) -> list[str]:
    """What every rule on values says."""
    rules: list[dict[str, Any]] = [{name: "..1e9"} for name in ("norm", "std", "absmax")]
    rules += [{"finite": True}, {"zeros": "..1"}]
    rules += [{"equal_in": b}, {"equal_in": a}, {"digests_of": str(manifest)}]
    stated = plan_from_document({"edits": [], "check": rules}).check
    document = surgery.check(a, stated, options=Options(memory_bytes=memory))
    return [compact_json(rule) for rule in document.rules]


def _assert_same(a: str, b: str, manifest: Path) -> None:
    surgery.seal(b, to=manifest, memory_bytes=LITTLE)
    little, much = (_documents(a, b, manifest, memory) for memory in (LITTLE, MUCH))
    assert little == much


@pytest.mark.sampled(8)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_documents_of_every_layout_do_not_depend_on_the_memory(
    layout: Layout, tmp_path: Path
) -> None:
    saved = []
    for seed, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        saved.append(str(layout.save(tmp_path / name, layout.before(_state(seed)))))
    _assert_same(saved[0], saved[1], tmp_path / "digests.json")


def test_documents_of_a_sample_do_not_depend_on_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.block_shape, "__defaults__", (1 << 12,))
    monkeypatch.setattr(bounded_reads, "LEAST_BYTES", 1 << 10)
    root = SAMPLES / "digits_manager"
    _assert_same(f"{root}@250", f"{root}@500", tmp_path / "digests.json")
