"""What commands print with `--json`, held against the schema that is published of it, by `jsonschema`."""

import copy
import importlib.util
import json
from functools import cache
from pathlib import Path

import pytest

SCHEMAS = Path(__file__).resolve().parents[1] / "docs" / "schemas"
IS_THERE = importlib.util.find_spec("jsonschema") is not None
"""An environment may be older than the list of what tests need; `tests/test_json_schemas.py` says so."""

LONGEST = 30_000
"""Letters of a document that is looked at wherever it is printed: longer ones have more of the same."""


@pytest.fixture(autouse=True, scope="session")
def documents_keep_their_schemas():
    """Every document and record that this process writes is what its schema says, and has no other key."""
    from surgery_cli.console.formats import json as printer
    from surgery_cli.proof import records

    def held(write):
        def written(document):
            text = write(document)
            if len(text) <= LONGEST and (name := schemas().get(type(document).__name__)):
                check(name, json.loads(text))
            return text

        return written

    with pytest.MonkeyPatch.context() as patch:
        if IS_THERE:
            patch.setattr(printer, "text_of", held(printer.text_of))
            patch.setattr(records, "encoded", held(records.encoded))
        yield


@cache
def schemas():
    """The name of the schema of each document, by that of its struct."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.json")}
    return {schema["$ref"].rpartition("/")[2]: name for name, schema in found.items()}


def check(name, document):
    """Fail where a document is not what the schema of that name says."""
    if IS_THERE and (error := next(_validator(name).iter_errors(document), None)):
        pytest.fail(f"{name}.json: {error.json_path}: {error.message[:500]}")


@cache
def _validator(name):
    """Of the schema as it is published, but that no key may be there that it does not name."""
    import jsonschema

    schema = closed(json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8")))
    return jsonschema.Draft202012Validator(schema)


def closed(schema):
    """The schema without room for keys that are not in it."""
    found = copy.deepcopy(schema)
    for part in found["$defs"].values():
        if "properties" in part:
            part["additionalProperties"] = False
    return found
