//! A product assembled from the crates: its own executor, secrets, events and sessions, in one file.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it talks to people"
)]

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, Result, anyhow};
use async_trait::async_trait;
use clap::{Parser, Subcommand};
use example_executor_bwrap::{BwrapConfig, BwrapExecutor};
use futures_util::StreamExt as _;
use groundcrew_core::{
    CloseOptions, Launcher, Parts, Policy, Registration, Registry,
    command::Command,
    env::{Definition, Key, Tier},
    error::{Chain, Error},
    event::{Event, EventSink},
    executor::Executor,
    id::{ExecutorName, SessionId},
    process::{FrameKind, Offset, Role},
    profile::MemoryProfiles,
    request::{AgentSpec, LaunchIntent, LaunchRequest, Mode},
    secret::{SecretRef, SecretScope, SecretStore, SecretValue},
    session_directory::{SessionDirectory, SessionState},
    workspace::WorkspaceRequest,
};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_preparer::InPlacePreparer;
use groundcrew_state::StateDirectory;
use groundcrew_supervisor::SupervisorSource;

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

/// Secrets as files of a directory.
#[derive(Debug)]
struct Files(PathBuf);

#[async_trait]
impl SecretStore for Files {
    async fn reveal(
        &self,
        name: &SecretRef,
        scope: &SecretScope,
    ) -> Result<Option<SecretValue>, Error> {
        if scope.tenant.is_some() {
            return Ok(None);
        }
        match std::fs::read(self.0.join(name.as_str())) {
            Ok(value) => Ok(Some(SecretValue::new(value))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("a secret cannot be read", e).with("name", name)),
        }
    }
}

/// Sessions that somebody else ends.
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

    async fn cleanup_active(
        &self,
        _: &SessionId,
        _: &groundcrew_core::id::TaskId,
    ) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Events as lines for people.
#[derive(Debug)]
struct Lines;

impl EventSink for Lines {
    fn emit(&self, event: Event) {
        eprintln!("{} {:?}", event.run, event.kind);
    }
}

fn main() -> ExitCode {
    // First of all: this program is also the supervisor of its instances.
    if let Some(code) = groundcrew_supervisor::run_if_invoked() {
        return code;
    }
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().context("no runtime");
    match runtime.and_then(|runtime| runtime.block_on(work(arguments))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn launcher(home: &Path) -> Result<Launcher> {
    std::fs::create_dir_all(home)?;
    let state = StateDirectory::open(&home.join("state"))?;
    let supervisor = std::env::current_exe()?;
    let bwrap: Arc<dyn Executor> = Arc::new(BwrapExecutor::new(BwrapConfig {
        name: ExecutorName::new("bwrap")?,
        directory: home.join("bwrap"),
        install: state.install().clone(),
        supervisor,
        bwrap: "/usr/bin/bwrap".into(),
    }));
    let local: Arc<dyn Executor> = Arc::new(LocalExecutor::new(LocalConfig {
        name: ExecutorName::new("local")?,
        instances: state.instances(),
        logs: state.logs(),
        install: state.install().clone(),
        supervisor: SupervisorSource::SelfExec,
    }));
    let mut registry = Registry::new();
    for executor in [bwrap, local] {
        registry.register(Registration {
            name: executor.name().clone(),
            executor,
            preparers: vec![Arc::new(InPlacePreparer::new()?)],
        })?;
    }
    Ok(Launcher::new(Parts {
        install: state.install().clone(),
        registry,
        store: state.store(),
        locks: state.locks(),
        secrets: Arc::new(Files(home.join("my-secrets"))),
        runtime_secrets: Arc::new(()),
        profiles: Arc::new(MemoryProfiles::default()),
        directory: Arc::new(Sessions(home.join("my-sessions"))),
        events: Arc::new(Lines),
        checkpoints: Arc::new(()),
        policy: Policy::default(),
    }))
}

async fn work(arguments: Arguments) -> Result<ExitCode> {
    let home = std::path::absolute(&arguments.home)?;
    let launcher = launcher(&home)?;
    // What a program that was killed left is taken away first.
    launcher.recover().await?;
    let work = std::path::absolute(".")?;
    match arguments.verb {
        Verb::Run {
            executor,
            network,
            session,
            command,
        } => {
            let mut request = request(executor, &work, command)?;
            request
                .options
                .extend(network.map(|network| ("network".to_owned(), network.into())));
            request.session = session;
            launch(&launcher, request).await
        }
        Verb::Resume { run, command } => {
            let record = launcher.find(&run).await?;
            let mut request = request(record.executor, &work, command)?;
            request.options = record.options;
            request.intent = LaunchIntent::Resume(record.run);
            launch(&launcher, request).await
        }
        Verb::Ls => {
            for view in launcher.runs().await? {
                println!(
                    "{} {} {}",
                    view.record.run, view.record.state, view.record.session
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        Verb::Close { run } => {
            let run = launcher.find(&run).await?.run;
            let report = launcher
                .close(
                    &run,
                    CloseOptions {
                        remove: true,
                        force: false,
                    },
                )
                .await?;
            println!("{run} {}", report.outcome.as_str());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn request(executor: ExecutorName, work: &Path, command: Vec<String>) -> Result<LaunchRequest> {
    let agent = AgentSpec::new(Command::new(command)?);
    let workspace = WorkspaceRequest::InPlace {
        path: work.to_owned(),
    };
    let own = |key| Ok::<_, Error>((Key::new(key)?, Tier::Request, "custom-binary"));
    let ((path, tier, origin), (api, _, _)) = (own("PATH")?, own("API_KEY")?);
    let mut request = LaunchRequest::new(executor, workspace, Mode::Agent(agent));
    request.environment = vec![
        Definition::literal(path, "/usr/local/bin:/usr/bin:/bin", tier, origin),
        Definition::secret(api, SecretRef::new("api-key")?, tier, origin),
    ];
    Ok(request)
}

async fn launch(crew: &Launcher, request: LaunchRequest) -> Result<ExitCode> {
    let plan = crew.plan(request).await?;
    let ended = crew.launch(plan).wait().await;
    let launched = ended.map_err(|e| anyhow!("{e}: {}", Chain(&*e.error)))?;
    let record = launched.record;
    let (instance, agent) = (crew.instance(&record).await?, record.agent_process()?);
    let mut output = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await?
        .output;
    while let Some(frame) = output.next().await {
        if let FrameKind::Stdout(bytes) | FrameKind::Stderr(bytes) = frame?.kind {
            std::io::stdout().write_all(&bytes)?;
        }
    }
    let status = instance.wait(&agent).await?;
    crew.settle(&record.run).await?;
    crew.shutdown().await;
    Ok(ExitCode::from(
        u8::try_from(status.shell_code()).unwrap_or(u8::MAX),
    ))
}
