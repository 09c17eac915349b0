//! Cases of streams: what was written is read by anybody, and input is one writer's.

use std::pin::Pin;

use groundcrew_core::{
    id::ProcessId,
    process::{Offset, Role, StdinPolicy},
};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::{
    bench::{Bench, Reader},
    broken::{Broken, broken, hold},
    programs::Program,
};

/// More than every buffer on the way holds.
const MUCH: usize = 8 << 20;

type Input = Pin<Box<dyn AsyncWrite + Send>>;

async fn writer(it: &Bench<'_>, id: &ProcessId) -> Result<Input, Broken> {
    let stdio = it.instance.attach(id, Offset(0), Role::Writer).await?;
    match stdio.input {
        Some(input) => Ok(input),
        None => broken!("a writer was given no input"),
    }
}

async fn say(input: &mut Input, bytes: &[u8]) -> Result<(), Broken> {
    input.write_all(bytes).await?;
    Ok(input.flush().await?)
}

pub(super) async fn output_is_replayed_from_any_offset(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Out("0123456789")).await?;
    it.instance.wait(&p).await?;
    for from in 0..=11 {
        let seen = it.read(&p, Offset(from)).await?;
        let wanted = &b"0123456789\n"[usize::try_from(from).unwrap_or(0)..];
        hold!(
            seen.stdout == wanted,
            "from {from} on it is {:?}",
            seen.stdout
        );
        hold!(
            seen.exit.is_some_and(|exit| exit.code == Some(0)),
            "its exit is {:?}",
            seen.exit
        );
    }
    Ok(())
}

pub(super) async fn standard_error_is_kept_apart(it: Bench<'_>) -> Result<(), Broken> {
    let seen = it.run("p", &it.spec(&Program::Err("careful"))?).await?;
    hold!(
        seen.stdout.is_empty() && seen.stderr == b"careful\n",
        "it wrote {seen:?}"
    );
    Ok(())
}

pub(super) async fn output_is_bytes(it: Bench<'_>) -> Result<(), Broken> {
    let all: Vec<u8> = (0..=255).chain([0xff, 0, 0xc3, b'\r']).collect();
    let p = it.start("p", &Program::Copy).await?;
    let mut input = writer(&it, &p).await?;
    say(&mut input, &all).await?;
    input.shutdown().await?;
    let seen = it.read(&p, Offset(0)).await?;
    hold!(seen.stdout == all, "it came back as {:?}", seen.stdout);
    Ok(())
}

pub(super) async fn live_output_follows_replay(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let mut input = writer(&it, &p).await?;
    let attached = it.instance.attach(&p, Offset(0), Role::Viewer).await?;
    let mut early = Reader::new(attached.output, Offset(0));
    say(&mut input, b"one ").await?;
    early.until(b"one ").await?;
    let attached = it.instance.attach(&p, Offset(2), Role::Viewer).await?;
    let mut late = Reader::new(attached.output, Offset(2));
    say(&mut input, b"two ").await?;
    late.until(b"e two ").await?;
    early.until(b"one two ").await?;
    input.shutdown().await?;
    while early.next().await? {}
    while late.next().await? {}
    hold!(
        early.seen.exit == late.seen.exit,
        "two viewers see two ends"
    );
    Ok(())
}

pub(super) async fn a_later_writer_takes_over(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let mut first = writer(&it, &p).await?;
    say(&mut first, b"a").await?;
    let attached = it.instance.attach(&p, Offset(0), Role::Viewer).await?;
    let mut output = Reader::new(attached.output, Offset(0));
    output.until(b"a").await?;
    let mut second = writer(&it, &p).await?;
    say(&mut second, b"b").await?;
    output.until(b"ab").await?;
    // It may take a moment to learn of it; what it says then goes nowhere.
    let mut tries = 0;
    while say(&mut first, b"x").await.is_ok() {
        tries += 1;
        hold!(tries < 1000, "the earlier writer still writes");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    say(&mut second, b"c").await?;
    second.shutdown().await?;
    while output.next().await? {}
    hold!(
        output.seen.stdout == b"abc",
        "the process read {:?}",
        output.seen.stdout
    );
    Ok(())
}

pub(super) async fn a_writer_that_goes_does_not_close_the_input(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let attached = it.instance.attach(&p, Offset(0), Role::Viewer).await?;
    let mut output = Reader::new(attached.output, Offset(0));
    let mut first = writer(&it, &p).await?;
    say(&mut first, b"a").await?;
    output.until(b"a").await?;
    drop(first);
    let mut second = writer(&it, &p).await?;
    say(&mut second, b"b").await?;
    output.until(b"ab").await?;
    second.shutdown().await?;
    let status = it.instance.wait(&p).await?;
    hold!(status.code == Some(0), "its input ended with {status}");
    Ok(())
}

pub(super) async fn closing_the_input_again_is_success(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    it.instance.close_stdin(&p).await?;
    it.instance.close_stdin(&p).await?;
    let status = it.instance.wait(&p).await?;
    hold!(status.code == Some(0), "its input ended with {status}");
    it.instance.close_stdin(&p).await?;
    Ok(())
}

pub(super) async fn no_input_is_an_input_at_its_end(it: Bench<'_>) -> Result<(), Broken> {
    let mut spec = it.spec(&Program::Copy)?;
    spec.stdin = StdinPolicy::Empty;
    let seen = it.run("p", &spec).await?;
    hold!(seen.stdout.is_empty(), "it read {:?}", seen.stdout);
    hold!(
        seen.exit.is_some_and(|exit| exit.code == Some(0)),
        "its exit is {:?}",
        seen.exit
    );
    Ok(())
}

pub(super) async fn a_reader_that_does_not_read_blocks_nothing(
    it: Bench<'_>,
) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let asleep = it.instance.attach(&p, Offset(0), Role::Viewer).await?;
    let mut input = writer(&it, &p).await?;
    say(&mut input, &vec![b'x'; MUCH]).await?;
    input.shutdown().await?;
    let status = it.instance.wait(&p).await?;
    hold!(status.code == Some(0), "it ended with {status}");
    let mut output = Reader::new(asleep.output, Offset(0));
    while output.next().await? {}
    hold!(
        output.seen.stdout.len() == MUCH,
        "the sleeper then read {} bytes",
        output.seen.stdout.len()
    );
    Ok(())
}

pub(super) async fn what_is_no_longer_kept_is_told(it: Bench<'_>) -> Result<(), Broken> {
    let mut spec = it.spec(&Program::Copy)?;
    spec.log_limit = 1 << 20;
    let p = super::bench::id("p")?;
    it.instance.start(&p, &spec).await?;
    let mut input = writer(&it, &p).await?;
    // In pieces: what is one piece is kept or lost as one.
    for piece in vec![b'x'; MUCH].chunks(64 << 10) {
        say(&mut input, piece).await?;
    }
    input.shutdown().await?;
    it.instance.wait(&p).await?;
    let seen = it.read(&p, Offset(0)).await?;
    let kept = seen.stdout.len() as u64;
    hold!(seen.lost > 0, "nothing was lost of {kept} bytes");
    hold!(
        seen.lost + kept == MUCH as u64,
        "{} lost and {kept} kept",
        seen.lost
    );
    hold!(
        kept > 0 && kept <= 2 << 20,
        "{kept} bytes are kept of one mebibyte"
    );
    Ok(())
}
