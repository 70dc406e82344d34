"""What people read, from documents made by hand: literal text."""

import io
import itertools
import math

import pytest

from surgery_cli import reports
from surgery_cli.cli.rendering import difference, inspection, preview, verdict
from surgery_cli.cli.rendering.statistics import sparkline
from surgery_cli.console import problems
from surgery_cli.console.page import Cell, Page, Terminal
from surgery_cli.errors import Problem
from surgery_cli.proof.statistics import LeafStatistics
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text, duration_text

SHARED = (
    "shares 2 files on disk with the source, so it is no backup of it; "
    "`--link never` makes it independent:\n"
    "  d/8c1f\n"
    "  ocdbt.process_0/d/03aa"
)


def plain(render, document, **options):
    stream = io.StringIO()
    render(document, Page(stream), **options)
    return stream.getvalue()


def drawn(render, document, *, width=100, **options):
    stream = io.StringIO()
    render(document, Terminal(stream, width=width), **options)
    return stream.getvalue()


def leaf(path, shape=(2, 3), dtype="float32", **more):
    size = math.prod(shape) * 4
    return reports.LeafRow(path=path, kind="array", shape=shape, dtype=dtype, bytes=size, **more)


def inspection_of(*leaves, **more):
    fields = {
        "checkpoint": "/runs/mnist",
        "layout": "ocdbt zarr2",
        "step": 500,
        "steps": [250, 500],
        "items": ["default"],
        "other_items": [],
        "foreign_files": [],
        "chosen": "step 500 (newest of 2)",
        "leaves": list(leaves),
        "all_leaves": len(leaves),
        "total_leaves": len(leaves),
        "total_bytes": sum(row.bytes for row in leaves),
        "total_stored_bytes": 0,
        "dead_bytes": 0,
        "parameters": 0,
        "by_dtype": {"float32": 48},
    }
    return reports.Inspection(**{**fields, **more})


def statistics_of(**more):
    fields = {
        "mean": 0.5,
        "std": 0.25,
        "min": 0.0,
        "max": 1.0,
        "norm": 2.0,
        "zeros": 1,
        "non_finite": 0,
        "histogram": [1, 2, 2, 1],
    }
    return LeafStatistics(**{**fields, **more})


def preview_of(kind=reports.Preview, **more):
    fields = {
        "source": "/runs/mnist",
        "destination": "/runs/new",
        "draft": "sha256:abc",
        "strategy": "copy-on-write",
        "strategy_reason": "one leaf of 28 changes",
        "edits": [
            reports.EditLine(
                operation="rescale",
                summary="params/**/kernel by 0.5",
                leaves=3,
                twins={"transform": 6},
                bytes=2048,
                effect="scales",
            ),
            reports.EditLine(operation="delete", summary="ema", leaves=1),
        ],
        "leaves": [
            reports.ChangedLeaf(
                path="params/a/kernel",
                from_="params/a/kernel",
                operations=["rescale"],
                before="float32[2,3]",
                after="bfloat16[2,3]",
                policy="transform",
            )
        ],
        "removed": ["ema/a", "ema/b"],
        "by_reference": 24,
        "bytes_read": 2048,
        "bytes_written": 1024,
        "bytes_linked": 1048576,
        "bytes_copied": 10,
        "notes": [Remark(DocsPage.OPTIMIZERS, "2 slots are kept: their power is not sure")],
        "chosen": "step 500 (newest of 2)",
    }
    return kind(**{**fields, **more})


def report_of(**more):
    outcome = {
        "verified": True,
        "digests": {},
        "seconds": 0.84,
        "shared_files": 2,
        "shared": ["d/8c1f", "ocdbt.process_0/d/03aa"],
        "checked": 9,
    }
    return preview_of(reports.Report, **{**outcome, **more})


def test_an_inspection_in_a_pipe_has_a_header_and_one_full_path_per_line():
    document = inspection_of(
        leaf("params/a/kernel", stored_bytes=10),
        leaf("opt/mu/a/kernel", twin_of="params/a/kernel", slot="mu"),
        leaf("step", (), "int32", clock="schedule", value=500),
        total_stored_bytes=2048,
        parameters=6,
        by_dtype={"int32": 4, "float32": 48},
        other_items=["metrics"],
        notes=[Remark(DocsPage.DOCTOR, "a note")],
    )

    assert plain(inspection.render, document) == (
        "/runs/mnist\n"
        "  step 500 (newest of 2)\n"
        "  stored as ocdbt zarr2\n"
        "  3 leaves, 52 B, 2.0 KiB on disk, 6 parameters\n"
        "  float32 48 B, int32 4 B\n"
        "  carried along, never edited: metrics\n"
        "  note: a note [docs/doctor.md#what-it-says]\n"
        "\n"
        "params/a/kernel  float32[2,3]  24 B\n"
        "opt/mu/a/kernel  float32[2,3]  24 B  mu of params/a/kernel\n"
        "step             int32[]        4 B  clock: schedule = 500\n"
    )


def test_a_terminal_gets_a_tree_with_sums(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    document = inspection_of(leaf("params/a/kernel"), leaf("params/a/bias", (3,)), leaf("b", (1,)))

    text = drawn(inspection.render, document)

    assert [line.rstrip() for line in text.splitlines()[5:]] == [
        "params/                   36 B",
        "  a/                      36 B",
        "    kernel  float32[2,3]  24 B",
        "    bias    float32[3]    12 B",
        "b           float32[1]     4 B",
    ]


def test_a_tree_too_long_for_a_terminal_is_said_in_series(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    document = inspection_of(*(leaf(f"params/layer_{n}/{k}") for n in range(200) for k in "wb"))

    text = drawn(inspection.render, document)

    assert [line.rstrip() for line in text.splitlines()[5:]] == [
        "params/                                        9.4 KiB",
        "  layer_{0..199}/                              9.4 KiB",
        "    w              200 leaves of float32[2,3]  4.7 KiB",
        "    b              200 leaves of float32[2,3]  4.7 KiB",
        "",
        "leaves that differ in numbers alone are one line; `--verbose` lists each",
    ]
    assert "layer_199/" in drawn(inspection.render, document, verbose=True)


def test_a_tree_of_which_no_two_leaves_are_alike_folds_and_says_so():
    names = ["".join(word) for word in itertools.product("abcdefgh", repeat=3)]
    document = inspection_of(*(leaf(f"params/{name}/{k}") for name in names for k in "wb"))

    text = drawn(inspection.render, document)

    assert "folded at depth 1: `--depth N` shows more" in text
    assert "1,024 leaves" in text
    assert len(text.splitlines()) < 60


def test_a_key_with_a_slash_stays_one_node(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    document = inspection_of(leaf("layer/mlp/w", spelling="layer%2Fmlp/w"))

    lines = [line.split()[0] for line in drawn(inspection.render, document).splitlines()[5:]]

    assert lines == ["layer/mlp/", "w"]


def test_statistics_flag_dead_exploded_saturated_and_non_finite_leaves():
    document = inspection_of(
        leaf("sane", statistics=statistics_of()),
        leaf("dead", statistics=statistics_of(), bad=["dead: all zeros"]),
        leaf("huge", statistics=statistics_of(), bad=["exploded"]),
        leaf("clipped", statistics=statistics_of(), bad=["saturated"]),
        leaf("broken", statistics=statistics_of(mean=math.nan, non_finite=3, nan=2)),
        leaf("count", (2,), "int32", statistics=statistics_of(max=3e8)),
    )

    rows = plain(inspection.render, document).splitlines()[-6:]

    assert [row.partition("  ")[0] for row in rows] == [
        "sane", "dead", "huge", "clipped", "broken", "count"
    ]  # fmt: skip
    assert rows[0].endswith("0.5  0.25    0      1     2      1  ▅██▅")
    assert rows[1].endswith("dead: all zeros")
    assert rows[2].endswith("exploded")
    assert rows[3].endswith("saturated")
    assert rows[4].endswith("2 NaN, 1 infinity")
    assert rows[5].endswith("▅██▅")


def test_a_sparkline_tells_an_empty_bin_from_a_nearly_empty_one():
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert sparkline([0, 0]) == ""
    assert sparkline([]) == ""


@pytest.mark.parametrize(
    ("operation", "effect", "twins", "said"),
    [
        ("average", "means", {"warm": 30}, "30 warm (first moments 0, second moments kept)"),
        ("reinit", "draws", {"warm": 4}, "4 warm (first moments 0, second moments at their mean)"),
        (
            "rescale",
            "scales",
            {"keep": 2, "carried": 1},
            "2 keep (as they were), 1 carried (edited like",
        ),
        ("replace", "takes", {"donor": 2}, "2 donor (taken with their params)"),
        ("reinit", "draws", {"reset": 2}, "2 reset (as the optimizer starts them)"),
        ("rename", "", {"moved": 1200}, "twins: 1,200 moved\n"),
        (
            "transpose",
            "rearranges",
            {"transform": 2},
            "2 transform (rearranged with their params)",
        ),
        (
            "transpose",
            "rearranges",
            {"keep": 2},
            "2 keep (as they were, rearranged with their params)",
        ),
        (
            "transpose",
            "rearranges",
            {"warm": 2},
            "2 warm (first moments 0, second moments rearranged with their params)",
        ),
    ],
)
def test_a_preview_says_what_becomes_of_twins(operation, effect, twins, said):
    edit = reports.EditLine(
        operation=operation, summary="params", leaves=2, twins=twins, effect=effect
    )

    assert said in plain(preview.render, preview_of(edits=[edit]))


def test_a_preview_has_a_line_per_edit_then_notes_then_removed_then_bytes():
    assert plain(preview.render, preview_of()) == (
        "/runs/mnist → /runs/new\n"
        "  step 500 (newest of 2)\n"
        "\n"
        "  1  rescale  params/**/kernel by 0.5  3 leaves    2.0 KiB  twins: 6 transform (scaled to match)\n"
        "  2  delete   ema                        1 leaf  no values\n"
        "\n"
        "  note: 2 slots are kept: their power is not sure [docs/optimizers.md]\n"
        "\n"
        "  removes 2 leaves\n"
        "    ema/a\n"
        "    ema/b\n"
        "\n"
        "copy-on-write: one leaf of 28 changes\n"
        "read 2.0 KiB, write 1.0 KiB, link 1.0 MiB, copy 10 B (estimated); 24 leaves by reference\n"
        "draft sha256:abc\n"
    )


def test_single_leaves_come_only_with_verbose():
    row = "  params/a/kernel  float32[2,3] → bfloat16[2,3]  rescale  transform\n"

    assert row not in plain(preview.render, preview_of())
    assert row in plain(preview.render, preview_of(), verbose=True)


def test_many_removed_leaves_are_counted_unless_verbose():
    document = preview_of(removed=[f"ema/{n}" for n in "abcdefghi"])

    assert "    and 4 more (`--verbose` lists them)\n" in plain(preview.render, document)
    assert "ema/i" in plain(preview.render, document, verbose=True)


def test_a_report_says_what_was_verified_and_what_is_shared():
    assert plain(preview.render, report_of()).splitlines()[-7:] == [
        "copy-on-write: one leaf of 28 changes",
        "read 2.0 KiB, wrote 1.0 KiB, linked 1.0 MiB, copied 10 B; 24 leaves by reference",
        *SHARED.splitlines(),
        "verified: the tree is as planned, 9 leaves read back; 0.8 s",
        "draft sha256:abc",
    ]


def test_a_report_without_verification_cannot_be_overlooked():
    assert "NOT VERIFIED" in plain(preview.render, report_of(verified=False))


def test_a_difference_names_each_leaf_and_how_far_it_is_off():
    document = reports.Difference(
        a="/a",
        b="/b",
        address_a="/a@4",
        address_b="/b",
        chosen_a="step 4 (as asked), item 'default'",
        chosen_b="one tree",
        step_a=4,
        step_b=None,
        only_in_a=["x"],
        only_in_b=["y", "z"],
        changed=[
            reports.Change(
                path="p/w",
                what="values",
                a="0.5",
                b="0.25",
                differing=3,
                size=6,
                max_abs=0.25,
                max_rel=0.5,
                where=(1, 2),
            ),
            reports.Change(path="p/b", what="dtype", a="float32", b="bfloat16"),
        ],
        equal=4,
        equal_by_reference=3,
        structure_only=False,
    )

    assert plain(difference.render, document) == (
        "a /a\n"
        "  step 4 (as asked), item 'default'\n"
        "b /b\n"
        "  one tree\n"
        "\n"
        "only in a: 1 leaf\n"
        "  x\n"
        "\n"
        "only in b: 2 leaves\n"
        "  y\n"
        "  z\n"
        "\n"
        "differ: 2 leaves\n"
        "  p/w  values  0.5 → 0.25          3 of 6  by up to 0.25 at [1,2]  relative 0.5\n"
        "  p/b  dtype   float32 → bfloat16\n"
        "\n"
        "5 leaves differ; 4 leaves equal in structure and values "
        "(3 of them are the same stored bytes, not read)\n"
    )


@pytest.mark.parametrize(
    ("equal", "shared", "text"),
    [
        (1, 1, "1 leaf equal in structure and values (the same stored bytes, not read)"),
        (4, 4, "4 leaves equal in structure and values (the same stored bytes, not read)"),
        (4, 1, "4 leaves equal in structure and values (1 of them is the same stored bytes, not read)"),
        (4, 2, "4 leaves equal in structure and values (2 of them are the same stored bytes, not read)"),
        (1, 0, "1 leaf equal in structure and values"),
    ],
)  # fmt: skip
def test_how_many_leaves_were_not_read_reads_right(equal, shared, text):
    document = reports.Difference(
        a="/a", b="/b", address_a="/a", address_b="/b",
        chosen_a="", chosen_b="", step_a=None, step_b=None, only_in_a=[], only_in_b=[],
        changed=[], equal=equal, equal_by_reference=shared, structure_only=False,
    )  # fmt: skip
    assert plain(difference.render, document).splitlines()[-1] == f"no difference: {text}"


def test_what_tolerances_let_be_is_said():
    document = reports.Difference(
        a="/a", b="/b", address_a="/a", address_b="/b",
        chosen_a="", chosen_b="", step_a=None, step_b=None, only_in_a=[], only_in_b=[],
        changed=[], equal=2, equal_by_reference=0, structure_only=False, rtol=1e-3, atol=float("inf"),
    )  # fmt: skip
    assert plain(difference.render, document).splitlines()[-1] == (
        "no difference: 2 leaves equal in structure and values within `--atol inf` and `--rtol 0.001`"
    )


def test_a_verdict_begins_with_the_counts_and_lists_every_finding():
    document = reports.Verdict(
        checkpoint="/a",
        address="/a",
        against="/b",
        agrees=False,
        findings=[
            reports.Finding(path="p/w", what="dtype", here="float32", there="bfloat16"),
            reports.Finding(path="p/b", what="missing here", fix="take it from the other"),
        ],
        checked=3,
        unchecked=0,
    )

    assert plain(verdict.render, document) == (
        "3 leaves checked, 0 unchecked: 2 findings\n"
        "  /a\n"
        "  held against /b\n"
        "\n"
        "p/w: dtype\n"
        "  here float32, there bfloat16\n"
        "p/b: missing here\n"
        "  take it from the other\n"
    )


def test_nothing_checked_is_not_called_agreement():
    document = reports.Verdict(
        checkpoint="/a", address="/a", against="", agrees=True, findings=[], checked=0, unchecked=2
    )

    first = plain(verdict.render, document).splitlines()[0]

    assert first == (
        "0 leaves checked, 2 unchecked: nothing was found wrong, but nothing could be compared"
    )


@pytest.mark.parametrize(
    ("problem", "lines"),
    [
        (Problem("it is wrong", why="because", fix="mend it"), ["it is wrong", "because", "mend it"]),
        (
            Problem("`by` is text", file="head.yaml", line=7, field="by"),
            ["head.yaml:7: `by` is text"],
        ),
        (
            Problem("must be a number", file="head.yaml", line=7, field="by"),
            ["head.yaml:7: `by`: must be a number"],
        ),
        (Problem("there is no plan 'p.yaml'", file="p.yaml"), ["there is no plan 'p.yaml'"]),
        (Problem("does not apply to int32[]", path="step"), ["'step': does not apply to int32[]"]),
        (Problem("'step' has no norm", path="step"), ["'step' has no norm"]),
    ],
)  # fmt: skip
def test_a_problem_is_three_short_lines_with_its_place(problem, lines):
    first, *rest = plain(problems.render, [problem]).splitlines()

    assert [first.removeprefix("error: "), *(line.removeprefix("  ") for line in rest)] == lines


def test_names_from_strangers_are_neither_markup_nor_control_characters():
    name = "[bold]a[/bold]\x1b[2J\n\u202eb"
    document = inspection_of(leaf(name))

    for text in (plain(inspection.render, document), drawn(inspection.render, document)):
        assert "[bold]a[" in text
        assert "\x1b[2J" not in text
        assert "\\x1b[2J\\n\\u202eb" in text


def test_a_terminal_has_colours_unless_no_color_says_otherwise(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in drawn(preview.render, preview_of())

    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in drawn(preview.render, preview_of())


def test_a_narrow_terminal_folds_long_columns_and_keeps_numbers_whole(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()

    Terminal(stream, width=50).table([("word " * 20, Cell("123,456,789", right=True))])

    lines = stream.getvalue().splitlines()
    assert len(lines) > 1
    assert "123,456,789" in lines[0]
    assert max(map(len, lines)) <= 50


def test_plain_lines_are_never_cut():
    stream = io.StringIO()

    Page(stream).table([("k" * 500, "float32[3]")])

    assert stream.getvalue() == f"{'k' * 500}  float32[3]\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1048575, "1.0 MiB"), (3 << 50, "3.0 PiB")],
)
def test_bytes_are_shown_in_binary_units(count, text):
    assert byte_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (60, "1:00"), (3725, "1:02:05")]
)
def test_times_are_seconds_then_clock_time(seconds, text):
    assert duration_text(seconds) == text


def test_many_shared_files_are_named_with_verbose_only():
    document = report_of(shared_files=5, shared=[f"d/{n}" for n in range(5)])

    assert "  d/2\n  and 2 more (`--verbose` lists them)\n" in plain(preview.render, document)
    assert "  d/3\n  d/4\n" in plain(preview.render, document, verbose=True)


def test_a_line_end_in_a_name_makes_no_line_of_advice():
    wrong = [Problem("'x' matches nothing", fix="the nearest is 'a\nb'")]
    assert plain(problems.render, wrong).splitlines()[1:] == ["  the nearest is 'a\\nb'"]


def test_in_a_pipe_a_long_cell_makes_no_other_line_long():
    stream = io.StringIO()
    rows = [("1", "average", "w" * 500, "2 leaves"), ("2", "set", "step", "1 leaf")]
    Page(stream).table([*rows, ("3", "rescale", "params/**", "20 leaves")])
    first, second, third = stream.getvalue().splitlines()
    assert first == f"1  average  {'w' * 500}  2 leaves"
    assert (second, third) == ("2  set      step       1 leaf", "3  rescale  params/**  20 leaves")
