"""Where the script's optimizer is another than the one that made the state."""

from __future__ import annotations

from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def other_optimizers(stored: TreeSpec, there: OptimizerSurvey) -> list[Consequence]:
    """Where one state is of another optimizer than the script's: trees made equal do not make it the script's."""
    if not there.family:
        return []
    here = survey(stored).family
    others = [path for path, family in there.family.items() if here.get(path, family) != family]
    if not others:
        return []
    first = others[0]
    text = (
        f"the script's optimizer is another: by its fields '{first}' is {here[first]} here and {there.family[first]} "
        "there; what agrees in names may mean something else"
    )
    return [Consequence(DocsPage.OTHER_OPTIMIZER, text)]
