//! The way to the scripted agent.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{Frame, FrameKind, Offset},
};
use groundcrew_session::{
    launch::LaunchDescription,
    transport::{Connection, Transport},
};
use tokio::sync::Mutex;

use crate::{peer, process::FakeProcess, world::World};

#[derive(Debug)]
pub(crate) struct FakeTransport(pub(crate) Arc<World>);

#[async_trait]
impl Transport for FakeTransport {
    async fn start(&self, launch: &LaunchDescription) -> Result<Arc<dyn Connection>, Error> {
        let held = self.0.state().hold_starts.clone();
        if let Some(mut held) = held {
            held.wait_for(|go| *go).await.unwrap();
        }
        self.0.ground.pause().await;
        let process = {
            let mut state = self.0.state();
            if state.fail_starts > 0 {
                state.fail_starts -= 1;
                return Err(Error::new(ErrorKind::ProgramNotFound, "no such program"));
            }
            let script = state.scripts.pop_front().unwrap_or_default();
            state.launches.push(launch.clone());
            let (id, index) = (launch.process.clone(), state.processes.len());
            let process =
                FakeProcess::new(id, index, Arc::clone(&self.0.ground), peer::hear, script);
            state.processes.push(Arc::clone(&process));
            let live = state
                .processes
                .iter()
                .filter(|process| !process.state().closed);
            let live = live.count();
            state.most_live = state.most_live.max(live);
            process
        };
        Ok(FakeConnection::open(process, Offset(0)))
    }

    async fn attach(
        &self,
        process: &ProcessId,
        from: Offset,
    ) -> Result<Arc<dyn Connection>, Error> {
        let process = self.0.named(process).ok_or_else(unknown)?;
        Ok(FakeConnection::open(process, from))
    }

    async fn end(&self, process: &ProcessId) -> Result<(), Error> {
        self.0.state().names_ended.push(process.clone());
        self.0.named(process).ok_or_else(unknown)?.close()
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::NotFound, "no such process")
}

#[derive(Debug)]
struct FakeConnection {
    process: Arc<FakeProcess>,
    from: Offset,
    writer: u64,
    at: Mutex<usize>,
}

impl FakeConnection {
    fn open(process: Arc<FakeProcess>, from: Offset) -> Arc<dyn Connection> {
        let writer = {
            let mut state = process.state();
            state.writer += 1;
            state.writer
        };
        Arc::new(Self {
            process,
            from,
            writer,
            at: Mutex::new(0),
        })
    }
}

#[async_trait]
impl Connection for FakeConnection {
    fn process(&self) -> &ProcessId {
        &self.process.id
    }

    async fn receive(&self) -> Result<Option<Frame>, Error> {
        self.process.ground.pause().await;
        let mut changes = self.process.changes();
        let mut at = self.at.lock().await;
        loop {
            changes.borrow_and_update();
            if *at == usize::MAX {
                return Ok(None);
            }
            if let Some(frame) = self.process.frame(&mut at, self.from) {
                if matches!(frame.kind, FrameKind::Exit(_)) {
                    *at = usize::MAX;
                }
                return Ok(Some(frame));
            }
            changes.changed().await.unwrap();
        }
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Error> {
        self.process.ground.pause().await;
        self.process.read(self.writer, &bytes)
    }

    async fn close(&self) -> Result<(), Error> {
        self.process.ground.pause().await;
        tokio::task::yield_now().await;
        self.process.close()
    }
}
