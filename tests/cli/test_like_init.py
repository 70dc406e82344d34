"""`--like-init`: the training script's function as the measure of a checkpoint and of an edit's result."""

import json
import shlex
import textwrap

import jax
import orbax.checkpoint as ocp
import pytest

from tests.garbage import told_here

SCRIPT = '''
"""Functions of training scripts that went on after the samples were saved."""

import jax
import jax.numpy as jnp
import optax
from digits import TrainState, create_state
from jax import set_mesh


def state(params, tx=None):
    return TrainState.create(apply_fn=None, params=params, tx=tx or optax.adamw(1e-3))


def other_head(width=10):
    """Defaults are used; `other_head(12)` is another."""
    params = dict(create_state().params)
    params["head"] = {"kernel": jnp.zeros((64, width)), "bias": params.pop("Dense_1")["bias"]}
    return state(params)


def both_convolutions_renamed():
    params = dict(create_state().params)
    params["stem"], params["body"] = params.pop("Conv_0"), params.pop("Conv_1")
    return state(params)


def wider():
    params = dict(create_state().params)
    params["Dense_1"] = {"kernel": jnp.zeros((64, 12)), "bias": jnp.zeros(10)}
    return state(params)


def in_a_module():
    return state({"backbone": dict(create_state().params)})


def half():
    return state(jax.tree.map(lambda x: x.astype("bfloat16"), create_state().params))


def clipped():
    return state(create_state().params, optax.chain(optax.clip(1.0), optax.adamw(1e-3)))


def clipped_with_another_head():
    params = dict(create_state().params)
    params["head"] = params.pop("Dense_1")
    return state(params, optax.chain(optax.clip(1.0), optax.adamw(1e-3)))


def bare_adam():
    return state(create_state().params, optax.scale_by_adam())


def decay_first():
    parts = optax.add_decayed_weights(0.1), optax.scale_by_adam(), optax.scale(-0.1)
    return state(create_state().params, optax.chain(*parts))


def without_a_layer():
    params = dict(create_state().params)
    del params["Dense_1"]
    return state(params)


def without_moments_of_a_layer():
    made = create_state()
    adam, *others = made.opt_state
    mu, nu = ({k: v for k, v in moment.items() if k != "Dense_1"} for moment in (adam.mu, adam.nu))
    return made.replace(opt_state=(adam._replace(mu=mu, nu=nu), *others))


def one_layer_more():
    params = dict(create_state().params)
    return state({**params, "Dense_2": params["Dense_1"]})


def params_and_state(tx):
    return state(create_state().params, tx)


def accumulating():
    return params_and_state(optax.MultiSteps(optax.adamw(1e-3), 4))


def injected():
    return params_and_state(optax.inject_hyperparams(optax.adamw)(1e-3))


def params_and_frozen():
    parts = {"t": optax.adamw(1e-3), "f": optax.set_to_zero()}
    labels = {k: "f" if k == "Conv_0" else "t" for k in create_state().params}
    return params_and_state(optax.multi_transform(parts, labels))


def digits_state():
    return create_state()


def in_a_dict():
    return {"state": create_state()}


def other_head_in_a_dict():
    return {"state": other_head()}


def momentum():
    return state(create_state().params, optax.sgd(0.1, momentum=0.9))


def params_alone():
    return {"params": create_state().params}


def chain_as_dict():
    made = create_state()
    chain = {str(place): part for place, part in enumerate(made.opt_state)}
    return {"step": made.step, "params": made.params, "opt_state": chain}


def needs_width(width):
    return other_head(width)


def sets_a_mesh():
    with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        return create_state()


def sets_meshes_for_good():
    assert jax.sharding.get_abstract_mesh().empty
    with jax.set_mesh(jax.make_mesh((1,), ("model",))):
        assert jax.sharding.get_abstract_mesh().axis_names == ("model",)
    jax.set_mesh(jax.make_mesh((1,), ("other",)))
    jax.set_mesh(jax.make_mesh((1,), ("data",)))
    assert jax.sharding.get_abstract_mesh().axis_names == ("data",)
    return create_state()


def sets_a_mesh_of_another_name():
    with set_mesh(jax.make_mesh((1,), ("data",))):
        return create_state()


def wants_devices():
    jax.make_mesh((64,), ("data",))
    return create_state()


def beside_its_optimizer():
    """A form that is not known; `fields_beside_it` is."""
    made = create_state()
    return {"state": made, "tx": made.tx}


def fields_beside_it():
    made = create_state()
    fields = {name: getattr(made, name) for name in ("step", "params", "opt_state")}
    return {**fields, "tx": made.tx}


def of_another_optimizer():
    tx = optax.sgd(0.1, momentum=0.9)
    return state({"x": jnp.zeros(3)}, tx), tx


def raises():
    raise RuntimeError("the data set is not here")


def reads_a_value():
    return {"params": float(create_state().params["Dense_1"]["bias"][0])}


def returns_an_object():
    return {"params": create_state().params, "config": object}


def returns_a_number():
    return 3


ABSTRACT = jax.eval_shape(create_state)
'''

SAVED_AS = ["digits_standard", "digits_manager", "digits_v1"]
MENDED = [
    "other_head",
    "both_convolutions_renamed",
    "in_a_module",
    "half",
    "clipped",
    "clipped_with_another_head",
    "bare_adam",
    "decay_first",
    "without_a_layer",
    "without_moments_of_a_layer",
    "in_a_dict",
    "other_head_in_a_dict",
]


@pytest.fixture
def script(tmp_path, checkpoint):
    """Writes the script; gives what names one of its functions."""
    file = tmp_path / "train.py"
    folder = str(checkpoint.parent)
    file.write_text(f"import sys\nsys.path.insert(0, {folder!r})\n{SCRIPT}")
    return lambda name: f"{file}:{name}"


@pytest.fixture
def sample(checkpoint):
    return checkpoint.parent / "digits_standard"


def restored(path, function):
    """Orbax's own restore into the function's pytree."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(function),
    )
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target), target


def function_of(script, name):
    from surgery_cli.script.user_code import load_object

    return load_object(script(name)).call


@pytest.mark.parametrize("name", SAVED_AS)
def test_the_script_that_saved_a_checkpoint_agrees_with_it(surgery, checkpoint, name):
    folder = checkpoint.parent
    found = surgery("verify", folder / name, "--like-init", f"{folder}/digits.py:create_state")
    assert found.code == 0
    assert "28 leaves checked, 0 unchecked: agrees in structure; no value was read" in found.out
    assert found.err == f"importing {folder}/digits.py\n"


@pytest.mark.parametrize("name", ["ABSTRACT", "other_head(10)", "other_head(width=12)"])
def test_a_pytree_or_a_call_may_be_named_instead_of_a_function(surgery, sample, script, name):
    found = surgery("verify", sample, "--like-init", script(name), "--json")
    assert found.document["checked"] == 28
    assert len(found.document["findings"]) == {"ABSTRACT": 0, "other_head(10)": 1}.get(name, 2)


def test_a_renamed_layer_is_one_finding_with_the_command_that_mends_it(surgery, sample, script):
    found = surgery("verify", sample, "--like-init", script("other_head"), "--json")
    assert found.code == 1
    (finding,) = found.document["findings"]
    assert finding == {
        "path": "params/Dense_1",
        "what": "renamed",
        "here": "params/Dense_1",
        "there": "params/head",
        "effect": "the restore raises",
        "leaves": 6,
        "twins": ["opt_state/0/mu/Dense_1", "opt_state/0/nu/Dense_1"],
        "edits": [{"op": "rename", "at": "params/Dense_1", "to": "params/head"}],
        "certainty": "likely",
        "why": ["the only one left of its structure (2 leaves) below 'params'"],
        "fix": f"`surgery rename {sample} DST params/Dense_1 --to params/head`",
    }


def test_what_is_taken_for_something_else_says_how_sure_that_is_and_why(surgery, sample, script):
    for name in MENDED:
        found = surgery("verify", sample, "--like-init", script(name), "--json")
        for row in found.document["findings"]:
            is_pair = row["what"] in ("renamed", "moved", "boxed")
            assert (row.get("certainty") in ("sure", "likely")) == is_pair, (name, row)
            assert bool(row.get("why")) == is_pair
    shown = surgery("verify", sample, "--like-init", script("other_head")).out
    assert "likely: the only one left of its structure (2 leaves) below 'params'" in shown
    refused = surgery(
        "rescale", sample, "DST", "params/Conv_0", "--by", "2", "--like-init", script("other_head")
    )
    assert "likely: the only one left" in refused.err


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MENDED)
def test_the_edits_that_are_shown_make_the_scripts_own_restore_work(
    surgery, sample, script, tmp_path, name
):
    like = ["--like-init", script(name)]
    found = surgery("verify", sample, *like, "--json")
    assert found.code == 1
    edits = [edit for row in found.document["findings"] for edit in row.get("edits", [])]
    assert edits
    plan = tmp_path / "mend.json"

    plan.write_text(json.dumps({"edits": edits}))

    assert surgery("apply", sample, tmp_path / "new", plan, *like, "--quiet").code == 0

    assert surgery("verify", tmp_path / "new", *like).code == 0
    state, target = restored(tmp_path / "new", function_of(script, name))
    assert jax.tree.structure(state) == jax.tree.structure(target)


@pytest.mark.parametrize("name", ["half", "without_moments_of_a_layer"])
def test_a_command_that_is_shown_can_be_run_as_it_is(surgery, sample, script, tmp_path, name):
    like = ["--like-init", script(name)]
    found = surgery("verify", sample, *like, "--json").document["findings"]
    source = str(sample)
    for number, finding in enumerate(found):
        words = shlex.split(finding["fix"].split("`")[1])
        target = tmp_path / f"step{number}"
        words = [source if word == str(sample) else word for word in words]
        assert surgery(*[str(target) if w == "DST" else w for w in words[1:]]).code == 0
        source = str(target)
    assert surgery("verify", source, *like).code == 0


# Orbax abandons its other reads when one of them raises
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "findings"),
    [
        ("wider", [("params/Dense_1/kernel", "shape", 3)]),
        ("one_layer_more", [("params/Dense_2", "missing", 6)]),
        ("params_alone", [("step", "extra", 1), ("opt_state", "extra", 19)]),
        ("chain_as_dict", [("opt_state", "container", 19)]),
    ],
)  # fmt: skip
def test_a_whole_subtree_is_one_finding_and_so_are_a_param_and_its_twins(
    surgery, sample, script, name, findings
):
    found = surgery("verify", sample, "--like-init", script(name), "--json")
    assert found.code == 1
    rows = found.document["findings"]
    assert [(row["path"], row["what"], row.get("leaves", 1)) for row in rows] == findings
    with told_here(), pytest.raises(ValueError, match=r"do not match|not compatible"):
        restored(sample, function_of(script, name))


def test_a_state_that_was_saved_in_a_dict_is_one_finding(surgery, sample, script, tmp_path):
    folder = sample.parent
    assert surgery("rename", sample, tmp_path / "nested", "*", "--to", r"state/\1").code == 0
    like = ["--like-init", f"{folder}/digits.py:create_state"]
    found = surgery("verify", tmp_path / "nested", *like, "--json").document["findings"]
    assert [(row["path"], row["leaves"], row["edits"]) for row in found] == [
        ("state", 28, [{"op": "rename", "at": "state/*", "to": r"\1"}])
    ]
    mend = ["rename", tmp_path / "nested", tmp_path / "back", "state/*", "--to", r"\1"]
    assert surgery(*mend, *like).code == 0
    restored(tmp_path / "back", function_of(script, "digits_state"))


def test_params_alone_are_renamed_as_one_and_the_rest_is_missing(surgery, sample, tmp_path):
    assert surgery("extract-item", sample, tmp_path / "params", "params").code == 0
    like = f"{sample.parent}/digits.py:create_state"
    found = surgery("verify", tmp_path / "params", "--like-init", like, "--json")
    rows = found.document["findings"]
    assert [(row["path"], row["what"], row.get("leaves", 1)) for row in rows] == [
        ("", "renamed", 8),
        ("step", "missing", 1),
        ("opt_state", "missing", 19),
    ]
    assert rows[0]["edits"] == [{"op": "rename", "at": "*", "to": r"params/\1"}]


LISTS = "lists and dicts with keys '0', '1' are two things to Orbax"
OPTIMIZER = "docs/changing-the-optimizer.md has the plans"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chain_as_dict", LISTS),
        ("params_and_frozen", OPTIMIZER),
        ("injected", OPTIMIZER),
        ("accumulating", OPTIMIZER),
    ],
)
def test_what_no_edit_mends_says_what_it_is_and_where_the_way_is(
    surgery, sample, script, name, words
):
    found = surgery("verify", sample, "--like-init", script(name), "--json").document["findings"]
    fixes = [row["fix"] for row in found if row["what"] in ("container", "renamed", "moved")]
    assert fixes
    assert all(words in fix for fix in fixes)


def test_what_a_wrapped_optimizer_has_beside_the_old_state_is_named(surgery, sample, script):
    found = surgery("verify", sample, "--like-init", script("accumulating"), "--json")
    (finding,) = found.document["findings"]
    assert finding["there"] == (
        "opt_state/inner_opt_state, and new: opt_state/mini_step, opt_state/gradient_step, "
        "opt_state/acc_grads"
    )


def test_a_rename_that_is_refused_says_why_and_what_helps(surgery, sample, tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        saved = checkpointer.restore(sample)
        saved["params"]["head"] = saved["params"].pop("Dense_1")
        checkpointer.save(tmp_path / "torn", saved)
    like = ["--like-init", f"{sample.parent}/digits.py:create_state"]
    found = surgery("verify", tmp_path / "torn", *like, "--json").document["findings"]
    (finding,) = (row for row in found if row["path"] == "params/head")
    assert "edits" not in finding
    assert "`rename` alone is refused, cannot tell which params 'opt_state/0/mu'" in finding["fix"]
    assert "DST opt_state/0/mu/Dense_1 --to opt_state/0/mu/head` first" in finding["fix"]


def test_two_layers_that_could_be_either_are_not_guessed(surgery, tmp_path):
    """Of two equal layers under two new names, nothing says which is which."""
    import numpy as np

    same = {"kernel": np.ones((4, 4), np.float32)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "c", {"params": {"a": same, "b": same}})
    (tmp_path / "net.py").write_text(
        textwrap.dedent("""
        import jax.numpy as jnp

        def params():
            same = {"kernel": jnp.ones((4, 4))}
            return {"params": {"x": same, "y": same}}
        """)
    )
    found = surgery(
        "verify", tmp_path / "c", "--like-init", f"{tmp_path}/net.py:params", "--json"
    ).document["findings"]
    assert {row["what"] for row in found} == {"extra", "missing"}
    assert not any(edit["op"] == "rename" for row in found for edit in row.get("edits", []))


# --- before anything is written -----------------------------------------------------------------------------


def test_an_edit_whose_result_the_script_could_not_restore_writes_nothing(
    surgery, sample, script, tmp_path
):
    found = surgery(
        "rename", sample, tmp_path / "new", "params/Dense_1", "--to", "params/top",
        "--like-init", script("other_head"),
    )  # fmt: skip
    assert found.code == 1
    assert "'params/top' would not fit" in found.err
    assert (
        'these edits of a plan mend it: `[{"op":"rename","at":"params/top","to":"params/head"}]`'
        in found.err
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "edit",
    [
        ["rename", "params/Dense_1", "--to", "params/top"],
        ["rename", "opt_state", "--to", "state"],
        ["delete", "params/Dense_1"],
        ["delete", "opt_state/0/count"],
        ["keep", "params"],
        ["copy", "params/Dense_1", "--to", "params/top"],
        ["cast", "params", "--to", "bfloat16"],
        ["transpose", "params/Dense_1/kernel"],
        ["unstack", "params/Dense_1/bias", "--to", "params/b_{0..}"],
    ],
    ids=lambda edit: "_".join(edit[:2]).replace("/", "."),
)
def test_what_an_edit_alone_has_brought_is_not_answered_with_the_edit_that_undoes_it(
    surgery, sample, script, tmp_path, edit
):
    name, *words = edit
    like = ["--like-init", script("digits_state")]
    found = surgery(name, sample, tmp_path / "new", *words, *like, "--json")
    assert found.code == 1
    for problem in found.document["problems"]:
        assert problem["fix"].startswith("the source fits there: let the function return")
    assert surgery("verify", sample, *like).code == 0


@pytest.mark.parametrize("command", ["plan", "apply --dry-run", "apply"])
def test_every_door_holds_the_draft_against_the_script(surgery, sample, script, tmp_path, command):
    plan = tmp_path / "p.yaml"
    plan.write_text("edits: [{op: rescale, at: params/Dense_1, by: 0.5}]")
    name, *flags = command.split()
    target = [] if name == "plan" else [tmp_path / "new"]
    like = ["--like-init", script("other_head")]
    assert surgery(name, sample, *target, plan, *flags, *like).code == 1
    assert not (tmp_path / "new").exists()
    plan.write_text("edits: [{op: rename, at: params/Dense_1, to: params/head}]")
    assert surgery(name, sample, *target, plan, *flags, *like).code == 0


def test_the_errors_are_json_too(surgery, sample, script, tmp_path):
    found = surgery(
        "rescale", sample, tmp_path / "new", "params/Dense_1", "--by", "2",
        "--like-init", script("wider"), "--json",
    )  # fmt: skip
    assert found.code == 1
    (problem,) = found.document["problems"]
    assert problem["path"] == "params/Dense_1/kernel"
    assert "here float32[64,10], in the script float32[64,12]" in problem["why"]


# --- items --------------------------------------------------------------------------------------------------


@pytest.fixture
def step_of_items(tmp_path):
    import numpy as np

    items = {"params": {"w": np.ones((2, 3), np.float32)}, "ema": {"w": np.ones(3, np.float32)}}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        save = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(7, args=ocp.args.Composite(**save))
    (tmp_path / "items.py").write_text(
        textwrap.dedent("""
        import jax.numpy as jnp

        def both():
            return {"params": {"w": jnp.ones((2, 3))}, "ema": {"w": jnp.ones(3)}}

        def params():
            return {"params": both()["params"]}

        def inside():
            return both()["params"]
        """)
    )
    return tmp_path / "run", f"{tmp_path}/items.py:"


@pytest.mark.parametrize(
    ("name", "options", "checked"),
    [
        ("both", [], "2 leaves checked, 0 unchecked: agrees in structure; no value was read"),
        ("params", [], "1 leaf checked, 1 unchecked: agrees in structure; no value was read"),
        (
            "inside",
            ["--item", "params"],
            "1 leaf checked, 0 unchecked: agrees in structure; no value was read",
        ),
    ],
)
def test_of_a_step_with_several_items_those_that_the_function_returns_are_checked(
    surgery, step_of_items, name, options, checked
):
    run, file = step_of_items
    found = surgery("verify", run, "--like-init", file + name, *options)
    assert (found.code, found.out.splitlines()[0]) == (0, checked)


def test_a_function_that_names_no_item_is_told_how(surgery, step_of_items):
    run, file = step_of_items
    found = surgery("verify", run, "--like-init", f"{file}inside")
    assert found.code == 2
    assert "does not say which item is which" in found.err
    assert "--item" in found.err


@pytest.mark.parametrize("name", ["sets_a_mesh", "sets_meshes_for_good"])
def test_a_function_may_set_a_mesh_which_is_gone_afterwards(surgery, sample, script, name):
    real = jax.set_mesh
    for _ in range(2):
        found = surgery("verify", sample, "--like-init", script(name))
        assert found.code == 0, found.err
    assert jax.set_mesh is real
    assert jax.sharding.get_abstract_mesh().empty


# --- the user's file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", ["RuntimeError: the data set is not here", 'raise RuntimeError("the data']),
        ("reads_a_value", ["shapes alone", "float(create_state()"]),
        (
            "sets_a_mesh_of_another_name",
            ["shapes alone", "set it at the top of the file", "with set_mesh("],
        ),
        ("wants_devices", ["more devices than this machine", "device_count=N"]),
        ("other_haed", ["has no 'other_haed'", "train.py:other_head"]),
        ("needs_width", ["needs 'width'", "needs_width(width=…)"]),
        ("returns_an_object", ["returns a 'type'", "config"]),
        ("returns_a_number", ["returns a Python number (integer), which is no tree", "TrainState"]),
        (
            "other_head(",
            ["is neither a name nor a call", "name a function: `train.py:create_state`"],
        ),
    ],
)
def test_what_is_wrong_with_the_users_file_is_shown_with_its_own_line(
    surgery, sample, script, name, words
):
    found = surgery("verify", sample, "--like-init", script(name))
    assert found.code == 2
    for word in words:
        assert word in found.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module", ["no_such_module", "install"]),
        ("raise SystemExit(3)", ["ended the program (exit code 3)", "__main__"]),
        ("def broken(:\n  pass", ["SyntaxError"]),
    ],
)
def test_a_file_that_cannot_be_imported_is_no_traceback(surgery, sample, tmp_path, text, words):
    (tmp_path / "bad.py").write_text(text)
    found = surgery("verify", sample, "--like-init", f"{tmp_path}/bad.py:create_state")
    assert found.code == 2
    assert "Traceback" not in found.err
    for word in words:
        assert word in found.err


def test_a_file_that_is_not_there_and_two_questions_at_once_are_refused(surgery, sample, script):
    assert surgery("verify", sample, "--like-init", "nowhere.py:state").code == 2
    both = ["--like", str(sample), "--like-init", script("half")]
    found = surgery("verify", sample, *both)
    assert found.code == 2
    assert "`--like` and `--like-init` both say" in found.err


FORMS = "a TrainState, or a dict of the state's fields with `tx` beside them"


@pytest.mark.parametrize("words", [["verify"], ["rescale", "params/Dense_1", "--by", "1"]])
def test_a_state_one_level_down_is_answered_with_the_forms_that_hold_an_optimizer(
    surgery, script, sample, tmp_path, words
):
    name, *edit = words
    places = [sample, tmp_path / "new"] if edit else [sample]
    found = surgery(name, *places, *edit, "--like-init", script("beside_its_optimizer"))
    assert found.code == 1
    said = found.out + found.err
    assert "in which the checkpoint's keys stand below 'state'" in said
    assert FORMS in said
    right = surgery(name, *places, *edit, "--like-init", script("fields_beside_it"))
    assert right.code == 0, right.err
    assert FORMS not in right.out + right.err


def test_what_is_returned_in_a_tuple_is_counted_without_the_optimizer(surgery, script, sample):
    found = surgery("verify", sample, "--like-init", script("of_another_optimizer"))
    assert found.code == 2
    assert "returns a tuple or list with 1 value that a checkpoint could hold" in found.err
    assert FORMS in found.err
