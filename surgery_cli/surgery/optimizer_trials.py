"""What a training script's optimizers, or the user's calls of optax, tell of a state, tried out on tiny params."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.engine.reading import read_scalar
from surgery_cli.optimizer.detect.settled import said_by_script
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.proof.records import checked
from surgery_cli.script.factoring import least_factored, whole_moments, with_factoring
from surgery_cli.script.function import Script
from surgery_cli.script.items import aligned
from surgery_cli.script.optimizer_trial import try_optimizer
from surgery_cli.script.pytrees import plain_path
from surgery_cli.script.settled_slots import advised, rests_on_settings, settled
from surgery_cli.script.slot_powers import Measured, all_alike
from surgery_cli.script.stated_optimizers import tried_calls
from surgery_cli.script.time_limit import StillRunning
from surgery_cli.script.trial_runs import TRIED_ON, tried_steps
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.like_init import items_of
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


def told_by_script(
    script: Script, checkpoint: Checkpoint, known: OptimizerSurvey
) -> tuple[OptimizerSurvey, list[Note], int]:
    """``known``, with the powers and initial values that the script's optimizers show, what is to be said of them,
    and the bytes that were read for it.

    Raises:
        PlanError: the step has several items, and nothing says which of them the function is about.
    """
    items = items_of(checkpoint)
    abstract = aligned(script.name, script.abstract, checkpoint.tree, items).abstract
    instead, notes = "", list[Note]()
    if not abstract.optimizers:
        is_state = any(name.endswith("statelib.State") for name in abstract.classes.values())
        what = "an `nnx.state(…)`" if is_state else "what it returns"
        how = (
            "the `nnx.Optimizer` itself" if is_state else "a `TrainState`, or `tx` beside the state"
        )
        instead = f"return {how} from '{script.name}': {what} does not hold the optimizer"
    counters = Counters(checkpoint)
    measured: dict[LeafPath, Measured] = {}
    least: dict[LeafPath, int] = {}
    for path, optimizers in abstract.optimizers.items():
        if len(optimizers) == 1:
            shown = least_factored(optimizers[0], whole_moments(known, path))
            least.update((plain_path(path) / node, size) for node, size in shown.items())
        for optimizer in optimizers:
            try:
                seen = try_optimizer(optimizer, counters.below(plain_path(path)))
            except Exception as error:  # noqa: BLE001 - whatever an optimizer of the user's raises
                reason = _reason(error)
                what = f"the optimizer of '{script.name}' (state '{path}') cannot be tried out"
                notes.append(Consequence(DocsPage.LIKE_INIT, f"{what}: {reason}"))
                continue
            for inner, one in seen.items():
                node = plain_path(path)
                measured[node / inner] = _both(measured.get(node / inner), one.below(node))
    known = with_factoring(known, least)
    found = said_by_script(known, advised(settled(known, measured), instead))
    notes += _how_much(f"the optimizer of '{script.name}'", known, found, counters)
    return found, notes if known.slots else [], counters.bytes


def told_by_calls(
    kind: str | Mapping[str, str] | None, checkpoint: Checkpoint, known: OptimizerSurvey
) -> tuple[OptimizerSurvey, list[Note], int]:
    """``known``, with what the calls of optax in ``optimizer_kind:`` show, what is to be said of that, and
    the bytes that were read for it.

    Raises:
        PlanError: a text is no call of optax, it does not make the state, or it cannot be tried out.
    """
    notes: list[Note] = []
    counters = Counters(checkpoint)
    for call in tried_calls(kind, checkpoint.tree, known, counters.below):
        known = with_factoring(known, call.least_factored)
        found = said_by_script(known, settled(known, call.measured))
        notes += _how_much(f"`{call.text}`", known, found, counters)
        known = found
    return known, notes, counters.bytes


class Counters:
    """The integers of a state on disk, each read once; ``bytes`` counts them, ``largest`` is the largest."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._read: dict[LeafPath, int] = {}
        self.bytes = self.largest = 0

    def below(self, node: LeafPath) -> dict[LeafPath, int]:
        """Those below a node, by plain path from there; ``node`` is plain, or as it stands in the tree."""
        top = plain_path(node)
        found: dict[LeafPath, int] = {}
        for path, spec in self._checkpoint.tree.items():
            if is_integer(spec.dtype) and spec.shape == () and spec.kind is not LeafKind.KEY:
                plain = plain_path(path)
                if plain.is_below(top):
                    found[LeafPath(plain[len(top) :])] = self._number(path, spec.bytes)
        self.largest = max([self.largest, *found.values()])
        return found

    def _number(self, path: LeafPath, size: int) -> int:
        if path not in self._read:
            self._read[path] = int(read_scalar(checked(self._checkpoint), path) or 0)
            self.bytes += size
        return self._read[path]


def _how_much(
    name: str, before: OptimizerSurvey, after: OptimizerSurvey, counters: Counters
) -> list[Remark]:
    """How many slots a trial settled."""
    open_states = {slot.state for slot in after.slots.values() if not slot.is_settled}
    count = sum(  # the slots of one state follow together or not at all
        slot.state not in open_states and (not slot.is_settled or rests_on_settings(slot))
        for slot in before.slots.values()
    )
    if not count:
        return []
    steps = listed(
        (f"{first} to {last}" for first, last in tried_steps(counters.largest)), word="and"
    )
    return [
        Remark(
            DocsPage.LIKE_INIT,
            f"{name}, tried out on {TRIED_ON}, in steps {steps}, settles {counted(count, 'slot')}",
        )
    ]


def _reason(error: Exception) -> str:
    """Why an optimizer cannot be tried out, on one line."""
    name = type(error).__name__
    if isinstance(error, StillRunning):
        return str(error)
    if "Tracer" in name:
        return (
            "it holds a number that the function computed with jax, which is not known on shapes alone;"
            " make it a Python number, or an optax schedule"
        )
    return f"{name}: {(str(error).splitlines() or [''])[0]}"


def _both(one: Measured | None, other: Measured) -> Measured:
    """What two optimizers that may have made the same slot show of it."""
    alike = all_alike([other] if one is None else [one, other])
    return alike or Measured(
        None, False, None, "several optimizers make such states, and they differ in it"
    )
