//! The list of cases for executors: the name of each, the sentence of the contract that it stands for, and what it needs.

use super::{bench::Bench, faults, finding, making, removing, rolling_back, surroundings};
use crate::conformance::{case, cases as instance_cases, fixture::Need};

/// A case of the executor itself.
pub(super) type Case = case::Case<Bench>;

/// A case of this suite: of the executor, or of the instances that it makes.
#[derive(Clone, Copy)]
pub(super) enum AnyCase {
    Executor(&'static Case),
    Instance(&'static instance_cases::Case),
}

impl AnyCase {
    pub(super) fn name(self) -> String {
        let (group, name) = match self {
            Self::Executor(case) => (case.group, case.name),
            Self::Instance(case) => (case.group, case.name),
        };
        format!("{group}::{name}")
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Executor(case) => case.sentence,
            Self::Instance(case) => case.sentence,
        }
    }

    pub(super) fn needs(self) -> &'static [Need] {
        match self {
            Self::Executor(case) => case.needs,
            Self::Instance(case) => case.needs,
        }
    }
}

/// Returns every case.
pub(super) fn all() -> impl Iterator<Item = AnyCase> {
    let own = CASES.iter().map(AnyCase::Executor);
    own.chain(instance_cases::CASES.iter().map(AnyCase::Instance))
}

/// Returns whether a case starts other processes of its program.
pub(super) fn needs_processes(name: &str) -> bool {
    all().any(|case| case.name() == name && case.needs().contains(&Need::Detached))
}

const CASES: &[Case] = case::cases![
    making::an_executor_is_always_the_same: "its name and what it can do do not change",
    making::a_probe_answers_and_makes_nothing: "finds out whether it can be used now",
    making::an_unknown_option_is_refused_by_name: "refuses unknown options by name",
    making::what_a_check_refuses_is_not_made: "what `check` refuses, `create` refuses as well, and makes nothing",
    making::limits_that_it_cannot_hold_are_refused: "refuses limits that it cannot hold an instance to",
    making::limits_hold [Limits]: "an instance is held to its limits",
    making::what_was_made_is_what_is_there: "`create` returns the identity of what it made",
    making::a_new_instance_runs_nothing: "its supervisor is up, no process is started",
    making::a_taken_id_is_refused_and_what_has_it_is_left_alone: "an id that is taken is `AlreadyExists`, and what has it is left alone",
    making::two_instances_are_two: "instances share neither variables nor processes",
    making::secrets_are_returned_only_by_those_that_say_so: "tokens are returned only if the capability says so",
    making::private_directories_are_of_one_instance_each: "the directory for private files is absolute, outside of the workspace, and the instance's own",
    surroundings::nothing_of_the_controller_is_inherited: "variables are those that were handed over, and no others of the host",
    surroundings::an_exact_environment_is_exact: "`Exact` is exactly these variables",
    surroundings::values_arrive_byte_for_byte: "values are bytes, and arrive as they were given",
    surroundings::arguments_arrive_byte_for_byte: "arguments are never joined, split or interpreted",
    surroundings::long_values_arrive: "a value of 100 KiB arrives",
    surroundings::the_workspace_is_the_one_of_the_host [HostPaths, Files]: "what is written in the workspace is on the host, at the same path",
    surroundings::private_files_are_read_inside [Files]: "what is put into the private directory is there, and goes with the instance",
    finding::a_list_holds_what_is_there: "lists the instances of this installation",
    finding::another_executor_finds_the_same: "what one executor made, another of the same installation lists and reaches",
    finding::what_never_was_is_not_found: "one that never was is `NotFound`, and absent",
    finding::two_connections_see_one_instance: "a start through one connection is known to the other",
    finding::an_instance_that_has_ended_is_still_there: "an instance whose main process ended exists until it is deleted, and is reached",
    finding::an_instance_that_is_ending_is_reached: "an instance is reached at any moment, also while it ends",
    finding::installations_leave_each_other_alone: "an executor touches only instances of its own installation",
    finding::a_controller_that_is_killed_is_taken_over_from [Detached]: "instances outlive the controller; another one reads all and goes on writing",
    finding::a_lapsed_lease_ends_what_runs [Detached, Trees]: "without a controller, an instance lives as long as its lease",
    removing::a_deleted_instance_is_gone: "removes an instance, running or not",
    removing::what_is_gone_already_is_success: "none there is success: `AlreadyGone`",
    removing::another_identity_is_left_alone: "one of that name with another identity is left alone: `NotOurs`",
    removing::namesakes_are_left_alone: "only the instance of exactly that id is removed",
    removing::everything_that_runs_goes_with_it [Trees]: "with everything that runs in it, wherever it went, whatever it ignores",
    removing::an_instance_that_has_ended_is_deleted: "an instance that has ended is removed as well",
    removing::two_deletions_at_once_succeed: "each verb may be called again, also while it is under way",
    removing::logs_are_kept: "logs of its processes are kept for a while, and are read",
    removing::an_id_is_free_or_taken_but_never_half: "after a deletion nothing of the old instance is seen under its id",
    rolling_back::a_creation_that_is_broken_off_is_taken_back: "a failure may leave a part behind, which `delete` takes away",
    rolling_back::a_creation_whose_controller_is_killed_is_taken_back [Detached]: "each verb may be undone without its answer",
    rolling_back::many_at_once_are_made_and_taken_back: "instances that are made at once do not disturb each other",
    rolling_back::a_deletion_that_is_broken_off_is_done_again: "a deletion that was broken off is completed by the next",
    faults::a_launch_comes_up_and_is_closed: "a launch on this executor comes up, and closing it leaves nothing",
    faults::an_error_at_every_step_leaves_nothing: "a launch that fails at any step leaves nothing",
    faults::a_panic_at_every_step_leaves_nothing: "a launch that panics at any step leaves nothing",
    faults::a_cancellation_at_every_step_leaves_nothing: "a launch that is cancelled at any step leaves nothing",
    faults::a_hang_at_every_step_leaves_nothing: "a launch that hangs at any step, and is cancelled, leaves nothing",
    faults::an_answer_that_is_lost_leaves_nothing: "a verb that did its work and whose answer is lost leaves nothing",
    faults::a_verb_that_fails_for_a_while_leaves_nothing: "a deletion that fails for a while is tried again until it is done",
    faults::a_controller_killed_at_every_step_leaves_nothing [Detached]: "what a killed controller leaves is taken away by the next",
];
