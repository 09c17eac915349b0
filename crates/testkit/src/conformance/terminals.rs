//! Cases of terminals.

use groundcrew_core::{
    error::ErrorKind,
    process::{Offset, Role, StdioKind, TerminalSize},
};

use super::{
    bench::{Bench, Reader, id, refused},
    broken::{Broken, hold},
    programs::Program,
};

pub(super) async fn a_terminal_has_one_stream_and_a_size(it: Bench<'_>) -> Result<(), Broken> {
    let size = TerminalSize {
        rows: 31,
        columns: 117,
    };
    let mut spec = it.spec(&Program::Err("careful"))?;
    spec.stdio = StdioKind::Terminal(size);
    let seen = it.run("p", &spec).await?;
    hold!(
        seen.stderr.is_empty() && seen.stdout == b"careful\r\n",
        "standard error of a terminal is {seen:?}"
    );
    let mut spec = it.spec(&Program::Size)?;
    spec.stdio = StdioKind::Terminal(size);
    let q = id("q")?;
    it.instance.start(&q, &spec).await?;
    let attached = it.instance.attach(&q, Offset(0), Role::Viewer).await?;
    let mut output = Reader::new(attached.output, Offset(0));
    output.until(b"31 117\r\n").await?;
    it.instance
        .resize(
            &q,
            TerminalSize {
                rows: 5,
                columns: 7,
            },
        )
        .await?;
    it.instance.close_stdin(&q).await?;
    while output.next().await? {}
    Ok(())
}

pub(super) async fn pipes_have_no_size(it: Bench<'_>) -> Result<(), Broken> {
    let p = it.start("p", &Program::Copy).await?;
    let size = TerminalSize {
        rows: 24,
        columns: 80,
    };
    refused(it.instance.resize(&p, size).await, ErrorKind::Unsupported)?;
    Ok(())
}
