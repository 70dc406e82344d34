"""What PEFT calls the files and tensors of an adapter.

Source: PEFT, utils/save_and_load.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

NAME: Final = "adapter_config.json"
PREFIX: Final = "base_model.model."
TENSOR: Final = re.compile(r"(.+)\.lora_([AB])\.weight")


def base_weight(a: str) -> str:
    """The weight of the base model to which a tensor A belongs; '' if it is called as PEFT calls none."""
    found = TENSOR.fullmatch(a)
    return f"{found[1].removeprefix(PREFIX)}.weight" if found and found[2] == "A" else ""


def weights_of(tensors: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """The weights of the base model to which an adapter's tensors belong, each with its A and B."""
    for a in tensors:
        b = a.replace(".lora_A.", ".lora_B.")
        if (weight := base_weight(a)) and b in tensors:
            yield weight, a, b
