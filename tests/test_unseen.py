"""What could not be looked at is passed over nowhere: who catches errors of checkpoints lets that through, or knows why
not.
"""

import ast
from pathlib import Path

import surgery_cli

ROOT = Path(surgery_cli.__file__).parent
ROOMS = ("store", "proof", "salvage", "surgery", "examination", "script", "inputs", "library")
CAUGHT = {"CheckpointError", "SurgeryError"}
LET_THROUGH = {"UnseenError", "ServiceFails"}

REASONS = {
    "store/orbax/arrays.py:begin_reading": "whoever reads it says so",
    "store/orbax/unmerged.py:_is_whole": "a text is parsed that was read",
    "salvage/item.py:_leaf": "a name is looked up",
    "store/export/growing_files.py:read": "whoever reads at the end says so",
    "store/locate/runs.py:run_of": "of a step by itself no run is known",
    "store/locate/steps.py:find_steps": "kept as the fault of the step, which is raised when it is opened",
    "store/open/checkpoint.py:unchosen": "kept with its kind: nothing of it is asked for but its leaves, for twins",
    "store/open/checkpoint.py:has_changed": "only another explanation of what failed",
    "store/open/as_opened.py:_is_known_again": "on a disk",
    "store/write/bucket_staging.py:_yield": "what cannot be removed is told by doctor",
    "salvage/opening.py:_of_two": "only another explanation of what failed",
    "salvage/opening.py:_address": "only how a command is written",
    "salvage/glance.py:could_fill": "only whether another step is named in advice",
    "salvage/lost_items.py:_count": "how many leaves a lost item had is left open",
    "salvage/lost_items.py:_steps_beside": "how many leaves a lost item had is left open",
    "surgery/doctor.py:_settings_notes": "it is said in the row",
    "surgery/doctor.py:_read": "on a disk: the row keeps what was known before",
    "surgery/derive.py:_made": "it is said in a remark",
    "surgery/expected_draft.py:_step_of": "only another explanation of what failed",
    "surgery/inspect.py:complete_path": "a shell completes a word",
    "surgery/like_init.py:_without_edits": "no advice",
    "surgery/like_init.py:_mend_all": "it is said",
    "surgery/named_steps.py:_leads_to": "only how a command is written",
    "surgery/optimizers.py:look_at_hidden_twins": "it is said in a consequence",
    "surgery/removal_advice.py:_may_go_whole": "nobody is told to remove it",
    "surgery/apply.py:take_part": "only another explanation of what failed",
    "proof/result.py:open_result": "let through by a look at its kind",
    "script/function.py:read_script": "of the user's code",
    "surgery/source_and_destination.py:_check_source": "only which object it is",
    "examination/places.py:inside": "how many there are is left open",
    "examination/rescue_advice.py:beside": "only whether another step is named in advice",
}
"""By module and function, where nothing wrong is said or done then."""


def names_of(handled):
    return {one.id for one in ast.walk(handled) if isinstance(one, ast.Name)} if handled else set()


def keeps_kind(handler):
    """True if it ends with the same error, or with one that is made of it."""
    last = handler.body[-1]
    if not isinstance(last, ast.Raise):
        return False
    made = last.exc
    is_new = isinstance(made, ast.Call) and names_of(made.func) & {
        "SurgeryError",
        "CheckpointError",
        "WriteError",
        "PlanError",
    }
    return not is_new


def passed_over(module):
    """The functions of a module in which errors of checkpoints are passed over, what was not seen among them."""
    for function in ast.walk(ast.parse(module.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.With):
                for one in (item.context_expr for item in node.items):
                    if (
                        isinstance(one, ast.Call)
                        and "suppress" in ast.unparse(one.func)
                        and names_of(one) & CAUGHT
                    ):
                        yield function.name
            if isinstance(node, ast.Try):
                for handler in node.handlers:
                    if names_of(handler.type) & LET_THROUGH:
                        break
                    if names_of(handler.type) & CAUGHT and not keeps_kind(handler):
                        yield function.name
                        break


def test_what_was_not_seen_is_passed_over_where_there_is_a_reason_alone():
    found = {
        f"{module.relative_to(ROOT)}:{name}"
        for room in ROOMS
        for module in (ROOT / room).rglob("*.py")
        for name in passed_over(module)
    }
    assert found == REASONS.keys()
