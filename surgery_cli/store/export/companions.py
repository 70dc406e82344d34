"""What stands beside the weights in a folder of Hugging Face's, and comes along into another such folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.settings.export import Export
from surgery_cli.store import filesystem
from surgery_cli.store.export.safetensors import SUFFIX
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import leaves_text

CONFIG: Final = "config.json"
_NAMES: Final = frozenset(
    [
        CONFIG,
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
        "chat_template.jinja",
        "chat_template.json",
        "preprocessor_config.json",
        "processor_config.json",
    ]
)
"""What `save_pretrained` of models, tokenizers and processors writes beside weights; other weights are not among it."""

_WEIGHTS: Final = re.compile(
    r".*\.safetensors(\.index\.json)?|pytorch_model.*\.bin(\.index\.json)?"
)
_MOST_NAMED: Final = 8


class Companions(NamedTuple):
    """The files that come along, and the names of those that stay behind."""

    carried: tuple[Path, ...] = ()
    left: tuple[str, ...] = ()


def companions(checkpoint: Checkpoint, request: Export, target: Path | None) -> Companions:
    """The files beside the weights of the source, if that is a folder of Hugging Face's."""
    root = checkpoint.location.root
    if checkpoint.location.shape != "file" or not filesystem.is_folder(root):
        return Companions()
    names = sorted(name for name in filesystem.names(root) if not name.startswith("."))
    if CONFIG not in names:
        return Companions()
    is_folder = request.format == "safetensors" and (target is None or target.suffix != SUFFIX)
    carried = [name for name in names if is_folder and name in _NAMES]
    others = (n for n in names if n not in carried and not _WEIGHTS.fullmatch(n))
    left = tuple(name for name in others if not name.endswith("surgery.json"))
    return Companions(tuple(root / name for name in carried), left)


def companion_notes(found: Companions, draft: Draft) -> Iterator[Note]:
    """What comes along and what stays behind, and what `config.json` says that is no longer so."""
    if found.left:
        yield Consequence(
            DocsPage.EXPORT_SAFETENSORS,
            f"beside the weights, and left behind: {quoted(found.left, _MOST_NAMED)}",
        )
    if not found.carried:
        return
    named = quoted((path.name for path in found.carried), _MOST_NAMED)
    yield Remark(DocsPage.EXPORT_SAFETENSORS, f"from the source as they are: {named}")
    config = next(path for path in found.carried if path.name == CONFIG)
    said = _numbers(filesystem.read(config))
    changed = {path: pair for path, pair in _pairs(draft) if pair[0].shape != pair[1].shape}
    told = False
    for key, value in said.items():
        for path, (before, after) in changed.items():
            axes = zip(before.shape, after.shape, strict=False)
            if isinstance(value, int) and any(a == value != b for a, b in axes):
                told = True
                yield Consequence(
                    DocsPage.EXPORT_SAFETENSORS,
                    f"`{CONFIG}` says `{key}: {value}`, and may be untrue now: '{path}' was {before.type_text}, and is"
                    f" {after.type_text}; correct it in the result",
                )
                break
    others = len({*draft.source_tree} ^ {*draft.leaves})
    if (changed and not told) or others:
        count = others or len(changed)
        what = "are not the source's, by name" if others else "have other shapes than in the source"
        yield Consequence(
            DocsPage.EXPORT_SAFETENSORS,
            f"`{CONFIG}` may be untrue now: {leaves_text(count)} {what}; correct it in the result",
        )
    key = next((name for name in ("dtype", "torch_dtype") if name in said), "")
    dtypes = {after.dtype for _, (before, after) in _pairs(draft) if before.dtype != after.dtype}
    if key and dtypes - {said[key]}:
        yield Consequence(
            DocsPage.EXPORT_SAFETENSORS,
            f"`{CONFIG}` says `{key}: {said[key]}`, and weights are {quoted(sorted(dtypes))} now; correct it there",
        )


def _pairs(draft: Draft) -> Iterator[tuple[LeafPath, tuple[LeafSpec, LeafSpec]]]:
    """Every leaf that continues one of the source, as it was and as it is."""
    for path, output in draft.leaves.items():
        home = output.home
        if home is not None and home.source == SOURCE and home.path in draft.source_tree:
            yield path, (draft.source_tree[home.path], output.spec)


def _numbers(content: bytes) -> dict[str, Any]:
    """The numbers and names in a config, those of parts of the model as well; none if it does not read."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return dict(_within(found)) if isinstance(found, dict) else {}


def _within(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", number) for inner, number in _within(value))
        elif isinstance(value, int | str) and not isinstance(value, bool):
            yield key, value
