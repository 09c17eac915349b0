//! Why a case does not hold.

use groundcrew_core::error::{Chain, Error};

/// Why a case does not hold.
#[derive(Debug)]
pub(crate) struct Broken(pub(super) String);

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(format!(
            "an error that the contract does not know: {}",
            Chain(&error)
        ))
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Self(format!("an error that the contract does not know: {error}"))
    }
}

/// Fails a case with a reason.
macro_rules! broken {
    ($($text:tt)*) => { return Err($crate::conformance::broken::Broken(format!($($text)*))) };
}

/// Fails a case unless something is so.
macro_rules! hold {
    ($so:expr, $($text:tt)*) => { if !$so { $crate::conformance::broken::broken!($($text)*) } };
}

pub(crate) use {broken, hold};
