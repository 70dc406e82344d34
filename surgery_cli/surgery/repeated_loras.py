"""LoRAs that are merged into kernels that hold them already, or taken out otherwise than they were merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.errors import Problem, raise_all
from surgery_cli.proof.record_parts import HeldLora
from surgery_cli.surgery.loras_held import LeafLoras, Taken, loras_held
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import number_text
from surgery_cli.words.series import folded

_SHOWN: Final = 3


def repeated_loras(loras: Mapping[LeafPath, LeafLoras]) -> Iterator[Consequence]:
    """A note for kernels to which a LoRA is added that is in them already."""
    found: dict[tuple[str, str], list[LeafPath]] = defaultdict(list)
    for path, leaf in loras.items():
        for lora in dict.fromkeys(leaf.added):
            now = leaf.after.get((lora.adapter, lora.a, lora.alpha))
            now = now or leaf.after.get((lora.adapter, "", ""))  # by a record of before
            if now is None or len(now.by) < 2:
                continue
            here = leaf.added.count(lora) - sum(one.lora.a == lora.a for one in leaf.taken)
            when = "twice in this plan" if here > 1 else _EARLIER
            found[lora.name, when].append(path)
    for (name, when), paths in found.items():
        yield _note(
            DocsPage.MERGE_LORA, f"the LoRA {_whose(name)} is merged into {_shown(paths)} {when}"
        )


_EARLIER: Final = "by an earlier run, too, as the record says"


def unmerged_notes(loras: Mapping[LeafPath, LeafLoras]) -> Iterator[Consequence]:
    """A note for kernels out of which a LoRA is taken of which nothing is on record that says how it came in."""
    unknown: dict[str, list[LeafPath]] = defaultdict(list)
    unsure: dict[str, list[LeafPath]] = defaultdict(list)
    other: dict[tuple[str, str], list[LeafPath]] = defaultdict(list)
    for path, leaf in loras.items():
        for taken in leaf.taken:
            known = taken.known
            if taken.others:
                other[taken.lora.name, taken.others[0].name].append(path)
            elif known is None:
                unknown[taken.lora.name].append(path)
            elif None in known.by:
                unsure[taken.lora.name].append(path)
    for name, paths in unknown.items():
        said = f"nothing on record says that the LoRA {_whose(name)} was ever merged into {_shown(paths)}"
        yield _note(DocsPage.UNMERGE_LORA, said)
    for (name, merged), paths in other.items():
        said = f"the record says that the LoRA {_whose(merged)} was merged into {_shown(paths)}"
        said = (
            f"{said}: whether that {_whose(name)}, which is taken out, is a copy of it is not known"
        )
        yield _note(DocsPage.UNMERGE_LORA, said)
    for name, paths in unsure.items():
        said = f"the record says that the LoRA {_whose(name)} was merged into {_shown(paths)}, and not by how much it"
        yield _note(DocsPage.UNMERGE_LORA, f"{said} is in them now")


def agreed_loras(draft: Draft, sources: Mapping[str, Any]) -> dict[LeafPath, LeafLoras]:
    """What becomes of LoRAs in leaves, where what is taken out of kernels was merged into them, as far as is on record.

    Raises:
        PlanError: the record says that another LoRA was, or with another scale, or that it was taken out again.
        CheckpointError: a record cannot be read.
    """
    loras = loras_held(draft, sources)
    raise_all(
        Problem(
            f"the LoRA {_whose(taken.lora.name)} is not in '{path}' as this edit takes it out",
            why=why,
            fix=worded(
                "say it as it was merged; what is to be subtracted in any case, `merge-lora` adds with a negative"
                " {scale}"
            ),
            path=str(path),
        )
        for path, leaf in loras.items()
        for taken in leaf.taken
        if (why := _contradiction(taken))
    )
    return loras


def _contradiction(taken: Taken) -> str:
    """What the record says that this is not; empty if it says nothing against it."""
    if taken.fits:
        return ""
    known, here = taken.known, f"here it is multiplied by {_scale(taken.lora)}"
    if known is None:
        if taken.may_fit_another or not taken.others:
            return ""
        merged = listed(
            f"that {_whose(one.name)} multiplied by {_scale(one)}" for one in taken.others
        )
        return f"the record says that another was merged into it: {merged}; {here}"
    if not known.by:
        return f"the record says that it was merged, and taken out again; {here}"
    return f"the record says that it was merged multiplied by {_scale(known)}; {here}"


def _scale(lora: HeldLora) -> str:
    times = f" times '{lora.alpha}'" if lora.alpha else ""
    return (
        listed(
            number_text(abs(by)) if by < 0 else number_text(by) for by in lora.by if by is not None
        )
        + times
    )


def _whose(name: str) -> str:
    return "of this checkpoint" if name == SOURCE else f"of '{name}'"


def _shown(paths: list[LeafPath]) -> str:
    return quoted(folded(map(str, paths)), _SHOWN)


def _note(page: DocsPage, said: str) -> Consequence:
    return Consequence(page, said)
