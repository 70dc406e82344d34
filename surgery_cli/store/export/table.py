"""The formats that results can be written in, each a row."""

from __future__ import annotations

from typing import Final

from surgery_cli.store.export.contract import OutputFormat
from surgery_cli.store.export.msgpack import Msgpack
from surgery_cli.store.export.npz import Npz
from surgery_cli.store.export.peft import Peft
from surgery_cli.store.export.safetensors import Safetensors
from surgery_cli.store.export.t5x import T5x

FORMATS: Final[dict[str, OutputFormat]] = {
    form.name: form for form in (Safetensors(), Msgpack(), Npz(), T5x(), Peft())
}
"""By the names that ``settings.export`` takes."""
