"""What `config.json` beside the weights says, where the plan or the weights say otherwise, and no shape tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.peft_names import TENSOR
from surgery_cli.planning import Plan
from surgery_cli.store import filesystem
from surgery_cli.store.export.companions import CONFIG
from surgery_cli.store.export.config_keys import LAYERS, layers_of
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

_HEAD_DIM: Final = "head_dim"


def config_notes(checkpoint: Checkpoint, plan: Plan) -> list[Consequence]:
    """A note for every number of the plan that is called like a key of the config, and is another there.

    And one where the config says more layers than the weights have: a file of them may be missing.
    """
    if checkpoint.location.shape != "file":
        return []
    config = _config(checkpoint)
    notes = [*_lacking(checkpoint, config)]
    numbers = {name: value for name, value in plan.variables.items() if _is_number(value)}
    for name, value in numbers.items():
        said = dict(_said(config, name))
        if said and value not in said.values():
            found = listed([f"`{how}: {number}`" for how, number in said.items()], 3)
            notes.append(
                Consequence(
                    DocsPage.LAYOUTS,
                    f"the plan has `{name}={value}`, and `{CONFIG}` beside the weights says {found}: shapes may fit"
                    " both, and values then come out in wrong places",
                )
            )
    return notes


def _lacking(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Iterator[Consequence]:
    """Weights may have layers beside those of the config, for more than one token ahead, and an adapter few of them."""
    said = dict(_said(config, LAYERS))
    names = [str(path[0]) for path in checkpoint.tree if len(path) == 1] if said else []
    there = len(layers_of(names))
    if not there or any(map(TENSOR.fullmatch, names)) or there >= min(said.values()):
        return
    found = listed([f"`{how}: {number}`" for how, number in said.items()], 3)
    yield Consequence(
        DocsPage.OTHER_FORMATS,
        f"`{CONFIG}` beside the weights says {found}, and they have {counted(there, 'layer', 'layers')}: a part of them"
        " may be missing",
    )


def _config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    root = checkpoint.location.root
    folder = root if filesystem.is_folder(root) else root.parent
    content = filesystem.read_if_any(folder / CONFIG)
    try:
        found = decode_json(content or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found


def _said(config: Mapping[str, Any], name: str, prefix: str = "") -> Iterator[tuple[str, int]]:
    """What a config, or a part of it, says of a name; of `head_dim` also what transformers computes without it."""
    own, width, heads = (config.get(k) for k in (name, "hidden_size", "num_attention_heads"))
    if isinstance(own, int) and _is_number(own):
        yield f"{prefix}{name}", own
    elif name == _HEAD_DIM and isinstance(width, int) and isinstance(heads, int) and heads:
        yield f"{prefix}hidden_size / num_attention_heads", width // heads
    for key, part in config.items():
        if isinstance(part, dict):
            yield from _said(part, name, f"{prefix}{key}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
