"""Results whose record lies beside them, and what a later training saves in their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.planning.reading import plan_from_document

Leaves = dict[str, Any]

HALVE: dict[str, Any] = {"edits": [{"op": "rescale", "at": "head", "by": 0.3}]}
OTHER = plan_from_document({"edits": [{"op": "rescale", "at": "a_frozen", "by": 2.0}]})


def state(seed: int) -> Leaves:
    """A small head that was trained, between large layers that stay as they are: sixteen samples are of these alone."""
    frozen = np.random.default_rng(0).standard_normal((600, 1024)).astype(np.float32)
    head = np.random.default_rng(seed).standard_normal((32, 10)).astype(np.float32)
    return {"a_frozen": frozen, "head": head, "z_frozen": frozen}


def _save_flax(place: Path, leaves: Leaves) -> None:
    place.write_bytes(flax.serialization.to_bytes(leaves))


def _save_npz(place: Path, leaves: Leaves) -> None:
    with place.open("wb") as file:
        np.savez(file, **leaves)


def _save_safetensors(place: Path, leaves: Leaves) -> None:
    save_file(leaves, place)


def _save_bare(place: Path, leaves: Leaves) -> None:
    """As trainings of years ago did: folders of arrays alone, whose names tell the tree."""
    shutil.rmtree(place, ignore_errors=True)
    arrays = {name: jnp.asarray(value) for name, value in leaves.items()}
    ocp.PyTreeCheckpointer(use_ocdbt=False).save(place, arrays)
    for name in ("_METADATA", "_CHECKPOINT_METADATA", "_sharding"):
        (place / name).unlink(missing_ok=True)


class Form(NamedTuple):
    names: tuple[str, str]
    """What is edited, and the result."""
    save: Callable[[Path, Leaves], None]


FORMS = {
    "flax": Form(("checkpoint_5", "checkpoint_6"), _save_flax),
    "npz": Form(("old.npz", "new.npz"), _save_npz),
    "safetensors": Form(("old.safetensors", "new.safetensors"), _save_safetensors),
    "bare": Form(("old", "new"), _save_bare),
}
FILES = [name for name in FORMS if name != "bare"]
EXPORTS = ("npz", "safetensors")
"""No plan makes a checkpoint of these again."""


class Made(NamedTuple):
    source: Path
    result: Path
    save: Callable[[Path, Leaves], None]


def made(form: str, folder: Path, *, is_sealed: bool = False) -> Made:
    (old, new), save = FORMS[form]
    folder.mkdir()
    save(folder / old, state(1))
    output = {"output": {"format": form}} if form in EXPORTS else {}
    plan = plan_from_document({**HALVE, **output})
    surgery.apply(str(folder / old), str(folder / new), plan)
    if is_sealed:
        surgery.seal(str(folder / new))
    return Made(folder / old, folder / new, save)
