//! The suites are judged themselves: what is wrong on purpose fails its case and no other.

mod executors;
mod preparers;
mod secrets;
