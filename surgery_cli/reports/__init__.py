"""The documents that commands print: one struct per command, whose fields are the keys of ``--json``."""

from surgery_cli.document import SCHEMA_VERSION, Document, Failure, as_builtins
from surgery_cli.proof.record_parts import Assumed, ChangedLeaf, CheckedRule
from surgery_cli.reports.checkpoints import (
    FileList,
    Inspection,
    LeafRow,
    OptimizerState,
    Sampled,
    Seal,
    Verdict,
)
from surgery_cli.reports.checks import Checked, RuleVerdict
from surgery_cli.reports.cleaning import Cleaning, LeftoverRow
from surgery_cli.reports.derivation import Derivation, Gap, PairRow
from surgery_cli.reports.differences import Change, Difference
from surgery_cli.reports.edits import EditLine, InversePlan, Judgement, Preview, Report
from surgery_cli.reports.examination import Examination, ExaminedPlace
from surgery_cli.reports.exports import Exported, ExportedFile
from surgery_cli.reports.findings import Finding, Subject
from surgery_cli.reports.history import History, HistoryEntry
from surgery_cli.reports.layout import HostReads, ReadLeaf, Resharded
from surgery_cli.reports.rescue import Rescued, SavedRow

__all__ = [
    "SCHEMA_VERSION",
    "Assumed",
    "Change",
    "ChangedLeaf",
    "Checked",
    "CheckedRule",
    "Cleaning",
    "Derivation",
    "Difference",
    "Document",
    "EditLine",
    "Examination",
    "ExaminedPlace",
    "Exported",
    "ExportedFile",
    "Failure",
    "FileList",
    "Finding",
    "Gap",
    "History",
    "HistoryEntry",
    "HostReads",
    "Inspection",
    "InversePlan",
    "Judgement",
    "LeafRow",
    "LeftoverRow",
    "OptimizerState",
    "PairRow",
    "Preview",
    "ReadLeaf",
    "Report",
    "Rescued",
    "Resharded",
    "RuleVerdict",
    "Sampled",
    "SavedRow",
    "Seal",
    "Subject",
    "Verdict",
    "as_builtins",
]
