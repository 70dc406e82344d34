"""Plans: text in YAML, TOML or JSON, and edit commands, as operations."""

from surgery_cli.plan.fields import Field, fields_of
from surgery_cli.plan.lint import lint
from surgery_cli.plan.options import operation_from_options
from surgery_cli.plan.plan import Origin, Plan, PolicyRule, plan_of, replaced
from surgery_cli.plan.policies import read_policy
from surgery_cli.plan.reading import plan_from_document, read_plan
from surgery_cli.plan.schema import schema
from surgery_cli.plan.yaml_text import yaml_of

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
    "read_plan",
    "read_policy",
    "replaced",
    "schema",
    "yaml_of",
]
