//! Input, output and terminals: no reader and no writer ever holds anything else up.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use groundcrew_core::{
    error::ErrorKind,
    process::{
        EndCause, FrameKind, Offset, ProcessPhase, ProcessSpec, StdinPolicy, StdioKind,
        TerminalSize,
    },
};

use crate::support::{BOTH, Ground, children, id, lines, order, until};

fn open(mut spec: ProcessSpec) -> ProcessSpec {
    spec.stdin = StdinPolicy::Open;
    spec
}

fn terminal(mut spec: ProcessSpec) -> ProcessSpec {
    spec.stdio = StdioKind::Terminal(TerminalSize {
        rows: 33,
        columns: 111,
    });
    open(spec)
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.split_ascii_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Waits until a process has written some text.
async fn shows(ground: &Ground, name: &str, text: &str) -> String {
    let mut stream = ground.processes.attach(&id(name), Offset(0)).unwrap();
    let mut seen = String::new();
    while !seen.contains(text) {
        match stream.next().await.unwrap().unwrap().kind {
            FrameKind::Stdout(bytes) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            FrameKind::Exit(status) => panic!("it ended ({status}) after {seen:?}"),
            _ => {}
        }
    }
    seen
}

alone! {
    async fn f015_c10_a_flood_that_nobody_reads_blocks_nothing() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("head -c 60000000 /dev/zero >&2; echo done");
        spec.log_limit = 1 << 20;
        ground.start("agent", &spec).await;
        assert_eq!(ground.processes.wait(&id("agent")).await.unwrap().code, Some(0));
        let output = ground.output("agent", 0).await;
        assert_eq!(output.text(), "done\n");
        assert_eq!(output.truncated + output.stderr.len() as u64, 60_000_000);
        assert!(output.stderr.len() <= 1 << 20 && output.stderr.len() > 1 << 19);
        ground.nothing_left().await;
    }

    async fn f016_a_line_without_end_takes_no_memory() {
        let ground = Ground::new(BOTH[0]);
        ground.run("warm", &ground.shell("head -c 2000000 /dev/zero | tr '\\0' a")).await;
        let before = memory();
        ground.start("agent", &ground.shell("head -c 20000000 /dev/zero | tr '\\0' a")).await;
        let mut stream = ground.processes.attach(&id("agent"), Offset(0)).unwrap();
        let mut length = 0;
        while let Some(frame) = stream.next().await {
            if let FrameKind::Stdout(bytes) = frame.unwrap().kind {
                assert!(bytes.iter().all(|b| *b == b'a'));
                length += bytes.len();
            }
        }
        assert_eq!(length, 20_000_000);
        assert!(memory() - before < 4096, "{} KiB more", memory() - before);
        ground.nothing_left().await;
    }

    async fn f017_output_is_bytes() {
        let ground = Ground::new(BOTH[0]);
        let output = ground.run("agent", &ground.shell("head -c 1000000 /dev/urandom | tee copy; printf '\\033[1m\\r\\0\\377' >&2")).await;
        assert!(output.stdout == std::fs::read(ground.path().join("copy")).unwrap());
        assert_eq!(&output.stderr[..], b"\x1b[1m\r\0\xff");
        ground.nothing_left().await;
    }

    async fn f018_a_process_that_never_reads_holds_up_its_writer_alone() {
        let ground = Ground::new(BOTH[0]);
        ground.start("deaf", &open(ground.spec(&["sleep", "1000"]))).await;
        let deaf = id("deaf");
        let write = ground.processes.write(&deaf, Bytes::from(vec![b'x'; 1 << 20]));
        let work = async {
            for n in 0..5 {
                assert_eq!(ground.run(&format!("other-{n}"), &ground.shell("echo hi")).await.text(), "hi\n");
            }
            // The writer is let go although the process lives on.
            ground.processes.close_stdin(&deaf).unwrap();
        };
        let (written, ()) = tokio::join!(write, work);
        assert!(matches!(ground.processes.list()[0].phase, ProcessPhase::Running(_)));
        let error = written.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, false));
        ground.processes.stop(&deaf, &order(Duration::from_secs(20)), EndCause::Stopped).await.unwrap();
        ground.nothing_left().await;
    }

    async fn f019_input_after_its_end_is_an_error_and_no_wait() {
        let ground = Ground::new(BOTH[0]);
        ground.start("agent", &open(ground.shell("cat; echo end"))).await;
        ground.processes.write(&id("agent"), Bytes::from("one ")).await.unwrap();
        ground.processes.write(&id("agent"), Bytes::from("two\n")).await.unwrap();
        ground.processes.close_stdin(&id("agent")).unwrap();
        ground.processes.close_stdin(&id("agent")).unwrap();
        let error = ground.processes.write(&id("agent"), Bytes::from("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(ground.output("agent", 0).await.text(), "one two\nend\n");
        // A process that ended, and one that only closed its end.
        assert_eq!(ground.processes.write(&id("agent"), Bytes::from("x")).await.unwrap_err().kind(), ErrorKind::Unavailable);
        ground.start("closed", &open(ground.shell("exec <&-; echo up; exec sleep 1000"))).await;
        shows(&ground, "closed", "up").await;
        assert_eq!(ground.processes.write(&id("closed"), Bytes::from("x")).await.unwrap_err().kind(), ErrorKind::Unavailable);
        ground.nothing_left().await;
    }

    async fn c19_empty_input_is_at_its_end_at_once() {
        let ground = Ground::new(BOTH[0]);
        assert_eq!(ground.run("agent", &ground.shell("cat; echo end")).await.text(), "end\n");
        let error = ground.processes.write(&id("agent"), Bytes::from("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        ground.nothing_left().await;
    }

    async fn much_input_comes_out_as_it_went_in() {
        let ground = Ground::new(BOTH[0]);
        ground.start("agent", &open(ground.spec(&["cat"]))).await;
        let whole: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let feed = async {
            for piece in whole.chunks(300_007) {
                ground.processes.write(&id("agent"), Bytes::copy_from_slice(piece)).await.unwrap();
            }
            ground.processes.close_stdin(&id("agent")).unwrap();
        };
        let (output, ()) = tokio::join!(ground.output("agent", 0), feed);
        assert!(output.stdout == whole);
        ground.nothing_left().await;
    }

    async fn f010_an_early_end_leaves_code_and_words() {
        let ground = Ground::new(BOTH[0]);
        let output = ground.run("agent", &ground.shell("echo why >&2; exit 3")).await;
        assert_eq!((output.status().code, &output.stderr[..]), (Some(3), &b"why\n"[..]));
        ground.nothing_left().await;
    }

    async fn a_terminal_has_a_size_a_session_and_a_control_key() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let script = "stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && : </dev/tty && echo tty; \
                trap 'stty size; echo resized' WINCH; trap 'echo interrupted; exit 7' INT; echo up; while :; do sleep 0.02; done";
            ground.start("agent", &terminal(ground.shell(script))).await;
            let seen = shows(&ground, "agent", "up").await;
            assert!(seen.contains("33 111") && seen.contains("tty"), "{seen}");
            ground.processes.resize(&id("agent"), TerminalSize { rows: 10, columns: 20 }).unwrap();
            let seen = shows(&ground, "agent", "resized").await;
            assert!(seen.contains("10 20"), "{seen}");
            ground.processes.write(&id("agent"), Bytes::from("\x03")).await.unwrap();
            assert_eq!(ground.processes.wait(&id("agent")).await.unwrap().code, Some(7));
            assert!(shows_all(&ground).await.contains("interrupted"));
            ground.processes.resize(&id("agent"), TerminalSize { rows: 1, columns: 2 }).unwrap();
            ground.nothing_left().await;
        }
    }

    async fn a_terminal_is_told_the_end_of_input() {
        let ground = Ground::new(BOTH[0]);
        ground.start("agent", &terminal(ground.shell("cat; echo end"))).await;
        ground.processes.write(&id("agent"), Bytes::from("half a line")).await.unwrap();
        shows(&ground, "agent", "half a line").await;
        ground.processes.close_stdin(&id("agent")).unwrap();
        assert!(shows_all(&ground).await.contains("end"));
        let error = ground.processes.write(&id("agent"), Bytes::from("x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        ground.nothing_left().await;
    }

    async fn pipes_have_no_size() {
        let ground = Ground::new(BOTH[0]);
        ground.start("agent", &ground.spec(&["true"])).await;
        let error = ground.processes.resize(&id("agent"), TerminalSize { rows: 1, columns: 1 }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        ground.processes.main_ended().await;
        ground.nothing_left().await;
    }

    async fn a_terminal_ends_with_all_that_is_on_it() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            ground.start("agent", &terminal(ground.shell("trap '' HUP TERM; sleep 1000 & echo up; while :; do sleep 1000; done"))).await;
            shows(&ground, "agent", "up").await;
            ground.stop("agent", Duration::from_millis(100)).await;
            until(|| children().is_empty().then_some(())).await;
            ground.nothing_left().await;
        }
    }

    async fn readers_of_every_pace_get_the_same() {
        let ground = Ground::new(BOTH[0]);
        ground.start("agent", &ground.shell("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done")).await;
        let slow = async {
            let mut stream = ground.processes.attach(&id("agent"), Offset(0)).unwrap();
            let mut all = Vec::new();
            while let Some(frame) = stream.next().await {
                if let FrameKind::Stdout(bytes) = frame.unwrap().kind {
                    all.extend_from_slice(&bytes);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            all
        };
        let (one, two, slow) = tokio::join!(ground.output("agent", 0), ground.output("agent", 0), slow);
        let expected = lines(0..3000);
        assert!(one.text() == expected && two.text() == expected && slow == expected.as_bytes());
        ground.nothing_left().await;
    }
}

async fn shows_all(ground: &Ground) -> String {
    ground.output("agent", 0).await.text().to_owned()
}
