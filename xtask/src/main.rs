//! `cargo xtask`: the project's own commands.
mod console;
mod gates;
mod metadata;
mod process;
mod tidy;
fn main() -> anyhow::Result<()> {
    let metadata = metadata::Metadata::load()?;
    tidy::run(&metadata)?;
    gates::fmt(&metadata.workspace_root, true)
}
