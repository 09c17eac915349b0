//! The list of cases: the name of each, the sentence of the contract that it stands for, and what it needs.

use futures_util::future::BoxFuture;

use super::{
    bench::Bench,
    broken::Broken,
    ending, files,
    fixture::{Fixture, Need},
    starting, streams, terminals,
};

/// One case.
pub(super) struct Case {
    /// What it is about.
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) sentence: &'static str,
    pub(super) needs: &'static [Need],
    pub(super) run: for<'a> fn(Bench<'a>) -> BoxFuture<'a, Result<(), Broken>>,
}

macro_rules! cases {
    ($($module:ident::$name:ident $([$($need:ident),*])?: $sentence:literal,)*) => {
        &[$(Case {
            group: stringify!($module),
            name: stringify!($name),
            sentence: $sentence,
            needs: &[$($(Need::$need),*)?],
            run: |bench| Box::pin($module::$name(bench)),
        }),*]
    };
}

/// Runs one case on a fresh instance.
pub(super) async fn judge(case: &Case, fixture: &dyn Fixture) -> Result<(), Broken> {
    let bench = Bench::new(fixture).await?;
    (case.run)(bench).await
}

pub(super) const CASES: &[Case] = cases![
    starting::the_environment_of_the_run_and_what_lies_over_it:
        "`Run` is the snapshot with variables laid over it, `Exact` is exactly these; a later snapshot replaces an earlier one",
    starting::the_same_start_again_gives_the_first_answer: "the same id with the same spec again returns the first answer",
    starting::another_start_under_the_same_id_is_refused: "the same id with another spec is `AlreadyExists`",
    starting::a_missing_program_is_told_and_leaves_nothing: "a missing program is `ProgramNotFound`",
    starting::a_missing_directory_is_told [Files]: "a missing directory is `DirectoryNotFound`",
    starting::a_process_runs_in_its_directory [Files]: "the directory is the process's own",
    starting::what_was_never_started_is_not_found: "a verb on a process that was never started is `NotFound`",
    starting::processes_are_listed_in_the_order_of_their_start: "lists all processes ever started, in the order of their start",
    streams::output_is_replayed_from_any_offset: "a frame that holds the offset is cut there; the output ends behind the exit",
    streams::standard_error_is_kept_apart: "with pipes, standard error is no standard output",
    streams::output_is_bytes: "output is bytes, whatever they are",
    streams::live_output_follows_replay: "replay and live output join without gap or duplicate, for any number of viewers",
    streams::a_later_writer_takes_over: "a later writer takes over from an earlier one",
    streams::a_writer_that_goes_does_not_close_the_input: "dropping the input does not close it, shutting it down does",
    streams::closing_the_input_again_is_success: "closes the standard input; again is success",
    streams::no_input_is_an_input_at_its_end: "`Empty` is at its end from the first read on",
    streams::a_reader_that_does_not_read_blocks_nothing: "a slow or absent reader never blocks the process",
    streams::what_is_no_longer_kept_is_told: "where the wished output is no longer kept, the first frame is `Truncated`",
    ending::any_number_of_callers_get_the_same_end: "any number of callers get the same answer, also later",
    ending::a_signal_ends_with_its_number: "a signal that ends a process is its status",
    ending::a_signal_to_what_has_ended_is_success: "a process that has ended is success",
    ending::a_signal_reaches_what_a_process_started [Trees]: "sends a signal to the process and everything it started",
    ending::the_end_is_the_end_of_the_process_itself [Trees]: "the end is never the end of a pipe that a grandchild holds",
    ending::limits_of_time_end_with_their_cause: "a time limit and an idle limit end a process, each with its cause",
    ending::the_main_process_takes_its_instance_along: "after the instance ended, reading verbs still answer; others are `Unavailable`",
    ending::shutdown_ends_all_within_the_grace: "ends all processes; they end with the cause `Stopped`",
    terminals::a_terminal_has_one_stream_and_a_size [Terminals]: "with a terminal, standard error merges, and its size is what was said",
    terminals::pipes_have_no_size: "`Unsupported` for pipes",
    files::an_archive_comes_back_as_it_was_put: "unpacks a tar archive below a path, and packs it again",
    files::an_archive_replaces_files_and_makes_directories [Files]: "files that exist are replaced; a directory that is missing is made",
    files::what_is_not_there_is_not_packed: "an archive of nothing is `NotFound`",
];
