#![doc = include_str!("../README.md")]

mod bridge;
mod container;
mod engine;
mod executor;
mod image;
mod inside;
mod labels;
mod life;
mod limits;
mod options;
mod place;
mod probe;
mod program;

pub use engine::DEFAULT_ENDPOINT;
pub use executor::{DockerConfig, DockerExecutor};
pub use labels::{ATTEMPT, INSTALL, Labels, RUN, SESSION};
