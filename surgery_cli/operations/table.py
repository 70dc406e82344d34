"""The one table that lists the operations; everything else (plans, commands, docs, schema) is read from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from surgery_cli.loading import loaded
from surgery_cli.operations.base import Operation

_CLASSES: Final = {
    "rescale": "rescale:Rescale",
    "normalize": "normalize:Normalize",
    "replace": "replace:Replace",
    "reinit": "reinit:Reinit",
    "average": "average:Average",
    "swa": "swa:Swa",
    "ema": "ema:Ema",
    "add-scaled": "add_scaled:AddScaled",
    "interpolate": "interpolate:Interpolate",
    "task-arithmetic": "task_arithmetic:TaskArithmetic",
    "ties": "ties:Ties",
    "dare": "dare:Dare",
    "breadcrumbs": "breadcrumbs:Breadcrumbs",
    "model-stock": "model_stock:ModelStockMerge",
    "karcher": "karcher:KarcherMean",
    "merge-lora": "merge_lora:MergeLora",
    "unmerge-lora": "unmerge_lora:UnmergeLora",
    "extract-lora": "extract_lora:ExtractLora",
    "clip": "clip:Clip",
    "prune": "prune:Prune",
    "mask": "mask:Mask",
    "noise": "noise:Noise",
    "shrink-and-perturb": "shrink_and_perturb:ShrinkAndPerturb",
    "map": "map:Map",
    "cast": "cast:Cast",
    "set": "set:Set",
    "reset-optimizer": "reset_optimizer:ResetOptimizer",
    "transpose": "transpose:Transpose",
    "reshape": "reshape:Reshape",
    "squeeze": "squeeze:Squeeze",
    "expand": "expand:Expand",
    "permute": "permute:Permute",
    "slice": "slice:Slice",
    "pad": "pad:Pad",
    "resize": "resize:Resize",
    "repeat": "repeat:Repeat",
    "interpolate-positions": "interpolate_positions:InterpolatePositions",
    "stack": "stack:Stack",
    "unstack": "unstack:Unstack",
    "split": "split:Split",
    "concat": "concat:Concat",
    "add": "add:Add",
    "merge": "merge:Merge",
    "intersect": "intersect:Intersect",
    "rename": "rename:Rename",
    "flatten": "flatten:Flatten",
    "unflatten": "unflatten:Unflatten",
    "to-dict": "to_dict:ToDict",
    "to-list": "to_list:ToList",
    "copy": "copy:Copy",
    "delete": "delete:Delete",
    "keep": "keep:Keep",
    "extract-item": "extract_item:ExtractItem",
    "insert-item": "insert_item:InsertItem",
    "assert": "assertion:Assert",
}
"""The file and the class of every operation, by its name, in the order in which they are documented."""


class _Operations(Mapping[str, type[Operation]]):
    """Every operation by its name. Its file is loaded when it is asked for: a run asks for a few of a hundred."""

    def __getitem__(self, name: str) -> type[Operation]:
        kind: type[Operation] = loaded(f"{__package__}.{_CLASSES[name]}")
        return kind

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


_OPERATIONS: Final = _Operations()


def operations() -> Mapping[str, type[Operation]]:
    """Every operation by its name, in the order in which they are documented."""
    return _OPERATIONS
