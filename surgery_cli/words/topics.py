"""What `surgery help` tells beside commands: patterns, plans, policies, each on a screen.

docs/patterns.md holds the same rows; the tests see to that, and that the files mean something.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PATTERNS: Final = (
    ("`*`", "anything within one key: `params/*/kernel`"),
    ("`**`", "any number of keys, none too: `params/**/kernel`"),
    ("`?`, `[0-9]`, `[!a]`", "one character: any, one of these, none of these"),
    ("`{a,b}`", "one of these: `Dense_{0,2}/{kernel,bias}`"),
    (
        "`{0..11}`",
        "the numbers from 0 to 11 as they print: `layers_{0..11}`, in a list `layers/{0..11}`",
    ),
    ("`{00..11}`", "the same with zeros in front, `00` to `11`: `layers_{00..11}`"),
    ("`{0..11..2}`", "every second of them"),
    ("`{0..3,7,9..11}`", "ranges and others together"),
    ("`[*]`, `[{]`, …", "a character that is otherwise special"),
    ("`%2F`, `%25`", "a slash inside a key, a percent sign"),
    ("`%1B`, `%0A`, `%E2%80%AE`, …", "a character that cannot be printed, by its bytes in UTF-8"),
    ("`{,}`", "an empty key"),
    ("`re:…`", "a regular expression, which must match the whole path of a leaf"),
)
"""How leaves are named: what is written, and what it stands for."""

PLAN: Final = """\
edits:
  - {op: rescale, at: "params/**/kernel", by: 0.5, expect: 3}
  - {op: reinit, at: params/Dense_1, init: lecun_normal, optimizer: reset}
"""
"""A plan file."""

POLICY: Final = """\
rules:
  - {id: no-nan, at: params, finite: true}
  - {id: head, at: params/Dense_1/kernel, shape: [64, 10]}
  - {id: calm, at: params, norm: ..100, severity: warning}
"""
"""A policy."""


class Topic(NamedTuple):
    """What is told: a sentence, a table, a file by its name, and what to look at next."""

    begin: str
    rows: tuple[tuple[str, str], ...] = ()
    file: str = ""
    example: str = ""
    end: tuple[str, ...] = ()


TOPICS: Final = {
    "patterns": Topic(
        "A pattern names leaves by their path as `surgery inspect` prints it. One that matches a node names all below.",
        PATTERNS,
        end=(
            "Quote patterns, or the shell reads them. What matches nothing is an error that shows the nearest paths.",
            "docs/patterns.md has all of it.",
        ),
    ),
    "plans": Topic(
        "A plan is a file of edits, in YAML, TOML or JSON, which `plan` shows and `apply` carries out, in order.",
        file="head.yaml",
        example=PLAN,
        end=(
            "`surgery operations` lists the edits, `surgery operations NAME` the fields of one.",
            "`surgery lint head.yaml` sees that it means something, without any checkpoint.",
            "`at` takes patterns (`surgery help patterns`); `vars:` and `--set NAME=VALUE` fill `${NAME}`.",
        ),
    ),
    "policies": Topic(
        "A policy is a file of rules, in YAML, TOML or JSON, to which `surgery check` holds a checkpoint.",
        file="policy.yaml",
        example=POLICY,
        end=(
            "The keys of a rule are those of `assert`: `surgery operations assert` lists them.",
            "Beside them: `id`, `severity` (`error` or `warning`) and `message`.",
            "docs/checks.md has all of it.",
        ),
    ),
}
"""By their names, as they are typed."""

OPTIONS: Final = "options"
"""The topic of options that many commands share: it is told from these themselves."""

TOPIC_OF: Final = {"plan": "plans", "apply": "plans", "check": "policies"}
"""Commands that take a file of which there is a topic."""
