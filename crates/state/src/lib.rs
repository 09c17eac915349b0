#![doc = include_str!("../README.md")]

mod birth;
mod database;
mod directory;
mod fault;
mod files;
mod lock;
mod mark;
mod meta;
mod read;
mod rows;
mod schema;
mod seal;
mod store;
mod write;

pub use directory::{StateDirectory, check_home};
pub use lock::{FlockDirectory, try_lock_file};
pub use store::SqliteStore;
