//! Output to viewers and input from writers.

use std::time::Duration;

use groundcrew_core::{
    error::{Error, ErrorKind},
    executor::Executor as _,
    process::{ExitStatus, Lease, Offset, Role, StdioKind, TerminalSize},
};
use tokio::io::AsyncWriteExt as _;

use crate::place::{LONG, Place, collect, fresh, process, read, shell};

crate::runner::tests![
    two_viewers_see_the_same_from_any_offset,
    c07_output_goes_on_while_no_controller_is_there,
    input_is_streamed_and_closed,
    dropping_a_writer_leaves_the_input_open,
    a_later_writer_takes_over,
    f018_a_process_that_never_reads_holds_up_nobody,
    start_is_repeatable,
    an_end_in_the_middle_of_a_stream_loses_no_byte,
    a_writer_of_an_ended_process_learns_it_when_writing,
    a_terminal_gets_its_size_and_its_end_of_file,
    archives_go_in_and_out,
];

async fn two_viewers_see_the_same_from_any_offset() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    let script = "i=0; while [ $i -lt 20000 ]; do echo \"line $i\"; i=$((i+1)); done";
    instance.start(&agent, &shell(script)).await.unwrap();
    let other = place.executor.connect(&id).await.unwrap();
    let (one, two) = futures_util::future::join(
        read(instance.as_ref(), &agent, Offset(0)),
        read(other.as_ref(), &agent, Offset(100_003)),
    )
    .await;
    let (one, two) = (one.unwrap(), two.unwrap());
    let want: String = (0..20_000)
        .flat_map(|i| ["line ".to_owned(), i.to_string(), "\n".to_owned()])
        .collect();
    assert!(one.stdout == want.as_bytes(), "{} bytes", one.stdout.len());
    assert!(
        two.stdout == want.as_bytes()[100_003..],
        "{} bytes",
        two.stdout.len()
    );
    assert_eq!(
        (one.exit, two.exit),
        (Some(ExitStatus::exited(0)), one.exit)
    );
}

async fn c07_output_goes_on_while_no_controller_is_there() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let agent = process("agent");
    let go = place.root.path().join("go");
    let script = format!(
        "echo before; while [ ! -e '{0}' ]; do sleep 0.02; done; echo after; cat",
        go.display()
    );
    instance.start(&agent, &shell(&script)).await.unwrap();
    let stdio = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    let seen = collect(stdio.output, Offset(0), |seen| seen.stdout == b"before\n")
        .await
        .unwrap();
    drop(instance);
    std::fs::write(&go, "").unwrap();
    let instance = place.executor.connect(&id).await.unwrap();
    let offset = Offset(seen.stdout.len() as u64);
    let stdio = instance.attach(&agent, offset, Role::Viewer).await.unwrap();
    let seen = collect(stdio.output, offset, |seen| seen.stdout == b"after\n")
        .await
        .unwrap();
    assert_eq!(seen.exit, None);
    instance.close_stdin(&agent).await.unwrap();
    assert_eq!(instance.wait(&agent).await.unwrap(), ExitStatus::exited(0));
}

async fn input_is_streamed_and_closed() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    instance.start(&agent, &shell("cat")).await.unwrap();
    let mut stdio = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let mut input = stdio.input.take().unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let write = async {
        input.write_all(&bytes).await.unwrap();
        input.shutdown().await.unwrap();
        input.shutdown().await.unwrap();
    };
    let (seen, ()) =
        futures_util::future::join(collect(stdio.output, Offset(0), |_| false), write).await;
    let seen = seen.unwrap();
    assert!(
        seen.stdout == bytes,
        "{} bytes came back",
        seen.stdout.len()
    );
    assert_eq!(seen.exit, Some(ExitStatus::exited(0)));
}

async fn dropping_a_writer_leaves_the_input_open() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    instance
        .start(&agent, &shell("read a; echo got; read b; echo \"$a$b\""))
        .await
        .unwrap();
    for (word, answer) in [("one\n", &b"got\n"[..]), ("two\n", b"got\nonetwo\n")] {
        let mut stdio = instance
            .attach(&agent, Offset(0), Role::Writer)
            .await
            .unwrap();
        let mut input = stdio.input.take().unwrap();
        input.write_all(word.as_bytes()).await.unwrap();
        // What was written arrives, also when the writer goes at once.
        drop(input);
        let seen = collect(stdio.output, Offset(0), |seen| seen.stdout == answer)
            .await
            .unwrap();
        assert_eq!(seen.stdout, answer);
    }
}

async fn a_later_writer_takes_over() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    instance.start(&agent, &shell("cat")).await.unwrap();
    let mut first = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let mut first_input = first.input.take().unwrap();
    first_input.write_all(b"first ").await.unwrap();
    collect(first.output, Offset(0), |seen| seen.stdout == b"first ")
        .await
        .unwrap();

    let other = place.executor.connect(&id).await.unwrap();
    let mut second = other.attach(&agent, Offset(0), Role::Writer).await.unwrap();
    let mut second_input = second.input.take().unwrap();
    // The news may take a moment to cross; what is written until then is not taken.
    let refused = tokio::time::timeout(LONG, async {
        loop {
            match first_input.write_all(b"lost ").await {
                Ok(()) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(error) => return error,
            }
        }
    })
    .await
    .unwrap();
    let cause = refused.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!(cause.kind(), ErrorKind::Conflict, "{cause}");
    second_input.write_all(b"second").await.unwrap();
    second_input.shutdown().await.unwrap();
    let seen = collect(second.output, Offset(0), |_| false).await.unwrap();
    assert_eq!(seen.stdout, b"first second");
}

async fn f018_a_process_that_never_reads_holds_up_nobody() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    instance
        .start(
            &agent,
            &shell("trap 'echo done; exit 5' USR1; while :; do sleep 0.02; done"),
        )
        .await
        .unwrap();
    let mut stdio = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let mut input = stdio.input.take().unwrap();
    let flood = tokio::time::timeout(Duration::from_secs(1), async {
        loop {
            input.write_all(&[b'x'; 8192]).await.unwrap();
        }
    });
    flood.await.unwrap_err();
    assert_eq!(instance.processes().await.unwrap().len(), 1);
    instance
        .signal(&agent, groundcrew_core::process::Signal(10))
        .await
        .unwrap();
    assert_eq!(instance.wait(&agent).await.unwrap(), ExitStatus::exited(5));
}

async fn start_is_repeatable() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    let first = instance.start(&agent, &shell("cat")).await.unwrap();
    let other = place.executor.connect(&id).await.unwrap();
    assert_eq!(other.start(&agent, &shell("cat")).await.unwrap(), first);
    let error = other.start(&agent, &shell("cat -")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let mut missing = shell("true");
    missing.command = groundcrew_core::command::Command::new(["no-such-program"]).unwrap();
    let error = other
        .start(&process("missing"), &missing)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
    assert_eq!(instance.processes().await.unwrap().len(), 1);
}

async fn an_end_in_the_middle_of_a_stream_loses_no_byte() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::Unlimited).await;
    let agent = process("agent");
    // Far more than all windows hold, so that the rest comes from the log when the supervisor is gone.
    let script = "head -c 40000000 /dev/zero | tr '\\0' x; cat";
    instance.start(&agent, &shell(script)).await.unwrap();
    let stdio = instance
        .attach(&agent, Offset(0), Role::Viewer)
        .await
        .unwrap();
    let supervisor = place.supervisor_pid(&id).unwrap();
    let mut killed = false;
    let mut output = stdio.output;
    let first = collect(&mut output, Offset(0), |seen| seen.stdout.len() > 100_000)
        .await
        .unwrap();
    // All of it is recorded before the supervisor is killed.
    loop {
        let states = instance.processes().await.unwrap();
        if states[0].log_end == Offset(40_000_000) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    crate::place::kill(supervisor).await;
    let mut bytes = first.stdout.len();
    let mut position = Offset(bytes as u64);
    let error = loop {
        use futures_util::StreamExt as _;
        match tokio::time::timeout(LONG, output.next()).await.unwrap() {
            Some(Ok(frame)) => {
                assert_eq!(frame.offset, position);
                if let groundcrew_core::process::FrameKind::Stdout(piece) = frame.kind {
                    bytes += piece.len();
                    position = Offset(bytes as u64);
                }
                killed = true;
            }
            Some(Err(error)) => break error,
            None => panic!("the stream ends as if all was well"),
        }
    };
    assert!(killed, "nothing was left to read");
    assert_eq!(bytes, 40_000_000);
    assert_eq!(error.get("phase"), Some("lost"), "{error}");
    let error = instance.wait(&agent).await.unwrap_err();
    assert_eq!(error.get("phase"), Some("lost"), "{error}");
}

async fn a_writer_of_an_ended_process_learns_it_when_writing() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let (agent, other) = (process("agent"), process("other"));
    let mut spec = shell("exit 4");
    spec.main = false;
    instance.start(&other, &spec).await.unwrap();
    instance.wait(&other).await.unwrap();
    instance.start(&agent, &shell("exit 4")).await.unwrap();
    instance.wait(&agent).await.unwrap();
    crate::place::until("the supervisor ended", || {
        place.supervisor_pid(&id).is_none()
    })
    .await;
    let mut stdio = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let mut input = stdio.input.take().unwrap();
    input.write_all(b"x").await.unwrap_err();
    let seen = collect(stdio.output, Offset(0), |_| false).await.unwrap();
    assert_eq!(seen.exit, Some(ExitStatus::exited(4)));
}

async fn a_terminal_gets_its_size_and_its_end_of_file() {
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let agent = process("agent");
    let mut spec = shell("stty size; read x; stty size; cat; exit 6");
    spec.stdio = StdioKind::Terminal(TerminalSize {
        rows: 11,
        columns: 22,
    });
    instance.start(&agent, &spec).await.unwrap();
    let mut stdio = instance
        .attach(&agent, Offset(0), Role::Writer)
        .await
        .unwrap();
    let mut input = stdio.input.take().unwrap();
    let has = |seen: &crate::place::Seen, text: &str| {
        String::from_utf8_lossy(&seen.stdout).contains(text)
    };
    let seen = collect(&mut stdio.output, Offset(0), |seen| has(seen, "11 22"))
        .await
        .unwrap();
    instance
        .resize(
            &agent,
            TerminalSize {
                rows: 33,
                columns: 44,
            },
        )
        .await
        .unwrap();
    input.write_all(b"go\n").await.unwrap();
    let from = Offset(seen.stdout.len() as u64);
    let seen = collect(&mut stdio.output, from, |seen| has(seen, "33 44"))
        .await
        .unwrap();
    assert!(has(&seen, "33 44"));
    input.shutdown().await.unwrap();
    assert_eq!(instance.wait(&agent).await.unwrap(), ExitStatus::exited(6));
}

async fn archives_go_in_and_out() {
    use futures_util::StreamExt as _;
    let (place, id) = (Place::new(), fresh());
    let instance = place.instance(&id, Lease::UNTIL_COMMIT).await;
    let (from, to) = (
        place.root.path().join("from"),
        place.root.path().join("to \u{e9}?&"),
    );
    std::fs::create_dir_all(from.join("sub")).unwrap();
    std::fs::create_dir_all(&to).unwrap();
    std::fs::write(from.join("sub/file"), vec![7; 300_000]).unwrap();
    let tar = instance.get_archive(&from).await.unwrap();
    let pieces: Vec<_> = tar.collect().await;
    assert!(pieces.iter().all(Result::is_ok));
    instance
        .put_archive(&to, futures_util::stream::iter(pieces).boxed())
        .await
        .unwrap();
    let unpacked = ["sub/file", "from/sub/file"].map(|name| to.join(name));
    let file = unpacked.iter().find(|path| path.exists()).unwrap();
    assert_eq!(std::fs::read(file).unwrap(), vec![7; 300_000]);
    let error = instance
        .get_archive(&place.root.path().join("none"))
        .await
        .err();
    assert_eq!(error.unwrap().kind(), ErrorKind::NotFound);
}
