"""Resolution: which leaves an edit names, how edits fold, and how problems are reported."""

import re

import pytest
from ruamel.yaml import YAML

from surgery_cli.draft.effect import Keeps, Takes
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.draft.kernels.scale import Multiply, Scale
from surgery_cli.draft.recipe import DraftItems
from surgery_cli.errors import CheckpointError, Problem, SurgeryError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.extract_item import ExtractItem
from surgery_cli.operations.flatten import Flatten
from surgery_cli.operations.keep import Keep
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.split import Split
from surgery_cli.operations.table import operations
from surgery_cli.operations.transpose import Transpose
from surgery_cli.operations.unstack import Unstack
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, Question
from surgery_cli.planning import Origin, Plan, plan_from_document
from surgery_cli.planning.text import Mark
from surgery_cli.resolution import resolve
from surgery_cli.resolution.doubts import targets_of
from surgery_cli.settings.run import Options
from surgery_cli.surgery.preparation import effective
from surgery_cli.tree import globs
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import LeafKind, LeafSpec
from tests.hand_built_trees import COUNT, B, HandBuilt, W, adam, array, no_donor, printed, resolved


class Halve(LeafOperation, tag="halve"):
    """Divide by two."""

    effect = Keeps()

    def kernel(self, path, spec, scene):
        return Scale(0.5)


class Everything(LeafOperation, tag="everything"):
    """Names every leaf if no pattern does."""

    effect = Keeps()
    selects_everything_without_at = True

    def output(self, spec):
        return spec

    def kernel(self, path, spec, scene):
        return Scale(2.0)


class Graft(LeafOperation, tag="graft"):
    """Takes the leaf of the same path from a donor."""

    effect = Takes()
    donor: str

    def kernel(self, path, spec, scene):
        return Multiply()

    def inputs(self, path, recipe, scene):
        name, _ = scene.open(self.donor)
        return (Stored(LeafRef(name, path), recipe.spec),)


class Reseed(LeafOperation, tag="reseed"):
    """Records the seed and the policy that it is given."""

    effect = Keeps()
    seen: list[object]

    def rewrite(self, draft, scene):
        self.seen.append((scene.seed, scene.policy(self)))
        return draft


KEY = LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry")
TEXT = LeafSpec(kind=LeafKind.STRING)
MIXED = {
    "w": array(4, 4),
    "half": array(4, dtype="bfloat16"),
    "count": array(dtype="int32"),
    "mask": array(4, dtype="bool"),
    "key": KEY,
    "name": TEXT,
    "none": None,
}


def named(structure, edit, **plan):
    """The printed paths that a value edit changes."""
    return [path.text for path in resolved(structure, edit, **plan).changed]


def problems(structure, *edits, **plan):
    with pytest.raises(SurgeryError) as caught:
        resolved(structure, *edits, **plan)
    return caught.value.problems


def message(structure, *edits, **plan):
    return "\n".join(f"{p.what}\n{p.why}\n{p.fix}" for p in problems(structure, *edits, **plan))


def test_a_plan_without_edits_changes_nothing_and_asks_nothing():
    draft = resolved(adam({"a": W}))
    assert draft.changed == []
    assert draft.fingerprints == {"": "hand-built"}


def test_edits_fold_from_left_to_right():
    draft = resolved({"a": W}, Rename(at="a", to="b"), Halve(at="b"), Copy(at="b", to="c"))
    recipe = draft.leaves[LeafPath(("c",))]
    assert printed(draft) == ["b", "c"]
    assert recipe.home == LeafRef("", LeafPath(("a",)))
    assert [edit.name for edit in recipe.edits] == ["halve"]
    assert str(recipe.recipe.path) == "b"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (Halve(at="w"), ["w"]),
        (Halve(at=("half", "w")), ["w", "half"]),
        (Halve(at="*", where_dtype="floating"), ["w", "half"]),
        (Halve(at="*", where_dtype="float*"), ["w"]),
        (Halve(at="*", where_dtype="bfloat16"), ["half"]),
        (Halve(at="*", where_dtype="floating", where_ndim=1), ["half"]),
        (Everything(at="*", where_dtype="integer"), ["count"]),
        (Everything(at="*", where_dtype="int*"), ["count"]),
        (Everything(at="*", where_dtype="uint*", optional=True), []),
        (Everything(at="*", where_dtype="key<*"), ["key"]),
        (Everything(at="*", where_ndim=0), ["count"]),
        (Everything(at="*", where_dtype="bool"), ["mask"]),
        (Halve(at="*", except_=("[!wh]*",)), ["w", "half"]),
        (Halve(at=("w", "half"), except_="half"), ["w"]),
        (Everything(), ["w", "half", "count", "mask", "key", "name"]),
        (Everything(at="**", expect=6), ["w", "half", "count", "mask", "key", "name"]),
        (Everything(expect=6), ["w", "half", "count", "mask", "key", "name"]),
        (Halve(at="nothing", optional=True), []),
        (Halve(at=("nothing", "w"), optional=True), ["w"]),
        (Halve(at="nothing", optional=True, except_="w", expect=3), []),
    ],
)
def test_an_edit_names_the_leaves_that_it_says(edit, expected):
    assert named(MIXED, edit) == expected


def test_expect_does_not_count_empty_leaves():
    draft = resolved({"a": {"x": None, "y": W}, "b": W}, Delete(at="a", expect=1))
    assert printed(draft) == ["b"]


LAYERS = {f"layers_{n}": {"w": W, "b": B} for n in range(12)}


@pytest.mark.parametrize("expect", [24, "24 leaves", "12 nodes"])
def test_expect_counts_leaves_or_what_the_patterns_match(expect):
    edit = Halve(at="layers_{0..11}", expect=expect)
    assert len(named(LAYERS, edit)) == 24


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            Halve(at="layers_{0..11}", expect="11 nodes"),
            "names 12 nodes, not 11\nit names 'layers_0', 'layers_1', 'layers_2'",
        ),
        (Halve(at="layers_{0..11}/w", expect="1 node"), "names 12 nodes, not 1"),
        (Halve(at="layers_{0..11}", expect="12 leaves"), "names 24 leaves, not 12"),
        (Halve(at="layers_[0-12]"), "write `layers_{0..12}`"),
        (Halve(at="**", except_="layers_{0..11"), "without its `}`"),
    ],
)
def test_what_is_not_there_as_often_as_expected_is_an_error(edit, said):
    assert said in message(LAYERS, edit)


def test_a_range_does_not_pass_over_numbers_with_zeros_in_front():
    padded = {f"layers_{n:02d}": {"w": W} for n in range(12)}
    assert len(named(padded, Halve(at="layers_{00..11}"))) == 12
    for edit in (Halve(at="layers_{0..11}"), Halve(at="**", except_="layers_{0..11}")):
        said = message(padded, edit)
        assert "does not name 'layers_00/w'" in said
        assert "write 'layers_{00..11}'" in said


def test_edits_of_places_name_empty_leaves_too():
    assert "d" in printed(resolved({"a": None, "b": W}, Rename(at="a", to="d")))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Halve(), ["'halve' names no leaves"]),
        (Halve(at="x"), ["'x' matches nothing"]),
        (Halve(at=("w", "x")), ["'x' matches nothing"]),
        (Halve(at="hafl"), ["'hafl' matches nothing", "the nearest: 'half'"]),
        (Halve(at="none"), ["'none' names nothing that 'halve' applies to", "it names is None"]),
        (Halve(at="w", except_="x"), ["'x' matches nothing"]),
        (Halve(at="w", except_="half"), ["the exception 'half' leaves nothing out"]),
        (Halve(at="w", except_="w"), ["nothing is left to edit"]),
        (Halve(at="w", where_dtype="int*"), ["`where_dtype: int*`", "they are float32[4,4]"]),
        (Halve(at="w", where_ndim=3), ["`where_ndim: 3`"]),
        (Halve(at="*", where_dtype="floating", expect=3), ["names 2 leaves, not 3", "'w', 'half'"]),
        (Halve(at="count"), ["halve does not apply to int32[]", "where_dtype: floating"]),
        (Halve(at="["), []),
    ],
)
def test_what_names_nothing_is_an_error(edit, said):
    text = message(MIXED, edit)
    for words in said:
        assert words in text


ASK_MORE = {"add", "merge", "insert-item", "merge-lora", "unmerge-lora", "extract-lora"}
"""Operations whose examples name a new place, a donor, or parts of what a pattern matches."""


def misnaming(kind):
    """The example of an operation, as an edit of what is not there; None if it names leaves in other fields."""
    document = YAML(typ="safe").load(kind.example)
    document = document[0] if isinstance(document, list) else document
    return document | {"at": "nowhere"} if "at" in document else None


@pytest.mark.parametrize("kind", operations().values(), ids=lambda kind: kind.__name__)
def test_one_fault_is_one_problem(kind):
    """What an edit would do to nothing at all is not wrong as well."""
    document = misnaming(kind)
    if document is None or document["op"] in ASK_MORE:
        pytest.skip("what it names is not said by `at` alone")
    edits = plan_from_document({"edits": [document]}).edits
    found = [problem.what for problem in problems(adam({"a": W}), *edits)]
    assert found == ["'nowhere' matches nothing"]


def test_a_wrong_key_is_named_with_the_nearest():
    tree = {"params": {"Dense_0": {"kernel": W, "bias": B}}}
    text = message(tree, Halve(at="params/**/kernal"))
    assert "no key is called 'kernal'; the nearest: 'kernel'" in text


def test_a_path_at_the_wrong_place_is_shown_the_right_one():
    tree = {"params": {"params": {"Dense_0": {"kernel": W}}}}
    text = message(tree, Halve(at="params/Dense_0/kernel"))
    assert "its keys exist, but not at this place" in text
    assert "'params/params/Dense_0/kernel'" in text


@pytest.mark.parametrize(
    ("at", "advice"),
    [
        ("**kernel", "write '**/kernel'"),
        ("params/**kernel", "write 'params/**/kernel'"),
        ("**bias", "'**/bias' matches nothing either"),
    ],
)
def test_two_stars_beside_other_characters_are_told_from_two_that_stand_alone(at, advice):
    text = message({"params": {"Dense_0": {"kernel": W}}}, Halve(at=at))
    assert "`**` spans keys only where it stands alone between slashes" in text
    assert advice in text


def test_one_text_for_two_leaves_shows_both_spellings():
    tree = {"a/b": {"w": W}, "a": {"b": {"w": W}}}
    text = message(tree, Halve(at="a/b/w"))
    assert "'a/b/w' means 2 places" in text
    assert "'a/b/w', 'a%2Fb/w'" in text


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (Halve(at="a%2Fb"), ("a/b", "w")),
        (Halve(at="a/b", except_="a%2Fb"), ("a", "b", "w")),
    ],
)
def test_each_of_two_leaves_that_print_alike_can_be_named(edit, expected):
    tree = {"a/b": {"w": W}, "a": {"b": {"w": W}}}
    assert resolved(tree, edit).changed == [expected]


def test_a_wildcard_may_name_leaves_that_print_alike():
    tree = {"a/b": W, "a": {"b": W}}
    assert len(resolved(tree, Halve(at="**")).changed) == 2


def test_a_param_and_its_own_twin_are_shown_side_by_side():
    text = message(adam({"a": {"kernel": W}}), Halve(at="**/kernel"))
    assert "'params/a/kernel' and its twin 'opt_state/0/mu/a/kernel'" in text
    assert "`params/**`, `opt_state/**`" in text


def test_moments_that_kept_the_old_name_of_a_layer_are_shown_with_the_rename():
    tree = adam({"new": W, "b": B})
    tree["opt_state"][0] |= {"mu": {"old": W, "b": B}, "nu": {"old": W, "b": B}}
    (problem, _) = problems(tree, Rename(at="params/new", to="params/head"))
    assert problem.why == (
        "'opt_state/0/mu/old' has no param of that name, and 'params/new' has nothing at 'opt_state/0/mu'"
    )
    assert "`surgery rename SRC DST opt_state/0/mu/old --to opt_state/0/mu/new`" in problem.fix
    assert "`ignore: true` of it in `slots:`" in problem.fix


def test_moments_of_other_shapes_are_shown_what_to_say_of_them():
    tree = adam({"a": W, "b": B})
    tree["opt_state"][0] |= {"mu": {"a": B, "b": W}, "nu": {"a": B, "b": W}}
    (problem, _) = problems(tree, Rename(at="params/a", to="params/head"))
    assert "`slots: {opt_state/0/mu: {of: NODE, power: K}}`" in problem.fix


def test_of_params_and_state_below_one_node_each_side_is_shown_whole():
    text = message({"state": adam({"a": {"kernel": W}})}, Halve(at="state/**"))
    assert "`state/params/**`, `state/opt_state/**`" in text


def test_a_param_and_its_twin_may_be_named_on_purpose():
    changed = named(adam({"a": {"kernel": W}}), Halve(at="**/kernel", twins="named"))
    assert changed == [
        "params/a/kernel",
        "opt_state/0/mu/a/kernel",
        "opt_state/0/nu/a/kernel",
    ]


def test_twins_alone_may_be_named():
    changed = named(adam({"a": W, "b": B}), Halve(at="opt_state/0/mu/a", expect=1))
    assert changed == ["opt_state/0/mu/a"]


def test_an_edit_without_patterns_may_take_params_and_twins():
    edit = Everything(where_dtype="floating", expect=3)
    assert len(resolved(adam({"a": W}), edit).changed) == 3


def test_all_problems_are_reported_together_in_order():
    found = problems({"a": W, "b": COUNT}, Halve(at=("x", "y")), Halve(at="b"), Halve(at="z"))
    assert [p.what for p in found] == [
        "'x' matches nothing",
        "'y' matches nothing",
        "halve does not apply to int32[]",
        "'z' matches nothing",
    ]
    assert found[2].path == "b"


def test_problems_carry_the_file_and_the_line_of_the_field():
    origins = (
        Origin(number=1, file="plan.yaml", mark=Mark(3), marks={"at": Mark(4), "expect": Mark(5)}),
        Origin(number=2, file="plan.yaml", mark=Mark(7), marks={"at": Mark(8)}),
    )
    found = problems({"a": W}, Halve(at="a", expect=2), Rename(at="x", to="y"), origins=origins)
    assert [(p.file, p.line, p.field) for p in found] == [
        ("plan.yaml", 5, "expect"),
        ("plan.yaml", 8, "at"),
    ]


THREE = {name: {"kernel": W, "bias": B} for name in ("Dense_0", "Dense_1", "Dense_2")}


@pytest.mark.parametrize(
    ("failing", "later", "said"),
    [
        # what an edit that failed takes away, it does not bring
        (Delete(at="params/x"), Delete(at="params/Dense_7"), True),
        (Keep(at="params/x"), Delete(at="params/Dense_7"), True),
        (Delete(at="params/x"), Halve(at="params", expect=7), True),
        (Delete(at="params/x"), Halve(at="params", expect=5), False),
        (Delete(at="params/x"), Halve(at="params", except_="params/y"), True),
        (Delete(at="params/x"), Halve(at="params", where_ndim=5), True),
        # what it brings stands at `to`, or below, or is a twin of that
        (Rename(at="params/x", to="params/head"), Halve(at="params/head"), False),
        (Rename(at="params/x", to="params/head"), Halve(at="params/head/kernel"), False),
        (Rename(at="params/x", to="params/head"), Halve(at="params/h*"), False),
        (Rename(at="params/x", to="params/head"), Halve(at="**/scale"), False),
        (Rename(at="params/x", to="params/head"), Halve(at="re:params/h.*"), False),
        (Rename(at="params/x", to="params/head"), Halve(at="opt_state/0/mu/head"), False),
        (Rename(at="params/x", to="params/head"), Halve(at="params", where_ndim=5), False),
        (Rename(at="params/x", to="params/head"), Halve(at="params", expect=7), False),
        (Rename(at="params/x", to="params/head"), Halve(at="params", expect=5), False),
        (Rename(at="params/x", to="params/head"), Halve(at="opt_state/0/xi"), True),
        (Rename(at="params/x", to="params/head"), Halve(at="params/Dense_7"), True),
        (Rename(at="params/x", to="params/head"), Halve(at="params/D*/scale"), True),
        (Rename(at="params/x_*", to=r"params/\1/w"), Halve(at="params/Dense_7"), False),
        (Rename(at="params/x_*", to=r"params/h_\1"), Halve(at="head"), True),
        (Rename(moves={"params/x": "a", "params/y": "b"}), Halve(at="a/w"), False),
        (Rename(moves={"params/x": "a", "params/y": "b"}), Halve(at="c/w"), True),
        (Rename(at="params/Dense_1", to="params/Dense_0"), Delete(at="params/zzz"), True),
        (Copy(at="params/x_{0..3}", to="params/y_{0..3}"), Halve(at="params/y_2"), False),
        (Copy(at="params/x_{0..3}", to="params/y_{0..3}"), Halve(at="params/y_5"), True),
        (Unstack(at="params/x", to="params/y_{0..}"), Halve(at="params/y_5"), False),
        (Unstack(at="params/x", to="params/y_{0..}"), Halve(at="params/z_5"), True),
        (Split(at="params/x", to="params/{q,k}/{0..2}", axis=0), Halve(at="params/k"), False),
        (Split(at="params/x", to="params/{q,k}", axis=0), Halve(at="params/v"), True),
        # what stands elsewhere than is known may come to stand anywhere
        (Flatten(at="params/x", separator="."), Halve(at="params/Dense_7"), False),
        # edits of values bring nothing, and change no count
        (Halve(at="params/x"), Halve(at="params/Dense_7"), True),
        (Halve(at="params/x"), Halve(at="params", expect=5), True),
    ],
)
def test_a_later_mistake_is_said_unless_it_may_come_of_an_earlier_one(failing, later, said):
    first = problems(adam(THREE), failing)
    found = problems(adam(THREE), failing, later)
    assert found[: len(first)] == first
    assert len(found) - len(first) == said


BLOCKS = {"blocks": [{"w": W, "b": B} for _ in range(4)], "out": {"w": W}}


@pytest.mark.parametrize(
    ("failing", "later", "said"),
    [
        # it might have freed the place, or stood there itself
        ("{rename: A, to: B}", "{rename: C, to: A}", False),
        (r"{rename: 'params/Dense_*', to: 'params/l\2'}", "{rename: C, to: B}", False),
        ("{stack: 'params/Dense_{0..3}', to: params/all}", "{rename: C, to: B}", False),
        (
            "{concat: [A/bias, B/bias], to: params/x, axis: 5}",
            "{rename: C/bias, to: A/bias}",
            False,
        ),
        ("{unstack: A/kernel, to: 'params/r_{0..9}'}", "{rename: C/kernel, to: A/kernel}", False),
        ("{delete: params/Dens_1}", "{rename: C, to: B}", False),
        ("{delete: params/Dens_1}", "{add: B, like: A, init: zeros}", False),
        ("{delete: params/Dens_1}", "{assert: B, exists: false}", True),
        ("{delete: A, expect: 1}", "{assert: A, exists: false}", False),
        ("{delete: A, expect: 1}", "{assert: params, count: 7}", True),
        ("{rename: A, to: B}", "{rename: C/bias, to: C/kernel}", True),
        ("{rename: params/x, to: params/y}", "{rename: C, to: ''}", True),
        ("{rescale: params/x, by: 2}", "{rename: C, to: A}", True),
        # the place that was meant may have more or other numbers
        ("{rename: 'params/Dense_{0..2}', to: 'params/l_{1..2}'}", "{delete: params/l_3}", False),
        ("{rename: 'params/Dense_{0..2}', to: 'params/l_{1..2}'}", "{delete: opt/l_3}", True),
        # of what is kept, the rest would go
        ("{keep: params, expect: 5}", "{cast: opt_state/0/mu, to: bfloat16}", False),
        ("{keep: params, expect: 5}", "{cast: opt_state/0/xi, to: bfloat16}", True),
        # values and shapes
        ("{cast: A, to: flot16}", "{assert: A, dtype: bfloat16}", False),
        ("{cast: A, to: flot16}", "{assert: B, dtype: bfloat16}", True),
        ("{cast: params/x, to: bfloat16}", "{assert: A, dtype: bfloat16}", True),
        (
            "{transpose: A/kernel, axes: [0, 0]}",
            "{concat: [A/kernel, C/bias], to: D, axis: 0}",
            False,
        ),
        (
            "{transpose: A/kernel, axes: [0, 0]}",
            "{concat: [B/kernel, C/bias], to: D, axis: 0}",
            True,
        ),
        # another place is counted as it would be all the same
        ("{rename: params/x, to: params/y}", "{rescale: A, by: 2, expect: 7}", True),
        ("{rename: params/x, to: params/y}", "{rescale: A, by: 2, where_ndim: 5}", True),
        ("{delete: A/bias, expect: 2}", "{rescale: B, by: 2, expect: 1}", True),
        ("{delete: A/bias, expect: 2}", "{rescale: params, by: 2, expect: 1}", False),
    ],
)
def test_what_is_in_the_way_is_said_unless_an_earlier_edit_might_have_removed_it(
    failing, later, said
):
    tree = adam(THREE)
    first, second = (read_short(text) for text in (failing, later))
    before = [p.what for p in problems(tree, first)]
    found = [p.what for p in problems(tree, first, second)]
    assert found[: len(before)] == before
    assert (len(found) > len(before)) == said


@pytest.mark.parametrize(
    ("failing", "later", "said"),
    [
        ("{delete: params/blokcs/1}", "{copy: params/blocks/0, to: params/blocks/3}", False),
        ("{copy: params/blocks/7, to: params/blocks/4}", "{delete: params/blocks/4}", False),
        (
            "{copy: params/blocks/7, to: params/blocks/4}",
            "{delete: opt_state/0/mu/blocks/4}",
            False,
        ),
        ("{copy: params/blocks/7, to: params/blocks/4}", "{delete: params/blocks/5}", True),
        ("{delete: params/blocks/7}", "{rescale: params/blocks/0/w/0, by: 2}", False),
        ("{delete: params/blocks/7}", "{rescale: params/blocks/4, by: 2}", True),
        ("{delete: params/blocks/7}", "{rescale: 'params/blocks/{4..6}', by: 2}", True),
        ("{delete: params/out/x}", "{rescale: opt_state/0/mu/blocks/4, by: 2}", True),
    ],
)
def test_elements_of_a_list_may_move_up_and_no_others_come(failing, later, said):
    edits = [read_short(text) for text in (failing, later)]
    assert len(problems(adam(BLOCKS), *edits)) == 1 + said


def read_short(text):
    """An edit with its name in place of `op` and `at`; A, B, C stand for the subtrees of ``THREE``."""
    for number, letter in enumerate("ABC"):
        text = re.sub(rf"\b{letter}\b", f"params/Dense_{number}", text)
    fields = YAML(typ="safe").load(text)
    name = next(iter(fields))
    return plan_from_document({"edits": [{"op": name, "at": fields.pop(name), **fields}]}).edits[0]


def test_of_several_patterns_those_are_said_that_nothing_earlier_explains():
    edits = (Rename(at="x", to="y"), Halve(at=("y", "a", "z")), Rename(at="y", to="v"))
    found = problems({"a": W, "b": B}, *edits, Halve(at="v"), Halve(at="["))
    assert [p.what.split("\n")[0] for p in found] == [
        "'x' matches nothing",
        "'z' matches nothing",
        "'[' matches nothing",
    ]


def test_only_operations_that_name_no_place_keep_later_mistakes_silent():
    bring_anywhere = set()
    for name, kind in operations().items():
        document = YAML(typ="safe").load(kind.example)
        (edit,) = plan_from_document(
            {"edits": document if isinstance(document, list) else [document]}
        ).edits
        if "**" in targets_of(edit):
            bring_anywhere.add(name)
    assert bring_anywhere == {
        *("extract-item", "flatten", "insert-item", "merge", "to-dict", "to-list", "unflatten")
    }


def test_other_problems_are_still_said_after_an_edit_of_places_failed():
    found = problems({"a": W, "b": COUNT}, Rename(at="x", to="y"), Halve(at="b"))
    assert len(found) == 2


class Donors:
    def __init__(self, **fingerprints):
        self.fingerprints = fingerprints
        self.opened = []

    def __call__(self, address):
        self.opened.append(address)
        if address not in self.fingerprints:
            raise CheckpointError(f"'{address}' is no checkpoint")
        return HandBuilt({"a": W}, self.fingerprints[address])


def test_a_donor_is_opened_once_by_name_or_path():
    donors = Donors(big="1", other="2")
    draft = resolved(
        {"a": W},
        Graft(at="a", donor="donor"),
        Graft(at="a", donor="big"),
        Graft(at="a", donor="other"),
        sources={"donor": "big"},
        open_source=donors,
    )
    assert donors.opened == ["big", "other"]
    assert draft.fingerprints == {"": "hand-built", "donor": "1", "other": "2"}
    assert draft.leaves[("a",)].recipe.inputs[0].ref.source == "other"


def test_a_source_that_no_edit_uses_may_stand_in_the_plan():
    draft = resolved({"a": W}, sources={"donor": "big"}, open_source=Donors(big="1"))
    assert draft.changed == []


def test_a_donor_that_cannot_be_opened_is_reported_once_with_everything_else():
    with pytest.raises(CheckpointError) as caught:
        resolved(
            {"a": W},
            Graft(at="a", donor="donor"),
            Graft(at="a", donor="gone"),
            Halve(at="x"),
            sources={"donor": "gone"},
            open_source=Donors(),
        )
    assert [p.what for p in caught.value.problems] == [
        "'gone' is no checkpoint",
        "'x' matches nothing",
    ]


def test_the_draft_depends_on_the_donors_that_are_used():
    def digest(fingerprint):
        donors = Donors(big=fingerprint)
        return resolved({"a": W}, Graft(at="a", donor="big"), open_source=donors).digest

    assert digest("1") == digest("1")
    assert digest("1") != digest("2")


@pytest.mark.parametrize(
    ("plan", "options", "expected"),
    [
        ({}, {}, (0, None)),
        ({"seed": 3, "optimizer": "warm"}, {}, (3, "warm")),
        ({"seed": 3, "optimizer": "warm"}, {"seed": 0, "optimizer": "keep"}, (0, "keep")),
    ],
)
def test_options_stand_above_the_plan(plan, options, expected):
    seen = []
    above = effective(Plan(**plan), Options(**options))
    resolved({"a": W}, Reseed(at="a", seen=seen), seed=above.seed, optimizer=above.optimizer)
    assert seen == [expected]


def test_an_edits_own_policy_stands_above_everything():
    seen = []
    edit = Reseed(at="a", seen=seen, optimizer="reset")
    resolved({"a": W}, edit, optimizer="keep")
    assert seen == [(0, "reset")]


def test_where_params_stand_may_be_said():
    tree = {
        "model": {"a": W},
        "params": {"unrelated": COUNT},
        "opt_state": [{"count": COUNT, "mu": {"a": W}, "nu": {"a": W}}],
    }
    draft = resolved(tree, Rename(at="model/a", to="model/b"), params="model")
    assert "opt_state/0/mu/b" in printed(draft)


def test_params_that_are_not_there_are_reported_with_everything_else():
    found = problems({"a": W}, Halve(at="x"), params="modle")
    assert len(found) == 2
    assert "modle" in found[0].what


@pytest.mark.parametrize(
    ("tree", "to", "said"),
    [
        ({"a": {"b": W}, "c": B}, "a.b", "Orbax joins keys with dots, so both are 'a.b'"),
        ({"a.b": W, "c": B}, "a/b", "Orbax joins keys with dots, so both are 'a.b'"),
        ({"a": W, "c": B}, "a%2Fb", "'a/b' would lie inside of the directory of 'a'"),
        ({"c": B}, "x/..", "the key '..' would lead to another directory"),
        ({"c": B}, "./x", "the key '.' would lead to another directory"),
        ({"c": B}, "x%2F..%2Fy", "the key 'x/../y' would lead to another directory"),
        ({"c": B}, "%2Fabs", "the key '/abs' is absolute"),
        ({"c": B}, "x%2F", "the key 'x/' would lead to another directory"),
        ({"c": B}, "a\0", "a null character"),
    ],
)
def test_names_that_cannot_be_stored_are_refused(tree, to, said):
    assert said in message(tree, Rename(at="c", to=to))


def test_names_of_the_source_are_not_judged():
    tree = {"a.b": W, "a": {"b": W}, "..": B, "c": B}
    assert "d" in printed(resolved(tree, Rename(at="c", to="d")))


def test_a_wrong_name_on_the_way_is_no_problem():
    edits = (Rename(at="c", to="a.b"), Rename(at="a.b", to="d"))
    assert printed(resolved({"a": {"b": W}, "c": B}, *edits)) == ["a/b", "d"]


def test_the_first_key_must_be_an_item_where_there_are_several():
    tree = {"model": {"a": W}, "ema": {"a": W}}
    settings = {"items": DraftItems(names=("model", "ema"), is_prefixed=True)}
    text = message(tree, Rename(at="model/a", to="modle/b"), settings=settings)
    assert "'modle/b' belongs to no item" in text
    assert "`model/…`" in text
    draft = resolved(tree, Rename(at="model/a", to="model/b"), settings=settings)
    assert printed(draft) == ["model/b", "ema/a"]


def test_a_plan_of_two_edits_equals_two_plans_of_one():
    first = Rename(at="params/*", to=r"params/x_\1")
    second = Keep(at="params/x_a")
    tree = {"params": {"a": W, "b": B}}
    once = resolved(tree, first, second)
    middle = HandBuilt({})
    middle.tree = resolved(tree, first).tree
    twice = resolve(Plan(edits=(second,)), middle, no_donor)
    assert once.tree == twice.tree


def unsure_about(*nodes):
    """A survey that leaves one question open, about these nodes of params."""
    question = Question(
        Problem("what is 'opt_state/x'?", fix="add `slots:`"), tuple(LeafPath(n) for n in nodes)
    )
    survey = OptimizerSurvey(
        params_roots=(LeafPath(("params",)),),
        slots={},
        clocks={},
        hyperparams={},
        unsure=[],
        open_questions=[question],
        family={},
    )
    return {"surveyed": survey}


ASKED = {"params": {"a": W, "b": B}, "opt_state": {"x": W}}


def test_a_question_is_asked_once_by_the_edits_that_it_concerns():
    settings = unsure_about(("params", "a"))
    found = problems(ASKED, Rename(at="params/a", to="params/c"), Halve(at="**"), settings=settings)
    assert [p.what for p in found] == ["what is 'opt_state/x'?"]


def test_a_question_follows_a_leaf_to_its_new_path():
    settings = unsure_about(("params", "b"))
    edits = (Rename(at="params/a", to="params/c"), Rename(at="params/b", to="params/a"))
    assert len(problems(ASKED, *edits, Halve(at="params/c"), settings=settings)) == 1


@pytest.mark.parametrize("edit", [Halve(at="params/b"), Halve(at="opt_state/x"), Keep(at="params")])
def test_edits_that_a_question_does_not_concern_are_done(edit):
    assert resolved(ASKED, edit, settings=unsure_about(("params", "a"))).leaves


@pytest.mark.parametrize(
    ("key", "typed", "suggested"),
    [("%2F", "%2F", "%252F"), ("[x]", "[x]", "[[]x]"), ("a*b", "a[*]bc", "a[*]b")],
)
def test_a_suggested_path_names_the_leaf_when_it_is_typed(key, typed, suggested):
    assert f"the nearest paths are '{suggested}'" in message({key: W}, Halve(at=typed))
    assert named({key: W}, Halve(at=suggested)) == [key]


@pytest.mark.parametrize(
    ("earlier", "at", "why"),
    [
        (Rename(at="params/a", to="params/c"), "params/a", "has moved 'params/a' to 'params/c'"),
        (Rename(at="params/a", to="params/c"), "**/mu/a", "has moved 'opt_state/0/mu/a' to"),
        (Delete(at="params/a"), "params/a", "has taken 'params/a' away"),
        (Delete(at="params/a"), "opt_state/0/mu/a", "has taken 'opt_state/0/mu/a' away"),
        (Keep(at="params"), "opt_state", "has taken 'opt_state/0/count' away"),
    ],
)
def test_of_what_an_earlier_edit_took_away_that_is_said(earlier, at, why):
    (problem,) = problems(adam({"a": W, "b": B}), earlier, Halve(at=at))
    assert problem.what == f"'{at}' matches nothing"
    assert problem.why.startswith("an earlier edit ")
    assert why in problem.why
    assert "optional" not in problem.fix


def test_a_wildcard_that_names_no_key_is_named():
    said = message({"params": {"a_0": W}}, Halve(at="params/a_{3..5}"))
    assert "'a_{3..5}' matches no key" in said


def test_a_path_typed_as_its_keys_are_is_told_from_one_that_is_not_there():
    assert "a path has these keys" in message({"[x]": W}, Halve(at="[x]"))


@pytest.mark.parametrize(
    "edit",
    [
        Halve(at=("params/a", "params/b"), except_="params/b"),
        Rename(at="params/*", to=r"params/new_\1"),
        Rename(moves={"params/a": "params/b", "params/b": "params/a"}),
        Copy(at="params/a", to="params/c"),
        Delete(at=("params/a", "**/b"), twins="named"),
        Keep(at=("params", "step")),
        ExtractItem(at="params"),
        Replace(at="params/*", with_="donor", from_=r"params/\1"),
        ResetOptimizer(at="params/*", except_="params/a"),
    ],
    ids=lambda edit: edit.name,
)
def test_a_pattern_of_an_edit_is_read_once_and_held_against_the_tree_once(edit, monkeypatch):
    held, named = [], PathPattern.named
    readers = (globs.compiled, globs.ranges)
    for reader in readers:
        reader.cache_clear()
    monkeypatch.setattr(
        PathPattern, "named", lambda self, texts: (held.append(self.text), named(self, texts))[1]
    )
    tree = adam({"a": W, "b": W})
    resolved(tree, edit, open_source=lambda address: HandBuilt(tree))
    patterns = (*edit.patterns, *edit.exceptions)
    assert sorted(held) == sorted(patterns)
    assert all(reader.cache_info().misses <= len(set(patterns)) for reader in readers)


def test_what_an_edit_does_name_is_edited_so_that_no_more_is_missed_than_is_missing():
    tree = {"a": W, "b": W, "c": W}
    moves = Rename(moves={"a": "x/a", "d": "x/d"})
    later = (Halve(at=("x/a", "x/d")), Rename(moves={"b": "x/b", "e": "x/e"}), Delete(at="x/a"))
    assert [p.what for p in problems(tree, moves, *later, Halve(at="f"))] == [
        "'d' matches nothing",
        "'e' matches nothing",
        "'f' matches nothing",
    ]
    assert [p.what for p in problems(tree, Halve(at=("a", "d")), Halve(at="e"))] == [
        "'d' matches nothing",
        "'e' matches nothing",
    ]


def test_leaves_that_do_not_get_a_shape_are_not_blamed_again_for_the_one_they_have():
    tree = {"a": array(4, 6), "b": array(4, 5), "c": array(4, 6)}
    edits = (
        Reshape(at="{a,b}", axis=1, shape=(-1, 2)),
        Transpose(at="**", axes=(1, 0, 2)),
        Reshape(at="c", shape=(7,)),
    )
    assert [p.path for p in problems(tree, *edits)] == ["b", "c"]
