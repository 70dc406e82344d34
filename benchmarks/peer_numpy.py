"""A merge as one writes it with NumPy: `peer_numpy.py MERGE DESTINATION BASE TUNE…`, all folders with safetensors."""

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

FAR, DENSITY, NEARLY_ONE = 0.3, 0.5, 0.9995


def linear(base: np.ndarray, *tunes: np.ndarray) -> np.ndarray:
    total = base.astype(np.float64)
    for tune in tunes:
        total += tune
    return total / (len(tunes) + 1)


def slerp(base: np.ndarray, other: np.ndarray) -> np.ndarray:
    a, b = base.astype(np.float64), other.astype(np.float64)
    cosine = np.clip((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), -1, 1)
    if abs(cosine) > NEARLY_ONE:
        return (1 - FAR) * a + FAR * b
    angle = np.arccos(cosine)
    return (np.sin((1 - FAR) * angle) * a + np.sin(FAR * angle) * b) / np.sin(angle)


def ties(base: np.ndarray, *tunes: np.ndarray) -> np.ndarray:
    deltas = np.stack([tune - base for tune in tunes])
    for delta in deltas:
        flat = delta.reshape(-1)
        left = int(DENSITY * flat.size)
        flat[np.argpartition(abs(flat), flat.size - left)[: flat.size - left]] = 0
    sign = np.where(deltas.sum(0) >= 0, 1, -1)
    agree = (np.sign(deltas) == sign) & (deltas != 0)
    mean = (deltas * agree).sum(0) / np.maximum(agree.sum(0), 1)
    return base + mean


def main() -> None:
    merge, destination, *folders = sys.argv[1:]
    merged = {}
    with ExitStack() as stack:
        members = [
            stack.enter_context(safe_open(Path(folder) / "model.safetensors", "numpy"))
            for folder in folders
        ]
        for name in members[0].keys():  # noqa: SIM118 - it is no dictionary
            values = [member.get_tensor(name) for member in members]
            merged[name] = globals()[merge](*values).astype(values[0].dtype)
    Path(destination).mkdir()
    save_file(merged, Path(destination) / "model.safetensors")


if __name__ == "__main__":
    main()
