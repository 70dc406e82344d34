"""The checkpoints that rows start from: how large, and how they are made."""

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rows import CONVERTED, HERE, LAYERS, LLAMA, VOCABULARY, Places

UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
LEAVES_PER_LAYER = 3  # the kernel, mu, nu
MODEL_VOCABULARY = 16_000


@dataclass(frozen=True)
class Sizes:
    """What the checkpoints measure; ``rows`` and ``width`` are a kernel's."""

    layers: int
    rows: int
    width: int
    leaves: int
    large_chunks: int
    logical_leaves: int
    logical_chunks: int
    stacked_width: int
    vocabulary_width: int
    model_layers: int
    model_width: int

    @classmethod
    def of(cls, size: int, leaves: int) -> "Sizes":
        """``size`` is that of the source in bytes; 0 makes everything tiny."""
        if not size:
            narrow = {"stacked_width": 16, "vocabulary_width": 1, "model_width": 64}
            return cls(2, 60, 64, leaves, 3, 6, 2, **narrow, model_layers=2)
        rows, width = 1920, 2048
        layers = max(2, round(size / (rows * width * 4 * LEAVES_PER_LAYER)))
        # 8 GB and 200 GB, in chunks of 34 MB
        elements = size / (4 * LEAVES_PER_LAYER)
        stacked, vocabulary = math.isqrt(int(elements / LAYERS)), max(int(elements / VOCABULARY), 1)
        wide = 1536  # a layer of it has 10.5 times its square in parameters
        model_layers = max(2, round((size / 4 - 2 * MODEL_VOCABULARY * wide) / (10.5 * wide**2)))
        large = (238, 201, 30)
        return cls(layers, rows, width, leaves, *large, stacked, vocabulary, model_layers, wide)

    @property
    def leaf_bytes(self) -> int:
        return self.rows * self.width * 4

    @property
    def source_bytes(self) -> int:
        return self.layers * self.leaf_bytes * LEAVES_PER_LAYER

    @property
    def chunk_bytes(self) -> int:
        return 8 * self.width**2

    def text(self, repeats: int) -> str:
        large = self.large_chunks * self.chunk_bytes
        logical = self.logical_leaves * self.logical_chunks * self.chunk_bytes
        return (
            f"{self.source_bytes / 1e6:.0f} MB in {self.layers * LEAVES_PER_LAYER} leaves of"
            f" {self.leaf_bytes / 1e6:.1f} MB; others of {self.leaves:,} leaves, of one leaf of {large / 1e9:.1f} GB,"
            f" and of {logical / 1e9:.1f} GB of zeros; {os.cpu_count()} CPUs; median of {repeats}"
        )


def build(places: Places, names: set[str], sizes: Sizes) -> None:
    """Those checkpoints that rows start from, saved with Orbax."""
    width = ["--width", str(sizes.width)]
    layers = ["layers", "--layers", str(sizes.layers), *width]
    tenth = ["layers", "--layers", str(max(sizes.layers // 10, 1)), *width]
    twice = ["layers", "--layers", str(2 * sizes.layers), *width]
    logical = ["--leaf", sizes.rows, "--leaves", sizes.logical_leaves, "--chunks"]
    makers: dict[str, list[str]] = {
        "source": [*layers, "--seed", "0"],
        "donor": [*layers, "--seed", "1"],
        "tenth": [*tenth, "--seed", "0"],
        "tenth_donor": [*tenth, "--seed", "1"],
        "twice": [*twice, "--seed", "0"],
        "stacked": [
            "layers",
            "--layers",
            str(LAYERS),
            "--width",
            str(sizes.stacked_width),
            "--stacked",
        ],
        "vocabulary": [
            "vocabulary",
            "--rows",
            str(VOCABULARY),
            "--width",
            str(sizes.vocabulary_width),
        ],
        "leaves": ["leaves", "--count", str(sizes.leaves)],
        "some_leaves": ["leaves", "--count", str(min(sizes.leaves, 20_000))],
        "large": ["large", "--chunks", str(sizes.large_chunks), *width],
        "logical": ["logical", *map(str, logical), str(sizes.logical_chunks), *width],
    }
    for name, (kind, *options) in makers.items():
        if name in names:
            path = str(getattr(places, name))
            command = [sys.executable, str(HERE / "checkpoint.py"), kind, path, *options]
            subprocess.run(command, check=True)
    if "model" in names:
        model = ["--layers", str(sizes.model_layers), "--width", str(sizes.model_width)]
        vocabulary = ["--vocabulary", str(MODEL_VOCABULARY if sizes.model_width > 64 else 64)]
        command = ["conversion.py", "model", str(places.model), *model, *vocabulary]
        subprocess.run([sys.executable, str(HERE / command[0]), *command[1:]], check=True)
    if "scanned" in names:
        edit = ["apply", places.model, places.scanned, LLAMA / "hf-to-maxtext.yaml", "--quiet"]
        command = [sys.executable, "-m", "surgery_cli", *map(str, edit), *CONVERTED]
        subprocess.run(command, check=True, cwd=HERE.parent)
    if "edited" in names:
        edit = ["rescale", places.source, places.edited, "params/layer_0/kernel", "--by", "2"]
        command = [sys.executable, "-m", "surgery_cli", *map(str, edit)]
        command += ["--optimizer", "keep", "--quiet"]
        subprocess.run(command, check=True, cwd=HERE.parent)


def size_in_bytes(text: str) -> int:
    """``1.6GB`` as a number of bytes; 0 for ``tiny``."""
    if text == "tiny":
        return 0
    match = re.fullmatch(r"([0-9.]+)(kB|MB|GB)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither tiny nor a size such as 1.6GB")
    return int(float(match[1]) * UNITS[match[2]])


def check_room(scratch: Path, needed: set[str], sizes: Sizes) -> None:
    """Exit if the results do not fit beside what they are made of."""
    room = 7 * sizes.source_bytes
    room += 4 * sizes.source_bytes if "twice" in needed else 0
    room += 3 * sizes.large_chunks * sizes.chunk_bytes if "large" in needed else 0
    if shutil.disk_usage(scratch).free < room:
        sys.exit(f'"{scratch}" needs room for {room / 1e9:.1f} GB')
