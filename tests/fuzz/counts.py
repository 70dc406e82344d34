"""What is counted of inputs, by the names in `docs/proof/fuzz.json`, and that nothing of it is lost."""

READ = ("accepted",)
REFUSED = ("refused, exit code", "refused by the system")
FAILED = ("bug", "crash")
MEMORY, TIME = ("memory",), ("time",)
OUTCOMES = (*READ, *REFUSED, *FAILED, *MEMORY, *TIME)
"""How names begin of what became of an input: each input has one of them."""

ALIKE, BOTH_REFUSE = ("read alike by the judge",), ("refused by both",)
OTHERWISE = ("differs", "refused by us alone", "read by us alone")
EXPLAINED = ("explained",)
TOO_MUCH = ("the judge ends its process", "the judge does not end", "judge took too long")
NO_OPINION = ("no opinion", *TOO_MUCH)
OPINIONS = (*ALIKE, *BOTH_REFUSE, *OTHERWISE, *EXPLAINED, *NO_OPINION)
"""How names begin of what another reader made of an input: each that it was asked about has one of them."""


def total(counts, names):
    """The sum of the counts whose names begin so."""
    return sum(count for name, count in counts.items() if name.startswith(names))


def unaccounted(counts):
    """Inputs, and questions to another reader, that have no outcome, or more than one; both 0 where all is well."""
    return (
        counts.get("inputs", 0) - total(counts, OUTCOMES),
        counts.get("judged", 0) - total(counts, OPINIONS),
    )
