"""Plans: text in YAML, TOML or JSON, and edit commands, as operations."""

from surgery_cli.planning.fields import Field, fields_of
from surgery_cli.planning.lint import lint
from surgery_cli.planning.options import operation_from_options
from surgery_cli.planning.plan import Origin, Plan, PolicyRule, plan_of, replaced
from surgery_cli.planning.policies import policy_of_value, read_policy
from surgery_cli.planning.reading import plan_from_document, plan_of_value, read_plan
from surgery_cli.planning.schema import schema
from surgery_cli.planning.yaml_text import yaml_of

__all__ = [
    "Field",
    "Origin",
    "Plan",
    "PolicyRule",
    "fields_of",
    "lint",
    "operation_from_options",
    "plan_from_document",
    "plan_of",
    "plan_of_value",
    "policy_of_value",
    "read_plan",
    "read_policy",
    "replaced",
    "schema",
    "yaml_of",
]
