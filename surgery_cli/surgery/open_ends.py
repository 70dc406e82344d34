"""What metadata leave open about optimizer state, for who looks at a checkpoint: questions, and what is assumed."""

from __future__ import annotations

from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage


def open_ends(surveyed: OptimizerSurvey) -> list[Note]:
    """What an edit of params would need to be told first, and what trees beside the state it takes for copies."""
    said = [". ".join(filter(None, (p.what, p.why, p.fix))) for p in surveyed.questions]
    beside = (slot for slot in surveyed.slots.values() if not slot.in_optimizer)
    assumed = {slot.node: slot.assumed for slot in beside if slot.assumed is not None}
    said += (taken.sentence(node) for node, taken in assumed.items())
    return [Remark(DocsPage.OPTIMIZERS, text) for text in said]
