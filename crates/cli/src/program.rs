//! Puts the parts together: the one place that knows which executors, preparers and stores this program has.

use std::{path::PathBuf, sync::Arc, time::Duration};

use groundcrew_core::{
    Launcher, Parts, Policy, Registration, Registry,
    checkpoint::Checkpoints,
    error::{Error, ErrorKind},
    event::EventSink,
    executor::Executor,
    id::ExecutorName,
    preparer::Preparer,
    secret::SecretStore,
    session_directory::SessionDirectory,
    store::StateStore,
};
use groundcrew_executor_docker::{DEFAULT_ENDPOINT, DockerConfig, DockerExecutor};
use groundcrew_executor_local::{LocalConfig, LocalExecutor};
use groundcrew_preparer::{
    EphemeralConfig, EphemeralPreparer, GitProgram, InPlacePreparer, ScratchConfig,
    ScratchPreparer, Transport, Upkeep, UpkeepConfig, UserGitConfig, WorktreeConfig,
    WorktreePreparer,
};
use groundcrew_secrets::{MasterKey, SealedConfig, SealedSecrets, SecretChain};
use groundcrew_state::{FlockDirectory, StateDirectory};
use groundcrew_supervisor::SupervisorSource;

use crate::{
    args::Format, console::Console, failing::Failing, settings::Settings,
    surroundings::Surroundings,
};

/// The variable that names the file of the master key, where it is not the store's own.
const MASTER_KEY_FILE: &str = "GROUNDCREW_MASTER_KEY_FILE";

/// The variable that names the static supervisor for containers, where it is not beside this program.
const CONTAINER_SUPERVISOR: &str = "GROUNDCREW_SUPERVISOR";

/// How long an engine may take for one answer.
const ENGINE_PATIENCE: Duration = Duration::from_secs(30);

/// One of the program's own executors: its name, and the preparers that ready its workspaces.
type Own = (&'static str, Arc<dyn Executor>, Vec<Arc<dyn Preparer>>);

/// What a custom binary adds to the command; the default adds nothing.
#[derive(Clone, Debug)]
pub struct Program {
    /// Executors beside `local` and `worktree`.
    pub registrations: Vec<Registration>,
    /// Where tests make a launch fail or die; `()` otherwise.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// What reveals secrets before the encrypted file does; the first that knows one does.
    pub secrets: Vec<Arc<dyn SecretStore>>,
    /// What the program knows of its sessions; `()` if it has none.
    pub directory: Arc<dyn SessionDirectory>,
    /// Where the supervisor's program comes from; by default it is this program itself.
    pub supervisor: SupervisorSource,
    /// How long things may take.
    pub policy: Policy,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            registrations: Vec::new(),
            checkpoints: Arc::new(()),
            secrets: Vec::new(),
            directory: Arc::new(()),
            supervisor: SupervisorSource::SelfExec,
            policy: Policy::default(),
        }
    }
}

/// What every verb gets.
#[derive(Debug)]
pub(crate) struct Context {
    /// The program.
    pub(crate) program: Program,
    /// What it was started in.
    pub(crate) surroundings: Surroundings,
    /// What the user wrote down.
    pub(crate) settings: Arc<Settings>,
    /// Where it talks.
    pub(crate) console: Console,
}

/// The parts, put together on a state directory.
#[derive(Debug)]
pub(crate) struct Crew {
    /// The launcher.
    pub(crate) launcher: Launcher,
    /// The durable state, for what only looks.
    pub(crate) store: Arc<dyn StateStore>,
    /// The state directory.
    pub(crate) home: PathBuf,
    /// What looks after the trash and the directories of workspaces.
    pub(crate) upkeep: Upkeep,
    /// The locks between processes.
    pub(crate) locks: Arc<FlockDirectory>,
    /// The executor of host processes, whose logs outlive its instances.
    pub(crate) local: Arc<LocalExecutor>,
}

/// How long what dead processes left may hold up what was asked for.
const TENDING: Duration = Duration::from_secs(2);

impl Crew {
    /// Brings to an end what dead processes left, within bounds: the rest waits for the next time, or for `recover`.
    pub(crate) async fn tend(&self, console: &Console) {
        // What goes wrong with it is told by `recover`, and must not stop what was asked for.
        if let Ok(Ok(report)) = tokio::time::timeout(TENDING, self.launcher.tend()).await {
            for run in &report.rolled_back {
                console.note(&format!("took back what a killed launch of {run} left"));
            }
        }
    }
}

impl Context {
    /// Tells whether somebody sits at our terminal who can be asked.
    pub(crate) fn has_person(&self) -> bool {
        let terminals = self.surroundings.terminals;
        terminals.input && terminals.error && self.console.format == Format::Human
    }

    /// Opens the state directory and puts the parts together.
    ///
    /// # Errors
    ///
    /// When there is no place for the state directory, or it cannot be used.
    pub(crate) async fn open(&self, events: impl EventSink) -> Result<Crew, Failing> {
        let home = self.surroundings.state_directory()?;
        let opened = tokio::task::spawn_blocking(move || StateDirectory::open(&home)).await;
        let state = opened.map_err(|e| {
            Error::new(ErrorKind::Panicked, "opening the state directory broke off").with_source(e)
        })??;
        let store: Arc<dyn StateStore> = state.store();
        let sealed = self.secrets()?;
        let mut stores: Vec<_> = self.program.secrets.iter().map(Arc::clone).collect();
        stores.push(Arc::clone(&sealed) as _);
        stores.push(Arc::clone(&self.settings) as _);
        let (name, install) = (ExecutorName::new("local")?, state.install().clone());
        let mut config = LocalConfig::new(name, state.home(), install);
        config.supervisor = self.program.supervisor.clone();
        let local = Arc::new(LocalExecutor::new(config));
        let upkeep = Upkeep::new(UpkeepConfig {
            worktrees: state.worktrees(),
            tasks: state.tasks(),
            sessions: state.quick_chat(),
            trash: state.trash(),
            locks: state.locks_path(),
            git: self.git(),
            install: state.install().clone(),
        })?;
        let (install, registry) = (state.install().clone(), self.registry(&state, &local)?);
        let mut parts = Parts::new(install, registry, Arc::clone(&store), state.locks());
        parts.profiles = Arc::clone(&self.settings) as _;
        parts.runtime_secrets = sealed;
        parts.secrets = Arc::new(SecretChain::new(stores));
        parts.directory = Arc::clone(&self.program.directory);
        parts.events = Arc::new(events);
        parts.checkpoints = Arc::clone(&self.program.checkpoints);
        parts.policy = self.program.policy;
        Ok(Crew {
            launcher: Launcher::new(parts),
            store,
            home: state.home().to_owned(),
            upkeep,
            locks: state.locks(),
            local,
        })
    }

    /// Opens the encrypted file of secrets, without touching it or its directory.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the file of the master key is not named by an absolute path.
    pub(crate) fn secrets(&self) -> Result<Arc<SealedSecrets>, Error> {
        let home = self.surroundings.state_directory()?;
        let mut config = SealedConfig::new(StateDirectory::secrets_in(&home));
        if let Some(path) = self.surroundings.variable(MASTER_KEY_FILE) {
            config.key = MasterKey::File(path.into());
        }
        SealedSecrets::open(config).map(Arc::new)
    }

    fn registry(
        &self,
        state: &StateDirectory,
        executor: &Arc<LocalExecutor>,
    ) -> Result<Registry, Error> {
        let scratch: Arc<dyn Preparer> = Arc::new(ScratchPreparer::new(ScratchConfig {
            tasks: state.tasks(),
            trash: state.trash(),
            install: state.install().clone(),
            user: self.user_git_config(),
        })?);
        let in_place: Arc<dyn Preparer> = Arc::new(InPlacePreparer::new()?);
        let worktrees = |separate| {
            WorktreePreparer::new(WorktreeConfig {
                separate,
                worktrees: state.worktrees(),
                trash: state.trash(),
                locks: state.locks_path(),
                install: state.install().clone(),
                git: self.git(),
                user: self.user_git_config(),
                template: None,
                transport: self.transport(),
            })
        };
        let worktree: Arc<dyn Preparer> = Arc::new(worktrees(false)?);
        let cloned: Arc<dyn Preparer> = Arc::new(worktrees(true)?);
        let ephemeral: Arc<dyn Preparer> = Arc::new(EphemeralPreparer::new(EphemeralConfig {
            sessions: state.quick_chat(),
            trash: state.trash(),
            install: state.install().clone(),
            user: self.user_git_config(),
        })?);
        let mut registry = Registry::new();
        let own: [Own; 3] = [
            (
                "local",
                Arc::<LocalExecutor>::clone(executor),
                vec![
                    Arc::clone(&in_place),
                    Arc::clone(&scratch),
                    Arc::clone(&ephemeral),
                ],
            ),
            (
                "worktree",
                Arc::<LocalExecutor>::clone(executor),
                vec![worktree, Arc::clone(&scratch), Arc::clone(&ephemeral)],
            ),
            (
                "docker",
                self.docker(state)?,
                vec![cloned, in_place, scratch, ephemeral],
            ),
        ];
        for (name, executor, preparers) in own {
            registry.register(Registration {
                name: ExecutorName::new(name)?,
                executor,
                preparers,
            })?;
        }
        for registration in &self.program.registrations {
            registry.register(registration.clone())?;
        }
        Ok(registry)
    }

    /// Makes the executor of containers; whether there is an engine shows when it is needed.
    fn docker(&self, state: &StateDirectory) -> Result<Arc<DockerExecutor>, Error> {
        let mut supervisor = Vec::new();
        if let Some(path) = self.surroundings.variable(CONTAINER_SUPERVISOR) {
            supervisor.push(PathBuf::from(path));
        } else if let Ok(own) = std::env::current_exe()
            && let Some(directory) = own.parent()
        {
            supervisor.push(directory.join("groundcrew-supervisor"));
            supervisor.push(directory.join("../libexec/groundcrew/groundcrew-supervisor"));
        }
        let endpoint = self
            .surroundings
            .variable("DOCKER_HOST")
            .filter(|host| !host.is_empty())
            .map_or(Some(DEFAULT_ENDPOINT), |host| host.to_str())
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "DOCKER_HOST is no text"))?;
        // The engine's own client then speaks TLS to the same address.
        let guarded = self
            .surroundings
            .variable("DOCKER_TLS_VERIFY")
            .is_some_and(|value| !value.is_empty());
        let endpoint = match endpoint.strip_prefix("tcp://") {
            Some(place) if guarded => format!("https://{place}"),
            _ => endpoint.to_owned(),
        };
        let (name, install) = (ExecutorName::new("docker")?, state.install().clone());
        let mut config = DockerConfig::new(name, state.home(), install);
        config.endpoint = endpoint;
        config.supervisor = supervisor;
        config.patience = ENGINE_PATIENCE;
        Ok(Arc::new(DockerExecutor::new(config)))
    }

    /// Returns what of the caller's environment git needs for reaching remotes.
    fn transport(&self) -> Transport {
        let names = [
            "HOME",
            "USER",
            "LOGNAME",
            "SSH_AUTH_SOCK",
            "XDG_CONFIG_HOME",
            "XDG_RUNTIME_DIR",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
        ];
        let variables = names.into_iter().filter_map(|name| {
            let value = self.surroundings.variable(name)?;
            Some((name.into(), value.to_owned()))
        });
        Transport {
            variables: variables.collect(),
        }
    }

    fn git(&self) -> GitProgram {
        let search = self.surroundings.variable("PATH").unwrap_or_default();
        GitProgram::Search(search.to_owned())
    }

    /// Finds the user's git configuration where git looks for it.
    fn user_git_config(&self) -> UserGitConfig {
        let variable = |name| self.surroundings.variable(name);
        let home = self.surroundings.home();
        // A named file takes the place of both others, as it does for git.
        let named = variable("GIT_CONFIG_GLOBAL").map(PathBuf::from);
        let xdg = match variable("XDG_CONFIG_HOME").map(PathBuf::from) {
            Some(directory) => Some(directory),
            None => home.map(|home| home.join(".config")),
        };
        let silent =
            variable("GIT_CONFIG_NOSYSTEM").is_some_and(|value| value != "0" && value != "false");
        let system = variable("GIT_CONFIG_SYSTEM")
            .map_or_else(|| PathBuf::from("/etc/gitconfig"), PathBuf::from);
        UserGitConfig {
            system: (!silent).then_some(system),
            xdg: if named.is_some() {
                None
            } else {
                xdg.map(|directory| directory.join("git/config"))
            },
            global: named.or_else(|| home.map(|home| home.join(".gitconfig"))),
        }
    }
}
