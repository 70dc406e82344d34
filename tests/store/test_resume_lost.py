"""What a run has kept with `--resume` may itself be damaged: the same command goes on all the same, or begins anew."""

import json
import re
import shlex
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.salvage.place import fingerprint
from tests.store.cutting import Runs
from tests.store.test_resume import left_in

RANDOM = np.random.default_rng(3)
TREE = {
    "params": {name: RANDOM.normal(size=(32, 32)).astype(np.float32) for name in "abc"},
    "kept": RANDOM.normal(size=(40, 40)).astype(np.float32),
}


@pytest.fixture(scope="module")
def run():
    with Runs() as runs:
        yield runs


@pytest.fixture(scope="module")
def source(tmp_path_factory, request):
    place = tmp_path_factory.mktemp("sources") / "ck"
    with ocp.PyTreeCheckpointer(use_ocdbt=request.param == "ocdbt") as checkpointer:
        checkpointer.save(place, TREE)
    return place


def command(source, new, *more):
    edit = ("rescale", source, new, "params", "--by", "2", "--optimizer", "keep")
    return (*edit, "--quiet", "--resume", *more)


def check(path, factor=2):
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(path)
    for name, values in TREE["params"].items():
        np.testing.assert_array_equal(tree["params"][name], values * np.float32(factor))
    np.testing.assert_array_equal(tree["kept"], TREE["kept"])


def lose(file):
    file.unlink()


def cut(file):
    content = file.read_bytes()
    file.unlink()  # never through a link
    file.write_bytes(content[: len(content) // 2])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", ["ocdbt", "leaves"], indirect=True)
@pytest.mark.parametrize("harm", [lose, cut])
def test_whichever_file_is_lost_the_same_command_comes_to_its_end(
    run, source, tmp_path, harm, request
):
    first = tmp_path / "first" / "new"
    first.parent.mkdir()
    assert run(*command(source, first), cut=["entry+", 4, "SIGKILL"])["code"] == -9
    (left,) = first.parent.iterdir()
    files = sorted(str(f.relative_to(left)) for f in (left / "new").rglob("*") if f.is_file())
    if not request.config.getoption("--every-combination"):
        step = 2 if harm is lose else 4
        files = [
            name
            for name in files
            if name.endswith("ocdbt") or "kept" in name or name in files[::step]
        ]
    for number, name in enumerate(files):
        new = tmp_path / str(number) / "new"
        place = shutil.copytree(left, new.parent / left.name)
        harm(place / name)
        ended = [run(*command(source, new, "--json"))]
        if ended[-1]["code"]:  # seen when the result was proved: what was kept went
            assert [path.name for path in new.parent.iterdir()] == []
            ended.append(run(*command(source, new, "--json")))
        assert ended[-1]["code"] == 0, (name, ended)
        check(new)
        notes = " ".join(json.loads(ended[0]["said"]).get("notes", []))
        if name == "new/manifest.ocdbt":
            assert "something was lost" in notes
            assert ("manifest.ocdbt' is gone" in notes) == (harm is lose)


@pytest.mark.parametrize("source", ["ocdbt"], indirect=True)
def test_a_finished_run_that_is_repeated_is_done_already(run, source, tmp_path):
    new = tmp_path / "new"
    assert run(*command(source, new))["code"] == 0
    before = (new / "surgery.json").read_bytes()
    again = run(*command(source, new, "--json"))
    assert (again["code"], json.loads(again["said"])["is_repeated"]) == (0, True)
    assert run(*command(source, new, "--dry-run"))["code"] == 0
    assert run(*command(source, new)) == {"code": 0, "said": "", "counted": 0}
    assert (new / "surgery.json").read_bytes() == before
    other = [word if word != "2" else "3" for word in command(source, new)]
    assert run(*other)["code"] == 2
    sealed = run(*command(source, new, "--seal"))
    assert (sealed["code"], "`--seal` was not given" in sealed["said"]) == (2, True)
    (new / "_METADATA").write_bytes((new / "_METADATA").read_bytes().replace(b"kept", b"lost"))
    assert run(*command(source, new))["code"] == 2


def put(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


EDIT = "edits:\n- {op: rescale, at: params, by: 2, optimizer: keep}\n"
RULE = "- {op: assert, at: params, norm: 0..1e-6}\n"
POLICY = "rules: [{id: small, at: params/**, norm: 0..1e-6}]\n"
MODEL = "def model(params):\n    return params['a'].sum() * float('nan')\n"


@pytest.mark.parametrize("source", ["ocdbt"], indirect=True)
@pytest.mark.parametrize(
    ("plan", "words", "said"),
    [
        (EDIT + RULE, (), "the plan's edit 2 was none, and is `"),
        (EDIT + "check: policy.yaml\n", (), "the plan's `check` was none, and is"),
        (EDIT, ("--probe", "model.py:model"), "`--probe` was not given, and is '"),
        (EDIT, ("--allow-non-finite",), "`--allow-non-finite` was not given, and is 'true' now"),
        (EDIT, ("--link", "never"), "`--link` was not given, and is 'never' now"),
        (EDIT, ("--compact", "always"), "`--compact` was not given, and is 'always' now"),
        (EDIT, ("--metrics", "drop"), "`--metrics` was not given, and is 'drop' now"),
    ],
    ids=["assert", "check", "probe", "non-finite", "link", "compact", "metrics"],
)
def test_a_finished_run_is_none_of_another_proof_or_setting(
    run, source, tmp_path, plan, words, said
):
    """No value depends on it, so no draft does: "already done" was said of rules that nobody had looked at."""
    new = tmp_path / "new"
    put(tmp_path, "policy.yaml", POLICY)
    model = put(tmp_path, "model.py", MODEL)
    words = [word.replace("model.py", str(model)) for word in words]
    plans = [put(tmp_path, f"{n}.yaml", text) for n, text in enumerate((EDIT, plan))]
    first, other = (("apply", source, new, one, "-q", "--resume") for one in plans)
    assert run(*first)["code"] == 0
    for dry in ((), ("--dry-run",)):
        ended = run(*other, *words, *dry)
        assert ended["code"] == 2, ended
        assert said in ended["said"]
        assert "`--force` to make it anew" in ended["said"]
    assert run(*first) == {"code": 0, "said": "", "counted": 0}
    anew = run(*other, *words, "--force")
    assert (anew["code"] == 0) == (plan == EDIT and "--probe" not in words), anew
    if anew["code"] == 0:
        assert run(*other, *words) == {"code": 0, "said": "", "counted": 0}
        assert run(*first)["code"] == 2


@pytest.mark.parametrize("source", ["ocdbt"], indirect=True)
def test_a_finished_run_names_the_files_that_its_result_shares(run, source, tmp_path):
    new = tmp_path / "new"
    edit = ("rescale", source, new, "params/a", "--by", "2", "--link", "hard", "--resume", "--json")
    first, again = (json.loads(run(*edit)["said"]) for _ in range(2))
    assert again["is_repeated"]
    assert first["shared"], "or nothing is seen"
    assert [again[key] for key in ("shared", "shared_files")] == [
        first[key] for key in ("shared", "shared_files")
    ]


@pytest.mark.parametrize("source", ["leaves"], indirect=True)
def test_with_force_a_finished_run_is_done_again_as_its_record_does_not_tell_all(
    run, source, tmp_path
):
    """Of what is damaged, or was made under another setting, the record is that of what is asked for."""
    new = tmp_path / "new"
    assert run(*command(source, new))["code"] == 0
    data = new / "params.a" / "0.0"
    flipped = bytearray(data.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    data.unlink()  # never through a link
    data.write_bytes(flipped)
    assert run("verify", new)["code"] != 0
    told = run(*command(source, new))
    assert (told["code"], "'params.a/0.0' is not what it was made with" in told["said"]) == (
        2,
        True,
    )
    again = run(*command(source, new, "--force", "--json"))
    assert (again["code"], json.loads(again["said"])["is_repeated"]) == (0, False)
    assert run("verify", new)["code"] == 0
    check(new)
    never = run(*command(source, new, "--force", "--link", "never", "--json"))
    copied = [json.loads(said["said"])["bytes_copied"] for said in (again, never)]
    assert copied[1] > copied[0]
    assert left_in(new.parent) == []


@pytest.mark.parametrize("source", ["ocdbt"], indirect=True)
def test_the_advice_is_a_command_that_is_not_refused(run, source, tmp_path):
    there, new = shutil.copytree(source, tmp_path / "ck"), tmp_path / "new"
    assert run(*command(there, new), cut=["entry+", 4, "SIGKILL"])["code"] == -9
    document = there / "_METADATA"
    whole = document.read_bytes()
    document.write_bytes(whole.replace(b"{", b"{ ", 1))
    ended = run(*command(there, new))
    assert ended["code"] == 3
    assert "goes on" not in ended["said"]
    assert f"`surgery clean {new}` removes what was kept" in ended["said"]
    document.write_bytes(whole)
    shutil.copytree(source, new)  # somebody else's, meanwhile
    ended = run(*command(there, new))
    assert ended["code"] == 2
    assert "--resume --force` goes on from there" in ended["said"]
    assert run(*command(there, new, "--force"))["code"] == 0
    check(new)


@pytest.mark.parametrize("source", ["ocdbt"], indirect=True)
def test_doctor_names_the_command_that_goes_on_from_what_is_kept_and_it_does(run, source, tmp_path):
    new = tmp_path / "runs" / "new"
    new.parent.mkdir()
    assert run(*command(source, new), cut=["entry+", 4, "SIGKILL"])["code"] == -9
    (left,) = new.parent.iterdir()
    before = fingerprint(new.parent)

    (row,) = surgery.doctor(str(new.parent), settled_seconds=0).places

    assert fingerprint(new.parent) == before
    assert (row.path, row.state, row.of) == (left.name, "leftover", "surgery")
    goes_on = r"`surgery ([^`]*)` goes on from there, if its plan and what it reads are as they were; (.*)"
    typed, then = re.fullmatch(goes_on, row.todo).groups()
    assert then.startswith(f"`surgery clean {left}` removes it")
    assert run(*shlex.split(typed))["code"] == 0
    check(new)
    assert [one.name for one in new.parent.iterdir()] == ["new"]
