"""Errors and notes advise what their reader can write: options after a command, fields in a plan."""

import ast
import inspect
import json
import re
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.cli.rendering.spelling import in_options
from surgery_cli.errors import WriteError
from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of
from surgery_cli.settings.export import Export
from surgery_cli.settings.reshard import Reshard
from surgery_cli.store.write import aftermath
from surgery_cli.words.advice import (
    NOTHING_LEFT,
    Aside,
    FieldName,
    InPlan,
    Offer,
    Text,
    joined,
    worded,
)
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage

SOURCES = Path(__file__).resolve().parents[2] / "surgery_cli"

BIAS = "params/Dense_0/bias"
MISTAKES = {
    "a twin beside its param": (
        ["rescale", "**/kernel", "--by", "2"],
        {"op": "rescale", "at": "**/kernel", "by": 2},
        "`--twins named`",
        "`twins: named`",
    ),
    "everything left out": (
        ["rescale", "params", "--except", "params", "--by", "2"],
        {"op": "rescale", "at": "params", "except": "params", "by": 2},
        "`--optional`",
        "`optional: true`",
    ),
    "no such dtype": (
        ["rescale", "params", "--where-dtype", "int*", "--by", "2"],
        {"op": "rescale", "at": "params", "where_dtype": "int*", "by": 2},
        "`--where-dtype 'int*'`",
        "`where_dtype: int*`",
    ),
    "an integer": (
        ["rescale", "step", "--by", "2"],
        {"op": "rescale", "at": "step", "by": 2},
        "`--where-dtype floating`",
        "`where_dtype: floating`",
    ),
    "another dtype": (
        ["replace", BIAS, "--with", "ZEROS"],
        {"op": "replace", "at": BIAS, "with": "ZEROS"},
        "`--cast`",
        "`cast: true`",
    ),
    "nowhere to go": (
        ["rename", "params/Dense_1"],
        {"op": "rename", "at": "params/Dense_1"},
        "`--move params/Dense_1=params/head`",
        "`moves: {params/Dense_1: params/head}`",
    ),
    "nothing to follow": (
        ["rescale", "params", "--by", "0", "--optimizer", "warm"],
        {"op": "rescale", "at": "params", "by": 0, "optimizer": "warm"},
        "`--optimizer reset`",
        "`optimizer: reset`",
    ),
    "one member": (
        ["average", "params"],
        {"op": "average", "at": "params"},
        "`--steps 100..500`",
        "`steps: 100..500`",
    ),
}


@pytest.fixture
def mistake(request, tmp_path):
    import numpy as np

    np.save(tmp_path / "zeros.npy", np.zeros(64))
    words, edit, *said = MISTAKES[request.param]
    zeros = str(tmp_path / "zeros.npy")
    edit = {key: zeros if value == "ZEROS" else value for key, value in edit.items()}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"edits": [edit]}))
    return [zeros if word == "ZEROS" else word for word in words], plan, *said


@pytest.mark.parametrize("mistake", MISTAKES, indirect=True)
def test_a_command_is_told_its_options_and_a_plan_its_fields(
    surgery, checkpoint, tmp_path, mistake
):
    (name, *words), plan, option, field = mistake

    by_command = surgery(name, checkpoint, tmp_path / "new", *words)
    by_plan = surgery("plan", checkpoint, plan)

    assert (by_command.code, by_plan.code) == (2, 2)
    assert option in by_command.err
    assert not re.search(r"`[a-z_]+: ", by_command.err)
    assert field in by_plan.err
    assert "`--" not in by_plan.err


def test_json_is_told_the_same(surgery, checkpoint, tmp_path):
    words = ("rescale", checkpoint, tmp_path / "new", "step", "--by", "2", "--json")

    (problem,) = surgery(*words).document["problems"]

    assert problem["fix"].startswith("add `--where-dtype floating` to skip")


def test_notes_of_a_command_name_options_too(surgery, checkpoint, tmp_path):
    count = "opt_state/0/count"
    edit = ("set", checkpoint, tmp_path / "new", count, "--to", "1", "--dry-run")

    notes = surgery(*edit).out

    assert "with `--clocks`" in notes.replace("\n", " ")
    assert "`clocks: true`" not in notes


@pytest.mark.parametrize(
    ("text", "typed", "planned"),
    [
        (
            worded("add {at} or {at: params/**}"),
            "add `AT` or `'params/**'`",
            "add `at` or `at: params/**`",
        ),
        (worded("add {by: …}: a factor"), "add `--by …`: a factor", "add `by: …`: a factor"),
        (
            worded("write {weights: [3, 1]}"),
            "write `--weights 3,1`",
            "write `weights: [3, 1]`",
        ),
        (
            worded("add {optimizer_kind: {{{}: adamw}}}", "opt_state/1"),
            "add `--optimizer-kind opt_state/1=adamw`",
            "add `optimizer_kind: {opt_state/1: adamw}`",
        ),
        (
            worded("`reset-optimizer` with {clocks: true}"),
            "`reset-optimizer` with `--clocks`",
            "`reset-optimizer` with `clocks: true`",
        ),
        (
            worded("add `--x`{} if so", Aside(FieldName("optimizer_kind", "adamw"))),
            "add `--x` if so",
            "add `--x` (in a plan `optimizer_kind: adamw`) if so",
        ),
        (worded("{to: true} does not fit"), "`--to true` does not fit", "`to: true` does not fit"),
        (
            worded("add {}, behind a trust ratio", InPlan("`slots: {opt_state/0: {power: 0}}`")),
            "add `slots: {opt_state/0: {power: 0}}` to a plan for `surgery apply`, behind a trust ratio",
            "add `slots: {opt_state/0: {power: 0}}` to the plan, behind a trust ratio",
        ),
        (
            worded("name it ({optimizer_kind: {{opt_state/1: …}}})"),
            "name it (`--optimizer-kind opt_state/1=…`)",
            "name it (`optimizer_kind: {opt_state/1: …}`)",
        ),
    ],
)
def test_each_front_end_spells_fields_as_its_reader_types_them(text, typed, planned):
    assert in_options(text, operations()["average"]) == typed
    assert text == planned


def test_what_a_field_would_do_is_said_to_those_who_can_give_it(surgery, checkpoint, tmp_path):
    offer = Text("look", Offer(FieldName("optional", "true"), "lets it pass"))
    kinds = [*operations().values(), Export, Reshard]
    for kind in kinds:
        has_it = any(field.name == "optional" for field in fields_of(kind))
        assert in_options(offer, kind) == ("look; `--optional` lets it pass" if has_it else "look")
    assert offer == "look; `optional: true` lets it pass"

    said = surgery("export", checkpoint, tmp_path / "new.npz", "nowhere/**", "--to", "npz")
    assert said.code == 2
    assert said.err.endswith("`surgery inspect` lists the paths\n")
    assert "--optional" in surgery("delete", checkpoint, tmp_path / "new", "nowhere/**").err


def test_what_stands_in_a_checkpoint_is_never_read_as_a_field(surgery, tmp_path):
    name = "{at}`except`{to: 1}"
    text = worded("'{}' is left alone; leave it out with {except}", name)
    assert in_options(text, operations()["cast"]) == (
        f"'{name}' is left alone; leave it out with `--except`"
    )
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", {name: np.ones(2, np.int32)})
    result = surgery("rescale", tmp_path / "saved", tmp_path / "new", "**", "--by", "2", "--json")
    (problem,) = result.document["problems"]
    assert problem["path"] == "[{]at[}]`except`[{]to: 1[}]"
    assert problem["fix"].startswith("add `--where-dtype floating`")


def test_parts_stay_known_in_texts_that_are_put_together():
    text = "first " + joined("; or ", [worded("{except}"), "b"]) + worded(", {to: 1}")
    assert text == "first `except`; or b, `to: 1`"
    assert (
        in_options(Remark(DocsPage.OPERATIONS, text), operations()["cast"])
        == "first `--except`; or b, `--to 1`"
    )


NAMES = {f.name for kind in operations().values() for f in fields_of(kind)} - {"set"}
OTHER_WORDS = {"keep", "optimizer", "to", "set"}
"""What stands alone in backquotes as the value of a field, or as an operation."""


def texts_of(file):
    """Every text of a module that is neither documentation nor a template of `worded`."""
    tree = ast.parse(file.read_text())
    apart = set()
    for node in ast.walk(tree):
        is_apart = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_apart |= isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Meta"
        if is_apart:
            apart |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node


@pytest.mark.parametrize(
    "room", ["operations", "rules", "resolution", "optimizer/follow", "optimizer/detect"]
)
def test_no_message_names_a_field_that_a_front_end_could_not_spell(room):
    spelled = re.compile(r"`([a-z_]+)(: [^`]+)?`")
    found = [
        f"{file.name}:{node.lineno}: {match[0]}"
        for file in sorted((SOURCES / room).rglob("*.py"))
        for node in texts_of(file)
        for match in spelled.finditer(node.value)
        if match[1] in NAMES and (match[2] or match[1] not in OTHER_WORDS)
    ]
    assert found == [], 'write `worded("… {field} …")`'


def templates():
    """Every call of `worded` in the program: where, its template, and how many values it is given."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "worded":
                template, *values = node.args
                assert isinstance(template, ast.Constant), f"{file.name}:{node.lineno}"
                yield f"{file.name}:{node.lineno}", template.value, len(values)


def test_every_template_gets_its_values_and_names_fields_that_there_are():
    known = NAMES | {"set", "optimizer_kind", "params", "seed"}
    known |= {f.name for kind in (Export, Reshard) for f in fields_of(kind)}
    found = list(templates())
    assert len(found) > 100
    for place, template, count in found:
        text = worded(template, *range(count))
        with pytest.raises(RuntimeError):
            worded(template, *range(count - 1)) if count else worded(template + "{}")
        names = {part.name for part in text.parts if isinstance(part, FieldName)}
        assert names <= known, place
        assert not re.search(r"\{|\}", re.sub(r"`[^`]*`", "", text)), place


def fields_by_module():
    """The fields of the commands of each module of operations; a module without any is of all those that use it."""
    found = {}
    for kind in operations().values():
        file = Path(inspect.getfile(kind)).name
        found.setdefault(file, set()).update(f.name for f in fields_of(kind))
    return found


def test_advice_gives_no_field_of_another_operation_unless_it_names_that_operation():
    """`underflow: keep in a cast` had been `--cast` after `cast`, which has no such option.

    What the room of the optimizer says is said after every operation: `merge` had advised `--like`.
    """
    kinds = {name: {f.name for f in fields_of(kind)} for name, kind in operations().items()}
    own = fields_by_module()
    shared = set.intersection(*kinds.values()) | {"set", "optimizer_kind", "params", "seed"}
    wrong = []
    for place, template, count in templates():
        file = place.partition(":")[0]
        named = [name for name in kinds if f"`{name}`" in template]
        there = shared.union(own.get(file, ()), *(kinds[name] for name in named))
        text = worded(template, *range(count))
        fields = {part.name for part in text.parts if isinstance(part, FieldName)}
        is_of_all = any((SOURCES / "optimizer").rglob(file))
        if (file in own or is_of_all) and not fields <= there:
            wrong.append((place, template, fields - there))
    assert wrong == []


def test_a_cast_that_underflows_is_told_its_own_option(surgery, tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "saved", {"nu": np.full(2000, 1e-12, np.float32)})
    said = surgery("cast", tmp_path / "saved", tmp_path / "new", "nu", "--to", "float16").err
    assert "`cast` with `--underflow keep`" in said
    assert "--cast" not in said


def test_what_a_run_leaves_is_said_where_the_advice_has_its_place_for_it(monkeypatch, tmp_path):
    aftermath.begin_anew()
    monkeypatch.setattr(aftermath, "remaining", [tmp_path / "left"])
    plain = WriteError("a", fix="mend it")
    placed = WriteError("b", fix=worded("{}; mend it", NOTHING_LEFT))
    assert placed.problems[0].fix == "nothing was left behind; mend it"
    for error, said in ((plain, "mend it; '"), (placed, "'")):
        fix = aftermath.with_aftermath(error).problems[0].fix
        assert fix.startswith(f"{said}{tmp_path / 'left'}' could not be removed")
        assert fix.endswith("mend it" if error is placed else "once that is possible")
