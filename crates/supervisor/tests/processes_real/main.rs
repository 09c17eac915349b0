//! Real processes: started, recorded and ended for real, each test in a process of its own.
#![expect(
    clippy::future_not_send,
    reason = "the supervisor has one thread, and so has each test"
)]

/// Makes a test of each function, alone in a process; in a namespace of its own where it says so.
macro_rules! alone {
    (mounts: $($tests:tt)*) => { alone! { @ Mounts $($tests)* } };
    (pids: $($tests:tt)*) => { alone! { @ Pids $($tests)* } };
    (@ $own:ident $(async fn $name:ident() $body:block)*) => {$(
        #[test]
        fn $name() {
            let name = concat!(module_path!(), "::", stringify!($name));
            $crate::support::alone(name, $crate::support::Own::$own, async || $body);
        }
    )*};
    ($($tests:tt)*) => { alone! { @ Process $($tests)* } };
}

#[cfg(test)]
mod archive;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod log;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod spawn;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod stubborn;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod victim;
