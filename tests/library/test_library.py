"""`import surgery_cli as surgery`: the commands as functions, operations as classes, checkpoints as lazy arrays."""

import inspect
import json
import operator
import pickle
import re
import shutil
import subprocess
import sys
import typing
import warnings
from importlib import util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as hnp

import surgery_cli as surgery
from surgery_cli.document import Document
from surgery_cli.operations.table import operations
from tests.cli.conftest import SAMPLES

SAMPLE = SAMPLES / "digits_standard"
DOCS = Path(__file__).parents[2] / "docs"
KERNEL = "params/Dense_0/kernel"


def restored(path):
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        return checkpointer.restore(path)


def generated():
    spec = util.spec_from_file_location("make_library", DOCS / "make_library.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_and_the_stub_are_those_of_the_code():
    made = generated()
    assert made.page() == made.PAGE.read_text()
    assert made.stub() == made.STUB.read_text()


@pytest.mark.parametrize("name", operations())
def test_every_operation_is_a_class_of_the_library(name):
    public = name.title().replace("-", "")
    assert getattr(surgery, public) is operations()[name]
    assert public in dir(surgery)


def test_importing_loads_nothing_heavy_and_functions_are_no_rooms():
    code = (
        "import sys, surgery_cli as surgery\n"
        "assert not {'numpy', 'jax', 'msgspec', 'tensorstore'} & set(sys.modules)\n"
        "from surgery_cli.cli.main import run\n"
        "import surgery_cli.library, surgery_cli.surgery\n"
        "assert all(callable(getattr(surgery, n)) for n in surgery.library.__all__ if n != 'Planned')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=DOCS.parent)
    with pytest.raises(AttributeError, match="has no attribute 'rescale'"):
        _ = surgery.rescale


EDIT = {"op": "rescale", "at": KERNEL, "by": 0.5}
PLANS = {
    "an operation": lambda _: surgery.Rescale(at=KERNEL, by=0.5),
    "operations": lambda _: [surgery.Rescale(at=KERNEL, by=0.5)],
    "a dict": lambda _: {"edits": [EDIT]},
    "a dict with operations": lambda _: {"edits": [surgery.Rescale(at=KERNEL, by=0.5)]},
    "edits": lambda _: [EDIT],
    "text": lambda _: f"edits:\n- op: rescale\n  at: {KERNEL}\n  by: 0.5\n",
    "JSON": lambda _: json.dumps({"edits": [EDIT]}),
    "a file": lambda folder: folder / "plan.yaml",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_is_the_same_however_it_is_given(kind, tmp_path):
    (tmp_path / "plan.yaml").write_text(PLANS["text"](tmp_path))
    planned = PLANS[kind](tmp_path)
    drafts = {surgery.plan(SAMPLE, planned).draft, surgery.plan(SAMPLE, PLANS["a dict"](0)).draft}
    assert len(drafts) == 1
    assert surgery.apply(SAMPLE, tmp_path / "new", planned).verified
    after, before = restored(tmp_path / "new"), restored(SAMPLE)
    kernel = before["params"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(after["params"]["Dense_0"]["kernel"], kernel * np.float32(0.5))


def test_variables_fill_a_plan_and_fields_of_reserved_names_have_an_underscore():
    plan = {"edits": [{"op": "rescale", "at": "params/${layer}/kernel", "by": "${by}"}]}
    filled = surgery.plan(SAMPLE, plan, variables={"layer": "Dense_0", "by": 0.5})
    assert filled.draft == surgery.plan(SAMPLE, [EDIT]).draft
    but = surgery.Rescale(at="params/**/kernel", except_="params/Dense_0", by=2)
    assert KERNEL not in [leaf.path for leaf in surgery.plan(SAMPLE, but).leaves]


WRONG = {
    "a key": ({"edit": []}, "a plan has no key `edit`"),
    "a value": ([surgery.Rescale(at=KERNEL, by="x")], "x"),
    "a pattern": ([surgery.Rescale(at="params/Dens_0", by=2)], "matches nothing"),
    "a text that is none": ("head", "a plan is a mapping"),
    "an object": (3, "of type `int` is no plan"),
    "a type": ([{**EDIT, "at": 3}], "at"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_an_error_of_the_command_line(kind, tmp_path):
    plan, what = WRONG[kind]
    with pytest.raises(surgery.SurgeryError) as refused:
        surgery.apply(SAMPLE, tmp_path / "new", plan)
    assert refused.value.problems
    assert what in str(refused.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"sed": 3}, "perhaps `seed`"),
        ({"seed": "x"}, "`seed` must be a whole number"),
        ({"link": "soft"}, "link"),
    ],
)
def test_settings_are_checked(given, what):
    with pytest.raises(surgery.PlanError) as refused:
        surgery.plan(SAMPLE, [EDIT], **given)
    assert what in " ".join(f"{p.what} {p.why} {p.fix}" for p in refused.value.problems)


def test_an_open_checkpoint_is_a_mapping_from_paths_to_arrays():
    checkpoint, truth = surgery.open(SAMPLE), restored(SAMPLE)
    assert list(checkpoint) == [leaf.path for leaf in surgery.inspect(SAMPLE).leaves]
    kernel = checkpoint[KERNEL]
    want = truth["params"]["Dense_0"]["kernel"]
    assert (kernel.shape, kernel.dtype, kernel.nbytes) == (want.shape, want.dtype, want.nbytes)
    np.testing.assert_array_equal(np.asarray(kernel), want)
    np.testing.assert_array_equal(jnp.asarray(kernel), want)
    assert list(checkpoint.select("params/Dense_*/bias")) == [
        "params/Dense_0/bias",
        "params/Dense_1/bias",
    ]
    assert checkpoint["params/Dense_0/kern*"].path == KERNEL
    with pytest.raises(surgery.PlanError, match="names 2 leaves"):
        _ = checkpoint["params/Dense_0"]
    with pytest.raises(surgery.PlanError, match="kernel"):
        _ = checkpoint["params/Dense_0/kernl"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A leaf of small chunks, and its truth."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    place = tmp_path_factory.mktemp("stored") / "ck"
    values = np.arange(8 * 6 * 4, dtype=np.float32).reshape(8, 6, 4)
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    placed = jax.device_put(values, NamedSharding(mesh, PartitionSpec("x", "y")))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(place, {"w": placed, "one": jnp.float32(3)})
    return surgery.open(place), values


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(index=hnp.basic_indices((8, 6, 4), max_dims=3))
def test_an_index_gives_what_numpy_gives(stored, index):
    checkpoint, values = stored
    leaf = checkpoint["w"]
    np.testing.assert_array_equal(leaf[index], values[index])


def test_of_a_slice_only_its_chunks_are_read(stored, monkeypatch):
    checkpoint, _ = stored
    asked = []
    read = checkpoint._checkpoint.read
    monkeypatch.setattr(
        checkpoint._checkpoint, "read", lambda p, w=None: asked.append(w) or read(p, w)
    )
    checkpoint["w"][5, ::-2]
    assert asked == [(slice(5, 6), slice(1, 6), slice(0, 4))]


@pytest.mark.parametrize("index", [8, (0, 0, 0, 0), (..., 0, ...), -9])
def test_an_index_out_of_bounds_is_pythons_error(stored, index):
    with pytest.raises(IndexError):
        _ = stored[0]["w"][index]
    for mask in (np.array([0, 1]), True, False, (0, True)):
        with pytest.raises(TypeError, match="index what was read"):
            _ = stored[0]["w"][mask]
    assert stored[0]["one"][()] == 3


def test_results_are_structs_with_a_dict_and_a_table():
    shown = surgery.inspect(SAMPLE, "params")
    assert json.loads(json.dumps(shown.to_dict()))["leaves"][0]["path"] == "params/Conv_0/bias"
    page = shown._repr_html_()
    assert page.count("<table>") == page.count("</table>")
    assert re.search(r"<td>params/Dense_0/kernel</td>", page)
    assert pickle.loads(pickle.dumps(shown)) == shown


NUMBERS = {
    "float": np.array(1.75, np.float32),
    "half": jnp.bfloat16(-2.5),
    "int": np.array(7),
    "large": np.array(2**63 - 1),
    "unsigned": np.array(2**64 - 1, np.uint64),
    "zero": np.array(0, np.int32),
    "flag": np.array(True),
    "wave": np.array(1 + 2j, np.complex64),
    "one": np.array([3.5], np.float32),
    "python": 5,
    "python float": 0.25,
    "nan": np.array(np.nan),
    "row": np.arange(3, dtype=np.float32),
    "ones": np.ones((1, 2), np.int32),
}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    path = tmp_path_factory.mktemp("numbers") / "tree"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, NUMBERS | {"empty": {}})
    return surgery.open(path)


def outcome(convert, value):
    """What comes of it, or which error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return repr(convert(value))
        except (TypeError, ValueError, OverflowError) as error:
            return type(error)


@pytest.mark.parametrize("convert", [float, int, complex, bool, operator.index])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_leaf_is_a_number_where_numpy_has_one(numbers, convert, name):
    want = outcome(convert, np.asarray(NUMBERS[name]))
    assert outcome(convert, numbers[name]) == want
    if isinstance(want, str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older NumPy warns of what newer refuses
            same = convert(numbers[name]) == convert(np.asarray(NUMBERS[name]))
        assert same or name == "nan"


def test_what_is_no_number_is_refused_unread(numbers, monkeypatch):
    leaf = numbers["row"]
    monkeypatch.setattr(type(leaf), "read", None)
    for convert, error in ((float, TypeError), (int, TypeError), (bool, ValueError)):
        with pytest.raises(error):
            convert(leaf)
    with pytest.raises(TypeError, match="holds no array"):
        float(numbers["empty"])


def test_names_of_strangers_are_no_markup(tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", {"<script>alert(1)</script>": np.ones(2, np.float32)})
    assert "<script>" not in surgery.inspect(tmp_path / "ck")._repr_html_()


def test_diff_verify_and_check_are_the_commands(tmp_path):
    surgery.apply(SAMPLE, tmp_path / "new", [EDIT])
    assert [c.path for c in surgery.diff(SAMPLE, tmp_path / "new", "params").changed] == [KERNEL]
    assert surgery.verify(tmp_path / "new", like=SAMPLE).agrees
    rules = [{"id": "sane", "at": "params/**", "finite": True}]
    assert surgery.check(tmp_path / "new", rules).holds
    assert surgery.check(tmp_path / "new", json.dumps(rules)).holds


@pytest.mark.parametrize("given", ["", "{}", "# later\n", {}, "null"])
def test_no_plan_is_refused_however_it_is_given_and_an_empty_list_of_edits_copies(given, tmp_path):
    for use in (
        lambda: surgery.plan(SAMPLE, given),
        lambda: surgery.apply(SAMPLE, tmp_path / "new", given),
    ):
        with pytest.raises(surgery.PlanError, match="no plan") as refused:
            use()
        assert "standard input" not in str(refused.value)
        assert "`edits: []`" in str(refused.value)
    assert not (tmp_path / "new").exists()
    for copy in ([], {"edits": []}, "edits: []"):
        assert surgery.plan(SAMPLE, copy).leaves == []


def test_what_is_wrong_in_a_text_is_said_of_the_plan_and_its_line():
    for use, name in ((surgery.plan, "the plan"), (surgery.check, "the policy")):
        with pytest.raises(surgery.PlanError) as refused:
            use(SAMPLE, "rules:\n- {at: params, norn: 1}\n- {op: [}\n")
        (problem, *_) = refused.value.problems
        assert problem.file == name
        assert str(refused.value).startswith(f"{name}:")


def test_a_verdict_is_true_if_it_is_good_and_a_difference_is_neither(tmp_path):
    """`assert surgery.verify(…)` must not pass over what does not agree."""
    rules = [{"at": "params", "absmax": "..1e-9"}]
    assert bool(surgery.check(SAMPLE, rules)) is surgery.check(SAMPLE, rules).holds is False
    assert surgery.check(SAMPLE, [{"at": "params", "finite": True}])
    assert surgery.verify(SAMPLE, like=SAMPLE)
    assert not surgery.verify(SAMPLE, like=SAMPLES / "letters_run")
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(surgery.diff(SAMPLE, SAMPLE))


MODEL = """\
import flax.linen as nn

class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="out")(x)
"""


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """The params of a model, some that give other outputs, and some with NaN; the model's file."""
    folder = tmp_path_factory.mktemp("dense")
    (folder / "model.py").write_text(MODEL)
    kernel = np.arange(15, dtype=np.float32).reshape(5, 3)
    for name, by in {"good": 1, "other": 2, "nan": np.nan}.items():
        params = {"out": {"kernel": kernel * np.float32(by), "bias": np.ones(3, np.float32)}}
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / name, {"params": params})
    return folder


@pytest.mark.check_all
def test_every_document_of_the_library_is_true_where_the_command_exits_with_0_or_refuses(
    dense, tmp_path, run_surgery
):
    """One of a library function that this does not know fails: an `assert` of it would say nothing."""
    policies = {name: tmp_path / f"{name}.yaml" for name in ("finite", "small")}
    policies["finite"].write_text("- {at: params, finite: true}\n")
    policies["small"].write_text("- {at: params, absmax: ..1e-9}\n")
    (tmp_path / "plan.yaml").write_text("edits: [{op: rescale, at: params, by: 2}]\n")
    good, nan, other = dense / "good", dense / "nan", dense / "other"
    model, x = f"{dense}/model.py:Model", "float32[4,5]"
    probed = ("--model", model, "--input", x)
    by = {"model": model, "input": x}
    trials = {
        "check": [((good, policies[name]), {}, ()) for name in policies],
        "probe": [
            ((good,), by, probed),
            ((nan,), by, probed),
            ((good,), by | {"against": str(other)}, (*probed, "--against", other)),
            ((good,), by | {"against": str(good)}, (*probed, "--against", good)),
        ],
        "verify": [((good,), {"like": one}, ("--like", one)) for one in (other, SAMPLE)],
        "plan": [((good, tmp_path / "plan.yaml"), {}, ())],
        "apply": [((good, tmp_path / "a", tmp_path / "plan.yaml"), {}, ())],
    }
    refuse = {
        "diff": [((good, good), {}), ((good, other), {})],
        "inspect": [((good,), {}), ((good,), {"only": "bad"}), ((nan,), {"only": "bad"})],
    }
    documents = {
        name
        for name in surgery.library.__all__
        if inspect.isfunction(getattr(surgery, name))
        and is_document(typing.get_type_hints(getattr(surgery, name)).get("return"))
    }
    assert documents == {*trials, *refuse}
    for name, calls in trials.items():
        for places, settings_, options in calls:
            truth = bool(getattr(surgery, name)(*places, **settings_))
            if name == "apply":
                shutil.rmtree(places[1])
            code = run_surgery(name, *places, *options).returncode
            assert truth == (code == 0), (name, places, options)
    for name, others in refuse.items():
        for places, settings_ in others:
            with pytest.raises(TypeError, match="neither true nor false"):
                bool(getattr(surgery, name)(*places, **settings_))


def is_document(kind):
    return isinstance(kind, type) and issubclass(kind, Document)


@pytest.fixture
def run_surgery():
    def ran(*words):
        command = [sys.executable, "-m", "surgery_cli", *map(str, words)]
        return subprocess.run(command, capture_output=True, check=False, timeout=120)

    return ran


def test_a_verdict_is_false_where_nothing_was_compared(tmp_path):
    """Of a checkpoint as Orbax saved it, of one with some digests, and against all."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "bare", {"params": {"w": np.ones(3), "b": np.ones(2)}})
    edited = surgery.Rescale(at="params/w", by=2)
    surgery.apply(tmp_path / "bare", tmp_path / "some", edited)
    manifest = surgery.inspect(tmp_path / "bare", digests=True).to_dict()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    truths = {
        "bare": (False, False),
        "some": (True, False),
    }
    for name, (loose, strict) in truths.items():
        found = surgery.verify(tmp_path / name)
        assert (found.agrees, bool(found)) == (True, loose), name
        assert bool(surgery.verify(tmp_path / name, strict=True)) == strict
    full = {"like_manifest": tmp_path / "manifest.json"}
    assert surgery.verify(tmp_path / "bare", strict=True, **full)


def test_limits_hold_inside_and_are_those_of_the_table():
    with surgery.limits({"leaves": 3}), pytest.raises(surgery.CheckpointError, match="leaves"):
        surgery.inspect(SAMPLE)
    assert surgery.inspect(SAMPLE).leaves
    with pytest.raises(surgery.PlanError, match="no limit `leafs`"):
        surgery.limits({"leafs": 3})


def test_probe_runs_a_model(tmp_path):
    (tmp_path / "model.py").write_text(
        "import flax.linen as nn\n"
        "class Head(nn.Module):\n"
        "    @nn.compact\n"
        "    def __call__(self, x):\n"
        "        return nn.Dense(10, name='Dense_1')(nn.Dense(64, name='Dense_0')(x))\n"
    )
    seen = surgery.probe(SAMPLE, model=f"{tmp_path}/model.py:Head", input="float32[2,128]")
    assert [row["path"] for row in seen.to_dict()["sites"]] == ["Dense_0", "Dense_1", "."]


def test_the_example_of_the_page_runs(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    shutil.copytree(SAMPLE, tmp_path / "runs" / "mnist")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(import.*?)```", (DOCS / "library.md").read_text(), re.DOTALL)[1]
    exec(code, {})
    assert (tmp_path / "runs" / "mnist-edited").is_dir()


def test_the_notebook_runs_from_begin_to_end(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    shutil.copytree(SAMPLE, tmp_path / "runs" / "mnist")
    monkeypatch.chdir(tmp_path)
    cells = json.loads((DOCS / "library.ipynb").read_text())["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["report"].verified
