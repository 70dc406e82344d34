"""What a PEFT adapter says of itself in `adapter_config.json`: how its LoRA is scaled, and what else it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from surgery_cli.draft.source import Source
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.peft_names import NAME, PREFIX, TENSOR
from surgery_cli.tree.regular_expressions import regular_expression, time_limit
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import setting_text

_Value = TypeVar("_Value")

_SHOWN: Final = 3

_SAY_NOTHING: Final = frozenset(
    [
        "task_type",
        "peft_type",
        "auto_mapping",
        "peft_version",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "r",
        "target_modules",
        "exclude_modules",
        "lora_alpha",
        "lora_dropout",
        "fan_in_fan_out",
        "bias",
        "use_rslora",
        "init_lora_weights",
        "layers_to_transform",
        "layers_pattern",
        "rank_pattern",
        "alpha_pattern",
        "megatron_core",
        "qalora_group_size",
        "runtime_config",
        "eva_config",
    ]
)
"""Fields that are read here, or that only tell how the adapter was trained; others must be empty."""

_STARTS: Final = (True, False, None, "gaussian", "orthogonal", "eva")
"""What A and B may have begun with such that the base model stayed as it was."""


class AdapterConfig(msgspec.Struct, frozen=True):
    """The part of the file that says what is added.

    Source: PEFT, tuners/lora/config.py and layer.py.
    """

    r: int = 8
    lora_alpha: float = 8
    use_rslora: bool = False
    fan_in_fan_out: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    target_modules: list[str] | str | None = None

    def untouched_notes(self, names: Sequence[str], text: str) -> Iterator[Consequence]:
        """What the file says was trained, and of which no tensor is among those that are called ``names``."""
        modules = {found[1].removeprefix(PREFIX) for found in map(TENSOR.fullmatch, names) if found}
        wanted = self.target_modules
        if isinstance(wanted, list):
            gone = [name for name in wanted if not any(_is_or_ends(m, name) for m in modules)]
        elif wanted is None or wanted.lower() == "all-linear":  # of which model, it does not say
            gone = []
        else:
            with time_limit(wanted):
                pattern = regular_expression(wanted)
                gone = [wanted] if not any(map(pattern.fullmatch, modules)) else []
        if gone:
            what = f"`{NAME}` of '{text}' says that {quoted(gone, _SHOWN)} had a LoRA (`target_modules`)"
            yield Consequence(DocsPage.MERGE_LORA, f"{what}, and there is no tensor of it")

    def scale_of(self, tensor: str, rank: int) -> float:
        """By what the product of a module is multiplied; ``tensor`` is the name of its A.

        Raises:
            PlanError: the file says another rank.
        """
        found = TENSOR.fullmatch(tensor)
        module = (found[1] if found else tensor).removeprefix(PREFIX)
        wanted = _for_module(module, self.rank_pattern or {}, self.r)
        if wanted != rank:
            raise PlanError(
                f"'{tensor}' has rank {rank}, and `{NAME}` says {wanted}",
                why="the scale is alpha divided by the rank, or by its root",
                fix="save the adapter again, with the file that belongs to it",
                field="with",
            )
        alpha = _for_module(module, self.alpha_pattern or {}, self.lora_alpha)
        return float(alpha / (rank**0.5 if self.use_rslora else rank))


def _is_or_ends(module: str, name: str) -> bool:
    """True if PEFT takes ``name`` for a module that is called so in full."""
    return module == name or module.endswith(f".{name}")


def _for_module(module: str, pattern: Mapping[str, _Value], usual: _Value) -> _Value:
    """What a pattern says for a module: of the first key that matches the end of its name, from a dot on."""
    for key, value in pattern.items():
        with time_limit(key):
            if _ending(key).match(module):
                return value
    return usual


def _ending(key: str) -> re.Pattern[str]:
    return regular_expression(rf"(.*\.)?({key})$")


def read_config(source: Source, text: str) -> AdapterConfig | None:
    """What the adapter at ``source`` says; None if it is none of PEFT's.

    Raises:
        PlanError: it does more than to add A·B to linear layers, or it does not read; all of that at once.
    """
    raw = source.beside(NAME)
    if raw is None:
        return None
    try:
        said = decode_json(raw, dict[str, Any])
        config = msgspec.convert(said, AdapterConfig)
        for key in (*(config.rank_pattern or {}), *(config.alpha_pattern or {})):
            _ending(key)
    except (msgspec.MsgspecError, re.error) as error:
        raise PlanError(
            f"`{NAME}` of '{text}' does not read",
            why=str(error),
            fix="copy the adapter again from where it was whole",
            field="with",
        ) from None
    raise_all(
        Problem(
            f"'{text}' is no plain LoRA: `{NAME}` says {what}",
            why=why,
            fix="merge it with PEFT (`merge_and_unload`), and take the result from there",
            field="with",
        )
        for what, why in _beyond(said)
    )
    return config


def _beyond(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the file says beyond a plain LoRA, and what that means."""

    def shown(name: str) -> str:
        return f"`{name}: {setting_text(said[name])}`"

    if (kind := said.get("peft_type", "LORA")) != "LORA":
        yield shown("peft_type"), f"{kind} is another kind of adapter"
    if said.get("bias", "none") != "none":
        yield shown("bias"), "biases of the base model were trained, too"
    start = said.get("init_lora_weights", True)
    if start not in _STARTS:
        yield shown("init_lora_weights"), "the base model was changed when training began"
    for name in said.keys() - _SAY_NOTHING:
        if said[name]:
            yield shown(name), _MEANINGS.get(name, "what that changes is not known here")


_MEANINGS: Final = {
    "use_dora": "DoRA scales every column of the sum to a magnitude that was trained",
    "lora_bias": "a bias was trained with B",
    "modules_to_save": "whole modules were trained beside the LoRA, and come with it",
    "trainable_token_indices": "rows of embeddings were trained, too",
    "target_parameters": "it is of parameters that are no linear layers",
    "layer_replication": "the model has layers that its base has not",
    "megatron_config": "its layers are spread over devices",
}


def refuse_other_tensors(names: list[str], text: str) -> None:
    """See that an adapter holds nothing but A and B of linear layers.

    Raises:
        PlanError: it does; all such tensors are named.
    """
    raise_all(
        Problem(
            f"'{text}' is no plain LoRA: it has '{name}'",
            why=next((why for part, why in _PARTS.items() if part in name), "it is no A, and no B"),
            fix="merge it with PEFT (`merge_and_unload`), and take the result from there",
            path=name,
            field="with",
        )
        for name in names
        if TENSOR.fullmatch(name) is None
    )


_PARTS: Final = {
    "lora_magnitude_vector": "DoRA scales every column of the sum to it",
    "lora_embedding_": "a LoRA of an embedding is looked up, not multiplied",
    ".lora_B.bias": "a bias was trained with B",
    "hada_": "LoHa multiplies two products element by element",
    "lokr_": "LoKr is a Kronecker product",
    "ia3_": "IA³ scales what a layer gives",
    "lora_E": "AdaLoRA has singular values between A and B",
    "modules_to_save": "a whole module was trained beside the LoRA",
}
