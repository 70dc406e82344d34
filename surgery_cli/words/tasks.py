"""Tasks as people name them, and where the cookbook has them: for names that are no command and no operation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from surgery_cli.words.lists import listed

_SHOWN: Final = 3
_LEAST_BEGIN: Final = 4
"""How many letters two words must share from their begin on to be one: `vocab` and `vocabulary`."""


class Task(NamedTuple):
    """A recipe of docs/cookbook.md: its heading, the operation that does most of it, and what else it is called."""

    title: str
    operation: str
    words: str


TASKS: Final[Sequence[Task]] = (
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
        "Grow the vocabulary",
        "resize",
        "vocab, vocabulary, add tokens, more tokens, special tokens, resize embeddings",
    ),
    Task(
        "Remap the tokenizer", "permute", "remap tokens, new tokenizer, permute vocabulary, reorder"
    ),
    Task("Longer context", "resize", "context length, sequence length, more positions, block size"),
    Task("Rename modules after a refactoring", "rename", "refactor, remap, key map, module names"),
    Task(
        "Deeper: each layer twice",
        "copy",
        "depth growth, grow depth, duplicate layers, frankenmerge, passthrough",
    ),
    Task(
        "Average the last five", "average", "average, soup, model soup, swa, checkpoint averaging"
    ),
    Task("EMA weights into params", "replace", "ema, moving average, polyak"),
    Task("Task vectors", "add-scaled", "task arithmetic, task vector, delta, weight difference"),
    Task("Merge a LoRA", "map", "lora, adapter, low rank"),
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
        "Params only in bfloat16 for serving",
        "keep",
        "serving, inference, export, bfloat16, half precision, quantize",
    ),
    Task("Find the NaN", "assert", "nan, inf, exploded, diverged"),
    Task("Undo what I did", "plan", "undo, revert, rollback, inverse"),
    Task("Check in CI that nothing else changed", "assert", "ci, check, unchanged, guard"),
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


def _phrases(task: Task) -> list[str]:
    return [task.title, *task.words.split(", ")]


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", text.casefold())


def _rank(typed: list[str], phrase: str) -> int:
    """How many letters of a phrase stand in what was typed, if all of its words do; else 0."""
    words = _words(phrase)
    stands = "".join(words) == "".join(typed) or all(
        any(_is_one(word, other) for other in typed) for word in words
    )
    return sum(map(len, words)) if stands else 0


def _is_one(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    return word == other or (len(short) >= _LEAST_BEGIN and long.startswith(short))
