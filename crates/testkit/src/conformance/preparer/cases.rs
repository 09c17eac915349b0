//! The list of cases for preparers.

use super::{bench::Bench, delivering, making, removing};
use crate::conformance::case::{self, Case};

pub(super) const CASES: &[Case<Bench>] = case::cases![
    making::a_plan_reads_only_and_says_the_same_again: "reads only; the same request gives the same answer while nothing else changes",
    making::what_is_planned_can_be_taken_back_in_order: "each key once; what a resource waits for was planned as well",
    making::what_was_planned_is_made: "what is made was planned, and so armed, before",
    making::each_thing_is_identified: "stores which thing a planned resource turned out to be",
    making::what_was_made_is_listed: "lists what carries this installation's mark",
    making::a_workspace_is_reported_and_opened_again [Files]: "finds the workspace of an earlier run again; makes nothing",
    making::a_workspace_that_is_gone_is_not_opened: "a workspace that is gone is an error that says so",
    making::a_cancelled_preparation_says_so_and_is_taken_back: "what is under way is brought to a state that `undo` understands, then `Cancelled` is returned",
    delivering::a_delivery_takes_nothing_away: "is asked again at each end of an agent; takes nothing away",
    delivering::what_is_gone_delivers_nothing: "is asked after a crash as well, when the resource may be gone",
    delivering::work_arrives_where_it_is_looked_for [Delivery]: "brings the work of a resource to where it is looked for",
    removing::what_was_made_is_taken_away: "takes a resource away",
    removing::what_is_gone_already_is_success: "gone already is `AlreadyGone`",
    removing::what_was_never_made_is_gone_already: "`undo` may run after an `apply` that made nothing",
    removing::what_is_half_made_is_taken_away: "`undo` may run after a half-made `apply`",
    removing::another_process_takes_it_away: "`undo` may run in another process",
    removing::another_identity_is_left_alone: "only what has the recorded identity; else `NotOurs`",
    removing::another_attempt_is_left_alone: "only what carries the attempt's mark; else `NotOurs`",
    removing::an_assessment_reads_only: "says what removing a resource would mean; reads only",
    removing::work_is_kept [Files]: "work that would be lost is `Kept`, also on failure",
    removing::work_is_saved_before_it_goes [Files]: "with `force` the work is saved in a snapshot first; what cannot be saved is `Kept`",
];
