//! What speaking to an agent through the command costs, against speaking to the same program with nothing in between.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::console;
use crate::metadata::Metadata;
use crate::process::Cmd;
use crate::test::agents;

use super::place::Place;
use super::sample::{Row, Target};

/// How much is said in a turn, in bytes.
const MUCH: usize = 10 << 20;

/// The profile of our own agent; Codex has one in the command.
const PROFILE: &str = "peer";

/// Measures both with our own agent, and with Codex where it is, which gets its words from a model of ours: from the start of
/// the program to its answer to `initialize`, and a turn from its beginning to its end.
///
/// # Errors
///
/// Fails when an agent is not started or does not answer, or something of a turn is lost.
pub(super) fn rows(
    place: &Place,
    metadata: &Metadata,
    iterations: usize,
    mut tell: impl FnMut(Row),
) -> Result<()> {
    let mut measure = |agent: &Agent| {
        tell(agent.initialised(place, iterations)?);
        tell(agent.streamed(place, iterations.div_ceil(3))?);
        Ok(())
    };
    measure(&Agent::own(place)?)?;
    let program = agents::directory().join(agents::CODEX);
    if !program.is_file() {
        console::remark("SKIPPED: Codex spoken to; `cargo xtask test --cell agents` fetches it");
        return Ok(());
    }
    let model = Model::start(metadata)?;
    measure(&Agent::codex(place, program, &model.url)?)
}

/// A model that runs until it is dropped.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start(metadata: &Metadata) -> Result<Self> {
        let package = ["build", "--quiet", "--package", "groundcrew-tests"];
        Cmd::cargo(&metadata.workspace_root)
            .args(package)
            .args(["--bin", "model-on-loopback"])
            .check()?;
        let program = metadata.target_directory.join("debug/model-on-loopback");
        let mut child = Cmd::new(program).start_talking()?;
        let mut url = String::new();
        let output = child.stdout.take().context("there is no pipe to read")?;
        let read = BufReader::new(output).read_line(&mut url);
        read.context("the model does not say where it is")?;
        Ok(Self {
            child,
            url: url.trim().to_owned(),
        })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// An agent that can be run both ways.
struct Agent {
    name: &'static str,
    profile: &'static str,
    argv: Vec<PathBuf>,
    variables: Vec<(&'static str, PathBuf)>,
    /// What it is told to say little, and to say much.
    prompts: [String; 2],
}

impl Agent {
    /// Our own, with a profile of its own.
    fn own(place: &Place) -> Result<Self> {
        let config = place.path("config");
        let profiles = config.join("groundcrew/profiles");
        fs::create_dir_all(&profiles).context("cannot make a directory")?;
        let program = place.agent().to_owned();
        let profile = format!(
            "name = \"{PROFILE}\"\ncommand = []\n[session]\nprotocol = \"codex\"\ncommand = {}\n\
             [session.handshake]\nrequest = {{ id = 0, method = \"initialize\", params = {{}} }}\n\
             then = {{ method = \"initialized\" }}\n",
            json!([program, "bench-peer"]),
        );
        let file = profiles.join(format!("{PROFILE}.toml"));
        fs::write(file, profile).context("cannot write a profile")?;
        Ok(Self {
            name: "an agent that answers at once",
            profile: PROFILE,
            argv: vec![program, "bench-peer".into()],
            variables: vec![("XDG_CONFIG_HOME", config)],
            prompts: ["0".to_owned(), MUCH.to_string()],
        })
    }

    /// Codex, with a model.
    fn codex(place: &Place, program: PathBuf, model: &str) -> Result<Self> {
        let bin = place.path("bin");
        let home = place.path("codex");
        for directory in [&bin, &home, &place.path("empty")] {
            fs::create_dir_all(directory).context("cannot make a directory")?;
        }
        let config = format!(
            "model = \"none\"\nmodel_provider = \"none\"\ncheck_for_update_on_startup = false\n\
             [analytics]\nenabled = false\n[model_providers.none]\nname = \"none\"\n\
             base_url = \"{model}/v1\"\nwire_api = \"responses\"\nrequires_openai_auth = false\n\
             supports_websockets = false\nrequest_max_retries = 0\nstream_max_retries = 0\n"
        );
        fs::write(home.join("config.toml"), config).context("cannot write a configuration")?;
        let link = bin.join("codex");
        if !link.exists() {
            std::os::unix::fs::symlink(&program, &link).context("cannot name Codex")?;
        }
        let mut path = bin.into_os_string();
        path.push(":/usr/bin:/bin");
        Ok(Self {
            name: "Codex",
            profile: "codex",
            argv: vec![program, "app-server".into()],
            variables: vec![
                ("PATH", path.into()),
                ("CODEX_HOME", home),
                ("CODEX_API_KEY", "none".into()),
                ("HOME", place.path("empty")),
                ("LOG_FORMAT", "json".into()),
                ("RUST_LOG", "codex_app_server=info,codex_core=info".into()),
            ],
            prompts: ["do: say little".to_owned(), format!("do: flood {MUCH}")],
        })
    }

    fn direct(&self) -> Cmd {
        let [program, arguments @ ..] = &self.argv[..] else {
            unreachable!("an agent has a program");
        };
        self.equipped(Cmd::new(program).args(arguments))
    }

    fn run(&self, place: &Place, prompt: &str) -> Cmd {
        let words = ["--format", "jsonl", "run", "--executor", "local", "--agent"];
        let command = place.command().args(words).arg(self.profile);
        self.equipped(command.args(["--prompt", prompt]))
    }

    fn equipped(&self, command: Cmd) -> Cmd {
        let variables = self.variables.iter();
        variables.fold(command, |command, (name, value)| {
            command.variable(name, value)
        })
    }

    fn streamed(&self, place: &Place, iterations: usize) -> Result<Row> {
        let [_, prompt] = &self.prompts;
        Row::measure(
            format!(
                "{}: a turn of {} MiB of text, each piece an event",
                self.name,
                MUCH >> 20
            ),
            "the same program spoken to directly",
            Target::Times(1.3),
            iterations,
            || {
                let taken = through_us(&self.run(place, prompt))?;
                place.clear_all()?;
                Ok(taken)
            },
            || {
                let mut talk = Talk::begin(&self.direct())?;
                talk.call("initialize", &who())?;
                let cwd = place.path("outside");
                let thread = json!({ "cwd": cwd, "approvalPolicy": "never" });
                let opened = talk.call("thread/start", &thread)?;
                let taken = talk.turn(&opened["thread"]["id"], prompt)?;
                talk.end()?;
                Ok(taken)
            },
        )
    }

    fn initialised(&self, place: &Place, iterations: usize) -> Result<Row> {
        Row::measure(
            format!("{}: from its start to `initialize` answered", self.name),
            "the same program spoken to directly",
            Target::OnTop(Duration::from_millis(10)),
            iterations,
            || {
                let [prompt, _] = &self.prompts;
                let printed = self.run(place, prompt).read()?;
                let taken = step(&printed, "start")?;
                place.clear_all()?;
                Ok(taken)
            },
            || {
                let begun = Instant::now();
                let mut talk = Talk::begin(&self.direct())?;
                let who =
                    json!({ "clientInfo": { "name": "bench", "title": "bench", "version": "0" } });
                talk.call("initialize", &who)?;
                let taken = begun.elapsed();
                talk.end()?;
                Ok(taken)
            },
        )
    }
}

/// Says who speaks.
fn who() -> Value {
    json!({ "clientInfo": { "name": "bench", "title": "bench", "version": "0" } })
}

/// Returns how long a step of a launch took.
fn step(printed: &[u8], name: &str) -> Result<Duration> {
    let text = String::from_utf8_lossy(printed);
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).context("the command printed no event")?;
        if event["event"] == "step_finished" && event["step"] == name {
            let seconds = event["seconds"].as_f64().unwrap_or_default();
            return Duration::try_from_secs_f64(seconds).context("a step took no time");
        }
    }
    bail!("the launch has no step `{name}`: {text}")
}

/// Runs a turn through the command, and measures from the event that begins it to the one that ends it.
fn through_us(command: &Cmd) -> Result<Duration> {
    let mut child = command.start_talking()?;
    let output = child.stdout.take().context("there is no pipe to read")?;
    let (mut begun, mut taken, mut said) = (None, None, 0);
    for line in BufReader::with_capacity(64 << 10, output).lines() {
        let line = line.context("cannot read the events")?;
        let event: Value = serde_json::from_str(&line).context("the command printed no event")?;
        match event["type"].as_str() {
            Some("turn_started") => begun = Some(Instant::now()),
            Some("text_delta") => said += event["text"].as_str().unwrap_or_default().len(),
            Some("turn_ended") => taken = begun.map(|begun: Instant| begun.elapsed()),
            _ => {}
        }
    }
    let status = child.wait().context("cannot wait for the command")?;
    ensure!(status.success(), "`{command}` failed: {status}");
    ensure!(said == MUCH, "`{command}` told {said} bytes of {MUCH}");
    taken.with_context(|| format!("`{command}` told no turn"))
}

/// A talk with a program that nobody stands between.
struct Talk {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
}

impl Talk {
    fn begin(command: &Cmd) -> Result<Self> {
        let mut child = command.start_talking()?;
        Ok(Self {
            input: child.stdin.take().context("there is no pipe to write")?,
            output: BufReader::with_capacity(
                64 << 10,
                child.stdout.take().context("there is no pipe to read")?,
            ),
            child,
            calls: 0,
        })
    }

    fn say(&mut self, method: &str, params: &Value) -> Result<u64> {
        let id = self.calls;
        self.calls += 1;
        let message = json!({ "id": id, "method": method, "params": params });
        writeln!(self.input, "{message}").context("the agent does not listen")?;
        Ok(id)
    }

    fn hear(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        ensure!(read.context("cannot read")? > 0, "the agent is gone");
        serde_json::from_str(&line).context("what the agent said is no message")
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.say(method, params)?;
        loop {
            let mut heard = self.hear()?;
            if heard["id"] == id {
                return Ok(heard["result"].take());
            }
        }
    }

    /// Has it say much, and measures that.
    fn turn(&mut self, thread: &Value, prompt: &str) -> Result<Duration> {
        let begun = Instant::now();
        let text = json!({ "type": "text", "text": prompt, "text_elements": [] });
        let input = json!({ "threadId": thread, "input": [text] });
        self.say("turn/start", &input)?;
        let mut said = 0;
        loop {
            let message = self.hear()?;
            match message["method"].as_str() {
                Some("item/agentMessage/delta") => {
                    said += message["params"]["delta"]
                        .as_str()
                        .unwrap_or_default()
                        .len();
                }
                Some("turn/completed") => break,
                _ => {}
            }
        }
        ensure!(said == MUCH, "the agent said {said} bytes of {MUCH}");
        Ok(begun.elapsed())
    }

    fn end(mut self) -> Result<()> {
        drop(self.input);
        self.child.wait().context("cannot wait for the agent")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_step_is_the_one_that_was_told() {
        let told = b"{\"event\":\"step_started\",\"step\":\"start\"}\n\
            {\"event\":\"step_finished\",\"step\":\"start\",\"seconds\":0.25}\n";
        assert_eq!(step(told, "start").unwrap(), Duration::from_millis(250));
        assert!(step(told, "create").is_err());
        assert!(step(b"no event", "start").is_err());
    }
}
