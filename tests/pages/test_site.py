"""The site of the documentation: every page stands in its navigation, and it fetches nothing from elsewhere."""

import re
import runpy
from html.parser import HTMLParser

import pytest

from tests.pages.recipes import REPOSITORY

DOCS = REPOSITORY / "docs"
SITE = REPOSITORY / "build" / "site"


def test_every_page_stands_once_in_the_navigation():
    nav = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w-]+\.md$", nav, re.MULTILINE)
    pages = [path.name for path in DOCS.glob("*.md")]
    others = runpy.run_path(DOCS / "site_hooks.py")["beside_the_docs"]()
    assert sorted(named) == sorted([*pages, *others])


def test_links_of_the_site_stay_on_it():
    """The build, which CI leaves to the night, refuses a link to what only the repository has."""
    hooks = runpy.run_path(DOCS / "site_hooks.py")
    shown = {path.name: path.read_text() for path in DOCS.glob("*.md")} | hooks["beside_the_docs"]()
    files = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*") if path.is_file()}
    for name, text in shown.items():
        plain = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", hooks["on_page_markdown"](plain))
        assert {*links} <= {*shown, *files}, name


class Fetched(HTMLParser):
    """What a browser fetches to show a page: scripts, styles, pictures, fonts; not where links lead."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}:
            self.found.append(given.get("href"))
        if tag not in {"a", "link"}:
            self.found += [given[name] for name in ("src", "srcset", "data") if name in given]


@pytest.mark.check_all  # which builds it, in an environment of its own
def test_no_page_fetches_anything_from_elsewhere():
    built = sorted(SITE.rglob("*.html"))
    assert len(built) > 40
    for page in built:
        parser = Fetched()
        parser.feed(page.read_text())
        assert parser.found
        assert [url for url in parser.found if re.match(r"(\w+:)?//", url)] == []
    for style in SITE.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text()), style
