"""A step that is carried along is what it was when it was opened: what another run puts there meanwhile stays out."""

import pytest

from tests.buckets.checkpoints import SAMPLES, uploaded

EDIT = ("params/Dense_1", "--by", "3", "--optimizer", "keep")
ITEM, NEW = "run/250/extra", "run/600"


@pytest.fixture
def item(service, surgery):
    """A run of which a step has another item, as a run of ours has put it there: what was stored for it, by name."""
    source = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    assert surgery("rescale", f"{source}/500/default", f"{service.root}/{ITEM}", *EDIT).code == 0
    made = {name: service.content(name) for name in service.names(f"{ITEM}/")}
    for name in made:
        service.remove(name)
    return made


def edited(service, surgery):
    run = f"{service.root}/run"
    return surgery("rescale", f"{run}@250", run, *EDIT, "--as-step", "600")


def requests_of_an_edit(service, surgery):
    count = []
    service.before = count.append
    assert edited(service, surgery).code == 0
    service.before = lambda request: None
    for name in service.names(NEW):
        service.remove(name)
    return len(count)


@pytest.mark.parametrize("part", ["all of it", "half of it"])
def test_an_item_that_comes_meanwhile_stays_out(service, surgery, item, part):
    names = [*item][:: 1 if part == "all of it" else 2]
    for moment in range(8, requests_of_an_edit(service, surgery), 5):
        seen = []

        def come(request, moment=moment, seen=seen):
            seen.append(request)
            if len(seen) == moment:
                for name in names:
                    service.put("bkt", name, item[name])

        service.before = come
        run = edited(service, surgery)
        service.before = lambda request: None
        assert run.code == 0, (moment, run.err)
        assert not service.names(f"{NEW}/extra"), moment
        assert surgery("verify", f"{service.root}/run@600").code == 0
        for name in [*service.names(NEW), *service.names(ITEM)]:
            service.remove(name)
