//! A ground with real agents on it: their programs in `PATH`, an empty home, and a model of the test's own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use groundcrew_tests::model::{Model, Question};
use serde_json::{Value, json};

use crate::ground::{Call, Engine, Ground, IMAGE, Job, Network, Repository, text};

/// How long an agent may take for one thing, on a machine that does much else.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Where the package of each program is.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "codex",
        "codex-native/vendor/x86_64-unknown-linux-musl/bin/codex",
    ),
    ("opencode", "opencode-linux-x64/bin/opencode"),
    (
        "codex-acp",
        "@zed-industries/codex-acp-linux-x64/bin/codex-acp",
    ),
];

/// Where Codex is in a container.
const INSIDE: &str = "/opt/agents/codex";

/// A place with agents.
pub(super) struct Place {
    pub(super) model: Model,
    pub(super) repository: Repository,
    pub(super) ground: Ground,
    /// Where the agents run, if not on this machine itself.
    container: Option<Container>,
}

/// What a container of an agent's is made with.
struct Container {
    network: Network,
    engine: Engine,
}

impl Place {
    /// Makes one: a repository, a model, and each agent set up to use that.
    pub(super) fn new() -> Self {
        Self::with(Model::start().unwrap(), None)
    }

    /// Makes one whose Codex runs in containers, with a way to the model and nowhere else.
    pub(super) fn in_a_container() -> Self {
        let engine = Engine::shared();
        let network = Network::new(&engine);
        let model = Model::listening(network.listen()).unwrap();
        Self::with(model, Some(Container { network, engine }))
    }

    fn with(model: Model, container: Option<Container>) -> Self {
        let ground = Ground::new();
        let repository = ground.repository("r");
        let place = Self {
            model,
            repository,
            ground,
            container,
        };
        place.install();
        place.configure();
        place
    }

    fn root(&self, name: &str) -> PathBuf {
        self.ground.root().join(name)
    }

    fn install(&self) {
        let modules = PathBuf::from(Ground::told("GROUNDCREW_TEST_AGENTS"));
        let bin = self.root("bin");
        fs::create_dir(&bin).unwrap();
        for (name, at) in PROGRAMS {
            symlink(modules.join(at), bin.join(name)).unwrap();
        }
        let gemini = modules.join("@google/gemini-cli/bundle/gemini.js");
        let script = format!("#!/bin/sh\nexec node '{}' \"$@\"\n", gemini.display());
        program(&bin.join("gemini"), &script);
    }

    /// Puts the bridge of Claude where the command finds it; a test that needs it says so in its name.
    pub(super) fn with_claude(self) -> Self {
        let modules = PathBuf::from(Ground::told("GROUNDCREW_TEST_CLAUDE"));
        let bridge = modules.join("@agentclientprotocol/claude-agent-acp/dist/index.js");
        let script = format!("#!/bin/sh\nexec node '{}' \"$@\"\n", bridge.display());
        program(&self.root("bin").join("claude-agent-acp"), &script);
        let home = self.root("home/.claude");
        fs::create_dir_all(&home).unwrap();
        // Else it asks a model, and not us, whether a command may be run.
        let settings = json!({ "permissions": { "defaultMode": "default" } });
        fs::write(home.join("settings.json"), settings.to_string()).unwrap();
        self
    }

    fn configure(&self) {
        let url = self.model.url();
        fs::create_dir(self.root("codex")).unwrap();
        let codex = format!(
            "model = \"mock\"\nmodel_provider = \"mock\"\ncheck_for_update_on_startup = false\n\
             [analytics]\nenabled = false\n[model_providers.mock]\nname = \"mock\"\n\
             base_url = \"{url}/v1\"\nwire_api = \"responses\"\nrequires_openai_auth = false\n\
             supports_websockets = false\nrequest_max_retries = 0\nstream_max_retries = 0\n"
        );
        fs::write(self.root("codex/config.toml"), codex).unwrap();
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible", "name": "mock",
            "options": { "baseURL": format!("{url}/v1"), "apiKey": "none" },
            "models": { "m": { "name": "m" } },
        });
        let opencode = json!({
            "model": "mock/m", "small_model": "mock/m", "permission": { "bash": "ask" },
            "provider": { "mock": provider },
        });
        fs::write(self.root("opencode.json"), opencode.to_string()).unwrap();
    }

    /// Begins a call with all that the agents need.
    pub(super) fn call(&self, words: &[&str]) -> Call {
        let environment = self.ground.environment();
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let mut all = self.root("bin").into_os_string();
        all.push(":");
        all.push(&path.unwrap().1);
        let call = self.ground.call(words);
        let call = match &self.container {
            Some(container) => container.engine.equip(call),
            None => call,
        };
        call.directory(self.repository.path())
            .within(PATIENCE)
            .env("PATH", all)
            .env("CODEX_HOME", self.root("codex"))
            .env("CODEX_API_KEY", "none")
            .env("GEMINI_API_KEY", "none")
            .env("GOOGLE_GEMINI_BASE_URL", self.model.url())
            .env("ANTHROPIC_API_KEY", "none")
            .env("ANTHROPIC_BASE_URL", self.model.url())
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("OPENCODE_CONFIG", self.root("opencode.json"))
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("GIT_AUTHOR_NAME", "agent")
            .env("GIT_AUTHOR_EMAIL", "agent@example.org")
            .env("GIT_COMMITTER_NAME", "agent")
            .env("GIT_COMMITTER_EMAIL", "agent@example.org")
    }

    /// Begins a run of an agent that is told something, with each event a line.
    pub(super) fn run(&self, agent: &str, options: &[&str], prompt: &str) -> Call {
        let mut words = vec!["--format", "jsonl", "run", "--agent", agent];
        words.extend(options);
        let inside = self.inside();
        words.extend(inside.iter().map(String::as_str));
        words.extend(["--prompt", prompt]);
        self.call(&words)
    }

    /// Returns the options with which Codex runs in a container, if it is to: an image without it gets its program, and a
    /// directory for what it keeps.
    fn inside(&self) -> Vec<String> {
        let Some(container) = &self.container else {
            return Vec::new();
        };
        let state = self.root("codex").display().to_string();
        let program = PathBuf::from(Ground::told("GROUNDCREW_TEST_AGENTS")).join(PROGRAMS[0].1);
        let options = [
            ("--executor", "docker".to_owned()),
            ("--image", IMAGE.to_owned()),
            ("--network", container.network.name().to_owned()),
            ("--mount", format!("{}:{INSIDE}:ro", program.display())),
            ("--agent-program", INSIDE.to_owned()),
            ("--agent-home", state),
        ];
        let words = options.map(|(name, value)| [name.to_owned(), value]);
        words.into_iter().flatten().collect()
    }

    /// Returns the step of a prompt in which Codex runs a command for which it needs leave: in its sandbox it says that it has
    /// to get out; without one, who wants to be asked is asked for whatever is not known to be harmless.
    pub(super) fn with_leave(&self, command: &str) -> String {
        let verb = match self.container {
            Some(_) => "run",
            None => "ask",
        };
        format!("do: {verb} {command}")
    }

    /// Returns how often it asks for that where everything is approved: a container is its sandbox, and it may do all there.
    pub(super) fn leaves(&self) -> usize {
        usize::from(self.container.is_none())
    }

    /// Begins a run and waits until standard output shows some words.
    pub(super) fn running(&self, agent: &str, options: &[&str], prompt: &str, until: &str) -> Job {
        let job = self.run(agent, options, prompt).spawn();
        job.until_out_within(until, PATIENCE);
        job
    }

    /// Returns the one run that there is.
    pub(super) fn only_run(&self) -> String {
        let runs = self.ground.runs(true);
        assert_eq!(runs.len(), 1, "{runs:#?}");
        text(&runs[0]["id"]).to_owned()
    }

    /// Waits until the model was asked something.
    pub(super) fn until_asked(&self, is_it: impl Fn(&Question) -> bool) -> Question {
        let found = self.model.until_asked(PATIENCE, is_it);
        found.unwrap_or_else(|| panic!("the model was asked: {:#?}", self.model.asked()))
    }

    /// Returns how many processes of Codex there are, wherever they run: each has our directory in its environment.
    pub(super) fn agents(&self) -> usize {
        let all = self.ground.processes();
        let codex = all
            .iter()
            .filter(|found| found.words.contains("app-server"));
        codex.count()
    }

    /// Demands that nothing of any agent is left.
    pub(super) fn nothing_runs(&self) {
        self.ground.until_quiet();
        if let Some(container) = &self.container {
            container.engine.nothing_left(&self.ground, "nothing runs");
        }
    }
}

/// Writes a program.
pub(super) fn program(at: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(at, text).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the events of a session among those of a call.
pub(super) fn session_events(events: &[Value]) -> Vec<&Value> {
    let of_session = events.iter().filter(|event| event["event"] == "session");
    of_session.collect()
}

/// Returns the events of one kind.
pub(super) fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let mut found = session_events(events);
    found.retain(|event| event["type"] == kind);
    found
}

/// Returns all that the agent said.
pub(super) fn said(events: &[Value]) -> String {
    let pieces = of_kind(events, "text_delta");
    pieces.iter().map(|event| text(&event["text"])).collect()
}

/// Returns how the last turn ended.
#[track_caller]
pub(super) fn outcome(events: &[Value]) -> String {
    let ends = of_kind(events, "turn_ended");
    let Some(end) = ends.last() else {
        panic!("no turn ended: {events:#?}");
    };
    text(&end["outcome"]).to_owned()
}
