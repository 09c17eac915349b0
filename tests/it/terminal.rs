//! A real terminal: size, keys, modes restored whatever happens.

use rustix::process::Signal;

use crate::ground::{Call, Ground, Leaks, Repository, Terminal, is_alive, text, until};

/// Prints a word before each answer, so that it cannot be confused with what was typed; a change of the size ends a `read`.
const SHELL: &str = "trap 'echo SIZE $(stty size)' WINCH; echo READY $(stty size); \
                     while :; do read -r line || continue; echo \"GOT <$line>\"; \
                     [ \"$line\" = bye ] && exit 5; done";

fn call(ground: &Ground, repository: &Repository, script: &str) -> Call {
    ground.run_shell(repository, &["--keep"], script)
}

fn start(ground: &Ground, repository: &Repository, script: &str) -> Terminal {
    call(ground, repository, script).in_terminal(24, 80)
}

/// The modes as text: what differs is seen.
fn modes(terminal: &Terminal) -> String {
    let modes = terminal.modes();
    format!(
        "{:?} {:?} {:?} {:?}",
        modes.input_modes, modes.output_modes, modes.control_modes, modes.local_modes
    )
}

#[test]
fn a_command_in_a_terminal_has_a_terminal_of_that_size_and_the_modes_come_back() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let (pty, _pts) = pty_process::blocking::open().unwrap();
    let fresh = rustix::termios::tcgetattr(&pty).unwrap();
    let mut terminal = start(&ground, &repository, SHELL);
    terminal.until_shown("READY 24 80");
    terminal.until_raw();
    terminal.keys("hello\r");
    terminal.until_shown("GOT <hello>");
    terminal.keys("bye\r");
    terminal.wait().code(5);
    let after = terminal.modes();
    assert_eq!(after.local_modes, fresh.local_modes);
    assert_eq!(after.input_modes, fresh.input_modes);
    assert_eq!(after.output_modes, fresh.output_modes);
    assert_eq!(after.control_modes, fresh.control_modes);
}

#[test]
fn the_size_of_the_window_is_followed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let mut terminal = start(&ground, &repository, SHELL);
    terminal.until_shown("READY 24 80");
    terminal.resize(40, 132);
    terminal.until_shown("SIZE 40 132");
    terminal.keys("bye\r");
    terminal.wait().code(5);
}

#[test]
fn an_interrupt_is_a_key_and_reaches_the_command_alone() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "trap 'echo CAUGHT; exit 12' INT; echo READY; while :; do sleep 0.1; done";
    let mut terminal = start(&ground, &repository, script);
    terminal.until_shown("READY");
    terminal.until_raw();
    terminal.keys("\x03");
    terminal.until_shown("CAUGHT");
    terminal.wait().code(12);
    assert!(!terminal.is_raw());
}

#[test]
fn raw_mode_is_restored_when_the_command_is_killed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let terminal = start(&ground, &repository, "echo \"READY $$ GO\"; exec sleep 600");
    let shown = terminal.until_shown(" GO");
    terminal.until_raw();
    let words: Vec<_> = shown.split_whitespace().collect();
    let pid: i32 = words[words.len() - 2].parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    terminal.wait().code(137);
    assert!(!terminal.is_raw(), "{}", modes(&terminal));
}

#[test]
fn the_detach_key_detaches_and_attach_comes_back() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let mut terminal = start(&ground, &repository, SHELL);
    terminal.until_shown("READY 24 80");
    terminal.until_raw();
    terminal.keys("\x1d");
    terminal.wait().ok();
    assert!(!terminal.is_raw(), "{}", modes(&terminal));
    let run = &ground.runs(false)[0];
    assert_eq!(run["state"], "running");
    let id = text(&run["id"]);
    let mut again = ground.call(["attach", id]).in_terminal(30, 100);
    // What the screen held is shown again.
    again.until_shown("READY 24 80");
    again.until_raw();
    again.keys("back\r");
    again.until_shown("GOT <back>");
    again.keys("bye\r");
    again.wait().ok();
    assert!(!again.is_raw());
    assert_eq!(ground.show(id)["exit_code"], 5);
}

#[test]
fn a_terminal_that_goes_away_detaches() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let terminal = start(
        &ground,
        &repository,
        "echo $$ >pid; echo READY; exec sleep 600",
    );
    terminal.until_shown("READY");
    let controller = terminal.pid();
    drop(terminal);
    until("the controller has left", || !is_alive(controller));
    let run = &ground.runs(false)[0];
    assert_eq!(run["state"], "running");
    ground
        .call(["stop", "--grace", "0s", text(&run["id"])])
        .run()
        .ok();
}

#[test]
fn a_hangup_detaches_and_restores_the_modes() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let terminal = start(&ground, &repository, "echo READY; exec sleep 600");
    terminal.until_shown("READY");
    terminal.until_raw();
    terminal.signal(Signal::HUP);
    terminal.wait();
    assert!(!terminal.is_raw());
    let run = &ground.runs(false)[0];
    assert_eq!(run["state"], "running");
    ground
        .call(["stop", "--grace", "0s", text(&run["id"])])
        .run()
        .ok();
}

#[test]
fn a_terminal_can_be_refused_and_asked_for() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "test -t 0 && echo IN; test -t 1 && echo OUT; test -t 2 && echo ERR; echo END";
    // No terminal of ours, but one for the command; its input is empty, for nobody could type.
    let outcome = ground.run_shell(&repository, &["-t"], script).run().ok();
    assert_eq!(outcome.out().replace('\r', ""), "OUT\nERR\nEND\n");
    // A terminal of ours, and none for the command.
    let terminal = ground
        .run_shell(&repository, &["-T"], script)
        .in_terminal(24, 80);
    let shown = terminal.until_shown("END");
    terminal.wait().ok();
    assert!(
        !shown.contains("IN\r") && !shown.contains("OUT\r"),
        "{shown}"
    );
    // A document is asked for: it must be read by a program.
    let terminal = ground
        .run_shell(&repository, &["--format", "json"], script)
        .in_terminal(24, 80);
    terminal.wait().ok();
}

#[test]
fn steps_are_shown_on_a_terminal_and_gone_before_the_commands_output() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let held = ground.path("held");
    let terminal = ground
        .run_shell(&repository, &["--keep"], "echo FIRST")
        .hold("create.before", &held)
        .in_terminal(24, 80);
    terminal.until_shown("create");
    std::fs::write(&held, "").unwrap();
    let shown = terminal.until_shown("FIRST");
    terminal.wait().ok();
    // Whatever stood on the screen was wiped before: the cursor went up or the line was cleared.
    let before = shown.split("FIRST").next().unwrap();
    assert!(before.contains('\x1b'), "{before:?}");
}

#[test]
fn keys_of_more_than_one_byte_reach_a_program_in_raw_mode() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "stty raw -echo; printf READY; c=$(dd bs=1 count=3 2>/dev/null | od -An -tx1); stty sane; echo \"KEYS$c\"";
    let mut terminal = start(&ground, &repository, script);
    terminal.until_shown("READY");
    terminal.until_raw();
    terminal.keys("\x1b[A");
    terminal.until_shown("KEYS 1b 5b 41");
    terminal.wait().ok();
    assert!(!terminal.is_raw());
}

#[test]
fn an_interactive_shell_works() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let call = ground.run_in(&repository, &["--keep"], ["sh", "-i"]);
    let mut terminal = call.env("PS1", "PROMPT>").in_terminal(24, 80);
    terminal.until_shown("PROMPT>");
    terminal.until_raw();
    terminal.keys("echo $((40+2))-$(tty)\r");
    terminal.until_shown("42-/dev/pts/");
    // Job control: the shell owns the terminal, and an interrupt ends its child only.
    terminal.keys("sleep 600\r");
    terminal.until_shown("sleep 600");
    let sleeping = || {
        let words = ground.processes().into_iter().map(|process| process.words);
        words
            .into_iter()
            .any(|words| words.starts_with("sleep 600"))
    };
    until("the shell's child runs", sleeping);
    terminal.keys("\x03");
    until("the shell's child has ended", || !sleeping());
    terminal.keys("exit 3\r");
    let outcome = terminal.wait().code(3);
    assert!(!outcome.out().contains("job control"), "{outcome:?}");
    assert!(!terminal.is_raw());
}

#[test]
fn an_interrupt_typed_before_the_commit_cancels_and_leaves_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let leaks = Leaks::watch(&ground, &[&repository]);
    for (round, point) in [
        "prepare:worktree.before",
        "create.before",
        "register.before",
    ]
    .iter()
    .enumerate()
    {
        let held = ground.path(format!("held-{round}"));
        let mut terminal = call(&ground, &repository, "touch ran")
            .hold(point, &held)
            .in_terminal(24, 80);
        until("the launch has come there", || {
            held.with_extension("reached").exists()
        });
        let before = modes(&terminal);
        terminal.keys("\x03");
        terminal.until_shown("cancel");
        std::fs::write(&held, "").unwrap();
        terminal.wait().code(130);
        assert_eq!(modes(&terminal), before, "{point}");
        leaks.none(point);
    }
}

#[test]
fn a_time_limit_restores_the_modes() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--keep", "--timeout", "1s"];
    let terminal = ground
        .run_shell(&repository, &options, "echo READY; exec sleep 600")
        .in_terminal(24, 80);
    terminal.until_shown("READY");
    terminal.wait().code(124);
    assert!(!terminal.is_raw());
    ground.until_quiet();
    assert_eq!(ground.runs(false)[0]["state"], "timed_out");
}
