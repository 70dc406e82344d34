"""Commands in layouts: what is typed, what it makes of what, and who restores the result."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from surgery_cli import surgery
from tests.judge.layouts import LAYOUTS

Tree = Mapping[str, Any]

RANDOM = np.random.default_rng(15)
TREE = {
    "params": {
        "a": RANDOM.normal(size=(64, 64)).astype(np.float32),
        "b": RANDOM.normal(size=(40,)).astype(np.float32),
    },
    "other": {
        "c": RANDOM.normal(size=(30, 30)).astype(np.float32),
        "n": np.arange(6, dtype=np.int32),
    },
}
OTHER = jax.tree.map(lambda leaf: leaf + 1, TREE)
BY_NAME = {layout.name: layout for layout in LAYOUTS}


def doubled(tree: Tree) -> Tree:
    return {**tree, "params": {name: leaf * 2 for name, leaf in tree["params"].items()}}


@dataclass(frozen=True)
class Row:
    """One command on one source. Paths are relative to a folder that holds nothing else.

    ``command`` is typed with `{source}` and `{new}` in it; ``made`` are the files and folders that it may bring or
    replace, the destination first; ``result`` is what is looked at: the destination, or what it is a part of.
    ``restore`` gives what is in the result, which must be ``expected``. ``stands``: an older one stands there before.
    ``small``: in many blocks and transactions. ``deny``: calls that the file system does not have, in the shim's words.
    """

    name: str
    layout: str
    command: tuple[str, ...]
    expected: Tree
    made: tuple[str, ...] = ("out/new", "out/.new.surgery.json")
    result: str = "out/new"
    stands: bool = False
    small: bool = False
    deny: str = ""
    prepare: Callable[[Path], None] = lambda case: None
    restores: Callable[[Path, Any], Any] | None = None

    @property
    def keeps(self) -> bool:
        """True if what is cut short can go on."""
        return "--resume" in self.command

    def typed(self, case: Path) -> list[str]:
        source = self.source(case)
        words = {"source": source, "new": case / "out" / "new", "case": case}
        return [word.format(**words) for word in self.command]

    def source(self, case: Path) -> Path:
        return case / "in" / SOURCE_NAMES[self.layout]

    def build(self, case: Path) -> None:
        """Save the source, and whatever stands before."""
        for folder in ("in", "out"):
            (case / folder).mkdir(parents=True)
        saved = BY_NAME[self.layout].save(case / "in", as_jax(TREE))
        assert saved == self.source(case)
        if self.stands:
            BY_NAME[self.layout].save(case / "out", as_jax(OTHER)).rename(case / "out" / "new")
            surgery.seal(str(case / "out" / "new"))
        self.prepare(case)

    def restore(self, place: Path) -> Tree:
        """What Orbax, or whoever reads such files, finds in the result, with the original target where it takes one."""
        target = jax.tree.map(np.zeros_like, self.expected)
        restores = self.restores or BY_NAME[self.layout].restore
        return restores(place, as_jax(target))


def as_jax(tree: Tree) -> Tree:
    return jax.tree.map(jax.numpy.asarray, tree)


SOURCE_NAMES = {
    "standard": "standard",
    "manager": "run",
    "composite": "run",
    "v1": "v1",
    "flax-msgpack": "checkpoint_7",
    **{name: "pytree" for name in BY_NAME if name.startswith(("ocdbt", "leaves"))},
}

RESCALE = ("rescale", "{source}", "{new}", "params", "--by", "2")


def _renamed(tree: Tree) -> Tree:
    params = tree["params"]
    return {**tree, "params": {"a": params["a"], "bias": params["b"]}}


def _flat(tree: Tree) -> Tree:
    return {f"params.{name}": leaf for name, leaf in tree["params"].items()}


def _safetensors(path: Path, _: Any) -> Tree:
    return safetensors.numpy.load_file(path)


def _npz(path: Path, _: Any) -> Tree:
    with np.load(path) as loaded:
        return {name.replace("/", "."): loaded[name] for name in loaded.files}


def _sums(path: Path, _: Any) -> Tree:
    """Whether the record of a seal names all leaves, and all files as they are."""
    record = json.loads(path.read_text())
    place = path.parent.parent / "in" / "pytree"
    files = {
        str(file.relative_to(place)): f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in place.rglob("*")
        if file.is_file()
    }
    is_whole = len(record["digests"]) == len(jax.tree.leaves(TREE)) and record["files"] == files
    return {"all": np.asarray(is_whole)}


def _step(step: int) -> Callable[[Path, Any], Any]:
    """A step alone, as a manager restores it."""

    def restores(path: Path, target: Any) -> Any:
        return BY_NAME["standard"].restore(path / "default", target)

    return restores


ROWS = {
    row.name: row
    for row in (
        Row("rescale", "ocdbt-zarr2", RESCALE, doubled(TREE)),
        Row("rescale-leaves", "leaves-zarr2", RESCALE, doubled(TREE)),
        Row(
            "rename",
            "manager",
            ("rename", "{source}", "{new}", "params/b", "--to", "params/bias"),
            _renamed(TREE),
        ),
        Row(
            "seal",
            "standard",
            ("seal", "{source}"),
            TREE,
            made=("in/standard/surgery.json",),
            result="in/standard",
        ),
        Row("force", "ocdbt-zarr3", (*RESCALE, "--force"), doubled(TREE), stands=True),
        Row(
            "force-no-exchange",
            "leaves-zarr2",
            (*RESCALE, "--force"),
            doubled(TREE),
            stands=True,
            deny=f"rename2:{errno.EINVAL},link:{errno.EPERM}",
        ),
        Row("no-exchange", "leaves-zarr2", RESCALE, doubled(TREE), deny=f"rename2:{errno.EINVAL}"),
        Row("resume", "ocdbt-zarr2", (*RESCALE, "--resume"), doubled(TREE), small=True),
        Row("resume-leaves", "leaves-zarr3", (*RESCALE, "--resume"), doubled(TREE), small=True),
        Row("compact", "standard", (*RESCALE, "--compact", "always", "--seal"), doubled(TREE)),
        Row("msgpack", "flax-msgpack", (*RESCALE, "--force"), doubled(TREE), stands=True),
        Row("v1", "v1", (*RESCALE, "--link", "never"), doubled(TREE)),
        Row(
            "safetensors",
            "ocdbt-zarr2",
            ("export", "{source}", "{new}.safetensors", "params", "--to", "safetensors"),
            _flat(TREE),
            made=("out/new.safetensors", "out/new.safetensors.surgery.json"),
            result="out/new.safetensors",
            restores=_safetensors,
        ),
        Row(
            "safetensors-no-exchange",
            "ocdbt-zarr2",
            ("export", "{source}", "{new}.safetensors", "params", "--to", "safetensors"),
            _flat(TREE),
            made=("out/new.safetensors", "out/new.safetensors.surgery.json"),
            result="out/new.safetensors",
            deny=f"rename2:{errno.EINVAL},link:{errno.EPERM}",
            restores=_safetensors,
        ),
        Row(
            "npz",
            "leaves-zarr3",
            ("export", "{source}", "{new}.npz", "params", "--to", "npz"),
            _flat(TREE),
            made=("out/new.npz", "out/new.npz.surgery.json"),
            result="out/new.npz",
            restores=_npz,
        ),
        Row(
            "as-step",
            "manager",
            ("rescale", "{source}/7", "{source}/9", "params", "--by", "2"),
            doubled(TREE),
            made=("in/run/9",),
            result="in/run/9",
            restores=_step(9),
        ),
        Row(
            "reshard",
            "leaves-zarr3",
            ("reshard", "{source}", "{new}", "--mesh", "x=2", "--spec", "params/a=x"),
            TREE,
        ),
        Row(
            "rescue",
            "ocdbt-zarr2",
            ("rescue", "{source}", "{new}", "--allow-partial"),
            TREE,
            prepare=lambda case: (case / "in" / "pytree" / "_METADATA").write_bytes(b"{"),
        ),
        Row(
            "seal-to",
            "leaves-zarr2",
            ("seal", "{source}", "--to", "{new}.surgery.json"),
            {"all": np.asarray(True)},
            made=("out/new.surgery.json",),
            result="out/new.surgery.json",
            restores=_sums,
        ),
    )
}
