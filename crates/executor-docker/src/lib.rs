#![doc = include_str!("../README.md")]

mod away;
mod bridge;
mod container;
mod engine;
mod executor;
mod home;
mod image;
mod inside;
mod labels;
mod life;
mod limits;
mod options;
mod owner;
mod place;
mod ports;
mod probe;
mod program;
mod tree;
mod volumes;

pub use engine::DEFAULT_ENDPOINT;
pub use executor::{DockerConfig, DockerExecutor};
pub use labels::{ATTEMPT, INSTALL, Labels, RUN, SESSION};
