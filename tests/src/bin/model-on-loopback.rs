//! The model server as a program, for benchmarks and for trying agents by hand: prints where it listens, ends with its input.
//!
//! Each line of its input names a gate to open.

use std::io::{BufRead as _, Write as _};

use groundcrew_tests::model::Model;

fn main() -> std::io::Result<()> {
    let model = Model::start()?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", model.url())?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        model.open(line?.trim());
    }
    Ok(())
}
