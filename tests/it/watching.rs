//! `logs` and `attach` by stream, time and process; several who watch, one who writes.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::ground::{Ground, text, until};

#[test]
fn logs_are_shown_by_stream_and_by_time() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo old; echo old-error >&2; while ! [ -e go ]; do sleep 0.05; done; echo new; echo new-error >&2";
    let run = ground.detached(&repository, &["--keep"], script);
    let id = text(&run["id"]);
    let logs = |options: &[&str]| {
        let words = ["logs"].iter().chain(options).copied().chain([id]);
        ground.call(words).run().ok()
    };
    until("it has printed", || logs(&[]).err() == "old-error\n");
    let events = logs(&["--format", "jsonl"]).events();
    let before = text(&events[1]["at"]).to_owned();
    // The next moment that a clock of milliseconds can tell.
    until("time has passed", || {
        let now = std::time::SystemTime::now();
        humantime::format_rfc3339_millis(now).to_string() > before
    });
    let since = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
    let workspace = crate::ground::path(&run["workspace"]);
    std::fs::write(workspace.join("go"), "").unwrap();
    ground.until_state(id, "exited");
    let told = |options: &[&str]| {
        let outcome = logs(options);
        (outcome.out(), outcome.err())
    };
    assert_eq!(
        told(&[]),
        ("old\nnew\n".into(), "old-error\nnew-error\n".into())
    );
    assert_eq!(told(&["--stdout"]), ("old\nnew\n".into(), String::new()));
    assert_eq!(
        told(&["--stderr"]),
        (String::new(), "old-error\nnew-error\n".into())
    );
    assert_eq!(
        told(&["--since", &since]),
        ("new\n".into(), "new-error\n".into())
    );
    assert_eq!(told(&["--since", "1h", "--stderr", "--stdout"]), told(&[]));
    let events = logs(&["--since", &since, "--stderr", "--format", "jsonl"]).events();
    let names: Vec<_> = events
        .iter()
        .map(|event| text(&event["event"]).to_owned())
        .collect();
    assert_eq!(
        names,
        ["output", "exit", "result"],
        "the end is told whatever is left out"
    );
    assert_eq!(told(&["--process", "agent"]), told(&[]));
    ground
        .call(["logs", "--since", "yesterday", id])
        .run()
        .code(2);
}

#[test]
fn an_earlier_writer_is_told_that_another_took_over() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "while read -r line; do echo \"got $line\"; done; echo END";
    let options = ["--executor", "local", "-i", "--keep"];
    let mut first = ground
        .run_shell(&repository, &options, script)
        .held_input()
        .spawn();
    first.write(b"one\n");
    first.until_out("got one\n");
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    let viewer = ground.call(["attach", "--view", &id]).spawn();
    viewer.until_out("got one\n");
    let mut second = ground.call(["attach", "-i", &id]).held_input().spawn();
    second.until_out("got one\n");
    first.until_err("another writer took over");
    second.write(b"two\n");
    second.until_out("got two\n");
    // Nothing of the first goes in any more, and the second decides about the end.
    first.write(b"lost\n");
    second.close_input();
    let (first, second, viewer) = (first.wait().ok(), second.wait().ok(), viewer.wait().ok());
    for outcome in [first, second, viewer] {
        assert_eq!(outcome.out(), "got one\ngot two\nEND\n");
    }
}

/// A server of tmux for one test, with a window that runs what it is told.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    fn start(ground: &Ground, command: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // A server that was told to end needs a moment; the next has a socket of its own.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tmux = Self {
            socket: ground.path(format!("tmux-{number}")),
        };
        let mut call = tmux.call(&[
            "new-session",
            "-d",
            "-s",
            "t",
            "-x",
            "90",
            "-y",
            "28",
            command,
        ]);
        call.env_clear()
            .envs(ground.environment())
            .env("TERM", "xterm-256color");
        assert!(call.status().unwrap().success());
        tmux
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a program that only this test uses"
    )]
    fn call(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command
            .args(["-f", "/dev/null", "-S"])
            .arg(&self.socket)
            .args(words);
        command
    }

    fn keys(&self, keys: &[&str]) {
        let words: Vec<_> = ["send-keys", "-t", "t"]
            .iter()
            .chain(keys)
            .copied()
            .collect();
        assert!(self.call(&words).status().unwrap().success());
    }

    fn screen(&self) -> String {
        let output = self
            .call(&["capture-pane", "-p", "-t", "t"])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn until_shown(&self, words: &str) {
        until(&format!("the screen shows {words:?}"), || {
            self.screen().contains(words)
        });
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        drop(self.call(&["kill-server"]).output());
    }
}

/// Returns the lines of a text with a hundred of them.
fn pages(path: &Path) {
    let text = (1..=100).fold(String::new(), |text, n| {
        text + &format!("this is line {n} of the text\n")
    });
    std::fs::write(path, text).unwrap();
}

#[test]
fn needs_tmux_a_full_screen_program_is_drawn_anew_for_whoever_attaches_and_the_terminal_comes_back()
{
    let ground = Ground::new();
    let repository = ground.repository("r");
    let file = ground.path("text");
    pages(&file);
    let program = env!("CARGO_BIN_EXE_groundcrew-under-test");
    let command = format!(
        "cd {}; {program} run --executor local --keep --title full -- less {}; stty -a | tr -d '\\n' >{}; echo; echo BACK AT THE SHELL; exec sleep 600",
        repository.path().display(),
        file.display(),
        ground.path("modes").display(),
    );
    let tmux = Tmux::start(&ground, &command);
    tmux.until_shown("this is line 27 of the text");
    tmux.keys(&["G"]);
    tmux.until_shown("this is line 100 of the text");
    // Left by the key; the shell has its own screen again, without a line of the program's, and modes that echo.
    tmux.keys(&["C-]"]);
    tmux.until_shown("BACK AT THE SHELL");
    assert!(!tmux.screen().contains("of the text"), "{}", tmux.screen());
    let modes = std::fs::read_to_string(ground.path("modes")).unwrap();
    assert!(
        modes.contains(" echo ") && modes.contains(" icanon"),
        "{modes}"
    );
    drop(tmux);
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    // From the middle of nothing: no byte of the past is replayed, so what is shown was drawn for us.
    let end = ground.show(&id)["processes"][0]["log_end"].to_string();
    let command =
        format!("{program} attach --from {end} {id}; echo BACK AT THE SHELL; exec sleep 600");
    let tmux = Tmux::start(&ground, &command);
    tmux.until_shown("this is line 100 of the text");
    tmux.keys(&["g"]);
    tmux.until_shown("this is line 1 of the text");
    drop(tmux);
    let command = format!("{program} attach {id}; echo BACK AT THE SHELL; exec sleep 600");
    let tmux = Tmux::start(&ground, &command);
    tmux.until_shown("this is line 1 of the text");
    // Its end, and not only our leaving, gives the screen back.
    tmux.keys(&["q"]);
    tmux.until_shown("BACK AT THE SHELL");
    assert!(!tmux.screen().contains("of the text"), "{}", tmux.screen());
    drop(tmux);
    ground.until_quiet();
    assert_eq!(ground.show(&id)["exit_code"], 0);
}

#[test]
fn needs_tmux_a_terminal_whose_place_was_taken_says_so_and_only_watches() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "while :; do read -r line || continue; echo \"GOT <$line>\"; [ \"$line\" = bye ] && exit 5; done";
    let program = env!("CARGO_BIN_EXE_groundcrew-under-test");
    let command = format!(
        "cd {}; {program} run --executor local --keep -- sh -c 'echo READY; {}'; echo LEFT; exec sleep 600",
        repository.path().display(),
        script.replace('\'', "'\\''"),
    );
    let tmux = Tmux::start(&ground, &command);
    tmux.until_shown("READY");
    tmux.keys(&["first", "Enter"]);
    tmux.until_shown("GOT <first>");
    let id = text(&ground.runs(false)[0]["id"]).to_owned();
    let mut second = ground.call(["attach", &id]).in_terminal(28, 90);
    second.until_shown("GOT <first>");
    second.until_raw();
    tmux.until_shown("another writer took over");
    tmux.keys(&["lost", "Enter"]);
    second.keys("second\r");
    second.until_shown("GOT <second>");
    // Who watches sees it, and can leave.
    tmux.until_shown("GOT <second>");
    assert!(!tmux.screen().contains("lost"), "{}", tmux.screen());
    tmux.keys(&["C-]"]);
    tmux.until_shown("LEFT");
    second.keys("bye\r");
    second.wait().ok();
    drop(tmux);
    ground.until_quiet();
    assert_eq!(ground.show(&id)["exit_code"], 5);
}
