//! Input and output without a terminal: every byte, in order, and an end that comes when the command ends.

use std::time::{Duration, Instant};

use crate::ground::{Ground, text};

const LOCAL: [&str; 2] = ["--executor", "local"];

#[test]
fn c19_without_input_a_command_reads_the_end_at_once() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "cat >/dev/null; echo READ-DONE";
    // Our own input stays open all the time, and is not the command's.
    let job = ground
        .run_shell(&repository, &[], script)
        .held_input()
        .spawn();
    assert_eq!(job.wait().ok().out(), "READ-DONE\n");
}

#[test]
fn c19_piped_input_arrives_whole_and_ends() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--executor", "local", "-i"];
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let outcome = ground
        .run_shell(&repository, &options, "cat")
        .input(bytes.clone())
        .run()
        .ok();
    assert!(outcome.stdout == bytes, "{} bytes", outcome.stdout.len());
    let empty = ground.run_shell(&repository, &options, "wc -c").run().ok();
    assert_eq!(empty.out().trim(), "0");
}

#[test]
fn c19_input_arrives_as_it_is_typed() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--executor", "local", "-i"];
    let script = "while read -r line; do echo \"got $line\"; done; echo END";
    let mut job = ground
        .run_shell(&repository, &options, script)
        .held_input()
        .spawn();
    job.write(b"one\n");
    job.until_out("got one");
    job.write(b"two\n");
    job.until_out("got two");
    job.close_input();
    assert_eq!(job.wait().ok().out(), "got one\ngot two\nEND\n");
}

#[test]
fn c19_f018_a_command_that_reads_nothing_ends_as_it_will() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--executor", "local", "-i"];
    let bytes = vec![b'x'; 1_000_000];
    ground
        .run_shell(&repository, &options, "exit 9")
        .input(bytes)
        .run()
        .code(9);
}

#[test]
fn the_two_streams_stay_apart() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let outcome = ground
        .run_shell(
            &repository,
            &LOCAL,
            "echo out; echo err >&2; printf 'no line end'",
        )
        .run()
        .ok();
    assert_eq!(outcome.out(), "out\nno line end");
    assert!(outcome.err().contains("err\n"), "{outcome:?}");
}

#[test]
fn f017_bytes_that_are_no_text_arrive_as_they_are() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let bytes: Vec<u8> = (0..=255).collect();
    let file = ground.path("bytes");
    std::fs::write(&file, &bytes).unwrap();
    let argv = ["cat", file.to_str().unwrap()];
    let outcome = ground.run_in(&repository, &LOCAL, argv).run().ok();
    assert_eq!(outcome.stdout, bytes);
}

#[test]
fn c10_f015_a_flood_on_both_streams_blocks_nobody() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "head -c 300000 /dev/zero | tr '\\0' e >&2; head -c 300000 /dev/zero | tr '\\0' o; echo END";
    let outcome = ground.run_shell(&repository, &LOCAL, script).run().ok();
    let count = |bytes: &[u8], wanted: u8| bytes.split(|byte| *byte == wanted).count() - 1;
    assert_eq!(count(&outcome.stdout, b'o'), 300_000);
    assert!(outcome.out().ends_with("END\n"));
    assert!(count(&outcome.stderr, b'e') >= 300_000);
}

#[test]
fn f016_a_line_of_ten_megabytes_arrives() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "head -c 10000000 /dev/zero | tr '\\0' a";
    let outcome = ground.run_shell(&repository, &LOCAL, script).run().ok();
    assert_eq!(outcome.stdout.len(), 10_000_000);
    assert!(outcome.stdout.iter().all(|byte| *byte == b'a'));
}

#[test]
fn c09_f009_the_end_is_the_end_of_the_command_not_of_its_pipes() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for (script, code, shown) in [
        ("sleep 600 & echo STARTED; exit 3", 3, "STARTED\n"),
        ("echo A; (sleep 600; echo LATE) & exit 0", 0, "A\n"),
        ("setsid sleep 600 & echo B; exit 4", 4, "B\n"),
    ] {
        let began = Instant::now();
        let outcome = ground
            .run_shell(&repository, &LOCAL, script)
            .run()
            .code(code);
        assert!(began.elapsed() < Duration::from_secs(20), "{script}");
        assert_eq!(outcome.out(), shown);
        ground.until_quiet();
    }
}

#[test]
fn f008_closing_every_stream_is_no_end() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo first; exec >&- 2>&- <&-; sleep 1; exit 6";
    ground
        .run_shell(&repository, &LOCAL, script)
        .run()
        .code(6)
        .says("first");
}

#[test]
fn f043_a_command_has_three_open_files() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for terminal in ["-T", "-t"] {
        let options = ["--executor", "local", terminal];
        let argv = ["sh", "-c", "exec ls /proc/self/fd"];
        let outcome = ground.run_in(&repository, &options, argv).run().ok();
        let text = outcome.out();
        let files: Vec<_> = text.split_whitespace().collect();
        // The fourth is the directory that `ls` reads.
        assert_eq!(files, ["0", "1", "2", "3"], "{outcome:?}");
    }
}

#[test]
fn f045_signals_are_as_a_shell_would_have_them() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let argv = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"];
    let outcome = ground.run_in(&repository, &LOCAL, argv).run().ok();
    for line in outcome.out().lines() {
        let (_, mask) = line.split_once('\t').unwrap();
        assert_eq!(u64::from_str_radix(mask, 16), Ok(0), "{line}");
    }
}

#[test]
fn a_reader_that_leaves_early_ends_nothing() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let out = ground.path("done");
    let argv = format!("yes | head -c 2000000; echo done >'{}'", out.display());
    let words = ["-c", "\"$@\" | head -n 1", "sh"];
    let call = ground
        .run_shell(&repository, &LOCAL, &argv)
        .through("/bin/sh", words);
    assert_eq!(call.run().out(), "y\n");
    assert_eq!(std::fs::read_to_string(out).unwrap(), "done\n");
}

#[test]
fn c09_a_time_limit_ends_a_command_whose_child_holds_the_pipe() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let options = ["--timeout", "1s", "--format", "json", "--keep"];
    let began = Instant::now();
    let outcome = ground
        .run_shell(&repository, &options, "sleep 600 & sleep 600")
        .run()
        .code(124);
    assert!(began.elapsed() < Duration::from_secs(30));
    let run = outcome.json();
    assert_eq!(run["state"], "timed_out");
    assert_eq!(run["exit_code"], 124);
    ground.until_quiet();
    ground.call(["rm", text(&run["id"])]).run().ok();
}
