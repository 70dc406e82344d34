"""What is said of optimizer state to who looks at a checkpoint: questions, what is assumed, settings that end it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from surgery_cli.engine.reading import read_scalar
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow.scheduled import VALUES, has_bias_count, is_scheduled
from surgery_cli.optimizer.knowledge.setting_ranges import RANGES, corrects_bias
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

_WIDE: Final = ("float32", "float64")
"""Dtypes in which what a script gives stays what it is."""


def open_ends(surveyed: OptimizerSurvey) -> list[Note]:
    """What an edit of params would need to be told first, and what trees beside the state it takes for copies."""
    said = [". ".join(filter(None, (p.what, p.why, p.fix))) for p in surveyed.questions]
    beside = (slot for slot in surveyed.slots.values() if not slot.in_optimizer)
    assumed = {slot.node: slot.assumed for slot in beside if slot.assumed is not None}
    said += (taken.sentence(node) for node, taken in assumed.items())
    return [Remark(DocsPage.OPTIMIZERS, text) for text in said]


def settings_at_an_end(
    surveyed: OptimizerSurvey, tree: TreeSpec, values: Mapping[LeafPath, object]
) -> Iterator[Note]:
    """What is said of stored settings by which optax divides by 0, such as a `b2` that was rounded to 1."""
    for path, value in values.items():
        name = surveyed.hyperparams.get(path, "")
        if not corrects_bias(name) or not isinstance(value, float) or RANGES[name].holds(value):
            continue
        if has_bias_count(path, surveyed.clocks) and not is_scheduled(path, tree):
            said = f"'{path}' is {value:g}, and {RANGES[name].why}: training from here stands still, or becomes NaN"
            wide = "" if tree[path].dtype in _WIDE else "`cast` it to float32, and "
            said += f"; {wide}`set` it to what your script gives" + (
                ", in one plan" if wide else ""
            )
            yield Consequence(DocsPage.SETTINGS, said)


def settings_read(checkpoint: Checkpoint) -> list[Note]:
    """The same of a checkpoint all of whose values are read."""
    tree = checkpoint.tree
    if not any(VALUES in path for path in tree):  # a survey takes a second where leaves are many
        return []
    surveyed = survey(tree)
    named = [path for path, name in surveyed.hyperparams.items() if corrects_bias(name)]
    values = {path: read_scalar(checkpoint, path) for path in named if tree[path].size == 1}
    return list(settings_at_an_end(surveyed, tree, values))
