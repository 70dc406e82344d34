"""Drawings of a model's calls: what stands on their axes."""

from itertools import pairwise

import numpy as np
import pytest

from surgery_cli.probing.use_case.plotting import Curve, Panel, blocks_of, figure_of

pytest.importorskip("matplotlib")

PARTS = [
    "norm_1",
    "attention/query",
    "attention/key",
    "attention/out",
    "attention",
    "mlp/up",
    "mlp",
]
DEEP = [
    "embed",
    *(f"layers_{n}/{part}" for n in range(24) for part in PARTS),
    "norm",
    "head",
    "head call 2",
]


def drawn(names, first=None, values=None):
    curve = Curve("run", values or [1.0 + at for at in range(len(names))])
    figure = figure_of(names, [Panel("rms", [curve]), Panel("gradient", [curve])], first)
    figure.canvas.draw()
    return figure


def shown(figure):
    return [label for label in figure.axes[-1].get_xticklabels() if label.get_text()]


def test_the_blocks_of_a_deep_model_are_named_on_one_page():
    figure = drawn(DEEP, first="layers_13/attention/out")

    names = [label.get_text() for label in shown(figure)]
    assert names[:25] == ["embed", *(f"layers_{n}" for n in range(24))]
    assert figure.get_figwidth() <= 11.0
    ends = [label.get_window_extent().x1 for label in shown(figure)]
    assert all(b - a > 10 for a, b in pairwise(ends))  # a line of this size is 10 points high
    assert figure.axes[0].get_title() == "layers_13/attention/out"
    page = figure.bbox
    assert all(page.y0 <= label.get_window_extent().y0 for label in shown(figure))


def test_few_calls_are_named_one_by_one():
    assert [label.get_text() for label in shown(drawn(DEEP[:9]))] == DEEP[:9]


def test_a_block_ends_with_a_number_or_is_a_key():
    names = ["h/block_0/up", "h/block_0[1]", "h/block_1", "head", "head[0]", "1"]
    assert [(block.name, block.start, block.stop) for block in blocks_of(names)] == [
        ("h/block_0", 0, 2),
        ("h/block_1", 2, 3),
        ("head", 3, 5),
        ("1", 5, 6),
    ]


def test_what_has_no_logarithm_leaves_a_gap():
    figure = drawn(["a", "b", "c", "d"], values=[1.0, 0.0, float("nan"), None])
    line = figure.axes[0].get_lines()[0].get_ydata()
    assert np.isnan(line).tolist() == [False, True, True, True]
