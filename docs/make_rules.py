"""Write the tables of rules into docs/checks.md from the code: `python docs/make_rules.py`."""

from collections.abc import Iterable
from pathlib import Path

from surgery_cli.operations.assertion import Assert
from surgery_cli.planning.fields import Field, fields_of
from surgery_cli.planning.policies import OWN_KEYS, rule_keys
from surgery_cli.rules.contract import Rule
from surgery_cli.rules.table import RULES

PAGE = Path(__file__).with_name("checks.md")
BEGIN, END = "<!-- made by docs/make_rules.py -->\n", "<!-- until here -->\n"


def page() -> str:
    """The page with the tables as the code has them."""
    above, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{above}{BEGIN}\n{_tables()}\n\n{END}{rest.partition(END)[2]}"


def _tables() -> str:
    fields = {field.name: field for field in fields_of(Assert)}
    rules = [(fields[name], _how(kind)) for kind in RULES for name in kind.__struct_encode_fields__]
    stated = {field.name for field, _ in rules}
    others = [name for name in rule_keys() if name not in stated and name not in OWN_KEYS]
    return "\n".join(
        [
            "| key | takes | what must hold | judged by |",
            "|---|---|---|---|",
            *(f"{_row(field)} {how} |" for field, how in rules),
            "",
            "Which leaves a rule is about:",
            "",
            "| key | takes | which |",
            "|---|---|---|",
            *map(_row, (fields[name] for name in others)),
        ]
    )


def _row(field: Field) -> str:
    cells: Iterable[str] = (f"`{field.name}`", field.type_text, field.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _how(kind: type[Rule]) -> str:
    """What tells whether the rule holds."""
    return "metadata" if kind.is_told is Rule.is_told else "values"


if __name__ == "__main__":
    PAGE.write_text(page())
