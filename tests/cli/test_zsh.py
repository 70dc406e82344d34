"""What a real zsh makes of a line when Tab is pressed."""

import pytest

from surgery_cli.cli.options.completion import zsh_code
from tests.cli.shells import beside_copies, zsh

WORDS = "params/Dense_0", "params/Dense_1"
ODD = "odd:  it's \"$xü"


@pytest.fixture(scope="module")
def completed(tmp_path_factory):
    with beside_copies(zsh, tmp_path_factory.mktemp("zsh"), "run", ODD) as ask:
        yield ask


# JAX warns of forks, and a terminal is one
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("typed", "line", "offered"),
    [
        ("insp", "inspect ", ["inspect"]),
        ("inspect ru", "inspect run/", ["run/"]),
        ("inspect run@", "inspect run@", ["run@250", "run@500", "run@latest"]),
        ("inspect run --step 5", "inspect run --step 500 ", ["500"]),
        ("inspect run@250 'params/D", "inspect run@250 'params/Dense_", [*WORDS]),
        ("rescale run new params --link=re", "rescale run new params --link=reflink ",
         ["--link=reflink"]),
        ("rescale run new params --note fi", "rescale run new params --note fi", []),
        ("rescale run new params --seed ", "rescale run new params --seed ", []),
        ("check run --output ju", "check run --output junit=", ["junit="]),
        ("inspect o", "inspect odd:\\ \\ it\\'s\\ \\\"\\$xü/", [f"{ODD}/"]),
        ("inspect 'odd:  it'\\''s \"$xü'@l", None, [f"{ODD}@latest"]),
        ("inspect odd:\\ \\ it\\'s\\ \\\"\\$xü params/Conv_0/k", None, ["params/Conv_0/kernel"]),
        ("inspect ~/b", "inspect ~/bin/", ["~/bin/"]),
    ],
)  # fmt: skip
def test_tab_completes_what_may_stand_there_as_it_would_be_typed(completed, typed, line, offered):
    became, shown = completed(f"surgery {typed}")
    assert shown == offered
    assert line in {None, became.removeprefix("surgery ")}  # None: only quoted in another way


def test_commands_are_offered_with_what_they_do(completed):
    _, offered = completed("surgery inspect")
    assert offered == ["inspect"]
    code = zsh_code(["inspect\tShow: what is in it", "x:y\tz"])
    words = r"$'inspect:Show:\x20what\x20is\x20in\x20it' $'x\x5c:y:z'"
    assert code == f"local -a offered; offered=({words}); _describe '' offered"
