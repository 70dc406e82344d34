"""How names of files end that say a format."""

from __future__ import annotations

from typing import Final

ARRAY_SUFFIXES: Final = (".npy", ".npz", ".safetensors")
"""Of files of named arrays."""
PICKLE_SUFFIXES: Final = (".pkl", ".pickle", ".p", ".joblib", ".pt", ".pth", ".bin", ".ckpt")
"""Of pickles, and of what `torch.save` writes."""
MSGPACK_SUFFIX: Final = ".msgpack"
"""Of what Flax writes, in whose runs a step may have any name."""
FILE_SUFFIXES: Final = frozenset({MSGPACK_SUFFIX, *ARRAY_SUFFIXES, *PICKLE_SUFFIXES})
"""Of all files that a checkpoint may be, or come from."""
