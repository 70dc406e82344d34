"""What stands beside the weights in a folder of Hugging Face's, and comes along into another such folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.settings.export import Export
from surgery_cli.store import filesystem
from surgery_cli.store.export.config_keys import untrue
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
    said = _read(filesystem.read(config))
    after = {path: output.spec for path, output in draft.leaves.items()}
    found_untrue = [*untrue(said, draft.source_tree, after)]
    for told in found_untrue:
        stated, now = json.dumps(told.said), json.dumps(told.now)
        yield Consequence(
            DocsPage.EXPORT_SAFETENSORS,
            f"`{CONFIG}` says `{told.key}: {stated}`, and it is {now} now: {told.why}; correct it in the result",
        )
    changed = sum(before.shape != after.shape for _, (before, after) in _pairs(draft))
    others = len({*draft.source_tree} ^ {*draft.leaves})
    if changed or others:
        counts = ((others, "by name"), (changed, "by shape"))
        what = " and ".join(f"{leaves_text(count)} {how}" for count, how in counts if count)
        more = "more " if found_untrue else ""
        yield Consequence(
            DocsPage.EXPORT_SAFETENSORS,
            f"`{CONFIG}` is as in the source, and {what} are not: no {more}key of it is known to be untrue, and"
            " those that weights do not tell were not looked at; see that it fits the result",
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


def _read(content: bytes) -> dict[str, Any]:
    """What a config says; nothing if it does not read."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
