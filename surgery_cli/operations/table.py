"""The one table that lists the operations; everything else (plans, commands, docs, schema) is read from it."""

from __future__ import annotations

from functools import cache

from surgery_cli.operations.add import Add
from surgery_cli.operations.add_scaled import AddScaled
from surgery_cli.operations.assertion import Assert
from surgery_cli.operations.average import Average
from surgery_cli.operations.base import Operation
from surgery_cli.operations.breadcrumbs import Breadcrumbs
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.clip import Clip
from surgery_cli.operations.concat import Concat
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.dare import Dare
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.ema import Ema
from surgery_cli.operations.expand import Expand
from surgery_cli.operations.extract_item import ExtractItem
from surgery_cli.operations.extract_lora import ExtractLora
from surgery_cli.operations.flatten import Flatten
from surgery_cli.operations.insert_item import InsertItem
from surgery_cli.operations.interpolate import Interpolate
from surgery_cli.operations.interpolate_positions import InterpolatePositions
from surgery_cli.operations.intersect import Intersect
from surgery_cli.operations.karcher import KarcherMean
from surgery_cli.operations.keep import Keep
from surgery_cli.operations.map import Map
from surgery_cli.operations.mask import Mask
from surgery_cli.operations.merge import Merge
from surgery_cli.operations.merge_lora import MergeLora
from surgery_cli.operations.model_stock import ModelStockMerge
from surgery_cli.operations.noise import Noise
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.pad import Pad
from surgery_cli.operations.permute import Permute
from surgery_cli.operations.prune import Prune
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.repeat import Repeat
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.resize import Resize
from surgery_cli.operations.set import Set
from surgery_cli.operations.shrink_and_perturb import ShrinkAndPerturb
from surgery_cli.operations.slice import Slice
from surgery_cli.operations.split import Split
from surgery_cli.operations.squeeze import Squeeze
from surgery_cli.operations.stack import Stack
from surgery_cli.operations.swa import Swa
from surgery_cli.operations.task_arithmetic import TaskArithmetic
from surgery_cli.operations.ties import Ties
from surgery_cli.operations.to_dict import ToDict
from surgery_cli.operations.to_list import ToList
from surgery_cli.operations.transpose import Transpose
from surgery_cli.operations.unflatten import Unflatten
from surgery_cli.operations.unmerge_lora import UnmergeLora
from surgery_cli.operations.unstack import Unstack


@cache
def operations() -> dict[str, type[Operation]]:
    """Every operation by its name, in the order in which they are documented."""
    listed: list[type[Operation]] = [
        Rescale,
        Normalize,
        Replace,
        Reinit,
        Average,
        Swa,
        Ema,
        AddScaled,
        Interpolate,
        TaskArithmetic,
        Ties,
        Dare,
        Breadcrumbs,
        ModelStockMerge,
        KarcherMean,
        MergeLora,
        UnmergeLora,
        ExtractLora,
        Clip,
        Prune,
        Mask,
        Noise,
        ShrinkAndPerturb,
        Map,
        Cast,
        Set,
        ResetOptimizer,
        Transpose,
        Reshape,
        Squeeze,
        Expand,
        Permute,
        Slice,
        Pad,
        Resize,
        Repeat,
        InterpolatePositions,
        Stack,
        Unstack,
        Split,
        Concat,
        Add,
        Merge,
        Intersect,
        Rename,
        Flatten,
        Unflatten,
        ToDict,
        ToList,
        Copy,
        Delete,
        Keep,
        ExtractItem,
        InsertItem,
        Assert,
    ]
    return {str(kind.__struct_config__.tag): kind for kind in listed}
