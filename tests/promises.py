"""Every promise of the documentation, and what holds it to account: tests by name, commands that try for longer, and
which of what those count would break it."""

from __future__ import annotations

from typing import NamedTuple


class Promise(NamedTuple):
    """A sentence; the tests that fail where it is broken; the command that tries for longer, of whose counts the page
    has those in ``breaks``, names of columns of its table: each must be 0."""

    text: str
    tests: tuple[str, ...] = ()
    command: str = ""
    breaks: tuple[str, ...] = ()
    of: str = ""
    """How the names of those rows begin that count; every row of the command by default."""


FAULTS = "python -m tests.faults --hours 1 --sections {}"
STRUCK = "test_what_strikes_a_run_leaves_the_old_or_the_new_one_and_what_is_said_is_true"

PROMISES: dict[str, tuple[Promise, ...]] = {
    "README.md": (
        Promise(
            "Every mistake that metadata can show is said before any work, all of them at once.",
            (
                "test_all_problems_come_at_once_and_as_json_on_standard_output",
                "test_everything_that_is_wrong_is_said_at_once_by_its_name",
            ),
        ),
        Promise(
            "Nothing warns and carries on: what changes what happens is said with `--quiet`, too.",
            ("test_quiet_still_says_what_changes_what_happens",),
        ),
        Promise(
            "Every layout of every release that is named opens with exactly its true values, and Orbax restores what"
            " was edited.",
            (
                "test_every_checkpoint_opens_with_exactly_its_true_values",
                "test_an_edit_of_one_leaf_leaves_every_other_one_exact",
                "test_orbax_restores_the_edited_checkpoints_of_its_older_releases",
                "test_every_operation_of_the_table_is_judged",
            ),
        ),
        Promise(
            "Nothing is ever unpickled.",
            (
                "test_objects_are_refused_and_never_unpickled",
                "test_a_pickle_called_npy_is_refused_and_never_unpickled",
            ),
        ),
        Promise(
            "The tutorial, the recipes and the batch jobs print and do what they show.",
            (
                "test_the_tutorial_prints_what_it_shows",
                "test_every_recipe_of_the_page_is_held_by_a_test_and_short",
                "test_the_commands_of_a_page_run_in_their_order",
            ),
        ),
    ),
    "how-it-writes.md": (
        Promise(
            "A destination appears whole or not at all; with `--force` the old one or the new one stands.",
            (
                STRUCK,
                "test_where_names_cannot_be_exchanged_whatever_fails_while_one_is_given_is_told",
            ),
            FAULTS.format("calls,signals,power"),
            ("torn", "hang"),
        ),
        Promise(
            "A source is never written to, and outlives its results.",
            (
                "test_the_source_survives_writes_into_the_destination",
                "test_generations_of_edits_leave_all_their_ancestors_alone",
            ),
            FAULTS.format("calls,signals,meanwhile"),
            ("source",),
        ),
        Promise("A result outlives its source.", ("test_the_destination_outlives_the_source",)),
        Promise(
            "After exit code 0 the result outlasts a power cut.",
            (STRUCK,),
            FAULTS.format("power"),
            ("torn",),
        ),
        Promise(
            'What a run says that it left is what it left; "nothing was left behind" is true.',
            (STRUCK, "test_an_error_says_what_could_not_be_removed"),
            FAULTS.format("calls,signals"),
            ("sentence",),
        ),
        Promise(
            "What a killed run left, `surgery clean` removes, and never what a living one is writing.",
            (
                "test_a_staging_place_tells_whose_it_was_until_it_is_gone",
                "test_a_living_runs_staging_is_never_removed",
            ),
            FAULTS.format("calls"),
            ("other",),
        ),
        Promise(
            "With `--resume` the same command goes on from there, and nobody can tell from the result.",
            (
                "test_whatever_moment_strikes_the_same_command_goes_on",
                "test_what_was_killed_goes_on_and_nobody_can_tell",
            ),
            FAULTS.format("calls,signals") + " --rows resume,resume-leaves",
        ),
        Promise(
            "Of what was kept, a block that is damaged is made anew; another draft is refused, naming what is new.",
            (
                "test_a_damaged_block_is_made_anew",
                "test_what_is_of_another_draft_or_version_or_setting_is_refused_by_name",
                "test_what_was_rewritten_is_named_all_of_it_and_nothing_else",
            ),
        ),
        Promise(
            "A source that goes, or a second run to the same place, makes no torn result.",
            (
                "test_what_vanishes_is_said_to_be_gone_whenever_it_goes",
                "test_of_two_runs_on_one_destination_one_wins_and_the_other_is_told",
            ),
            FAULTS.format("meanwhile"),
            ("torn", "hang"),
        ),
        Promise(
            "So it is wherever a run reads and writes: a device that fills, another device, one without hard links or"
            " reflinks, read-only, another user's. What this machine cannot mount is named and skipped.",
            ("test_wherever_a_run_reads_and_writes_it_is_done_or_refused_as_that_place_asks_for",),
            FAULTS.format("filesystems"),
            ("torn", "source", "other"),
        ),
        Promise(
            "Nothing is overwritten unless that is asked for.",
            ("test_what_stands_there_is_not_overwritten_unless_that_is_asked_for",),
        ),
        Promise(
            "Leaves that are untouched are not written again.",
            (
                "test_one_edited_leaf_adds_its_own_bytes_and_links_the_rest",
                "test_a_rename_writes_no_tensor_bytes",
            ),
        ),
        Promise("`--link never` shares nothing.", ("test_linking_never_shares_nothing",)),
        Promise(
            "A result has the modes of its source, and nobody else gets into the place where it is built.",
            (
                "test_files_and_directories_of_a_result_have_the_modes_of_the_source",
                "test_nobody_else_gets_into_the_place_in_which_a_result_is_built",
            ),
        ),
        Promise(
            "`--memory` bounds what is in flight; the preview names the leaf that takes more.",
            (
                "test_the_peak_is_within_what_was_said",
                "test_what_only_looks_takes_no_more_than_it_may",
            ),
        ),
        Promise(
            "In a bucket metadata come after all data, and the mark last; with `--force` the old one stands until the"
            " new one does.",
            (
                "test_metadata_come_after_all_data_and_the_mark_last",
                "test_with_force_the_old_one_stands_until_the_new_one_does",
            ),
        ),
        Promise(
            "A record is a plan that does the same to a later step.",
            ("test_a_record_does_to_a_later_step_what_its_run_did",),
        ),
    ),
    "what-a-green-light-means.md": (
        Promise(
            "`verified`: a result that does not read back as it was computed never gets its name.",
            (
                "test_a_result_that_does_not_read_back_never_gets_its_name",
                "test_what_is_another_thing_by_the_end_is_found",
            ),
        ),
        Promise(
            "What an edit reads is held against digests on record; a leaf that differs ends the run.",
            (
                "test_sources_on_record_are_held_against_it_whoever_read_them",
                "test_a_damaged_leaf_that_is_read_refuses_the_run_by_name",
            ),
        ),
        Promise(
            "A file that changed since the seal is not copied into a result.",
            ("test_a_file_that_changed_since_the_seal_is_not_copied_into_a_result",),
        ),
        Promise(
            "A source that changes underneath stops the run.",
            ("test_a_source_that_changes_underneath_stops_the_run",),
        ),
        Promise(
            "After a seal no bit flips, and no file goes or comes, unseen.",
            (
                "test_after_a_seal_no_flip_in_any_file_passes",
                "test_after_a_seal_no_file_goes_or_comes_unseen",
            ),
            FAULTS.format("flips"),
            ("flip",),
            "sealed",
        ),
        Promise(
            "Without one, metadata that Orbax refuses or takes for another is a finding.",
            ("test_without_digests_metadata_that_orbax_refuses_or_takes_for_another_is_a_finding",),
            FAULTS.format("flips"),
            ("flip",),
            "open",
        ),
        Promise(
            "All turns of a sample together read each byte once, and find each damage in one turn.",
            (
                "test_turns_read_each_part_once_and_as_many_bytes_each",
                "test_each_damage_is_found_in_one_turn_and_the_findings_say_where",
            ),
        ),
        Promise(
            "`sha256sum` writes the list that `seal --sha256sums` writes.",
            ("test_sha256sum_writes_the_same_list_and_finds_every_change",),
        ),
        Promise(
            "A record that was changed is refused.", ("test_a_record_that_was_changed_is_refused",)
        ),
        Promise(
            "`--like-init` agrees where Orbax's restore does, and finds what it raises or does in silence.",
            (
                "test_where_the_check_agrees_orbax_gives_the_saved_values_in_the_form_asked_for",
                "test_where_the_check_finds_something_orbax_raises_or_silently_does_what_it_says",
            ),
        ),
        Promise(
            "Slots follow their params as in training.",
            (
                "test_the_powers_of_a_state_are_those_that_it_shows",
                "test_what_training_would_not_have_made_is_said",
            ),
            "make oracle",
        ),
    ),
    "rescue.md": (
        Promise(
            "What is whole comes back, nothing has a wrong value, and every loss is named.",
            (
                "test_what_is_whole_comes_back_and_nothing_has_a_wrong_value",
                "test_what_is_whole_is_rescued_and_the_rest_is_named",
            ),
            "make rescues",
            ("lost though whole", "wrong values"),
        ),
        Promise(
            "Of a save that was killed nothing is lost that is there.",
            ("test_of_a_save_that_was_killed_nothing_is_lost_that_is_there",),
            "make rescues",
            ("lost though whole", "wrong values"),
            of="killed",
        ),
        Promise(
            "A flipped bit is no proof, and with a digest on record a loss.",
            ("test_a_flipped_bit_is_no_proof_and_with_a_digest_on_record_a_loss",),
        ),
        Promise(
            "Of a file whose bytes were lost, doubled or put in, a leaf is whole only on a condition that is named.",
            (
                "test_of_npz_every_name_is_recovered_or_named_lost",
                "test_of_safetensors_of_another_size_nothing_is_whole_on_no_condition",
                "test_of_msgpack_that_was_displaced_nothing_wrong_is_whole_on_no_condition",
            ),
        ),
        Promise(
            "What a rescue writes of a save with a damaged side file has no finding.",
            ("test_what_comes_of_a_flipped_character_has_no_finding",),
        ),
        Promise(
            "A chunk that is missing is never read as zeros.",
            (
                "test_a_chunk_that_is_missing_is_no_zeros",
                "test_a_chunk_that_is_gone_from_an_old_checkpoint_is_named_not_read_as_zeros",
            ),
        ),
        Promise(
            "Whatever command refuses what is broken says what a rescue would find.",
            ("test_whatever_command_refuses_what_is_broken_points_to_rescue",),
        ),
    ),
    "doctor.md": (
        Promise(
            "What is called whole, Orbax restores: as far as metadata tell, or by `--read-data` as chunks decode.",
            (
                "test_what_is_called_whole_orbax_restores_and_of_the_rest_it_is_said_what_is_left",
                "test_what_metadata_cannot_show_is_said_and_found_where_data_is_read",
            ),
        ),
        Promise(
            "Nothing is removed.",
            ("test_leftovers_are_told_by_whose_they_are_and_none_is_removed",),
        ),
    ),
    "fuzzing.md": (
        Promise(
            "No input is a bug, takes over 2 GiB or 20 seconds, or is read otherwise than others read it.",
            ("test_what_nobody_writes_is_refused_or_read_as_others_read_it",),
            "make fuzz N=1000000",
            ("bug", "crash", "memory", "time", "differs", "refused by us alone"),
        ),
    ),
    "limits.md": (
        Promise(
            "What files declare is bounded before memory is asked for.",
            (
                "test_every_format_holds_its_tree_against_the_table",
                "test_whatever_a_damaged_file_declares_is_refused_or_lost",
            ),
        ),
        Promise(
            "No pattern takes long: a regular expression is ended.",
            ("test_no_glob_takes_long", "test_a_regular_expression_that_tries_every_way_is_ended"),
        ),
    ),
    "costs.md": (
        Promise(
            "Cost follows the edit: what is not edited is neither read nor written (seconds: the table of that page).",
            (
                "test_one_edited_leaf_adds_its_own_bytes_and_links_the_rest",
                "test_a_rename_writes_no_tensor_bytes",
                "test_copies_and_swaps_write_no_tensor_bytes",
                "test_what_must_be_reached_is_said_of_the_rows_that_were_measured",
            ),
            "make bench",
        ),
    ),
    "undoing.md": (
        Promise(
            "The inverse of a run gives back what it was made of, bit for bit, optimizer state included.",
            (
                "test_the_inverse_gives_back_the_original_bit_for_bit",
                "test_any_two_edits_are_undone",
                "test_three_edits_are_undone",
            ),
        ),
        Promise(
            "It is refused over a source that has changed since.",
            ("test_a_plan_that_was_kept_is_refused_over_a_source_that_has_changed_since",),
        ),
    ),
    "many-hosts.md": (
        Promise(
            "The result of many processes is that of one.",
            (
                "test_the_result_is_that_of_one_process",
                "test_every_kind_of_work",
                "test_every_layout",
            ),
        ),
        Promise(
            "Whatever ends one process ends all, and leaves nothing that is taken for whole.",
            (
                "test_every_process_dies_at_random_points",
                "test_a_process_that_dies_leaves_nothing_that_is_taken_for_whole",
            ),
        ),
    ),
    "buckets.md": (
        Promise(
            "Of every preview, requests and bytes are what is asked for then.",
            ("test_requests_are_as_the_preview_says", "test_requests_of_other_ways_to_write"),
        ),
        Promise(
            "What a service fails at for a while changes no result; what stays refused leaves nothing behind.",
            ("test_faults_change_no_result", "test_what_fails_leaves_nothing"),
        ),
    ),
    "layout.md": (
        Promise(
            "Values in another layout are the same, bit for bit, and Orbax restores them on the mesh asked for.",
            (
                "test_it_is_the_same_bit_for_bit_within_the_memory",
                "test_orbax_restores_every_layout_on_the_mesh_that_was_asked_for",
            ),
        ),
    ),
    "deriving-plans.md": (
        Promise(
            "The plan makes of one tree the other, value by value; no pair that is called sure is wrong.",
            (
                "test_the_plan_makes_of_one_model_the_other_value_by_value",
                "test_no_pair_that_is_called_sure_is_wrong_where_values_tell",
                "test_no_pair_that_is_called_sure_is_wrong_where_there_are_no_values",
            ),
        ),
    ),
    "conversions.md": (
        Promise(
            "Logits are those of `transformers`, and the weights come back, bit for bit.",
            (
                "test_logits_are_those_of_transformers_and_weights_come_back",
                "test_there_and_back_is_where_it_was_bit_for_bit",
            ),
        ),
    ),
    "export.md": (
        Promise(
            "The format's own reader restores what was exported: Flax, NumPy, safetensors, T5X, PEFT.",
            (
                "test_flax_restores_the_state_that_orbax_has_saved",
                "test_numpy_loads_every_leaf_by_its_path",
                "test_every_dtype_comes_out_as_it_was",
                "test_t5x_loads_a_train_state_that_orbax_saved",
                "test_an_adapter_says_what_peft_itself_says",
            ),
        ),
    ),
    "checks.md": (
        Promise(
            "A policy that checks nothing is never green; all that breaks one is said at once.",
            (
                "test_a_policy_that_checks_nothing_is_never_green",
                "test_all_that_breaks_a_policy_is_said_at_once",
            ),
        ),
    ),
    "pages.md": (
        Promise(
            "A page asks no network for anything, and names of strangers do nothing in it.",
            (
                "test_a_page_holds_the_document_of_json_and_asks_no_network",
                "test_names_of_strangers_are_shown_and_do_nothing",
                "test_names_of_strangers_are_text_and_nothing_else",
            ),
        ),
    ),
}
"""By the page that makes them."""
