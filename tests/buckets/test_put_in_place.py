"""What a run has put at its destination is looked at once more, all of it, before its mark says that it is whole."""

import numpy as np
import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.errors import SurgeryError
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import MARK, RESCALED, TREE, saved, uploaded
from tests.buckets.test_refused_for_good import LOCK, end_its_run

WAYS = {
    "plain": Options(),
    "resume": Options(resume=True),
    "force": Options(force=True),
    "both": Options(force=True, resume=True),
}


def flipped(service, name):
    content = bytearray(service.content(name))
    content[len(content) // 2] ^= 0x10
    service.put("bkt", name, bytes(content))


def removed(service, name):
    service.remove(name)


def joined(service, name):
    """By something that another program saves beside it; where it is built itself, it might be of TensorStore's."""
    service.put("bkt", "new/beside", name.encode())


HOWS = (flipped, removed, joined)


def tampered(service, monkeypatch, target, how):
    """Do it to an object of the result as soon as it has come to its place; what was done."""
    answer, seen = service.answer, []
    stood = {name: service.version(name) for name in service.names("new/")}

    async def answered(request):
        answered = await answer(request)
        if not seen and service.kind_of(request) in ("copy", "write"):
            names = [name for name in service.names("new/") if target in name]
            names = [name for name in names if service.version(name) != stood.get(name)]
            if names:
                name = max(names, key=lambda one: len(service.content(one)))
                seen.append(name)
                how(service, name)
        return answered

    monkeypatch.setattr(service, "answer", answered)
    return seen


@pytest.mark.parametrize("target", ["/d/", "_METADATA", "manifest.ocdbt", "surgery.json"])
@pytest.mark.parametrize(
    ("way", "how"), [(w, h) for w in WAYS for h in HOWS if (w, h) != ("plain", joined)]
)
def test_nothing_gets_its_mark_of_which_something_was_changed(
    service, surgery, monkeypatch, tmp_path, way, target, how
):
    source = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    new = f"{service.root}/new"
    if WAYS[way].force:
        uploaded(service, saved(tmp_path / "old"), new)
    with monkeypatch.context() as patch:
        seen = tampered(service, patch, target, how)
        with pytest.raises(SurgeryError):
            use_cases.apply(source, new, RESCALED, options=WAYS[way])
    assert seen
    filesystem.forget(service.root)
    assert f"new/{MARK}" not in service.names()
    assert surgery("inspect", new).code != 0
    if how is removed and WAYS[way].force:  # of what is half replaced one is whole
        end_its_run(service, LOCK)
        assert surgery("clean", new).code == 0
        values = open_checkpoint(new).read(LeafPath(("params", "w")))
        np.testing.assert_array_equal(values, TREE["params"]["w"] * np.float32(2))


RANDOM = np.random.default_rng(0)
LARGE = {"params": {name: RANDOM.standard_normal(3 << 20).astype(np.float32) for name in "wb"}}
COMMANDS = {
    "rescale": ("params/w", "--by", "2"),
    "msgpack": ("--to", "msgpack"),
    "npz": ("--to", "npz"),
    "safetensors": ("--to", "safetensors"),
}


@pytest.mark.parametrize("more", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_sent_piece_by_piece_is_known_again(service, surgery, tmp_path, name, more):
    """Of what is streamed no version is told: from a disk, and as single files."""
    folder = saved(tmp_path / "ck", LARGE, use_ocdbt=False)
    new = f"{service.root}/new" + ("" if name == "rescale" else f".{name}")
    command = ("rescale" if name == "rescale" else "export", folder, new, *COMMANDS[name])
    for options in ((), more)[: 1 + bool(more)]:
        ended = surgery(*command, *options)
        assert ended.code == 0, ended.err
    assert surgery("verify", new).code == 0


@pytest.mark.parametrize("service", ["s3"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_a_version_is_the_same_with_quotes_or_without(service, monkeypatch, tmp_path, way):
    """As services tell it that speak S3 and are not Amazon's."""
    source = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    if WAYS[way].force:
        uploaded(service, saved(tmp_path / "old"), f"{service.root}/new")
    call = AmazonS3._call

    def without_quotes(self, method, **asked):
        got = call(self, method, **asked)
        for found in (got, got.get("CopyObjectResult", {}), got.get("CopyPartResult", {})):
            if "ETag" in found and method != "head_object":
                found["ETag"] = found["ETag"].strip('"')
        return got

    monkeypatch.setattr(AmazonS3, "_call", without_quotes)
    use_cases.apply(source, f"{service.root}/new", RESCALED, options=WAYS[way])
    assert f"new/{MARK}" in service.names()
