"""Addresses of elsewhere are refused wherever a file or directory is named: everywhere that the registries list."""

import re
import shlex

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.inputs.buckets import ServiceRefusal
from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of, read_plan
from surgery_cli.planning.command_line import example_command, option_name
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.filesystem.google_storage import GoogleStorage
from tests.cli.command_lines import commands

PLACES = re.compile(
    r"SRC|\[?DST\]?|CKPT|A|\[?B\]?|\[?PLAN\]?(\.\.\.)?|POLICY|OTHER|ROOT|DIR|FOLDER|PATH|PLACE|BROKEN"
    r"|.*FILE.*|.*SPEC|.*CKPT.*|DONOR"
)
"""How metavars say that a place is meant. An option of another metavar that takes one is to be given one of these."""

NO_PLACES = {("probe", "--until")}
"""Paths of modules."""

FORMS = {
    "FILE.py": "{}/train.py:create(path='x')",
    "SPEC": "x={}/batch.npz:images",
    "FORMAT": "json={}",
}


def places():
    """Every argument and option of every command that names a file or directory."""
    found = [(name, p.opts[0], p) for name, made in commands().items() for p in made.params]
    return [
        (name, option)
        for name, option, parameter in found
        if PLACES.fullmatch(str(parameter.metavar)) and (name, option) not in NO_PLACES
    ]


def written_as(parameter, address):
    for mark, form in FORMS.items():
        if mark in parameter.metavar:
            return form.format(address)
    return address


def line_with(command, wanted, address):
    """A command line of all required parameters, with the address for the wanted one."""
    words = []
    for parameter in command.params:
        is_wanted = parameter.opts[0] == wanted
        is_option = parameter.param_type_name == "option"
        if not (is_wanted or parameter.required):
            continue
        choice, bar, _ = str(parameter.metavar).partition("|")
        other = (choice if bar else "train.py:f") if is_option else "x"
        value = written_as(parameter, address) if is_wanted else other
        words += [parameter.opts[0], value] if is_option else [value]
    return words


class Unreachable(GoogleStorage):
    """A service that says what it was asked for."""

    def page(self, bucket, prefix, delimiter, token):
        raise ServiceRefusal("it was asked", f"s3://{bucket}/{prefix}", "nothing to do")

    def look_up(self, bucket, key):
        raise ServiceRefusal("it was asked", f"s3://{bucket}/{key}", "nothing to do")


@pytest.fixture
def unreachable(monkeypatch):
    monkeypatch.setitem(filesystem._SERVICES, "s3://", Buckets(Unreachable()))


SERVED = re.compile(
    r"SRC|ROOT|BROKEN|\[?DST\]?|CKPT|A|\[?B\]?|\[?PLAN\]?(\.\.\.)?|POLICY|OTHER|PATH|\[NAME=\]SPEC"
)
"""What may lie in a bucket: checkpoints that are read and written, plans and files of arrays that are read."""

SERVED_FILES = {("seal", "--to"), ("seal", "--sha256sums"), ("verify", "--like-manifest")}
"""Records may, too."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "wanted"), places())
def test_every_place_of_every_command_refuses_an_address_of_elsewhere(
    surgery, tmp_path, monkeypatch, name, wanted
):
    monkeypatch.chdir(tmp_path)
    address = "hf+x.y-z://bucket/runs/big"
    ended = surgery(name, *line_with(commands()[name], wanted, address))
    assert ended.code in (2, 3), ended
    assert address in ended.err.splitlines()[0]
    assert "is an address, not a path" in ended.err.splitlines()[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "wanted"), places())
def test_every_place_of_every_command_works_on_a_bucket_or_refuses_it_by_name(
    surgery, tmp_path, monkeypatch, unreachable, name, wanted
):
    monkeypatch.chdir(tmp_path)
    (parameter,) = [p for p in commands()[name].params if p.opts[0] == wanted]
    ended = surgery(name, *line_with(commands()[name], wanted, "S3://bucket/runs/big"))
    assert ended.code in (2, 3), ended
    is_served = SERVED.fullmatch(str(parameter.metavar)) is not None
    is_served |= (name, wanted) in SERVED_FILES
    assert ("is in a bucket" in ended.err) == ("`aws s3 cp " in ended.err) != is_served, ended
    assert list(tmp_path.iterdir()) == []


READING = {"inspect": "CKPT", "verify": "CKPT", "diff": "A", "cast": "SRC"}


@pytest.mark.parametrize(("name", "metavar"), READING.items())
def test_what_commands_read_may_lie_in_a_bucket(surgery, unreachable, name, metavar):
    command = commands()[name]
    (wanted,) = [p.opts[0] for p in command.params if str(p.metavar) == metavar]
    ended = surgery(name, *line_with(command, wanted, "S3://bucket/runs/big"))
    assert ended.code == 3
    assert ended.err.splitlines()[:2] == [
        "error: 's3://bucket/runs/big' cannot be read",
        "  it was asked",
    ]


def place_fields():
    return [(name, field) for name, kind in operations().items() for field in kind.path_fields]


@pytest.mark.parametrize(("name", "field"), place_fields())
def test_every_edit_command_asks_the_service_for_its_files_or_refuses_them(
    surgery, checkpoint, tmp_path, monkeypatch, unreachable, name, field
):
    monkeypatch.chdir(tmp_path)
    kind = operations()[name]
    option = option_name(next(f for f in fields_of(kind) if f.name == field))
    words = shlex.split(example_command(kind))[1:]
    words[1:3] = [str(checkpoint), str(tmp_path / "new")]
    given = [at for at, word in enumerate(words) if word == option]
    for at in reversed(given):
        del words[at : at + 2]
    ended = surgery(*words, option, "s3://bucket/factors.npz")
    assert ("is in a bucket" in ended.err) == (field in kind.local_fields)
    if field in kind.local_fields:
        assert ended.code == 2
        assert "`aws s3 cp s3://bucket/factors.npz ./factors.npz`" in ended.err
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "field"), place_fields())
def test_every_field_of_plans_that_holds_a_place_refuses_an_address_of_elsewhere(
    tmp_path, name, field
):
    plan = tmp_path / "p.yaml"
    plan.write_text(
        f"edits:\n- op: {name}\n  at: params/w\n  {field}: 'hf://bucket/x'\n", encoding="utf-8"
    )
    with pytest.raises(PlanError) as refused:
        read_plan(str(plan))
    (problem,) = [p for p in refused.value.problems if "is an address" in p.what]
    assert (problem.file, problem.line, problem.field) == (str(plan), 4, field)


def test_sources_of_plans_refuse_addresses_with_their_lines(tmp_path):
    plan = tmp_path / "p.yaml"
    plan.write_text("sources:\n  a: runs/a\n  b: https://host/b\n  c: hf://c/d\n", encoding="utf-8")
    with pytest.raises(PlanError) as refused:
        read_plan(str(plan))
    assert [(p.line, p.field) for p in refused.value.problems] == [(3, "b"), (4, "c")]


@pytest.mark.parametrize("start", ["file://", "file://localhost", "FILE://"])
def test_a_file_address_is_the_local_path_everywhere(surgery, checkpoint, tmp_path, start):
    place = tmp_path / "my runs é"
    place.mkdir()
    (place / "p.yaml").write_text(
        f"sources: {{donor: '{start}{checkpoint}@250'}}\n"
        "edits:\n- {op: replace, at: params/Dense_0, with: donor}\n"
    )
    quoted = f"{start}{tmp_path}/my%20runs%20%C3%A9"
    done = surgery(
        "apply", f"{start}{checkpoint}@500", f"{quoted}/new", f"{quoted}/p.yaml", "--json"
    )
    assert done.code == 0, done.err
    assert sorted(path.name for path in place.iterdir()) == ["new", "p.yaml"]
    compared = surgery("diff", f"{quoted}/new", f"{start}{checkpoint}@250", "params/Dense_0/kernel")
    assert compared.code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file://host/runs", "names a file of the machine 'host'"),
        ("file://runs", "names a file of the machine 'runs'"),
        ("file://", "has no path"),
        ("file:///%ff", "is not UTF-8"),
        ("file:///%00", "is not a path"),
    ],
)
def test_a_file_address_that_is_no_path_is_refused(surgery, text, said):
    refused = surgery("inspect", text)
    assert refused.code in (2, 3)
    assert said in refused.err


def test_a_folder_called_like_a_scheme_is_named_with_a_dot(
    surgery, checkpoint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert surgery("compact", checkpoint, "./gs:").code == 0
    assert surgery("inspect", "./gs:").code == 0
    assert surgery("inspect", "./gs://").code == 0
    assert surgery("inspect", "gs:").code == 0


def test_what_is_to_be_written_in_a_bucket_gets_the_command_that_copies_it_there(
    surgery, checkpoint
):
    refused = surgery("diff", checkpoint, checkpoint, "--output", "json=s3://bucket/runs/d.json")
    assert refused.code == 2
    assert "write it here first: './d.json'" in refused.err
    assert "`aws s3 cp ./d.json s3://bucket/runs/d.json`" in refused.err


@pytest.mark.parametrize(
    "words", [("rescale", "SRC", "-", "w", "--by", "2"), ("seal", "SRC", "--to", "-")]
)
def test_a_dash_is_no_place_to_write_to(surgery, checkpoint, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)

    result = surgery(*(checkpoint if word == "SRC" else word for word in words))

    assert result.code == 2
    assert "one that is called so is './-'" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "wanted"), places())
def test_every_place_of_every_command_refuses_an_address_that_lost_a_slash(
    surgery, tmp_path, monkeypatch, name, wanted
):
    """`str(Path("gs://bucket") / "run")` has one slash, and would be a folder here that nobody looks into."""
    monkeypatch.chdir(tmp_path)
    ended = surgery(name, *line_with(commands()[name], wanted, "gs:/bucket/runs/big"))
    assert ended.code in (2, 3), ended
    assert re.match("error: 'gs:/bucket/runs/big.*' has one slash", ended.err)
    assert re.search("'gs://bucket/runs/big.*' is in the bucket", ended.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["gcs", "s3a"])
def test_the_same_bucket_is_named_as_it_is_called_here(surgery, scheme):
    ended = surgery("inspect", f"{scheme}://bucket/runs/big")
    assert ended.code == 3
    assert f"'{'gs' if scheme == 'gcs' else 's3'}://bucket/runs/big' here" in ended.err
