//! The same in a container: its program, its configuration and the way to its model are given to it, and it gives itself no sandbox.

use super::{jobs, place::Place};

#[test]
fn needs_agents_needs_docker_codex_in_a_container_writes_and_commits_a_file_on_the_branch_and_nothing_is_left_running()
 {
    jobs::writes_and_commits(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_codex_in_a_container_asks_and_another_process_approves_or_declines() {
    jobs::is_approved_or_declined(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_codex_in_a_container_is_interrupted_by_another_process_and_by_a_signal()
 {
    jobs::is_interrupted(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_a_turn_of_codex_in_a_container_that_fails_is_told_and_the_next_one_goes_on()
 {
    jobs::fails_and_goes_on(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_codex_in_a_container_goes_on_with_its_conversation_in_a_new_process() {
    jobs::goes_on_in_a_new_process(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_a_start_of_codex_in_a_container_that_fails_leaves_the_conversation_as_it_was()
 {
    jobs::fails_to_start(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_codex_in_a_container_goes_on_though_its_controller_is_killed_in_the_middle_of_a_turn()
 {
    jobs::outlives_its_controllers(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_stop_leaves_nothing_of_codex_in_a_container_not_even_what_left_its_session()
 {
    jobs::is_stopped(&Place::in_a_container());
}

#[test]
fn needs_agents_needs_docker_starts_and_stops_that_race_leave_no_process_of_codex_in_a_container() {
    // A round takes two seconds here.
    jobs::starts_and_stops_at_once(&Place::in_a_container(), 10);
}
