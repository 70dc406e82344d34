"""Tasks as people name them, and where the cookbook has them: for names that are no command and no operation."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from surgery_cli.words.lists import listed

_SHOWN: Final = 3
_LEAST_BEGIN: Final = 4
"""How many letters two words must share from their begin on to be one: `vocab` and `vocabulary`."""

_NUMBER: Final = re.compile(r"[_.]?(?:\d+|[*?]|\{[\d.,]+\}|\[[\d-]+\])$")
"""The number of a layer at the end of its key, or the pattern that stands for it."""


class Task(NamedTuple):
    """A recipe of docs/cookbook.md: its heading, the operation that does most of it, and what else it is called."""

    title: str
    operation: str
    words: str


TASKS: Final[Sequence[Task]] = (
    Task(
        "See what is in a checkpoint",
        "inspect",
        "what is inside, list leaves, shapes, parameter count, how many parameters, summary",
    ),
    Task(
        "What changed between two checkpoints",
        "diff",
        "compare, difference, what changed, same weights",
    ),
    Task(
        "New head with another number of classes",
        "reinit",
        "head swap, swap head, replace head, new head, num classes, new classifier",
    ),
    Task(
        "Copy the head of a fine-tune", "replace", "copy head, transplant, transfer, partial load"
    ),
    Task("More classes, the old ones kept", "resize", "add classes, more classes, extend head"),
    Task(
        "Vision tower from another run",
        "replace",
        "vision tower, image encoder, backbone, pretrained, init from",
    ),
    Task(
        "Join parts of a model",
        "merge",
        "merge, union, join checkpoints, combine, shards, encoder and decoder",
    ),
    Task(
        "Load what fits, the rest anew",
        "intersect",
        "partial load, strict false, ignore mismatched sizes, intersect, common leaves",
    ),
    Task(
        "Grow the vocabulary",
        "resize",
        "vocab, vocabulary, add tokens, more tokens, special tokens, resize embeddings",
    ),
    Task(
        "Remap the tokenizer", "permute", "remap tokens, new tokenizer, permute vocabulary, reorder"
    ),
    Task("Longer context", "resize", "context length, sequence length, more positions, block size"),
    Task(
        "Positions for another resolution",
        "interpolate-positions",
        "interpolate positions, resolution, position embedding, posemb, resample posemb, high res",
    ),
    Task(
        "Scan to list",
        "unstack",
        "scan, unscan, scanned to unscanned, unstack layers, scan to loop, scan to pyloop",
    ),
    Task(
        "List to scan",
        "stack",
        "scan, stack layers, loop to scan, pyloop to scan, unscanned to scanned",
    ),
    Task("MaxText scanned to unscanned", "unstack", "scan, maxtext, scan axis, param scan axis"),
    Task(
        "To the tree of another checkpoint",
        "derive",
        "derive, name mapping, key mapping, map names, weight mapping, conversion, convert names, match trees",
    ),
    Task("Split fused qkv", "split", "qkv, split qkv, unfuse, query key value"),
    Task("Fuse q, k, v", "concat", "qkv, fuse qkv, fused, merge qkv"),
    Task(
        "Upcycle to experts",
        "repeat",
        "upcycle, upcycling, experts, moe, mixture of experts, dense to moe",
    ),
    Task("Rename modules after a refactoring", "rename", "refactor, remap, key map, module names"),
    Task(
        "Deeper: each layer twice",
        "copy",
        "depth growth, grow depth, duplicate layers, frankenmerge, passthrough",
    ),
    Task(
        "A new layer that changes nothing yet",
        "add",
        "add layer, new layer, insert layer, identity layer, block expansion, zero init",
    ),
    Task("Average the last five", "average", "average, soup, model soup, checkpoint averaging"),
    Task("EMA weights into params", "replace", "ema, moving average, polyak"),
    Task(
        "Moving average of saved steps",
        "ema",
        "ema, moving average, post-hoc ema, polyak average",
    ),
    Task(
        "Task arithmetic of three fine-tunes",
        "task-arithmetic",
        "task arithmetic, merge models, multi-task, merge fine-tunes",
    ),
    Task("TIES", "ties", "ties, sign election, trim and elect"),
    Task("Half-way between two runs", "interpolate", "slerp, lerp, interpolate, wise-ft, blend"),
    Task("Task vectors", "add-scaled", "task vector, delta, weight difference, subtract"),
    Task(
        "LoRA into base",
        "merge-lora",
        "lora, merge lora, adapter, peft, low rank, bake lora",
    ),
    Task("Take a LoRA out again", "unmerge-lora", "unmerge lora, remove lora, subtract lora"),
    Task(
        "LoRA of a fine-tune",
        "extract-lora",
        "extract lora, lora from a fine-tune, svd, compress a fine-tune",
    ),
    Task("Prune 50 %", "prune", "prune, sparsity, magnitude"),
    Task("Shrink and perturb", "shrink-and-perturb", "warm start, plasticity, perturb"),
    Task("Drop the optimizer", "delete", "strip optimizer, weights only, smaller checkpoint"),
    Task("New learning rate", "set", "lr, learning rate"),
    Task("Restart the schedule", "set", "warmup, restart, rewind, schedule"),
    Task("Unfreeze a layer", "reset-optimizer", "freeze, frozen, reset optimizer, reset moments"),
    Task(
        "Train anew from these weights",
        "reset-optimizer",
        "fresh optimizer, finetune, fine-tune, step zero",
    ),
    Task(
        "Resume with another optimizer",
        "insert-item",
        "change optimizer, switch optimizer, sgd, lion, adafactor",
    ),
    Task(
        "Hugging Face to Flax and back",
        "apply",
        "hugging face, huggingface, transformers, safetensors, llama, gemma, phi, pytorch, convert weights, from"
        " pretrained",
    ),
    Task("Linen to NNX", "rename", "linen, nnx, flax nnx, migrate, bridge, port"),
    Task(
        "Params only in bfloat16 for serving",
        "keep",
        "serving, inference, bfloat16, half precision, quantize",
    ),
    Task(
        "Pre-shard for another topology",
        "reshard",
        "reshard, preshard, resharding, other topology, more hosts, mesh, slow restore",
    ),
    Task("Find the NaN", "assert", "nan, inf, exploded, diverged"),
    Task("Undo what I did", "plan", "undo, revert, rollback, inverse"),
    Task("Check in CI that nothing else changed", "check", "ci, check, policy, unchanged, guard"),
)


def recipe_for(name: str, form: str = "`{}`") -> str:
    """Where the cookbook has the task of that name, with the operation in that form; '' if it has none.

    >>> recipe_for("model_soup", "`surgery {}`")
    "docs/cookbook.md has it: 'Average the last five' (`surgery average`)"
    """
    typed = _words(name)
    ranks = {task: max(_rank(typed, phrase) for phrase in _phrases(task)) for task in TASKS}
    best = max(ranks.values())
    found = [f"'{t.title}' ({form.format(t.operation)})" for t in TASKS if ranks[t] == best > 0]
    return f"docs/cookbook.md has it: {listed(found, _SHOWN, word='or')}" if found else ""


def recipe_for_layers(path: str, keys: Collection[str]) -> str:
    """Where the cookbook turns layers in a row into stacked ones, or back, if a path that is not there may mean those.

    ``keys`` are all that stand anywhere in the tree; `layers_0` may be a part of `layers`, or `layers` all of them.

    >>> recipe_for_layers("params/layers_0/mlp", {"params", "layers", "mlp"})
    "; docs/cookbook.md has it: 'Scan to list' (`unstack`)"
    """
    for key in path.strip("/").split("/"):
        if key in keys:
            continue
        if (stem := _NUMBER.sub("", key)) in keys and stem != key:
            return f"; {recipe_for('Scan to list')}"
        if any(_NUMBER.sub("", other) == key for other in keys):
            return f"; {recipe_for('List to scan')}"
    return ""


def _phrases(task: Task) -> list[str]:
    return [task.title, *task.words.split(", ")]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", text.casefold())


def _rank(typed: list[str], phrase: str) -> int:
    """How many letters of a phrase stand in what was typed, if all of its words do; one more in the same order."""
    words = _words(phrase)
    letters = "".join(words)
    if letters in "".join(typed) and (set(words) <= set(typed) or letters == "".join(typed)):
        return len(letters) + 1
    is_there = all(any(_is_one(word, other) for other in typed) for word in words)
    return len(letters) if is_there else 0


def _is_one(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    return word == other or (len(short) >= _LEAST_BEGIN and long.startswith(short))
