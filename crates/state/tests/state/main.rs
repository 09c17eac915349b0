//! What the state directory promises, shown from outside.

mod contract;
mod damage;
mod disk;
mod home;
mod locks;
mod processes;
mod support;
