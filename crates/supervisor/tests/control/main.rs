//! The control server and its client, with real supervisors.

mod http;
mod life;
mod links;
mod place;
