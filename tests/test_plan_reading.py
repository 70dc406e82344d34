"""Plan files: three formats, one meaning; every problem at once, each with its file, line and field."""

import io
import json
import re
from pathlib import Path

import pytest

from surgery_cli.errors import PlanError, Problem
from surgery_cli.operations.table import operations
from surgery_cli.planning import (
    Plan,
    fields_of,
    operation_from_options,
    plan_from_document,
    plan_of,
    read_plan,
)
from surgery_cli.planning.values import Misfit, converted
from surgery_cli.planning.yaml_text import parse_yaml
from surgery_cli.settings.reshard import Reshard
from tests.plan_operations import KINDS, Convert, Move, Norm, Put, Scale

YAML_PLAN = """\
# a comment
sources:
  donor: runs/big@1000
seed: 7
edits:
  - op: scale
    at: params/Dense_0/kernel
    by: 1e-3
  - op: put
    at: [a, "b/*"]
    with: donor
    except: b/c
  - op: move
    moves: {x: y, y: x}
"""
TOML_PLAN = """\
# a comment
seed = 7

[sources]
donor = "runs/big@1000"

[[edits]]
op = "scale"
at = "params/Dense_0/kernel"
by = 1e-3

[[edits]]
op = "put"
at = ["a", "b/*"]
with = "donor"
except = "b/c"

[[edits]]
op = "move"
[edits.moves]
x = "y"
y = "x"
"""
JSON_PLAN = """\
{
  "sources": {"donor": "runs/big@1000"},
  "seed": 7,
  "edits": [
    {"op": "scale", "at": "params/Dense_0/kernel", "by": 1e-3},
    {"op": "put", "at": ["a", "b/*"],
     "with": "donor", "except": "b/c"},
    {"op": "move", "moves": {"x": "y", "y": "x"}}
  ]
}
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="plan.yaml"):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(file)

    return written


def read(text, **settings):
    return read_plan("-", stdin=io.StringIO(text), settings=settings, kinds=KINDS)


def problems(text, **settings):
    with pytest.raises(PlanError) as caught:
        read(text, **settings)
    return list(caught.value.problems)


def problem(text, **settings):
    (only,) = problems(text, **settings)
    return only


def edit(fields):
    """A plan of one `scale` in which `fields` begins on line 4."""
    return f"edits:\n- op: scale\n  at: x\n  {fields}\n"


# --- What a plan says ---


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.yaml", YAML_PLAN), ("p.YML", YAML_PLAN), ("p.toml", TOML_PLAN), ("p.json", JSON_PLAN)],
)
def test_the_same_plan_reads_alike_in_all_three_formats(write, tmp_path, name, text):
    plan = read_plan(write(text, name), kinds=KINDS)
    assert plan.edits == (
        Scale(at="params/Dense_0/kernel", by=0.001),
        Put(at=("a", "b/*"), with_="donor", except_="b/c"),
        Move(moves={"x": "y", "y": "x"}),
    )
    assert plan.sources == {"donor": f"{tmp_path}/runs/big@1000"}
    assert plan.seed == 7


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("p.yaml", YAML_PLAN, [(6, {"op": 6, "at": 7, "by": 8}), (9, 12), (13, 14)]),
        ("p.toml", TOML_PLAN, [(7, {"op": 8, "at": 9, "by": 10}), (12, 16), (18, 20)]),
        ("p.json", JSON_PLAN, [(5, {"op": 5, "at": 5, "by": 5}), (6, 7), (8, 8)]),
    ],
)
def test_every_edit_knows_where_it_stands(write, name, text, lines):
    file = write(text, name)
    first, second, third = read_plan(file, kinds=KINDS).origins
    assert (first.file, first.number, third.number) == (file, 1, 3)
    assert (first.line(), {name: mark.line for name, mark in first.marks.items()}) == lines[0]
    assert (second.line(), second.line("except")) == lines[1]
    assert (third.line(), third.line("moves")) == lines[2]


def test_an_origin_locates_a_later_problem_by_its_field():
    origin = read(YAML_PLAN).origins[1]
    assert origin.located(Problem("no", field="with")).line == 11
    assert origin.located(Problem("no", field="twins")).line == 9
    assert origin.located(Problem("no")).file == "standard input"
    assert origin.located(Problem("no", file="other", line=1)).line == 1


@pytest.mark.parametrize(
    "text",
    [YAML_PLAN, "edits: [{op: scale, at: 'a b', by: 1}, {op: put, at: [x, y], with: donor}]"],
)
def test_yaml_knows_the_column_in_which_every_key_begins(text):
    found = parse_yaml(text, "p.yaml")
    for position, (line, column) in found.marks.items():
        if isinstance(position[-1], str):
            assert text.splitlines()[line - 1][column - 1 :].startswith(position[-1])
    assert sum(isinstance(position[-1], str) for position in found.marks) > 5


def test_two_faults_on_one_line_are_told_apart_by_their_columns():
    with pytest.raises(PlanError) as refused:
        read("edits: [{op: scale, by: 1, at: a, expect: x}, {op: scale, by: 1, at: b, expect: y}]")
    assert [(p.line, p.column) for p in refused.value.problems] == [(1, 35), (1, 73)]
    with pytest.raises(PlanError) as refused:
        read("edits: [{op: scale, at: a, at: b}]")
    assert refused.value.problems[0].why == "in columns 21 and 28 of line 1"
    assert str(refused.value).startswith("standard input:1:28: the key `at`")


@pytest.mark.parametrize("name", ["p.yaml", "p.toml", "p.json"])
@pytest.mark.parametrize("text", ["", "  \n\n", "\ufeff", "{}", "# only this\n"])
def test_an_empty_file_is_what_a_failed_command_left(write, name, text):
    if (name, text[:1]) in {("p.toml", "{"), ("p.json", "#")}:
        pytest.skip("no document of that format")
    with pytest.raises(PlanError, match="it holds no plan"):
        read_plan(write(text, name), kinds=KINDS)


@pytest.mark.parametrize("text", ["edits:\n", "edits: []\n", "seed: 3\n"])
def test_a_plan_may_have_no_edits(text):
    assert read(text).edits == ()


def test_text_is_unicode_and_may_begin_with_a_bom_and_end_lines_with_crlf(write):
    text = "\ufeffedits:\r\n- op: scale\r\n  at: 'Schicht_ä/重み'\r\n  by: 2\r\n  note: 🔪\r\n"
    plan = read_plan(write(text), kinds=KINDS)
    assert plan.edits == (Scale(at="Schicht_ä/重み", by=2.0, note="🔪"),)
    lines = {name: mark.line for name, mark in plan.origins[0].marks.items()}
    assert lines == {"op": 2, "at": 3, "by": 4, "note": 5}


def test_json_escapes_of_one_character_in_two_halves_are_read(write):
    text = '{"edits": [{"op": "scale",\t"at": "\\ud83d\\ude00\\/x", "by": 1}]}'
    assert read_plan(write(text, "p.json"), kinds=KINDS).edits[0].at == "😀/x"


def test_standard_input_is_yaml_and_so_json_too():
    assert read(JSON_PLAN).edits == read(YAML_PLAN).edits
    raw = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfseed: 3\n"), encoding="ascii")
    assert read_plan("-", stdin=raw, kinds=KINDS).seed == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("0o17", 15.0),
        ("0x1F", 31.0),
        ("017", 17.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("yes", "/yes"),
        ("off", "/off"),
        ("1:30", "/1:30"),
        ("2020-01-01", "/2020-01-01"),
        ("1/3", 1 / 3),
        ("-2.5 / 1e-3", -2500.0),
        ("'3/4'", 0.75),
        ("64^-0.5", 0.125),
        ("3 ^ 2", 9.0),
        ("./64^-0.5", "/64^-0.5"),
    ],
)
def test_unquoted_text_means_what_the_core_schema_of_yaml_1_2_says(text, value):
    expected = f"{Path.cwd()}{value}" if isinstance(value, str) else value
    assert read(edit(f"by: {text}")).edits[0].by == expected


@pytest.mark.parametrize(
    ("text", "why", "fix"),
    [
        ("'3'", "YAML reads a number in quotes as text", "write `3` without quotes"),
        ("!!str 3", "YAML reads a number in quotes as text", "write `3` without quotes"),
        ("1_000", "YAML numbers are digits", "write `1000`"),
        ("1e-400", "smaller than any number that a float64 holds", "write `0`"),
        ("inf", "a finite number is needed", "write `1.0`"),
        ("1/0", "it divides by 0", "write a number"),
        ("0^-1", "it divides by 0", "write a number"),
        ("-2^0.5", "a root of a number below 0", "write a number"),
        ("10^-400", "it is beyond what a float64 holds", "write a number"),
        ("10^400", "it is beyond what a float64 holds", "write a number"),
        ("1e999/1e-999", "it is beyond what a float64 holds", "write a number"),
        ("1e99999999/3", "it is beyond what a float64 holds", "write a number"),
    ],
)
def test_text_that_was_meant_as_a_number_and_is_none_is_refused_where_it_stands(text, why, fix):
    found = problem(edit(f"by: {text}"))
    assert why in found.why
    assert found.fix.startswith(fix)
    assert (found.field, found.line) == ("by", 4)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("json", '{"edits": [{"op": "rescale", "at": "x", "by": 1e-400}]}'),
        ("toml", '[[edits]]\nop = "rescale"\nat = "x"\nby = 1e-400\n'),
    ],
)
def test_no_format_takes_a_number_for_0_that_is_not(suffix, text, tmp_path):
    file = tmp_path / f"p.{suffix}"
    file.write_text(text)
    with pytest.raises(PlanError, match="smaller than any number that a float64 holds"):
        read_plan(str(file))


def test_a_fraction_that_is_also_a_path_must_be_spelled_as_one_of_them(tmp_path):
    (tmp_path / "1" / "500").mkdir(parents=True)
    file = tmp_path / "p.yaml"
    file.write_text("edits: [{op: put, at: x, with: 1/500}]")
    with pytest.raises(
        PlanError, match=r"is the number 0\.002, and something of that name"
    ) as caught:
        read_plan(str(file), kinds=KINDS)
    assert caught.value.problems[0].fix == "write `./1/500` for what stands there, or `0.002`"
    for text, value in (("./1/500", f"{tmp_path}/1/500"), ("0.002", 0.002), ("1/501", 1 / 501)):
        file.write_text(f"edits: [{{op: put, at: x, with: {text}}}]")
        assert read_plan(str(file), kinds=KINDS).edits[0].with_ == value


def test_every_number_of_every_operation_may_be_a_fraction():
    seen = []
    for name, kind in operations().items():
        given = {
            f.name: {
                "init": "normal",
                "to": "bfloat16",
                "axis": 0,
                "shrink": "1/2",
                "std": "1/2",
                "steps": "1..2",
                "density": "1/2",
                "t": "1/2",
            }.get(f.name, 2 if f.type_text.startswith("whole number") else "x")
            for f in fields_of(kind)
            if f.required
        }
        texts = {key: str(value) for key, value in given.items()}
        for field in (f for f in fields_of(kind) if re.search(r"(?<!whole )number", f.type_text)):
            document = {"op": name, **given, field.name: ["3/4"] if field.is_list else "3/4"}
            (planned,) = read_plan("-", stdin=io.StringIO(json.dumps({"edits": [document]}))).edits
            (typed,) = plan_of([operation_from_options(name, {**texts, field.name: "3/4"})]).edits
            for edit_ in (planned, typed):
                assert getattr(edit_, field.attribute) in (0.75, (0.75,)), (name, field.name)
            seen.append(f"{name} {field.name}")
    assert {"rescale by", "replace with", "average weights", "normalize to"} <= set(seen)


@pytest.mark.parametrize("kind", [*operations().values(), Plan, Reshard], ids=lambda k: k.__name__)
def test_quotes_are_advised_where_they_would_do(kind):
    """Of every field, with a number where a name may stand, a text with a grammar of its own, or none at all."""
    for field in fields_of(kind):
        for value in (-3.5, True, [-3.5], {"a": -3.5}, {"a": [-3.5]}):
            try:
                converted(kind, field.name, value)
            except Misfit as misfit:
                if "put it in quotes" not in misfit.problem.fix:
                    continue
                assert not field.type_text.startswith("mapping") or isinstance(value, dict)
                text = json.dumps(value).replace("-3.5", '"-3.5"').replace("true", '"true"')
                converted(kind, field.name, json.loads(text))


def test_a_mesh_that_is_a_number_is_told_what_a_mesh_is():
    number, axis = (
        problem(f"reshard:\n  mesh: {given}\n  spec: {{a: x}}\n") for given in ("4", "{x: 0}")
    )
    assert number.fix == "the mesh of the other topology: its axes with their sizes"
    assert (axis.fix, axis.line) == ("", 2)


def test_a_line_that_is_moved_by_a_column_is_said_to_be_out_of_line():
    """Every line of a plan, a column or two to the right or left: quotes are never what it lacks."""
    lines = YAML_PLAN.splitlines()
    told = 0
    for number, line in enumerate(lines):
        for moved in (f" {line}", f"  {line}", line.removeprefix(" "), line.removeprefix("  ")):
            text = "\n".join([*lines[:number], moved, *lines[number + 1 :]])
            try:
                read(text)
            except PlanError as error:
                first = error.problems[0]
                assert "single quotes" not in first.fix, text
                told += "which fits nothing around it" in first.what
    assert told > 10


def test_anchors_and_aliases_repeat_values():
    plan = read("edits:\n- {op: scale, at: &w [a, b], by: 1}\n- {op: scale, at: *w, by: 2}\n")
    assert plan.edits[1].at == ("a", "b")


# --- Paths ---


def test_relative_paths_are_relative_to_the_plan(tmp_path, monkeypatch):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "p.yaml").write_text(
        "sources: {a: ../ck, b: /abs@3, c: 'file:///b/c%20d', d: ~/d, e: file}\n"
        "edits:\n"
        "- {op: put, at: x, with: a}\n"
        "- {op: put, at: x, with: f.npz:k//v}\n"
        "- {op: put, at: x, with: ./0}\n"
        "- {op: put, at: x, with: 0}\n"
        "- {op: scale, at: a, by: ./gs:/f.npy}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/users/me")
    plan = read_plan("plans/p.yaml", kinds=KINDS)
    here = f"{tmp_path}/plans"
    assert plan.sources == {
        "a": f"{here}/../ck",
        "b": "/abs@3",
        "c": "/b/c d",
        "d": "/users/me/d",
        "e": f"{here}/file",
    }
    assert [e.with_ for e in plan.edits[:4]] == ["a", f"{here}/f.npz:k//v", f"{here}/0", 0]
    assert plan.edits[4].at == "a"
    assert plan.edits[4].by == f"{here}/gs:/f.npy"


def test_an_empty_path_is_refused():
    assert problem("edits:\n- {op: put, at: x, with: ''}\n").what == "`with` is empty"
    found = problem("sources:\n  donor: ''\n")
    assert (found.what, found.line) == ("the source `donor` has no path", 2)


# --- Variables ---


def test_a_value_that_is_a_variable_takes_the_type_that_yaml_gives_it():
    text = "vars: {axes: [0, 1]}\nedits:\n- {op: norm, at: '${where}', axes: '${axes}', expect: '${n}'}\n"
    assert read(text, where="a/*", n="3").edits == (Norm(at="a/*", axes=(0, 1), expect=3),)
    assert read(edit("by: ${by}"), by="1e-3").edits[0].by == 0.001


def test_inside_longer_text_a_variable_is_text():
    text = "vars: {n: 1, on: true, f: 0.5}\nedits:\n- {op: convert, to: 'x${n}${on}${f}-${s}'}\n"
    assert read(text, s="1e-3").edits == (Convert(to="x1true0.5-1e-3"),)


def test_a_setting_overrides_its_default():
    assert read("vars: {by: 1}\n" + edit("by: ${by}"), by="2").edits[0].by == 2.0


def test_variables_stand_in_keys_and_at_the_top_too():
    plan = read("seed: ${s}\nedits:\n- {op: move, moves: {'a/${s}': 'b/${s}'}}\n", s="4")
    assert plan.seed == 4
    assert plan.edits == (Move(moves={"a/4": "b/4"}),)


def test_two_dollars_escape():
    assert read(edit("by: 1\n  note: a $${by} $5 ${x}"), x="!").edits[0].note == "a ${by} $5 !"


@pytest.mark.parametrize(
    ("text", "settings", "what", "line"),
    [
        (edit("by: ${bu}"), {}, "the variable `bu` is not set", 4),
        (edit("by: ${by"), {}, "`${by` is not closed", 4),
        (edit("by: ${}"), {}, "`${}` does not name a variable", 4),
        (edit("by: ${a:-1}"), {}, "`${a:-1}` does not name a variable", 4),
        ("vars: {a: '${b}'}\n", {}, "the variable `a` refers to another variable", 1),
        ("vars: {'1a': 0}\n", {}, "`1a` cannot be the name of a variable", 1),
        ("vars: 3\n", {}, "`vars` must be a mapping, not 3", 1),
        (
            "vars: {a: [1]}\n" + edit("by: x${a}"),
            {},
            "`${a}` is [1] and cannot stand inside longer text",
            5,
        ),
        (
            edit("by: 1"),
            {"by": "2"},
            "nothing in the plan uses `${by}`, which `--set by=2` fills",
            None,
        ),
    ],
)
def test_a_variable_that_cannot_be_filled_is_refused(text, settings, what, line):
    found = problem(text, **settings)
    assert (found.what, found.line) == (what, line)


def test_an_unset_variable_names_the_nearest_one():
    found = problem("vars: {factor: 1}\n" + edit("by: ${facter}"))
    assert (found.why, found.field) == ("the nearest is `factor`", "by")
    found = problem(edit("by: ${factor}"), factor="1", facter="2")
    assert found.why == "the nearest is `factor`"


def test_a_wrong_variable_does_not_hide_other_problems_nor_make_new_ones():
    text = "edits:\n- {op: scale, at: '${w}', by: '${b}'}\n- {op: norm, at: x, axes: 3}\n"
    assert [(p.field, p.line) for p in problems(text)] == [("at", 2), ("by", 2), ("axes", 3)]


# --- What is wrong with a plan ---


@pytest.mark.parametrize(
    ("text", "what", "fix", "line", "field"),
    [
        ("seeed: 1\n", "a plan has no key `seeed`", "the nearest is `seed`", 1, "seeed"),
        ("axes: 1\n", "a plan has no key `axes`", "`axes` belongs into an edit", 1, "axes"),
        ("edits: {op: scale}\n", "`edits` must be a list of edits", "`- op:`", 1, "edits"),
        ("edits:\n- 3\n", "edit 1 must be a mapping, not 3", "`- op: ", 2, "edits"),
        ("edits:\n- at: x\n", "edit 1 does not say what to do", "scale, norm, put", 2, "edits"),
        ("edits:\n- op: scal\n", "unknown operation 'scal'", "nearest is `scale`", 2, "op"),
        ("edits:\n- op: zzz\n", "unknown operation 'zzz'", "scale, norm, put", 2, "op"),
        ("edits:\n- op: 3\n", "`op` must be the name of an operation, not 3", "scale", 2, "op"),
        (edit("by: 1\n  bye: 2"), "`scale` has no field `bye`", "nearest is `by`", 5, "bye"),
        (edit("note: x"), "`scale` needs `by`", "factor, or a file of factors", 2, "by"),
        (edit("by:"), "`by` must be a number or text, not empty (null)", "`by`", 4, "by"),
        (edit("by: [1]"), "`by` must be a number or text, not the list [1]", "", 4, "by"),
        (edit("by: true"), "`by` must be a number or text, not `true`", "quotes", 4, "by"),
        (edit("by: 1\n  axis: x"), 'not the text "x"', "", 5, "axis"),
        (
            edit("by: 1\n  expect: -1"),
            "`expect` must be a whole number, at least 0",
            "",
            5,
            "expect",
        ),
        (edit("by: 1\n  expect: 1.5"), "not the number 1.5", "", 5, "expect"),
        (edit("by: 1\n  note: 5"), "`note` must be text, not the number 5", '"5"', 5, "note"),
        (
            edit("by: 1\n  optimizer: rest"),
            "`optimizer` must be one of `keep`",
            "`reset`",
            5,
            "optimizer",
        ),
        (edit("by: 1\n  optional: yes"), "`optional` must be true or false", "", 5, "optional"),
        (
            "edits:\n- {op: norm, at: x, axes: 1}\n",
            "`axes` must be a list",
            "`axes: [1]`",
            2,
            "axes",
        ),
        (
            "edits:\n- op: norm\n  at: x\n  axes:\n  - 0\n  - a\n",
            'item 2 is the text "a"',
            "",
            6,
            "axes",
        ),
        (
            "edits:\n- op: norm\n  at: x\n  weights:\n    a: 1\n    b: c\n",
            '`weights` must be a mapping of names to number, but the entry `b` is the text "c"',
            "",
            6,
            "weights",
        ),
        (
            "edits:\n- {op: norm, at: x, kind: l3}\n",
            "`kind` must be one of `l1`, `l2`",
            "l",
            2,
            "kind",
        ),
        ("edits:\n- op: norm\n", "`norm` needs `at`", "`at: ", 2, "at"),
        ("edits:\n- op: norm\n  at: ''\n", "`at` of `norm` is empty", "'**'", 3, "at"),
        ("edits:\n- op: norm\n  at: []\n", "`at` of `norm` is empty", "'**'", 3, "at"),
        ("edits:\n- op: norm\n  at: [a, '']\n", "the pattern is empty", "**", 3, "at"),
        ("edits:\n- op: convert\n  to: x\n  at: ''\n", "`at` of `convert` is empty", "", 4, "at"),
        ("edits:\n- op: move\n  to: x\n", "`move` needs `at` or `moves`", "", 2, "at"),
        ("edits:\n- op: norm\n  at: 're:('\n", "'re:(' is not a valid pattern", "", 3, "at"),
        (
            "edits:\n- op: move\n  at: x\n  to: y\n  moves: {a: b}\n",
            "`to` and `moves` cannot stand together",
            "",
            5,
            "moves",
        ),
        ("seed: x\n", "`seed` must be a whole number, at least 0", "", 1, "seed"),
        ("seed: -1\n", "not the number -1", "", 1, "seed"),
        ("optimizer: drop\n", "`optimizer` must be one of", "", 1, "optimizer"),
        ("sources:\n  a: b\n  c: 3\n", "the entry `c` is the number 3", "", 3, "sources"),
        ("slots:\n  a/b: 3\n", "the entry `a/b` is the number 3", "", 2, "slots"),
    ],
)
def test_a_problem_names_its_line_its_field_and_what_would_work(text, what, fix, line, field):
    found = problem(text)
    assert what in found.what
    assert fix in found.fix
    assert (found.file, found.line, found.field) == ("standard input", line, field)


@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
def test_a_number_of_thousands_of_digits_is_refused_in_every_format(tmp_path, suffix):
    digits = "9" * 5000
    texts = {"yaml": f"seed: {digits}", "toml": f"seed = {digits}", "json": f'{{"seed": {digits}}}'}
    plan = tmp_path / f"plan.{suffix}"
    plan.write_text(texts[suffix])
    with pytest.raises(PlanError) as caught:
        read_plan(str(plan))
    assert len(str(caught.value).replace(str(plan), "")) < 250


def test_a_number_that_python_cannot_write_is_refused(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(f"seed = 0x{'f' * 5000}")
    with pytest.raises(PlanError, match="not the number of thousands of digits"):
        read_plan(str(plan))


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_half_of_a_character_is_refused_and_a_pair_of_halves_is_one(tmp_path, suffix):
    plan = tmp_path / f"plan.{suffix}"
    plan.write_text('{\n"params": "a\\ud83d"}')
    with pytest.raises(PlanError, match="holds half of a character: U\\+D83D") as caught:
        read_plan(str(plan))
    (problem,) = caught.value.problems
    assert problem.line == 2

    plan.write_text('{"params": "a\\ud83d\\ude00"}')
    assert read_plan(str(plan)).params == "a\U0001f600"


def test_a_problem_in_an_edit_says_in_which():
    found = problem("edits:\n- {op: convert, to: x}\n- {op: scale, at: x, by: []}\n")
    assert found.why == "in edit 2 (`scale`)"


def test_all_problems_of_a_file_come_together_in_its_order(write):
    text = (
        "[[edits]]\nop = 'scale'\nat = 'x'\nby = []\n\n"
        "[[edits]]\nop = 'scal'\n\n"
        "[[edits]]\nop = 'norm'\naxes = ['''\n[[edits]]\n''']\n\n"
        "[vars]\na = 1\n[sourcs]\n"
    )
    file = write(text, "p.toml")
    with pytest.raises(PlanError) as caught:
        read_plan(file, kinds=KINDS)
    assert [(p.field, p.line) for p in caught.value.problems] == [
        ("by", 4),
        ("op", 7),
        ("at", 9),
        ("axes", 11),
        ("sourcs", 17),
    ]
    assert str(caught.value).startswith(f"{file}:4: `by` must be a number or text")


@pytest.mark.parametrize("text", ["- op: scale\n", "hello\n", "3\n"])
def test_a_plan_that_is_no_mapping_is_refused(text):
    assert problem(text).what == "a plan is a mapping of `edits` and other keys"


# --- What is no text of the format ---


@pytest.mark.parametrize(
    ("name", "text", "what", "line"),
    [
        ("p.yaml", "seed: 1\nseed: 2\n", "the key `seed` stands twice in one mapping", 2),
        ("p.yaml", "edits:\n- op: scale\n  'op': norm\n", "the key `op` stands twice", 3),
        ("p.json", '{"seed": 1,\n\n "seed": 2}', "the key `seed` stands twice", 3),
        ("p.json", '{"vars": {"a": 1, "b": {"a": 1}}, "vars": 1}', "`vars` stands twice", 1),
        ("p.toml", "seed = 1\nseed = 2\n", "not valid TOML", 2),
        ("p.yaml", "edits:\n\t- op: scale\n", "a tab cannot indent in YAML", 2),
        ("p.yaml", "a: 1\n---\nb: 1\n", "a second YAML document begins here", 2),
        ("p.yaml", "%YAML 1.1\n---\nseed: 1\n", "not YAML 1.2", 2),
        ("p.yaml", edit("<<: {by: 1}"), "merge keys (`<<`) are not part of YAML 1.2", 4),
        ("p.yaml", edit("by: !!int '3'"), "the tag `!!int` means nothing in a plan", 4),
        ("p.yaml", edit("by: !!python/name:os.system x"), "means nothing in a plan", 4),
        ("p.yaml", "1: x\n", "the key 1 is not text", 1),
        ("p.yaml", "? [a]\n: x\n", 'the key ["a"] is not text', 1),
        ("p.yaml", "seed: [1\n", "not valid YAML", 2),
        ("p.yaml", 'edits:\n- at: "\\1"\n', "found unknown escape character '1'", 2),
        ("p.yaml", "a: 1\nb: \x07\n", "the control character U+0007", 2),
        ("p.yaml", "a: &x [*x]\n", "`*x` is an alias in YAML", 1),
        ("p.json", '{"seed": 1,}', "not valid JSON", 1),
        ("p.json", "{\n // no\n}", "not valid JSON", 2),
        ("p.json", '{"seed": NaN}', "`NaN` is not valid JSON", None),
        ("p.json", "seed: 1\n", "not valid JSON", 1),
        ("p.toml", "seed: 1\n", "not valid TOML", 1),
        ("p.toml", 'a = """\n', "not valid TOML", None),
        ("p.json", "[" * 100_000, "nested too deeply", None),
        ("p.yaml", "[" * 100_000, "nested too deeply", 1),
    ],
)
def test_text_that_is_not_of_its_format_is_refused_with_its_line(write, name, text, what, line):
    file = write(text, name)
    with pytest.raises(PlanError) as caught:
        read_plan(file, kinds=KINDS)
    (found,) = caught.value.problems
    assert what in found.what
    assert (found.file, found.line) == (file, line)


def test_an_unquoted_star_is_explained():
    found = problem("edits:\n- op: norm\n  at: **/kernel\n")
    assert found.line == 3
    assert found.fix == "if it is a pattern, put it in quotes: '**/kernel'"


def test_aliases_that_multiply_beyond_measure_are_refused():
    lines = ["vars:", "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert problem("\n".join(lines)).what == "the plan holds more than 1,000,000 values"


def test_a_file_that_cannot_be_a_plan_is_refused(write, tmp_path):
    (tmp_path / "dir.yaml").mkdir()
    write("", "head.yaml")
    for file, what, fix in [
        (str(tmp_path / "haed.yaml"), "there is no plan", "the nearest is `head.yaml`"),
        (str(tmp_path / "no" / "p.yaml"), "there is no plan", "check its name"),
        (str(tmp_path / "dir.yaml"), "is a directory, not a plan", "surgery apply SRC DST PLAN"),
        (str(tmp_path), "is a directory, not a plan", "surgery plan SRC PLAN"),
        (write("", "p.txt"), "is not named like a plan", "- < FILE"),
        (write(b"a: \xff\xfe\n", "b.yaml"), "is not UTF-8 text", "UTF-8"),
        (write("seed: 1".encode("utf-16"), "u.yaml"), "is not UTF-8 text", "UTF-8"),
        (write("a\0b", "n.yaml"), "control character", ""),
    ]:
        with pytest.raises(PlanError) as caught:
            read_plan(file, kinds=KINDS)
        assert what in caught.value.problems[0].what
        assert fix in caught.value.problems[0].fix
        assert caught.value.problems[0].file == file


# --- Plans as values ---


def test_a_document_reads_back_as_the_same_plan(write):
    plan = read_plan(write(YAML_PLAN), kinds=KINDS)
    document = json.loads(json.dumps(plan.document()))
    assert document["edits"][0] == {"op": "scale", "at": "params/Dense_0/kernel", "by": 0.001}
    again = plan_from_document(document, kinds=KINDS)
    assert (again.edits, again.sources, again.seed) == (plan.edits, plan.sources, 7)
    assert again.document() == plan.document()


def test_a_document_is_no_template():
    document = plan_of([Convert(to="${x}")]).document()
    assert document == {"edits": [{"op": "convert", "to": "${x}"}]}
    assert plan_from_document(document, kinds=KINDS).edits == (Convert(to="${x}"),)


def test_everything_beside_the_edits_is_kept():
    text = "params: ema\noptimizer: keep\noptimizer_kind: adam\nslots: {'a/*': {power: 1}}\n"
    plan = read(text)
    assert (plan.params, plan.optimizer, plan.optimizer_kind) == ("ema", "keep", "adam")
    assert plan.slots == {"a/*": {"power": 1}}
    assert plan.document() == {
        "params": "ema",
        "optimizer": "keep",
        "optimizer_kind": "adam",
        "slots": {"a/*": {"power": 1}},
        "edits": [],
    }


def test_a_plan_of_single_edits_makes_paths_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = plan_of([Put(at="x", with_="f.npy"), Put(at="x", with_="d")], sources={"d": "e"}, seed=3)
    assert [e.with_ for e in plan.edits] == [f"{tmp_path}/f.npy", "d"]
    assert plan.sources == {"d": f"{tmp_path}/e"}
    assert plan.seed == 3
    assert [(o.number, o.file, o.line()) for o in plan.origins] == [
        (1, None, None),
        (2, None, None),
    ]


def test_a_plan_of_edits_that_name_nothing_is_refused():
    with pytest.raises(PlanError) as caught:
        plan_of([Norm(), Move(moves={"a": "b"}), Convert(to="x"), Norm(at="re:(")])
    assert [p.what for p in caught.value.problems] == [
        "`norm` needs `at`",
        "'re:(' is not a valid pattern",
    ]


def test_a_variable_that_is_near_no_other_is_told_beside_all_that_there_are():
    text = "vars: {factor: 2}\nedits:\n- {op: scale, at: '${where}', by: '${factor}'}\n"
    (unset,) = problems(text)
    assert unset.why == "set are `factor`"
    assert problem("edits:\n- {op: scale, at: '${where}', by: 2}\n").why == "no other is set either"

    unused = problem(text, where="params", Q="1")
    assert unused.why == "it uses `factor`, `where`"
    assert problem("edits: []\n", Q="1").why == "it uses no variables"


@pytest.mark.parametrize(
    ("default", "given", "shape"),
    [
        ("[1, -1]", "2,-1", (2, -1)),
        ("[1, -1]", "[2, -1]", (2, -1)),
        ("[1, -1]", "4", (4,)),
        (None, "[2, -1]", (2, -1)),
        (None, "[4]", (4,)),
    ],
)
def test_a_setting_may_be_a_list(tmp_path, default, given, shape):
    variables = f"vars: {{shape: {default}}}\n" if default else ""
    plan = tmp_path / "plan.yaml"
    plan.write_text(variables + "edits: [{op: reshape, at: w, shape: '${shape}'}]\n")
    (edit,) = read_plan(str(plan), settings={"shape": given}).edits
    assert edit.shape == shape


@pytest.mark.parametrize("text", ["[a-c]", "{a,b}", "[*]", "layers_[0-9]"])
def test_a_setting_that_is_a_pattern_stays_one(tmp_path, text):
    plan = tmp_path / "plan.yaml"
    plan.write_text("edits: [{op: delete, at: '${at}'}]\n")
    (edit,) = read_plan(str(plan), settings={"at": text}).edits
    assert edit.at == text
