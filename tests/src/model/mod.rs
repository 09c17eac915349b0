//! A model server on loopback: it answers real agents in the four dialects that they speak, by what the prompt says.
//!
//! A prompt holds its own script, one step a line (see [`Step`]). The server never waits for time to pass: what has an order
//! waits for a gate that the test opens. It binds loopback only, unless it is given what it is to listen on.

mod chat;
mod dialect;
mod gemini;
mod messages;
mod question;
mod responses;
mod route;
mod script;
mod server;
mod shared;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use self::shared::Shared;
pub use self::{question::Question, script::Step};

/// A model server that runs until it is dropped.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    /// Starts one on a free port.
    ///
    /// # Errors
    ///
    /// When loopback cannot be listened on.
    pub fn start() -> io::Result<Self> {
        Self::listening(TcpListener::bind(("127.0.0.1", 0))?)
    }

    /// Starts one that listens there, such as in a network of containers.
    ///
    /// # Errors
    ///
    /// When it cannot be listened there.
    pub fn listening(listener: TcpListener) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || runtime.block_on(server::serve(listener, served)))?;
        Ok(Self {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Returns where it listens, such as `http://127.0.0.1:4000`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Opens a gate; whatever waits at it, now or later, goes on.
    pub fn open(&self, gate: &str) {
        self.shared.gates.send_modify(|open| {
            open.insert(gate.to_owned());
        });
    }

    /// Returns what it was asked so far.
    pub fn asked(&self) -> Vec<Question> {
        let asked = &self.shared.asked;
        asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a question of that kind was asked, and returns it; `None` when none came in time.
    pub fn until_asked(
        &self,
        limit: Duration,
        is_it: impl Fn(&Question) -> bool,
    ) -> Option<Question> {
        let end = Instant::now() + limit;
        let asked = &self.shared.asked;
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = asked.iter().find(|question| is_it(question)) {
                return Some(found.clone());
            }
            let left = end.checked_duration_since(Instant::now())?;
            let woken = self.shared.bell.wait_timeout(asked, left);
            asked = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.ended.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A server that panicked has failed the requests already.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
