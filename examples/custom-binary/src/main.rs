//! A product assembled from the crates: its own executor, secrets, events and sessions, in one file.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it talks to people"
)]

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Result;
use clap::{Parser, Subcommand};
use example_executor_bwrap::{BwrapConfig, BwrapExecutor};
use groundcrew_core::{
    CloseOptions, Launcher, Parts, Registration, Registry, async_trait,
    command::Command,
    env::{Definition, Key, Tier},
    error::Error,
    event::{Event, EventSink},
    executor::Executor,
    id::{ExecutorName, SessionId, TaskId},
    process::{ExitStatus, Frame, FrameKind, Offset},
    request::{AgentSpec, LaunchIntent, LaunchRequest, Mode},
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
    session_directory::{SessionDirectory, SessionState},
    workspace::WorkspaceRequest,
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_preparer::InPlacePreparer;
use groundcrew_state::StateDirectory;

/// Launches agents in namespaces of their own.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where everything is kept.
    #[arg(long, default_value = ".custom-binary")]
    home: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Launch a command and show what it writes.
    Run {
        #[arg(long, default_value = "bwrap")]
        executor: ExecutorName,
        /// The network of a `bwrap` instance: host or none.
        #[arg(long)]
        network: Option<String>,
        #[arg(long)]
        session: Option<SessionId>,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Launch again in the workspace of a run, also after a restart.
    Resume {
        run: String,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// List the runs.
    Ls,
    /// Close a run and take away what it made.
    Close { run: String },
}

/// Its own secrets: files of a directory.
#[derive(Debug)]
struct Files(PathBuf);

#[async_trait]
impl SecretStore for Files {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        match fs::read(self.0.join(name.as_str())) {
            Ok(value) if scope.tenant.is_none() => Ok(Some(SecretValue::new(value))),
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("a secret cannot be read", e).with("name", name))
            }
            _ => Ok(None),
        }
    }
}

/// Its own sessions: somebody else ends them.
#[derive(Debug)]
struct Sessions(PathBuf);

#[async_trait]
impl SessionDirectory for Sessions {
    async fn session(&self, session: &SessionId) -> Result<SessionState, Error> {
        let ended = self.0.join(format!("{session}.ended")).exists();
        Ok(if ended {
            SessionState::Ended("ended".to_owned())
        } else {
            SessionState::Alive
        })
    }

    async fn cleanup_active(&self, _: &SessionId, _: &TaskId) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Its own events: lines for people.
#[derive(Debug)]
struct Lines;

impl EventSink for Lines {
    fn emit(&self, event: Event) {
        eprintln!("{} {:?}", event.run, event.kind);
    }
}

fn main() -> Result<ExitCode> {
    // First of all: this program is also the supervisor of its instances.
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return Ok(code);
    }
    tokio::runtime::Runtime::new()?.block_on(work(Arguments::parse()))
}

/// Everything that it is made of.
fn launcher(home: &Path) -> Result<Launcher> {
    let state = StateDirectory::open(&home.join("state"))?;
    let (name, install) = (ExecutorName::new("local")?, state.install().clone());
    let bwrap = BwrapExecutor::new(BwrapConfig::new(home.join("bwrap"), install.clone())?);
    let local = LocalExecutor::new(LocalConfig::new(name, state.home(), install.clone()));
    let executors: [Arc<dyn Executor>; 2] = [Arc::new(bwrap), Arc::new(local)];
    let mut registry = Registry::new();
    for executor in executors {
        let in_place = Arc::new(InPlacePreparer::new()?);
        registry.register(Registration::new(executor, vec![in_place]))?;
    }
    let mut parts = Parts::new(install, registry, state.store(), state.locks());
    parts.secrets = Arc::new(Files(home.join("my-secrets")));
    parts.directory = Arc::new(Sessions(home.join("my-sessions")));
    parts.events = Arc::new(Lines);
    Ok(Launcher::new(parts))
}

async fn work(arguments: Arguments) -> Result<ExitCode> {
    let crew = launcher(&std::path::absolute(arguments.home)?)?;
    // What a program that was killed left is taken away first.
    crew.recover().await?;
    match arguments.verb {
        Verb::Run {
            executor,
            network,
            session,
            command,
        } => {
            let mut request = request(executor, command)?;
            let network = network.map(|network| ("network".to_owned(), network.into()));
            request.options.extend(network);
            request.session = session;
            return Box::pin(launch(&crew, request)).await;
        }
        Verb::Resume { run, command } => {
            let record = crew.find(&run).await?;
            let mut request = request(record.executor, command)?;
            request.options = record.options;
            request.intent = LaunchIntent::Resume(record.run);
            return Box::pin(launch(&crew, request)).await;
        }
        Verb::Ls => {
            for run in crew.runs().await?.into_iter().map(|view| view.record) {
                println!("{} {} {}", run.run, run.state, run.session);
            }
        }
        Verb::Close { run } => {
            let run = crew.find(&run).await?.run;
            let report = crew.close(&run, CloseOptions::default()).await?;
            println!("{run} {}", report.outcome.as_str());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn request(executor: ExecutorName, command: Vec<String>) -> Result<LaunchRequest> {
    let path = std::path::absolute(".")?;
    let agent = Mode::Agent(AgentSpec::new(Command::new(command)?));
    let mut request = LaunchRequest::new(executor, WorkspaceRequest::InPlace { path }, agent);
    let (path, api, tier) = (Key::new("PATH")?, Key::new("API_KEY")?, Tier::Request);
    request.environment = vec![
        Definition::literal(path, "/usr/local/bin:/usr/bin:/bin", tier, "product"),
        Definition::secret(api, SecretRef::new("api-key")?, tier, "product"),
    ];
    Ok(request)
}

async fn launch(crew: &Launcher, request: LaunchRequest) -> Result<ExitCode> {
    let launched = crew.launch(crew.plan(request).await?).wait().await?;
    let settled = crew.follow(&launched.record, Offset(0), show).await?;
    crew.shutdown().await;
    let code = settled.record.exit.map_or(1, ExitStatus::shell_code);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

fn show(frame: Frame) -> Result<(), Error> {
    let (FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes)) = frame.kind else {
        return Ok(());
    };
    let shown = io::stdout().write_all(&bytes);
    shown.map_err(|e| Error::io("the output cannot be shown", e))
}
