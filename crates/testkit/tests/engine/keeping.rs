//! x
use groundcrew_core::CloseOptions;
pub(crate) const REMOVE: CloseOptions = CloseOptions {
    remove: true,
    force: false,
};
