"""The page of promises has the figures that were counted."""

from docs.make_promises import DOCS, page


def test_the_figures_are_those_that_were_counted():
    assert (DOCS / "promises.md").read_text(encoding="utf-8") == page()
