"""The JSON of previews, reports, records and verdicts, key by key, as scripts read it.

`tests/cli/documents` holds each document whole. A change there is a change for whoever reads them: make it on purpose
(`UPDATE_DOCUMENTS=1 pytest tests/cli/test_documents.py` writes them anew) and say it in the change log.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from surgery_cli import reports
from surgery_cli.probing.interface.documents import Probe
from tests import json_schemas
from tests.fixture_truths import FIXTURES

SAMPLES = Path(__file__).resolve().parents[2] / "sample_checkpoints"
DOCUMENTS = Path(__file__).with_name("documents")
KERNEL = "params/Dense_1/kernel"
SCRIPT = """
import sys
sys.path.insert(0, {samples!r})
from digits import create_state

def made():
    state = create_state()
    params = dict(state.params)
    params["head"] = params.pop("Dense_1")
    return state.replace(params=params, opt_state=state.tx.init(params))
"""
COMMANDS = {
    "preview_of_a_plan": "plan SRC head.json --set by=0.5",
    "preview_of_a_command": "rescale SRC DST params/Dense_1/kernel --by 0.5 --dry-run",
    "preview_of_a_donor": "replace SRC DST params/Dense_0 --with DONOR --optimizer keep --dry-run",
    "preview_of_members": "average ROOT DST params --steps 250..500 --dry-run",
    "report": "rescale SRC DST params/Dense_1/kernel --by 0.5",
    "report_of_a_seal": "cast SRC DST params/Dense_0 --to bfloat16 --optimizer keep --seal",
    "report_of_removed": "extract-item SRC DST params --compact never",
    "report_of_moved": "rename SRC DST params/Dense_1 --to params/head",
    "report_of_a_root": "reinit ROOT DST params/Dense_1 --init zeros --step 500",
    "report_of_single_files": "replace LIST DST x/0 --with 7",
    "verdict": "verify SRC",
    "verdict_on_digests": "verify SEALED",
    "verdict_of_damage": "verify DAMAGED",
    "verdict_of_another": "verify SRC --like LIST",
    "verdict_of_a_script": "verify SRC --like-init SCRIPT:made",
    "refusals": "rescale SRC DST params/Dense_9 --by 0.5 --optimizer keep",
}
OF_A_RUN = {
    "draft",
    "seconds",
    "source_fingerprint",
    "fingerprint",
    "carried",
    "versions",
    "written",
    "content",
    "sealed",
}
"""What is another each time, or follows from all the rest."""


@pytest.fixture
def places(tmp_path, surgery):
    """Where the words of the commands lead: copies, so that their files can be linked."""
    found = {
        "SRC": shutil.copytree(SAMPLES / "digits_standard", tmp_path / "src"),
        "ROOT": shutil.copytree(SAMPLES / "digits_manager", tmp_path / "root"),
        "LIST": shutil.copytree(FIXTURES / "orbax-0.2.7" / "odd_lst", tmp_path / "list"),
        "SCRIPT": tmp_path / "script.py",
        "DST": tmp_path / "dst",
        "DONOR": f"{tmp_path / 'root'}@250",
        "SEALED": tmp_path / "sealed",
        "DAMAGED": tmp_path / "damaged",
    }
    found["SCRIPT"].write_text(SCRIPT.format(samples=str(SAMPLES)))
    edits = [
        {"op": "rescale", "at": KERNEL, "by": "${by}"},
        {"op": "delete", "at": "params/Dense_0/bias", "note": "not needed"},
        {"op": "reinit", "at": "params/Dense_1/bias", "init": "zeros", "optimizer": "warm"},
    ]
    plan = {"vars": {"by": 1}, "edits": edits}
    (tmp_path / "head.json").write_text(json.dumps(plan))
    return found


def sealed(places, surgery):
    surgery("rescale", places["SRC"], places["SEALED"], KERNEL, "--by", "2", "--seal", "-q")
    shutil.copytree(places["SEALED"], places["DAMAGED"])
    file = max(
        (places["DAMAGED"] / "ocdbt.process_0/d").iterdir(), key=lambda path: path.stat().st_size
    )
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_document_is_what_it_was(surgery, places, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    words = COMMANDS[name].split()
    if {"SEALED", "DAMAGED"} & set(words):
        sealed(places, surgery)
    typed = [str(places.get(word, word)) for word in words]
    if words[-1] == "SCRIPT:made":
        typed[-1] = f"{places['SCRIPT']}:made"
    if "DST" in words:
        typed += ["--link", "hard"]
    result = surgery(*typed, "--json")
    records = sorted(tmp_path.glob("dst*/**/surgery.json")) + sorted(tmp_path.glob("dst.*.json"))
    found = {
        "exit_code": result.code,
        "document": result.document,
        "records": {
            str(path.relative_to(tmp_path)): json.loads(path.read_text()) for path in records
        },
    }
    for record in found["records"].values():
        json_schemas.check("surgery", record)
    text = json.dumps(_plain(found), indent=1, ensure_ascii=False).replace(str(tmp_path), "TMP")
    file = DOCUMENTS / f"{name}.json"
    if "UPDATE_DOCUMENTS" in os.environ:
        file.write_text(f"{text}\n")
    assert f"{text}\n" == file.read_text()


def _plain(value):
    """The same without what is another each time: marks of a run, new files, the order of work."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    found = {k: "…" if k in OF_A_RUN and v else _plain(v) for k, v in value.items()}
    if isinstance(files := found.get("files"), dict):
        found |= {"files": len(files)}
    if isinstance(files := found.get("files_agreeing"), list):
        found |= {"files_agreeing": len(files)}
    if found.get("sealed_files"):
        found |= dict.fromkeys(found.keys() & {"bytes_read", "bytes_read_to_seal"}, "…")
    if isinstance(digests := found.get("digests"), dict):
        found |= {"digests": dict(sorted(digests.items()))}
    return found


def test_no_document_changes_once_it_is_made():
    every = [*vars(reports).values(), Probe]
    documents = [made for made in every if isinstance(made, type)]
    documents = [made for made in documents if issubclass(made, reports.Document)]
    assert len(documents) > 8
    assert [made for made in documents if not made.__struct_config__.frozen] == []
