"""What is measured of leaves before a plan is complete, as the shape of what it makes depends on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from surgery_cli.draft.expression import Made, stored_in
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.forecast import working_bytes
from surgery_cli.engine.reading import CountedSource
from surgery_cli.surgery.memory import Need, check_memory
from surgery_cli.surgery.optimizers import Look
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import leaves_text


class Measuring:
    """Takes measurements, and says what was read for them."""

    def __init__(self) -> None:
        self._bytes = self._count = 0

    def measure(self, part: Made, source_of: Callable[[str], Any]) -> Any:
        """The value of a measurement of leaves of sources, which ``source_of`` gives by name.

        Raises:
            CheckpointError: there is no memory for it, or a source cannot be read.
            ValueRefusal: the values cannot be measured.
        """
        from surgery_cli.compute.host import HostKit

        leaf = part.inputs[0].spec
        held = working_bytes(Composition(part), leaf.shape, HostKit.tile_elements)
        check_memory([Need(held, str(part.path), leaf.type_text, lambda: "it is measured whole")])
        names = {one.ref.source for one in stored_in(part)}
        sources = {name: CountedSource(source_of(name)) for name in names}
        value = Evaluation(part, sources, HostKit(), part.spec.shape).block(
            tuple(slice(0, n) for n in part.spec.shape)
        )
        self._add(sources)
        return value

    def _add(self, sources: Mapping[str, CountedSource]) -> None:
        self._bytes += sum(source.read_bytes for source in sources.values())
        self._count += 1

    def looks(self) -> list[Look]:
        """What was read, for the preview."""
        if not self._count:
            return []
        said = f"read {leaves_text(self._count)} and what they are held against: values tell what shapes the plan makes"
        return [Look(Remark(DocsPage.EXTRACT_LORA, said), self._bytes)]
