"""Options of edit commands, the fields that they are made from, and the schema for editors."""

import subprocess
import sys

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of, operation_from_options, schema
from tests.plan_operations import KINDS, Convert, Move, Norm, Put, Scale

NOT_A_COUNT = "`expect` must be a whole number, at least 0 or text like `12 nodes`"


def built(name, **fields):
    return operation_from_options(name, fields, kinds=KINDS)


def refused(name, **fields):
    with pytest.raises(PlanError) as caught:
        built(name, **fields)
    return [(p.field, p.what) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("./0", "./0"),
        ("1e-3", 0.001),
        ("-2", -2),
        ("9007199254740993", 9007199254740993),
        ("f.npz:k", "f.npz:k"),
        ("a,b", "a,b"),
        ("true", "true"),
        ("-inf", float("-inf")),
    ],
)
def test_text_is_a_number_where_one_is_allowed_and_it_reads_as_one(text, value):
    found = built("put", at=["x"], with_=text)
    assert found == Put(at="x", with_=value)
    assert type(found.with_) is type(value)


def test_a_field_of_text_keeps_text_that_looks_like_a_number():
    assert built("convert", to="8", note="1e3", where_dtype="bool") == Convert(
        to="8", note="1e3", where_dtype="bool"
    )


@pytest.mark.parametrize("given", ["0,1", "0, 1", ["0,1"], ["0", "1"], "[0,1]", [0, 1]])
def test_lists_of_numbers_take_commas(given):
    assert built("norm", at="x", axes=given) == Norm(at="x", axes=(0, 1))


def test_a_field_of_one_number_or_several_takes_both():
    assert built("scale", at="x", by="1", axis="0") == Scale(at="x", by=1.0, axis=0)
    assert built("scale", at="x", by="1", axis="0,-1") == Scale(at="x", by=1.0, axis=(0, -1))
    assert built("norm", at="x", axes="2") == Norm(at="x", axes=(2,))


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        ("1,2", (1, 2)),
        ("[1, 2]", (1, 2)),
        ("[[1,2]]", ((1, 2),)),
        ("[1,0],[0,1]", ((1, 0), (0, 1))),
        ("[[1, 0], [0, 1]]", ((1, 0), (0, 1))),
        ("0.5, [0,1], 3", (0.5, (0, 1), 3)),
        ("[1,2],3", ((1, 2), 3)),
        ("[3]", (3,)),
    ],
)
def test_lists_of_numbers_in_a_list_stand_in_brackets(
    given: str, weights: tuple[object, ...]
) -> None:
    fields = {"at": ["params"], "with_": ["a"], "weights": [given]}
    assert operation_from_options("ties", {**fields, "density": "0.5"}).weights == weights


def test_patterns_are_never_parted_at_commas():
    found = built("norm", at=["a/{b,c}", "d"], **{"except": ["a/b"], "where-ndim": "2"})
    assert found == Norm(at=("a/{b,c}", "d"), except_="a/b", where_ndim=2)


def test_mappings_are_given_as_pairs():
    assert built("move", moves=["a=b", "c=d=e"]) == Move(moves={"a": "b", "c": "d=e"})
    assert built("norm", at="x", weights="a=0.5") == Norm(at="x", weights={"a": 0.5})


def test_options_that_were_not_given_are_left_out():
    found = built("norm", at=["x"], kind=None, axes=[], optional=False, except_=())
    assert found == Norm(at="x")


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("scal", {}, [("op", "unknown operation 'scal'")]),
        ("norm", {"at": []}, [("at", "`norm` needs `at`")]),
        ("scale", {"at": "x"}, [("by", "`scale` needs `by`")]),
        ("norm", {"at": "x", "knd": "l1"}, [("knd", "`norm` has no field `knd`")]),
        ("move", {"moves": ["ab"]}, [("moves", "`moves` takes `name=value`, not 'ab'")]),
        ("move", {"moves": ["a=b", "a=c"]}, [("moves", "`moves` gives `a` twice")]),
        (
            "norm",
            {"at": "x", "axes": "0,x", "expect": "two"},
            [
                ("axes", '`axes` must be a list of whole numbers, but item 2 is the text "x"'),
                ("expect", f'{NOT_A_COUNT}, not the text "two"'),
            ],
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_options_name(name, fields, expected):
    assert refused(name, **fields) == expected


def test_fields_say_all_that_help_and_reference_need():
    at, by, axis, *common = fields_of(Scale)
    assert (at.name, at.required, at.default, at.is_list) == ("at", True, None, True)
    assert (by.name, by.type_text, by.required) == ("by", "number or text", True)
    assert by.description == "Factor, or a file of factors."
    assert (axis.type_text, axis.default) == ("whole number or list of whole numbers", None)
    assert [f.name for f in common] == [
        "except",
        "where_dtype",
        "where_ndim",
        "expect",
        "optional",
        "optimizer",
        "twins",
        "note",
    ]
    assert all(f.is_common for f in common)
    policy = next(f for f in common if f.name == "optimizer")
    assert policy.choices == ("keep", "transform", "reset", "warm")
    assert policy.description == "What becomes of the twins."
    assert next(f for f in common if f.name == "optional").is_flag
    assert next(f for f in common if f.name == "except").attribute == "except_"
    assert next(f for f in fields_of(Put) if f.name == "with").type_text == "number or text"


def test_at_is_not_required_where_the_operation_can_do_without():
    for kind in (Move, Convert):
        assert not next(f for f in fields_of(kind) if f.name == "at").required


def test_the_schema_holds_every_operation_with_its_fields():
    found = schema(kinds=KINDS)
    scale = found["$defs"]["scale"]
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert not found["additionalProperties"]
    assert scale["required"] == ["op", "at", "by"]
    assert scale["description"].startswith("Multiply leaves.\n")
    assert not scale["additionalProperties"]
    assert scale["properties"]["op"] == {"const": "scale"}
    assert scale["properties"]["by"] == {
        "description": "Factor, or a file of factors.",
        "anyOf": [{"type": "number"}, {"type": "string"}],
    }
    assert scale["properties"]["twins"]["anyOf"] == [
        {"type": "string", "enum": ["carried", "named", "literal"]},
        {"$ref": "#/$defs/variable"},
    ]
    assert found["$defs"]["move"]["anyOf"] == [{"required": ["at"]}, {"required": ["moves"]}]
    assert "at" not in found["$defs"]["convert"]["required"]
    edits = found["properties"]["edits"]["items"]
    assert [way["then"]["$ref"] for way in edits["allOf"]] == [f"#/$defs/{name}" for name in KINDS]
    assert [way["const"] for way in edits["properties"]["op"]["oneOf"]] == list(KINDS)
    assert {"sources", "seed", "vars", "slots", "$schema"} <= found["properties"].keys()


def test_the_fields_of_every_listed_operation_have_a_type_and_a_description():
    for kind in operations().values():
        for field in fields_of(kind):
            assert field.type_text, (kind, field.name)
            assert field.description, (kind, field.name)
        assert set(kind.path_fields) | set(kind.instead_of_at) <= {f.name for f in fields_of(kind)}


def test_fields_are_read_without_a_yaml_parser():
    script = (
        "import sys, surgery_cli.planning as p; p.schema(); sys.exit('ruamel.yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_settings_fill_options_before_they_are_read():
    found = operation_from_options(
        "scale",
        {"at": ["${net}/w", "$${literal}"], "by": "${by}", "axis": "0,${axis}"},
        settings={"net": "params", "by": "1e-3", "axis": "1"},
        kinds=KINDS,
    )
    assert found == Scale(at=("params/w", "${literal}"), by=0.001, axis=(0, 1))


def test_a_variable_without_a_setting_and_a_setting_without_a_use_are_refused_together():
    with pytest.raises(PlanError) as caught:
        operation_from_options(
            "scale", {"at": "x", "by": "${by}"}, settings={"bye": "2"}, kinds=KINDS
        )

    first, second = caught.value.problems
    assert (first.field, first.what, first.why) == (
        "by",
        "the variable `by` is not set",
        "the nearest is `bye`",
    )
    assert first.fix == "give it with `--set by=…`"
    assert second.what == "nothing in the command uses `${bye}`, which `--set bye=2` fills"
