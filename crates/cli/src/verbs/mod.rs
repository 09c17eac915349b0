//! One module for each group of verbs: call the launcher, print its answer, pick an exit code.

pub(crate) mod attach;
pub(crate) mod closing;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod gc;
pub(crate) mod going_on;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod places;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod prompting;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod stop;
pub(crate) mod talking;
pub(crate) mod trash;
