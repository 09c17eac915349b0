//! The agent: ACP's own crate at the other end, with what it can do and what it does next in the test's hands.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
};

use agent_client_protocol::{
    Agent, ByteStreams, Error,
    v1::{
        ConnectionTo,
        schema::{
            AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodId, AuthenticateRequest,
            AuthenticateResponse, CancelNotification, CloseSessionRequest, CloseSessionResponse,
            ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, LoadSessionRequest,
            LoadSessionResponse, NewSessionRequest, NewSessionResponse, PermissionOption,
            PermissionOptionKind, PromptRequest, PromptResponse, RequestPermissionOutcome,
            RequestPermissionRequest, ResumeSessionRequest, ResumeSessionResponse,
            SessionCapabilities, SessionCloseCapabilities, SessionId, SessionNotification,
            SessionResumeCapabilities, SessionUpdate, StopReason, TextContent, ToolCallUpdate,
            ToolCallUpdateFields, ToolKind,
        },
    },
};
use tokio::{
    io::DuplexStream,
    sync::{Notify, mpsc},
};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

/// What the agent does next in a turn.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// It says something.
    Say(&'static str),
    /// It asks whether it may run a command.
    Ask,
    /// It asks the same, and goes on without the answer.
    AskAside,
    /// The turn ends.
    End,
    /// The turn fails.
    Fail,
}

/// What all processes of the agent share, and what the next one can do.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that an agent advertises"
)]
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What was heard, by its method, in order.
    pub(crate) heard: Vec<String>,
    /// What came of permissions, in order.
    pub(crate) permissions: Vec<String>,
    /// Conversations that it finds again.
    pub(crate) conversations: BTreeSet<String>,
    pub(crate) resumes: bool,
    pub(crate) loads: bool,
    pub(crate) closes: bool,
    /// Whether it wants a login first.
    pub(crate) locked: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    known: Mutex<Known>,
    steps: tokio::sync::Mutex<mpsc::UnboundedReceiver<Step>>,
    next: mpsc::UnboundedSender<Step>,
    cancelled: Notify,
    answered: Notify,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        let (next, steps) = mpsc::unbounded_channel();
        Arc::new(Self {
            known: Mutex::default(),
            steps: tokio::sync::Mutex::new(steps),
            next,
            cancelled: Notify::new(),
            answered: Notify::new(),
        })
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    /// Has the agent take one more step.
    pub(crate) fn step(&self, step: Step) {
        self.next.send(step).unwrap();
    }

    pub(crate) fn heard(&self, method: &str) -> usize {
        let known = self.known();
        known.heard.iter().filter(|heard| *heard == method).count()
    }

    /// Waits until one of its questions was answered.
    pub(crate) async fn answered(&self) {
        let limit = std::time::Duration::from_mins(1);
        tokio::time::timeout(limit, self.answered.notified())
            .await
            .unwrap();
    }

    fn note(&self, method: &str) {
        self.known().heard.push(method.to_owned());
    }

    /// Opens a conversation, unless a login is missing.
    fn open(&self, method: &str) -> Result<(), Error> {
        self.note(method);
        if self.known().locked {
            return Err(Error::auth_required());
        }
        Ok(())
    }

    fn find(&self, method: &str, id: &SessionId) -> Result<(), Error> {
        self.open(method)?;
        if self.known().conversations.contains(&*id.0) {
            Ok(())
        } else {
            Err(Error::new(-32002, "Resource not found"))
        }
    }

    fn capabilities(&self) -> AgentCapabilities {
        let known = self.known();
        let mut sessions = SessionCapabilities::new();
        if known.resumes {
            sessions = sessions.resume(SessionResumeCapabilities::new());
        }
        if known.closes {
            sessions = sessions.close(SessionCloseCapabilities::new());
        }
        AgentCapabilities::new()
            .load_session(known.loads)
            .session_capabilities(sessions)
    }

    async fn ask(
        self: Arc<Self>,
        session: SessionId,
        agent: ConnectionTo<agent_client_protocol::Client>,
    ) -> Result<(), Error> {
        let fields = ToolCallUpdateFields::new()
            .kind(ToolKind::Execute)
            .title("touch it".to_owned());
        let call = ToolCallUpdate::new("t1", fields);
        let options = vec![
            PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce),
            PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce),
        ];
        let request = RequestPermissionRequest::new(session, call, options);
        let answer = agent.send_request(request).block_task().await?;
        let came = match answer.outcome {
            RequestPermissionOutcome::Selected(chosen) => chosen.option_id.to_string(),
            _ => "cancelled".to_owned(),
        };
        self.known().permissions.push(came);
        self.answered.notify_one();
        Ok(())
    }

    /// Takes steps until the turn ends.
    async fn turn(
        self: &Arc<Self>,
        session: SessionId,
        agent: ConnectionTo<agent_client_protocol::Client>,
    ) -> Result<PromptResponse, Error> {
        let mut steps = self.steps.lock().await;
        loop {
            let step = tokio::select! {
                () = self.cancelled.notified() => {
                    return Ok(PromptResponse::new(StopReason::Cancelled));
                }
                step = steps.recv() => step.unwrap_or(Step::End),
            };
            match step {
                Step::Say(text) => {
                    let text = ContentBlock::Text(TextContent::new(text));
                    let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(text));
                    agent.send_notification(SessionNotification::new(session.clone(), update))?;
                }
                Step::Ask => {
                    let me = Arc::clone(self);
                    me.ask(session.clone(), agent.clone()).await?;
                }
                Step::AskAside => {
                    let me = Arc::clone(self);
                    agent.spawn(me.ask(session.clone(), agent.clone()))?;
                }
                Step::End => return Ok(PromptResponse::new(StopReason::EndTurn)),
                Step::Fail => return Err(Error::internal_error()),
            }
        }
    }
}

/// Plays the agent on two streams until its input ends.
pub(crate) async fn play(world: Arc<World>, output: DuplexStream, input: DuplexStream) {
    let of = || Arc::clone(&world);
    let (greets, logs_in, opens, resumes, loads) = (of(), of(), of(), of(), of());
    let (prompts, cancels, closes) = (of(), of(), of());
    let played = Agent
        .v1()
        .name("scripted")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _cx| {
                greets.note("initialize");
                let id = AuthMethodId::new("key");
                let login = AuthMethod::Agent(AuthMethodAgent::new(id, "A key"));
                responder.respond(
                    InitializeResponse::new(request.protocol_version)
                        .agent_capabilities(greets.capabilities())
                        .auth_methods(vec![login]),
                )
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: AuthenticateRequest, responder, _cx| {
                logs_in.note("authenticate");
                logs_in.known().locked = false;
                responder.respond(AuthenticateResponse::new())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _cx| {
                let servers = request.mcp_servers.len();
                let opened = opens.open("session/new").map(|()| {
                    let mut known = opens.known();
                    known.heard.push(format!("{servers} servers"));
                    let id = format!("acp-{}", known.conversations.len() + 1);
                    known.conversations.insert(id.clone());
                    NewSessionResponse::new(id)
                });
                responder.respond_with_result(opened)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, _cx| {
                let found = resumes.find("session/resume", &request.session_id);
                responder.respond_with_result(found.map(|()| ResumeSessionResponse::new()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, cx| {
                let found = loads.find("session/load", &request.session_id);
                // All of the past is told again before the answer.
                let text = ContentBlock::Text(TextContent::new("the past"));
                let update = SessionUpdate::AgentMessageChunk(ContentChunk::new(text));
                let id = request.session_id;
                cx.send_notification(SessionNotification::new(id, update))?;
                responder.respond_with_result(found.map(|()| LoadSessionResponse::new()))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, cx| {
                prompts.note("session/prompt");
                let (world, agent) = (Arc::clone(&prompts), cx.clone());
                cx.spawn(async move {
                    let ended = world.turn(request.session_id, agent).await;
                    responder.respond_with_result(ended)
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |_: CloseSessionRequest, responder, _cx| {
                closes.note("session/close");
                responder.respond(CloseSessionResponse::new())
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_notification(
            async move |_: CancelNotification, _cx| {
                cancels.note("session/cancel");
                cancels.cancelled.notify_one();
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .connect_to(ByteStreams::new(output.compat_write(), input.compat()));
    // It ends with its input.
    drop(played.await);
}
