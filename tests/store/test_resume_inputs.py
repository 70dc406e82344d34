"""A run that may not go on, or is not done, as something that it reads is not what it was, is told which that is."""

import hashlib
import json
import re
import shlex
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.store.cutting import Runs

NAMES = {
    "source": "the source",
    "first": "the donor 'd1'",
    "second": "the donor 'd2'",
    "arrays.npz": "an array file",
    "order.json": "a file that an edit names",
    "edit.py": "a file of functions",
}
CHECKPOINTS = ("source", "first", "second")


class Disk:
    """A folder of inputs."""

    def __init__(self, folder):
        self._folder = folder

    def at(self, name):
        return str(self._folder / name)

    def put(self, name):
        """What ``make`` made, or made anew, under this name; on a disk it stands there already."""

    def change_head(self, change):
        """Let the first line that was kept be what an older release had written."""
        (journal,) = self._folder.glob(".new.surgery-tmp-*/.surgery-journal")
        begin, head, *rest = journal.read_bytes().split(b"\n")
        journal.write_bytes(b"\n".join([begin, changed(head, change), *rest]))


class Bucket(Disk):
    """The same folder, and what is put into a bucket of it: all but functions, which are run here."""

    def __init__(self, folder, service):
        super().__init__(folder)
        self._service = service

    def at(self, name):
        return super().at(name) if name.endswith(".py") else f"{self._service.root}/{name}"

    def put(self, name):
        here = self._folder / name
        for gone in self._service.names(f"{name}/"):
            self._service.remove(gone)
        there = {file: f"{name}/{file.relative_to(here)}" for file in here.rglob("*")}
        for file, key in {here: name, **there}.items():
            if file.is_file():
                self._service.put("bkt", key, file.read_bytes())
        if here.is_dir():
            self._service.put("bkt", f"{name}/commit_success.txt", b"")

    def change_head(self, change):
        (name,) = [name for name in self._service.names() if name.endswith("-journal/00000001")]
        self._service.put("bkt", name, changed(self._service.content(name), change))


def changed(head, change):
    document = json.loads(head)
    change(document)
    return json.dumps(document).encode()


def make(folder, name, factor=1, more=0):
    """An input of that name, of other values by ``factor``, and other sizes with ``more``."""
    path = folder / name
    values = np.random.default_rng(len(name)).normal(size=4096).astype(np.float32) * factor
    match name:
        case "arrays.npz":
            np.savez(path, b=values, **{"more": values[:more]} if more else {})
        case "order.json":
            numbers = [*range(64)] if factor == 1 else [*range(63, -1, -1)]
            path.write_text(str(numbers).replace(", ", "," + " " * (1 + more)))
        case "edit.py":
            path.write_text(
                f"# {'#' * more}\ndef same(array, path):\n    return array * {factor}\n"
            )
        case _:
            shutil.rmtree(path, ignore_errors=True)
            tree = {
                "a": values,
                "b": values,
                "c": values[:64],
                "d": values,
                "e": values[: 1 + more],
            }
            with ocp.PyTreeCheckpointer() as checkpointer:
                checkpointer.save(path, tree)


def rewrite(folder, name, how):
    """Other values under the same name; of a checkpoint in files of the same names and sizes, or saved anew."""
    if how == "other sizes" or name not in CHECKPOINTS:
        make(folder, name, factor=2, more=8 if how == "other sizes" else 0)
        return
    data = max((folder / name).rglob("d/*"), key=lambda file: file.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.unlink()  # as whoever repairs a source does
    data.write_bytes(content)


@pytest.fixture(scope="module")
def run(google, amazon):
    with Runs("gcsfs", "s3fs") as runs:
        yield runs


@pytest.fixture(params=["disk", "gs", "s3"])
def place(request, tmp_path):
    if request.param == "disk":
        made = Disk(tmp_path)
    else:
        made = Bucket(
            tmp_path, request.getfixturevalue("bucket" if request.param == "gs" else "s3")
        )
    for name in NAMES:
        make(tmp_path, name)
        made.put(name)
    return made


@pytest.fixture
def words(place, tmp_path):
    """A run that reads all of them."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"sources: {{d1: '{place.at('first')}', d2: '{place.at('second')}'}}\n"
        "edits:\n"
        "- {op: average, at: a, with: [d1, d2]}\n"
        f"- {{op: replace, at: b, with: '{place.at('arrays.npz')}:b'}}\n"
        f"- {{op: permute, at: c, index: '{place.at('order.json')}'}}\n"
        f"- {{op: map, at: d, with: '{place.at('edit.py')}:same'}}\n"
    )
    return ["apply", place.at("source"), place.at("new"), str(plan), "--quiet", "--resume"]


def begin(run, words):
    ended = run(*words, cut=["entry+", 4, "SIGKILL"])
    assert ended["code"] == -9, ended["said"]


def named(place, said):
    """The inputs that a message names, and as what."""
    first = re.split(" changed since(?: the run that left '|: )", said, maxsplit=1)[0]
    found = re.findall(r"'([^']*)' \(((?:the|an?) [^)]*)\)", first)
    return dict(found)


REWRITTEN = [[name] for name in NAMES] + [
    ["source", "second"],
    ["arrays.npz", "first"],
    ["edit.py", "order.json"],
    [*NAMES],
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["same sizes", "other sizes"])
@pytest.mark.parametrize("which", REWRITTEN, ids=" ".join)
def test_what_was_rewritten_is_named_all_of_it_and_nothing_else(
    run, place, words, tmp_path, which, how
):
    begin(run, words)
    for name in which:
        rewrite(tmp_path, name, how)
        place.put(name)
    ended = run(*words)
    assert ended["code"] == 3, ended["said"]
    wanted = {place.at(name): NAMES[name] for name in which}
    assert named(place, ended["said"]) == wanted, ended["said"]
    clean = f"surgery clean {shlex.quote(place.at('new'))}"
    again = f"`surgery {shlex.join(words)}` starts anew; nothing else is lost"
    assert f"`{clean}` removes what was kept, then {again}" in ended["said"]
    assert run(*shlex.split(clean)[1:])["code"] == 0


@pytest.mark.sampled(2)
def test_by_what_is_advised_it_starts_anew(run, place, words, tmp_path):
    begin(run, words)
    rewrite(tmp_path, "first", "other sizes")
    place.put("first")
    said = run(*words)["said"]
    for command in re.findall("`surgery (.*?)`", said):
        ended = run(*shlex.split(command))
        assert ended["code"] == 0, ended["said"]


def test_what_says_the_same_in_other_words_is_no_other_input(run, place, words, tmp_path):
    """The draft is the same, and so is every byte of the result."""
    begin(run, words)
    make(tmp_path, "order.json", more=1)
    place.put("order.json")
    ended = run(*words)
    assert ended["code"] == 0, ended["said"]


@pytest.fixture
def steps(tmp_path):
    """A run of a training that goes on."""
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.StandardSave(tree_of_step(1)))

    def another():
        with ocp.CheckpointManager(tmp_path / "run") as manager:
            manager.save(2, args=ocp.args.StandardSave(tree_of_step(2)))

    return tmp_path / "run", another


def tree_of_step(number):
    return {"a": np.arange(8192, dtype=np.float32) * number}


def test_a_step_that_is_saved_beside_the_one_that_is_read_changes_nothing(run, steps, tmp_path):
    root, save_another = steps
    words = ["rescale", root, tmp_path / "new", "a", "--by", "2", "--quiet", "--resume"]
    begin(run, [*words, "--step", "1"])
    save_another()
    ended = run(*words, "--step", "1", "--json")
    assert ended["code"] == 0, ended["said"]
    assert json.loads(ended["said"])["taken_up_bytes"] > 0


def test_what_is_saved_beside_the_item_that_is_read_changes_nothing(run, tmp_path):
    step = tmp_path / "run" / "5"
    with ocp.CheckpointManager(step.parent) as manager:
        state = ocp.args.StandardSave(tree_of_step(5))
        manager.save(5, args=ocp.args.Composite(state=state, ema=state))
    edit = ["cast", step / "state", tmp_path / "new", "--to", "bfloat16", "--quiet", "--resume"]
    begin(run, edit)
    (step / "eval.json").write_text("{}")
    (step / "ema" / "notes.txt").write_text("another item")
    ended = run(*edit)
    assert ended["code"] == 0, ended["said"]


def test_where_the_newest_step_is_another_by_now_the_older_is_named_and_goes_on(
    run, steps, tmp_path
):
    root, save_another = steps
    words = ["rescale", root, tmp_path / "new", "a", "--by", "2", "--quiet", "--resume"]
    begin(run, words)
    save_another()
    ended = run(*words)
    assert ended["code"] == 3, ended["said"]
    assert f"is made of '{root}@1', and '{root}@2' (the source) is read now" in ended["said"]
    assert f"to go on from there, name '{root}@1' in its place" in ended["said"]
    went_on = run("rescale", f"{root}@1", *words[2:], "--json")
    assert went_on["code"] == 0, went_on["said"]
    assert json.loads(went_on["said"])["taken_up_bytes"] > 0


def test_what_a_release_without_inputs_has_kept_is_of_another_version(run, place, words, tmp_path):
    """A head of the first form had one digest over all, in a field of another name."""
    begin(run, words)
    place.change_head(lambda head: head.pop("inputs") and head["programs"].pop("journal"))
    ended = run(*words)
    assert ended["code"] == 2, ended["said"]
    assert "was made by another version" in ended["said"]
    assert "journal: none, and 3 now" in ended["said"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["same sizes", "other sizes"])
@pytest.mark.parametrize("which", NAMES)
def test_of_an_input_that_is_another_since_a_finished_run_is_not_done_already(
    run, place, words, tmp_path, which, how
):
    """Names and sizes are all that a draft knows of some: of other values under them "done already" was said."""
    assert run(*words)["code"] == 0
    assert run(*words) == {"code": 0, "said": "", "counted": 0}
    rewrite(tmp_path, which, how)
    place.put(which)
    ended = [run(*words, *dry) for dry in ((), ("--dry-run",))]
    assert [one["code"] for one in ended] == [2, 2], ended
    if how == "same sizes" and which in CHECKPOINTS:
        assert named(place, ended[0]["said"]) == {place.at(which): NAMES[which]}
        assert "`--force` to make it anew" in ended[0]["said"]
    else:
        assert run(*words, "--force")["code"] == 0
        assert run(*words) == {"code": 0, "said": "", "counted": 0}


def test_a_finished_run_is_done_already_whatever_words_say_the_same(run, place, words, tmp_path):
    assert run(*words)["code"] == 0
    make(tmp_path, "order.json", more=1)
    place.put("order.json")
    assert run(*words) == {"code": 0, "said": "", "counted": 0}


def manifest_of(values):
    """A manifest of one leaf `a` by the documented rule; not by the program."""
    head = json.dumps([values.dtype.name, values.shape, values.shape], separators=(",", ":"))
    block = hashlib.sha256(values.tobytes()).digest()
    digest = hashlib.sha256(head.encode() + block).hexdigest()
    leaf = {"path": "a", "digest": f"sha256:{digest}", "grid": values.shape}
    return json.dumps({"leaves": [leaf]})


@pytest.fixture
def judged(place, tmp_path):
    """A run whose result is held against a manifest, what it makes of `a`, and what writes that manifest."""
    made = np.random.default_rng(len("source")).normal(size=4096).astype(np.float32) * np.float32(2)
    plan = tmp_path / "judged.yaml"
    plan.write_text(
        "edits:\n- {op: rescale, at: '*', by: 2}\n"
        f"- {{op: assert, at: a, digests_of: '{place.at('manifest.json')}'}}\n"
    )

    def write(text):
        (tmp_path / "manifest.json").write_text(text)
        place.put("manifest.json")

    words = ["apply", place.at("source"), place.at("new"), str(plan), "--quiet", "--resume"]
    return words, made, write


def test_a_finished_run_is_not_done_already_by_a_manifest_that_says_something_else(
    run, place, judged
):
    """No draft knows of it: "done already" was said of digests that nothing was held against."""
    words, made, write = judged
    write(manifest_of(made))
    assert run(*words)["code"] == 0
    write(json.dumps(json.loads(manifest_of(made)) | {"made_by": "another"}, indent=2))
    assert run(*words) == {"code": 0, "said": "", "counted": 0}, "what says the same is the same"
    write(manifest_of(made * 2))
    for dry in ((), ("--dry-run",)):
        ended = run(*words, *dry)
        assert ended["code"] == 2, ended
        file = place.at("manifest.json")
        assert f"'{file}' (the manifest of the rule 'digests of {file}') has" in ended["said"]
    assert run(*words, "--force")["code"] == 1
    assert run("clean", place.at("new"), "--quiet")["code"] == 0  # of what was refused
    write(manifest_of(made))
    assert run(*words) == {"code": 0, "said": "", "counted": 0}


def test_a_run_that_goes_on_is_held_against_the_manifest_as_it_is_now(run, judged):
    """Rules are judged at the end, of what was kept as well: another manifest is no reason to begin anew."""
    words, made, write = judged
    write(manifest_of(made * 2))
    begin(run, words)
    write(manifest_of(made))
    ended = run(*words, "--json")
    assert ended["code"] == 0, ended
    assert json.loads(ended["said"])["taken_up_bytes"] > 0
    assert run(*words, "--force")["code"] == 0
    write(manifest_of(made * 2))
    assert run(*words, "--force")["code"] == 1


def beside(step):
    """What is saved beside the values of a step, and comes along with them."""
    return {
        "state": ocp.args.StandardSave(tree_of_step(step)),
        "ema": ocp.args.StandardSave(tree_of_step(step + 1)),
        "config": ocp.args.JsonSave({"lr": step}),
    }


LOST = ["5/config", "5/config/metadata", "5/ema", "5/ema/_METADATA", "5/state/more.txt"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("there", ["disk", "gs", "s3"])
def test_a_result_that_lacks_what_comes_along_is_not_done_already(
    run, request, tmp_path, there, lost
):
    """Of what stands beside the values, no tree tells."""
    with ocp.CheckpointManager(tmp_path / "run", item_names=tuple(beside(5))) as manager:
        manager.save(5, args=ocp.args.Composite(**beside(5)))
    (tmp_path / "run" / "5" / "state" / "more.txt").write_text("of the item")
    if there == "disk":
        new = tmp_path / "new"
    else:
        service = request.getfixturevalue("bucket" if there == "gs" else "s3")
        new = f"{service.root}/new"
    edit = ("rescale", tmp_path / "run", new, "state/a", "--by", "2", "--quiet", "--resume")
    assert run(*edit)["code"] == 0
    assert run(*edit) == {"code": 0, "said": "", "counted": 0}
    if there != "disk":
        names = [
            n
            for n in service.names(f"new/{lost}")
            if n == f"new/{lost}" or n.startswith(f"new/{lost}/")
        ]
        assert names
        for name in names:
            service.remove(name)
    elif (new / lost).is_dir():
        shutil.rmtree(new / lost)
    else:
        (new / lost).unlink()
    ended = run(*edit)
    assert ended["code"] == 2, ended
    assert run(*edit, "--force")["code"] == 0
    assert run(*edit) == {"code": 0, "said": "", "counted": 0}


ITEMS = {"state": ["--item", "state"], "ema": ["--item", "ema"], "both": []}


@pytest.fixture
def step_of_items(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        trees = {
            name: ocp.args.StandardSave(tree_of_step(n))
            for n, name in enumerate(("state", "ema"), 2)
        }
        manager.save(5, args=ocp.args.Composite(**trees, meta=ocp.args.JsonSave({"x": 1})))
    return tmp_path / "run"


@pytest.mark.parametrize("ended", [True, False], ids=["finished", "interrupted"])
@pytest.mark.parametrize("named", ["run", "step"])
@pytest.mark.parametrize("now", ITEMS)
@pytest.mark.parametrize("then", ITEMS)
def test_of_another_item_it_is_not_said_that_the_source_has_changed(
    run, step_of_items, tmp_path, then, now, named, ended
):
    source = step_of_items if named == "run" else step_of_items / "5"
    words = ["rescale", source, tmp_path / "new", "**", "--by", "2", "--quiet", "--resume"]
    begun = [*words, *ITEMS[then]]
    if ended:
        assert run(*begun)["code"] == 0
    else:
        begin(run, begun)
    again = run(*words, *ITEMS[now])
    if then == now:
        assert again["code"] == 0, again["said"]
        return
    assert again["code"] == 2, again["said"]
    assert "has changed since" not in again["said"]
    one, other = (ITEMS[name][1:] for name in (then, now))
    if ended:
        one, other = (f"'{item[0]}'" if item else "not given" for item in (one, other))
        assert f"`--item` was {one}, and is {other} now" in again["said"]
    else:
        assert f"--item: {(one or ['none'])[0]}, and {(other or ['none'])[0]} now" in again["said"]


def test_an_item_that_the_source_has_got_since_is_no_other_item_that_was_asked_for(
    run, step_of_items, tmp_path
):
    words = ["rescale", step_of_items, tmp_path / "new", "**/a", "--by", "2", "--quiet", "--resume"]
    assert run(*words)["code"] == 0
    shutil.copytree(step_of_items / "5" / "ema", step_of_items / "5" / "third")
    again = run(*words)
    assert again["code"] == 2, again["said"]
    assert "--item" not in again["said"]
