"""The schemas of JSON documents are made from the structs that are printed, and what is printed keeps them."""

import importlib.util
import json
from pathlib import Path

import pytest

from surgery_cli.document import Document, Noted, as_builtins
from surgery_cli.proof.surgery_json import Record
from surgery_cli.reports import Inspection, Report
from tests import json_schemas

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = sorted((Path(__file__).parent / "cli" / "documents").glob("*.json"))
KINDS = {"preview": "preview", "refusals": "failure", "report": "report", "verdict": "verify"}


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_schemas", DOCS / "make_schemas.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def validator():
    return pytest.importorskip("jsonschema", reason="`make` installs it: see constraints.txt")


def test_the_schemas_and_their_page_are_those_of_the_structs(maker):
    made = maker.pages()
    assert {path for path in made if path.parent == maker.SCHEMAS} == {*maker.SCHEMAS.iterdir()}
    for path, text in made.items():
        is_current = path.read_text(encoding="utf-8") == text
        assert is_current, f"`python docs/make_schemas.py` writes {path.name} anew"


def _below(kind):
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def test_every_document_has_a_schema(maker):
    own = {kind for kind in _below(Document) if kind.__module__.startswith("surgery_cli.")}
    assert own == {struct for struct, _ in maker.PRINTED.values()} - {Record} | {Noted}
    assert json_schemas.schemas() == {s.__name__: name for name, (s, _) in maker.PRINTED.items()}


def test_the_schemas_are_schemas(maker, validator):
    for name in maker.PRINTED:
        validator.Draft202012Validator.check_schema(maker.schema(name))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_on_record_keeps_its_schema(file, validator):
    found = json.loads(file.read_text())
    document = {**found["document"], **_anew(found["document"])}
    json_schemas.check(KINDS[file.stem.split("_")[0]], document)


def _anew(document):
    """What the examples leave open, as they count it or as it is another each time."""
    numbers = {"seconds": 0.1, "bytes_read": 0, "bytes_read_to_seal": 0}
    found = {key: value for key, value in numbers.items() if document.get(key) == "…"}
    if isinstance(document.get("files_agreeing"), int):
        found["files_agreeing"] = []
    return found


def test_a_missing_key_another_type_and_a_new_key_are_seen(validator):
    (file,) = (file for file in EXAMPLES if file.stem == "verdict")
    good = json.loads(file.read_text())["document"]
    good |= _anew(good)
    json_schemas.check("verify", good)
    for bad in ({**good, "checked": "6"}, {**good, "new": 1}, dict(list(good.items())[2:])):
        with pytest.raises(pytest.fail.Exception, match=r"verify\.json"):
            json_schemas.check("verify", bad)
    published = json.loads((json_schemas.SCHEMAS / "verify.json").read_text())
    validator.validate({**good, "new": 1}, published)  # as it is promised


def test_numbers_that_json_cannot_write_are_texts_that_the_schema_knows(validator):
    with_nan = as_builtins({"bound": [float("nan"), float("inf"), -float("inf")]})
    assert with_nan == {"bound": ["nan", "inf", "-inf"]}
    schema = json.loads((json_schemas.SCHEMAS / "inspect.json").read_text())
    number = {**schema, "$ref": "#/$defs/float"}
    for value in (*with_nan["bound"], 1, 2.5):
        validator.validate(value, number)
    with pytest.raises(validator.ValidationError):
        validator.validate("1", number)


def test_keys_are_there_as_the_schema_requires_them(maker):
    required = maker.schema("report")["$defs"]["Report"]["required"]
    assert {"draft", "verified", "seconds"} <= {*required}
    assert "exported" not in required
    assert {*required} <= set(Report.__struct_fields__)
    assert "notes" in maker.schema("inspect")["$defs"][Inspection.__name__]["required"]


def test_a_command_that_prints_what_its_schema_does_not_say_fails_here(validator):
    from surgery_cli.console.formats.json import text_of
    from surgery_cli.document import Linted

    text_of(Linted(files=[]))
    with pytest.raises(pytest.fail.Exception, match=r"lint\.json: \$\.files"):
        text_of(Linted(files="none"))


def test_a_seal_and_the_history_below_an_edit_keep_the_schema_of_records(tmp_path, validator):
    import surgery_cli
    from surgery_cli.surgery import seal

    sample = DOCS.parent / "sample_checkpoints" / "digits_standard"
    halved = surgery_cli.Rescale(at="params/Dense_1", by=0.5)
    surgery_cli.apply(str(sample), str(tmp_path / "once"), halved)
    surgery_cli.apply(str(tmp_path / "once"), str(tmp_path / "twice"), halved)
    seal(str(tmp_path / "twice"))
    record = json.loads((tmp_path / "twice" / "surgery.json").read_text())
    assert record["sealed"]
    assert record["history"]
    json_schemas.check("surgery", record)
