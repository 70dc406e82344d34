"""A LoRA as PEFT loads it: a folder of A and B, and `adapter_config.json`, which says by what their product is scaled.

Source: PEFT, utils/save_and_load.py (names), tuners/lora/config.py and utils/other.py (patterns).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from surgery_cli.draft.factor import Axis, Factor
from surgery_cli.draft.recipe import Output
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.inputs.peft_names import NAME, PREFIX, TENSOR
from surgery_cli.settings.export import Export
from surgery_cli.store.export.contract import FileParts
from surgery_cli.store.export.safetensors import SUFFIX, Safetensors, safetensors_file
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.tree.dtypes import is_floating
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded

_WEIGHTS: Final = f"adapter_model{SUFFIX}"
_AXES: Final[dict[bool, tuple[Axis, ...]]] = {
    True: ("rank", "inputs"),
    False: ("outputs", "rank"),
}
"""Those that PEFT gives to A, and to B."""
_TURNED: Final = (
    "`transpose`, `reshape` or `unstack` it first, or make it with `layout: peft-transposed` (of kernels"
    " [inputs, outputs], as Flax has them) or `layout: peft` (of [outputs, inputs])"
)
_EXAMPLE: Final = f"{PREFIX}model.layers.0.self_attn.q_proj.lora_A.weight"


class Peft(Safetensors):
    """What is called as PEFT calls its tensors is the adapter; all other leaves are the model's, and stay behind."""

    name: ClassVar[str] = "peft"

    def is_apart(self, path: LeafPath) -> bool:
        return not str(path[0] if path else "").startswith(PREFIX)

    def name_fault(self, path: LeafPath) -> str:
        if TENSOR.fullmatch(str(path[0])):
            return ""
        return f"PEFT calls the A and B of a linear layer `{_EXAMPLE}`, and `…lora_B.weight`"

    def check_leaves(self, leaves: Mapping[LeafPath, Output], request: Export) -> None:
        named = {str(path[0]): leaf for path, leaf in leaves.items()}
        raise_all(_misfits({name: leaf.spec for name, leaf in named.items()}))
        raise_all(_other_meanings(named, request))

    def check_destination(self, target: Path, request: Export) -> None:
        if request.shard is not None:
            raise PlanError(
                "`shard` says nothing of peft",
                why=f"it reads A and B from one file, `{_WEIGHTS}`",
                fix="leave it out",
                field="output",
            )
        if target.suffix in (SUFFIX, ".npz", ".msgpack"):
            raise PlanError(
                f"'{target.name}' is called like a file",
                why=f"an adapter is a folder, with `{NAME}` in it",
                fix=f"name '{target.stem}'",
                field="output",
            )

    def files(self, plan: ItemPlan, target: Path, request: Export) -> list[FileParts]:
        config = json.dumps(_config(plan.leaves, request), indent=2).encode() + b"\n"
        return [safetensors_file(_WEIGHTS, plan.leaves), FileParts(NAME, [config])]


def _misfits(leaves: Mapping[str, LeafSpec]) -> Iterator[Problem]:
    """A problem for every A without B, or B without A, and for what has not the axes that PEFT gives them."""
    for name, spec in leaves.items():
        other = name.replace(".lora_A.", ".lora_B.")
        if other == name:
            other = name.replace(".lora_B.", ".lora_A.")
        is_a = ".lora_A." in name
        why = ""
        if other not in leaves:
            why = f"there is no '{other}'"
        elif not is_floating(spec.dtype) or len(spec.shape) != 2:
            why = f"it is {spec.type_text}, and PEFT has {_listed(_AXES[is_a])}"
        elif is_a and leaves[other].shape[1:2] != spec.shape[:1]:
            why = f"A is {spec.type_text} and B {leaves[other].type_text}: [rank, inputs] and [outputs, rank]"
        if why:
            yield Problem(
                f"'{name}' is no part of an adapter as PEFT has it",
                why=why,
                fix=_TURNED if other in leaves else "`rename` both, or leave both out",
                path=name,
                field="output",
            )


def _other_meanings(leaves: Mapping[str, Output], request: Export) -> Iterator[Problem]:
    """A problem for every A and B of which the edit that made it says what PEFT would not take it for."""
    for name, leaf in leaves.items():
        if (factor := _factor(leaf)) is None:
            continue
        made = f"`{next(edit.name for edit in leaf.edits if edit.makes)}` made"
        axes = _AXES[".lora_A." in name]
        if factor.axes not in (None, axes):
            yield Problem(
                f"'{name}' is no part of an adapter as PEFT has it",
                why=f"{made} it as {_listed(factor.axes)}, and PEFT has {_listed(axes)}, whatever their sizes",
                fix=_TURNED,
                path=name,
                field="output",
            )
            continue
        rank = leaf.spec.shape[axes.index("rank")]
        scale = request.alpha_of(rank) / rank
        if factor.scale is not None and not math.isclose(factor.scale, scale):
            yield Problem(
                f"{made} '{name}' for a scale of {factor.scale:g}, and the adapter would say {scale:g}",
                why="their product would not be what was learnt",
                fix=worded("say {scale: {:g}} in `output`, and no {alpha}", factor.scale),
                path=name,
                field="output",
            )


def _factor(leaf: Output) -> Factor | None:
    """What it is to a product, as far as edits since then leave that known."""
    made = next((n for n, edit in enumerate(leaf.edits) if edit.makes), len(leaf.edits))
    effects = (edit.effect for edit in leaf.edits[made + 1 :])
    return next((edit.makes.after(effects) for edit in leaf.edits[made:] if edit.makes), None)


def _listed(axes: Iterable[str]) -> str:
    return f"[{', '.join(axes)}]"


def _config(leaves: Sequence[PlannedLeaf], request: Export) -> dict[str, Any]:
    """What PEFT reads beside the tensors: ranks, and the alphas that give each product its scale."""
    ranks = dict(sorted(_ranks(leaves)))
    rank = _most(ranks.values())
    alphas = {module: request.alpha_of(own) for module, own in ranks.items()}
    alpha = _most(alphas.values())
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": _number(alpha),
        "target_modules": list(ranks),
        "rank_pattern": {_only(m): own for m, own in ranks.items() if own != rank},
        "alpha_pattern": {_only(m): _number(own) for m, own in alphas.items() if own != alpha},
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "modules_to_save": None,
    }


def _ranks(leaves: Iterable[PlannedLeaf]) -> Iterator[tuple[str, int]]:
    for leaf in leaves:
        found = TENSOR.fullmatch(str(leaf.path[0]))
        if found is not None and found[2] == "A":
            yield found[1].removeprefix(PREFIX), leaf.spec.shape[0]


def _most(values: Iterable[Any]) -> Any:
    """What most have; of several the first."""
    return Counter(values).most_common(1)[0][0]


def _only(module: str) -> str:
    """The key of a pattern that names one module."""
    return f"^{re.escape(module)}"


def _number(value: float) -> float:
    """A whole number without a fraction, as PEFT writes it."""
    return int(value) if float(value).is_integer() else value
