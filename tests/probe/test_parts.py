"""Parts of a model that are run on their own, although they are made only while the model runs."""

import jax
import numpy as np
import pytest
from flax import linen as nn

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.inputs import Input
from surgery_cli.probing.model.misfits import Misfit
from surgery_cli.probing.trace.forward import run_forward, sites_of, used_slots
from tests.probe import part_models as own
from tests.probe.conftest import save
from tests.probe.looking import HERE, linen_variables, same, traced, variables_of

X = np.random.default_rng(0).standard_normal((2, 5), np.float32)
HIDDEN = np.random.default_rng(1).standard_normal((3, 4), np.float32)
MODEL = f"{HERE / 'part_models.py'}:Compact"


@pytest.fixture(scope="module")
def variables():
    return linen_variables(own.Compact(), X)


@pytest.fixture(scope="module")
def checkpoint(variables, tmp_path_factory):
    return save(tmp_path_factory.mktemp("parts") / "compact", variables)


def run_part(variables, name, x, whole=X, **static):
    """The output of the part, the names of its calls, and the variables that were needed."""
    given = [Input("", "", whole)]
    _, found = traced(
        "Compact", x, file="part_models.py", run=name, model_inputs=given, static=static
    )
    seen = run_forward(found, variables_of(found, variables), [x])
    names = [s.name for s in sites_of(found) if s.label.role == "out"]
    return seen.outputs[0], names, {"/".join(path) for _, path in used_slots(found)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["saved", "jitted", "own", "head"])
def test_a_module_of_a_compact_method_equals_the_module_applied_to_its_own_params(variables, name):
    layer = variables["params"][name]
    x = np.ones((3, layer["kernel"].shape[0]), np.float32)
    output, names, used = run_part(variables, name, x)

    dense = nn.Dense(layer["kernel"].shape[1])
    assert same(output, jax.jit(dense.apply)({"params": layer}, x))
    assert names == [name]
    assert used == {f"{name}/kernel", f"{name}/bias"}


def test_inner_modules_keep_their_names_and_static_arguments_go_to_who_takes_them(variables):
    output, names, _ = run_part(variables, "features", X, train=True)

    part = {"params": variables["params"]["features"]}
    keys = {"params": jax.random.key(0)}
    assert same(output, jax.jit(lambda v: own.Features().apply(v, X, train=True, rngs=keys))(part))
    assert names == ["features/dense", "features/Dropout_0", "features"]


def test_a_method_of_such_a_module_runs_too(variables):
    output, names, _ = run_part(variables, "features.doubled", X)

    part = {"params": variables["params"]["features"]}
    assert same(output, jax.jit(lambda v: 2 * own.Features().apply(v, X))(part))
    assert names[-1] == "features.doubled"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layers/inner", r"wants 'layers/inner/bias' float32\[4\], the model has float32\[3,4\]"),
        ("negated", "changes this module's variables on their way"),
        ("borrowing", "wants 'borrowing/other/bias' float32\\[4\\], the model has none"),
        ("scaled", "made from values that the model computes"),
        ("hed", "did you mean `--run head`"),
    ],
)
def test_a_module_that_is_another_without_its_surroundings_is_refused(variables, name, message):
    with pytest.raises(SurgeryError, match=message):
        run_part(variables, name, HIDDEN)


def test_inputs_of_another_size_are_told_from_those_that_the_model_gives(variables):
    with pytest.raises(SurgeryError) as error:
        run_part(variables, "head", X)

    assert error.value.problems[0].why == (
        "in the model it gets float32[2,4]; here it gets float32[2,5]"
    )


def probe(checkpoint, shape, **options):
    settings = surgery.ProbeOptions(shapes=True, **options)
    return surgery.probe(checkpoint, model=MODEL, inputs=(shape,), options=settings)


def test_without_inputs_of_the_whole_model_those_of_the_part_must_fit_the_checkpoint(checkpoint):
    found = probe(checkpoint, "float32[2,5]", run="features.doubled")
    assert [s.name for s in found.sites][-1] == "features.doubled"

    with pytest.raises(Misfit) as error:
        probe(checkpoint, "float32[2,4]", run="head")
    assert "`--model-input 'float32[8,28,28,1]'`" in error.value.problems[-1].fix
    with pytest.raises(SurgeryError, match=r"does not run on float32\[\]") as error:
        probe(checkpoint, "float32[]", run="head")
    assert "`--model-input" in error.value.problems[0].fix
    assert probe(checkpoint, "float32[2,4]", run="head", model_inputs=("float32[2,5]",)).sites


def test_an_argument_that_neither_the_model_nor_the_part_takes_is_refused(checkpoint):
    with pytest.raises(SurgeryError, match="takes no 'training'"):
        probe(checkpoint, "float32[2,5]", run="features", call={"training": True})
