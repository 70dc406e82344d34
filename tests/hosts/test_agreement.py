"""Processes of one run that were not told the same: every option that is not of one host is compared."""

import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.runtime import Seat
from surgery_cli.planning import plan_from_document, plan_of
from surgery_cli.settings.calls import CallOptions
from surgery_cli.settings.declaration import settings_of
from surgery_cli.settings.run import Options
from surgery_cli.surgery.agreement import agree
from surgery_cli.surgery.preparation import prepare
from tests.hosts.companies import BoardInMemory, saved

OF_HOST = {"coordinator", "process", "processes", "memory_bytes", "bytes_per_second"}
PREPARED = SimpleNamespace(
    checkpoint=SimpleNamespace(location=SimpleNamespace(root="src")),
    draft=SimpleNamespace(digest="sha256:0", checks=()),
    manifests=SimpleNamespace(marks={}),
    compact={},
    sources={},
)


NO_PLANS = (plan_of([]), plan_of([]))


def refusal(
    first, second, first_finds=PREPARED, finds=PREPARED, names=("dst", "dst"), plans=NO_PLANS
):
    """What a second process is told that was told something else, or ``finds`` it; '' where both go on."""
    board, said = BoardInMemory(), [""]

    def take_part(number, options, found):
        membership = Membership(board, Seat("", number, 2), lambda _: None)
        try:
            agree(membership, found, plans[number], Path(names[number]), options)
        except PlanError as error:
            said[0] = str(error)

    other = threading.Thread(target=take_part, args=[1, second, finds], daemon=True)
    other.start()
    take_part(0, first, first_finds)
    other.join(60)
    return said[0]


def otherwise(settings, name):
    """The settings with another value of one; nothing here looks at what it means."""
    return msgspec.structs.replace(settings, **{name: "something else"})


@pytest.mark.parametrize("name", settings_of(Options))
def test_an_option_on_one_process_alone_is_refused_by_name(name):
    found = refusal(Options(), otherwise(Options(), name))
    assert (found == "") is (name in OF_HOST)
    assert name in OF_HOST or f"`{settings_of(Options)[name].option}`" in found


def test_what_is_not_given_is_said_so():
    """As who typed the command knows it: no None, True or False."""
    said = refusal(Options(), Options(seed=9, force=True))
    assert "its `--seed` is '9', there not given" in said
    assert "its `--force` is given, there not given" in said
    assert "its `--seed` is '0', there '9'" in refusal(Options(seed=9), Options(seed=0))


@pytest.mark.parametrize("name", settings_of(CallOptions))
def test_so_is_how_the_probe_calls_the_model(name):
    calls = otherwise(CallOptions(), name)
    assert settings_of(CallOptions)[name].option in refusal(Options(), Options(probe_options=calls))


@pytest.mark.parametrize("copied", [[], ["ck"], ["donor"], ["ck", "donor"]], ids=" ".join)
def test_a_copy_is_no_source_of_the_same_run_and_is_named(tmp_path, copied):
    """Its metadata are the same, and so are names and sizes of its files; the values need not be."""
    for name in ("ck", "donor"):
        saved(tmp_path / name, {"w": np.arange(100, dtype=np.float32)})
        copy = tmp_path / "there" / name
        shutil.copytree(tmp_path / name, copy, copy_function=shutil.copyfile)
    found = []
    for there in ([], copied):
        ck, donor = (
            tmp_path / ("there" if name in there else "") / name for name in ("ck", "donor")
        )
        edits = [{"op": "average", "at": "w", "with": ["d"]}]
        averaged = plan_from_document({"sources": {"d": str(donor)}, "edits": edits})
        found.append(prepare(str(ck), averaged, Options()))
    assert found[0].draft.digest == found[1].draft.digest
    told = [SimpleNamespace(**vars(PREPARED) | {"sources": one.sources}) for one in found]
    names = " and ".join({"ck": "'src'", "donor": "'d'"}[name] for name in copied)
    said = refusal(Options(), Options(), *told)
    assert (f"reads other files of {names} than" if copied else "") in said
    assert (said == "") is (not copied)


def test_a_destination_is_compared_as_the_place_that_it_is():
    """Relative to another folder it is another one, and of two spellings it is the same."""
    here = Path.cwd()
    for other, is_same in (
        (here / "dst", True),
        (Path("..") / here.name / "dst", True),
        (here / "b" / "dst", False),
    ):
        said = refusal(Options(), Options(), names=("dst", other))
        assert ("its destination is" not in said) is is_same


EDITS = [{"op": "rescale", "at": f"params/{name}", "by": 2.0} for name in "abc"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            [*EDITS[:2], {**EDITS[2], "by": 3.0}],
            'edit 3 is `{"op":"rescale","at":"params/c","by":3.0',
        ),
        (EDITS[:2], "its edit 3 is none, there `"),
        ([EDITS[1], EDITS[0], EDITS[2]], 'its edit 1 is `{"op":"rescale","at":"params/b"'),
    ],
    ids=["a field", "one less", "their order"],
)
def test_of_unlike_plans_the_first_edit_that_differs_is_said(other, said):
    plans = [plan_from_document({"edits": edits}) for edits in (EDITS, other)]
    found = [
        SimpleNamespace(
            **vars(PREPARED) | {"draft": SimpleNamespace(digest=f"sha256:{n:064d}", checks=())}
        )
        for n in range(2)
    ]
    assert said in refusal(Options(), Options(), *found, plans=plans)


def test_of_plans_that_differ_in_the_layout_alone_that_is_said():
    plans = [
        plan_from_document({"edits": [], "reshard": {"chunk_bytes": size}})
        for size in ("1MiB", "2MiB")
    ]
    found = [
        SimpleNamespace(
            **vars(PREPARED) | {"draft": SimpleNamespace(digest=f"sha256:{n:064d}", checks=())}
        )
        for n in range(2)
    ]
    told = refusal(Options(), Options(), *found, plans=plans)
    assert 'its `reshard` is `{"chunk_bytes":"2MiB"}`, there `{"chunk_bytes":"1MiB"}`' in told


RULES = [{"op": "assert", "at": "params/a", "norm": "0..1"}]
CHECKS = [{"id": "small", "at": "params/a", "norm": "0..1"}]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"edits": [*EDITS, {**RULES[0], "at": "params/b"}]}, 'edit 4 is `{"op":"assert","at":"params/b"'),
        ({"edits": EDITS}, "its edit 4 is none, there `"),
        ({"edits": [*EDITS, *RULES], "check": CHECKS}, "its `check` is `"),
    ],
    ids=["of another leaf", "no rule", "a policy more"],
)  # fmt: skip
def test_of_one_draft_the_rules_must_be_the_same(more, said):
    """No value depends on them, so no draft does: what one host had seen of `w` was taken for what it saw of `b`."""
    plans = [plan_from_document(document) for document in ({"edits": [*EDITS, *RULES]}, more)]
    assert said in refusal(Options(), Options(), plans=plans)


@pytest.mark.parametrize("how", ["an assert", "a policy"])
def test_of_one_plan_the_manifests_of_its_rules_must_say_the_same(tmp_path, how):
    """Each host would judge what it has seen by digests of its own; in other words the same is no other manifest."""
    ck, manifest = saved(tmp_path / "ck", {"w": np.ones(3, np.float32)}), tmp_path / "m.json"
    rule = {"at": "w", "digests_of": str(manifest)}
    document = {"edits": []}
    if how == "an assert":
        document["edits"] = [{"op": "assert", **rule}]
    else:
        document["check"] = [{"id": "known", **rule}]
    plan, found = plan_from_document(document), []
    for digest, more in (("aa", {}), ("aa", {"made_by": "another"}), ("bb", {})):
        leaf = {"path": "w", "digest": f"sha256:{digest * 32}"}
        manifest.write_text(json.dumps({"leaves": [leaf], **more}))
        found.append(prepare(str(ck), plan, Options()))
    said = [refusal(Options(), Options(), found[0], one, plans=(plan, plan)) for one in found]
    assert said[:2] == ["", ""]
    assert f"'{manifest}' says otherwise what the digests of leaves are" in said[2]
