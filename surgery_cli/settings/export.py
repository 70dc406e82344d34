"""What `export` may be told, on the command line and as `output:` in a plan: in which format the result is written."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import bytes_of
from surgery_cli.words.advice import worded

SHARD_BYTES: Final = 5 * 1000**3
"""What Hugging Face's own writers put into one file, at most, where nothing else is said."""


def shard_of(text: str) -> int:
    """What `--shard` was given, in bytes. Raises as `bytes_of`."""
    return bytes_of(text, worded("{shard: 5GB}"), "shard")


class Export(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """In which format of other programs the result is written, once all edits are done."""

    format: Annotated[
        Literal["safetensors", "msgpack", "npz", "t5x", "peft"],
        setting(
            "The format: safetensors as Hugging Face's readers take them, Flax's msgpack, NumPy's npz, T5X, or a LoRA"
            " for PEFT.",
            Group.LAYOUT,
            option="--to",
        ),
    ]
    shard: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | str | None,
        setting(
            "Of safetensors in a directory, how large each file is at most; 5GB if left out.",
            Group.LAYOUT,
            "SIZE",
            option="--shard",
            read=shard_of,
        ),
    ] = None

    scale: Annotated[
        float | None,
        setting(
            "Of peft: by what A·B is multiplied; 1 for `nnx.LoRA` and for what `extract-lora` makes.",
            Group.LAYOUT,
            "X",
            option="--scale",
        ),
    ] = None
    alpha: Annotated[
        float | None,
        setting(
            "Of peft, in place of `scale`: it is alpha / r.", Group.LAYOUT, "X", option="--alpha"
        ),
    ] = None

    def alpha_of(self, rank: int) -> float:
        """The alpha that a LoRA of this rank has: its product is multiplied by alpha / rank."""
        if self.alpha is not None:
            return self.alpha
        return rank * (1.0 if self.scale is None else self.scale)

    @property
    def shard_bytes(self) -> int:
        """The most bytes of a file's values. Raises as `bytes_of`."""
        if self.shard is None:
            return SHARD_BYTES
        return shard_of(self.shard) if isinstance(self.shard, str) else self.shard

    def document(self) -> dict[str, Any]:
        """As plain values, defaults left out."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found
