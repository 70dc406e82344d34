"""What programs give that nothing can mean is an error of the command line, never one from inside."""

import contextlib
import inspect
import io
import json

import numpy as np
import pytest
from msgspec.structs import fields
from ruamel.yaml import YAML

import surgery_cli as surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.table import operations
from surgery_cli.settings.run import Options
from tests.cli.conftest import SAMPLES

SAMPLE = SAMPLES / "digits_standard"
KERNEL = "params/Dense_0/kernel"
EDIT = {"op": "rescale", "at": KERNEL, "by": 0.5}
ODD = [object(), {1: 2}, 10**400, b"x", "\0", "\ud800", {"a": object()}, float("nan"), [], set(),
       np.datetime64("2020"), np.arange(3), True]  # fmt: skip


@pytest.fixture
def calls(tmp_path):
    """Each function of the library with arguments that it takes, or that fail early."""
    (tmp_path / "taken").mkdir()
    edits = {"source": SAMPLE, "plan": [EDIT]}
    policy = [{"at": "params", "shape": [1], "optional": True}]
    return {
        "open": {"checkpoint": SAMPLE},
        "inspect": {"checkpoint": SAMPLE},
        "plan": edits,
        "apply": {**edits, "destination": tmp_path / "taken"},
        "diff": {"a": SAMPLE, "b": tmp_path},
        "verify": {"checkpoint": tmp_path},
        "check": {"checkpoint": SAMPLE, "policy": policy},
        "probe": {"checkpoint": SAMPLE, "model": "none.py:f", "input": "float32[1]"},
    }


def means_something_or_is_refused(call, *given, **named):
    """A call that works, or fails as a command would."""
    with contextlib.suppress(SurgeryError):
        call(*given, **named)


@pytest.mark.parametrize(
    "name", ["open", "inspect", "plan", "apply", "diff", "verify", "check", "probe"]
)
def test_no_argument_of_a_function_ends_in_an_error_from_inside(calls, name):
    call, given = getattr(surgery, name), calls[name]
    for argument, parameter in inspect.signature(call).parameters.items():
        for value in ODD if parameter.kind is not parameter.VAR_KEYWORD else ():
            if parameter.kind is parameter.VAR_POSITIONAL:
                means_something_or_is_refused(call, *given.values(), value)
            else:
                means_something_or_is_refused(call, **{**given, argument: value})


def test_no_setting_does():
    for name in Options.__struct_fields__:
        for value in ODD[:-1]:
            means_something_or_is_refused(surgery.plan, SAMPLE, [EDIT], **{name: value})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", operations())
def test_no_field_of_an_operation_does(name):
    kind = operations()[name]
    example = YAML(typ="safe").load(io.StringIO(kind.example))
    example = example[0] if isinstance(example, list) else example
    known = {
        field.name: example[field.encode_name]
        for field in fields(kind)
        if field.encode_name in example
    }
    for number, field in enumerate(fields(kind)):
        for value in (ODD[number % 6], ODD[6 + number % 7]):
            given = {**known, field.name: value}
            means_something_or_is_refused(lambda given=given: surgery.plan(SAMPLE, kind(**given)))


def test_numbers_and_arrays_of_numpy_are_numbers_and_lists():
    plain = surgery.plan(SAMPLE, surgery.Rescale(at=KERNEL, by=0.5)).draft
    for half in (np.float32(0.5), np.float64(0.5), np.array(0.5)):
        assert surgery.plan(SAMPLE, surgery.Rescale(at=KERNEL, by=half)).draft == plain
        assert surgery.plan(SAMPLE, {"edits": [{**EDIT, "by": half}]}).draft == plain
        text = f"edits: [{{op: rescale, at: {KERNEL}, by: '${{by}}'}}]"
        assert surgery.plan(SAMPLE, text, variables={"by": half}).draft == plain
    order = surgery.Permute(at=KERNEL, axis=1, index=np.arange(64)[::-1])
    reversed_ = surgery.Permute(at=KERNEL, axis=1, index=list(range(63, -1, -1)))
    assert surgery.plan(SAMPLE, order).draft == surgery.plan(SAMPLE, reversed_).draft
    assert surgery.plan(SAMPLE, [EDIT], seed=np.int64(3)).draft


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: surgery.open(SAMPLE, step="400"), ["step"]),
        (lambda: surgery.inspect(SAMPLE, memory_bytes=0), ["memory_bytes"]),
        (lambda: surgery.plan(SAMPLE, [EDIT], memory_bytes=0), ["memory_bytes"]),
        (lambda: surgery.diff(SAMPLE, SAMPLE, rtol=-1, atol="x"), ["rtol", "atol"]),
        (lambda: surgery.plan(SAMPLE, [EDIT], as_step="x", force=1, sed=3), ["as_step", "force", "sed"]),
        (lambda: surgery.apply(3, None, [EDIT]), ["source", "destination"]),
        (lambda: surgery.probe(SAMPLE, model=3, input=4), ["model", "input"]),
    ],
)  # fmt: skip
def test_everything_that_is_wrong_is_said_at_once_by_its_name(call, names):
    with pytest.raises(surgery.PlanError) as refused:
        call()
    assert [problem.field for problem in refused.value.problems] == names
    assert all(f"`{name}`" in p.what for p, name in zip(refused.value.problems, names, strict=True))


def test_a_policy_is_text_a_file_a_dict_or_its_rules(tmp_path):
    rules = [{"at": KERNEL, "norm": "..${most}"}]
    (tmp_path / "policy.json").write_text(json.dumps({"rules": rules}))
    for policy in (
        rules,
        {"rules": rules},
        {"rules": rules, "vars": {"most": 9}},
        tmp_path / "policy.json",
    ):
        for most in (1, 1000):
            assert surgery.check(SAMPLE, policy, variables={"most": most}).holds is (most == 1000)
    with pytest.raises(surgery.PlanError, match="holds no rule"):
        surgery.check(SAMPLE, [])


@pytest.mark.parametrize("name", ["plan.yaml", "runs/a b.toml", "C.json"])
def test_the_name_of_a_file_is_no_text_of_a_plan(name):
    calls = {
        "plan": lambda: surgery.plan(SAMPLE, name),
        "policy": lambda: surgery.check(SAMPLE, name),
    }
    for what, call in calls.items():
        with pytest.raises(surgery.PlanError, match=f"'{name}' is the name of a file") as refused:
            call()
        (problem,) = refused.value.problems
        assert (problem.field, problem.fix) == (what, f"give `pathlib.Path({name!r})`")


def test_an_index_that_is_not_there_names_its_axis():
    leaf = surgery.open(SAMPLE)[KERNEL]
    array = leaf[...]
    for index in ((0, 64), -129, (..., -65)):
        with pytest.raises(IndexError) as ours:
            leaf[index]
        with pytest.raises(IndexError) as numpys:
            array[index]
        assert str(ours.value) == str(numpys.value)


def test_an_open_checkpoint_answers_as_mappings_do():
    checkpoint = surgery.open(SAMPLE)
    assert checkpoint.get(KERNEL).path == KERNEL
    for odd in ("params", "params/none", 3, None, "["):
        assert checkpoint.get(odd) is None
        assert checkpoint.get(odd, 5) == 5
        assert odd not in checkpoint
        with pytest.raises(KeyError) as missing:
            checkpoint[odd]
        assert isinstance(missing.value, surgery.PlanError)


def test_a_leaf_is_copied_or_refused_as_numpy_has_it():
    checkpoint = surgery.open(SAMPLE)
    assert np.array(checkpoint[KERNEL], copy=True).shape == checkpoint[KERNEL].shape
    with pytest.raises(ValueError, match=f"'{KERNEL}' is stored"):
        np.array(checkpoint[KERNEL], copy=False)
    empty = next(leaf for leaf in checkpoint.values() if leaf.kind == "empty")
    for ask in (np.asarray, lambda leaf: leaf[...], lambda leaf: leaf.dtype):
        with pytest.raises(TypeError, match=f"'{empty.path}' is empty and holds no array"):
            ask(empty)
