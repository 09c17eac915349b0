//! How what a conformance case wants done is written for a process in memory.

use groundcrew_core::wire::OsText;

use crate::conformance::Program;

/// Returns the command of a program for processes in memory; what they cannot do is no program.
pub fn commands(program: &Program<'_>) -> Vec<OsText> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).into()).collect();
    match program {
        Program::Exit(code) => words(&["exit", &code.to_string()]),
        Program::Out(text) => words(&["echo", text]),
        Program::Err(text) => words(&["warn", text]),
        Program::Copy => words(&["cat"]),
        Program::Sleep => words(&["sleep-until-signal"]),
        Program::Stubborn => words(&["ignore-signals"]),
        Program::Variable(name) => words(&["print-env", name]),
        _ => words(&["nonsense"]),
    }
}
