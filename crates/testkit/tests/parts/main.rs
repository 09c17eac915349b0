//! The parts of the kit keep their own promises: what is strict refuses, what goes wrong does, what is looked for is found.

mod faults;
mod instance;
mod locks;
mod oracle;
mod store;
mod support;
mod world;
