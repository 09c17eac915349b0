//! The program that is a container's first process: static, of the engine's machine, or an error before anything is made.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use groundcrew_core::error::{Error, ErrorKind};

const ADVICE: &str = "build one with `cargo xtask supervisor`, and put it beside the command or name it in GROUNDCREW_SUPERVISOR";

/// The type of a program header that names an interpreter.
const PT_INTERP: u32 = 3;

/// Which machine a program is for, as engines call it; `None` for one that is not known here.
fn machine(number: u16) -> Option<&'static str> {
    match number {
        62 => Some("amd64"),
        183 => Some("arm64"),
        _ => None,
    }
}

/// A program that can be the first process of any image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// As engines call it, such as `amd64`.
    pub(crate) architecture: &'static str,
}

fn unusable(message: &'static str, path: &Path) -> Error {
    Error::new(ErrorKind::Unavailable, message)
        .retryable(false)
        .with("program", path.display())
        .with("advice", ADVICE)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Tells the machine of a 64-bit little-endian ELF file, and whether it needs an interpreter.
fn elf(file: &File) -> std::io::Result<Option<(u16, bool)>> {
    let mut head = [0; 64];
    let mut reader = file;
    reader.read_exact(&mut head)?;
    if head.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let read = || {
        let machine = u16::from_le_bytes(number(&head, 18)?);
        let offset = u64::from_le_bytes(number(&head, 32)?);
        let size = u16::from_le_bytes(number(&head, 54)?);
        let count = u16::from_le_bytes(number(&head, 56)?);
        Some((machine, offset, size, count))
    };
    let Some((machine, offset, size, count)) = read() else {
        return Ok(None);
    };
    let mut interpreted = false;
    for index in 0..u64::from(count) {
        let mut kind = [0; 4];
        let at = index
            .checked_mul(u64::from(size))
            .and_then(|at| at.checked_add(offset));
        let Some(at) = at else { return Ok(None) };
        file.read_exact_at(&mut kind, at)?;
        interpreted |= u32::from_le_bytes(kind) == PT_INTERP;
    }
    Ok(Some((machine, interpreted)))
}

impl Program {
    /// Takes the first of these that exists.
    ///
    /// # Errors
    ///
    /// `Unavailable`, saying what to do, when there is none, or it is not static.
    pub(crate) fn find(candidates: &[PathBuf]) -> Result<Self, Error> {
        for path in candidates {
            if path.is_file() {
                return Self::check(path);
            }
        }
        let looked: Vec<_> = candidates
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        Err(Error::new(
            ErrorKind::Unavailable,
            "there is no supervisor for containers",
        )
        .retryable(false)
        .with("looked_for", looked.join(", "))
        .with("advice", ADVICE))
    }

    fn check(path: &Path) -> Result<Self, Error> {
        let found = File::open(path).and_then(|file| elf(&file)).map_err(|e| {
            unusable("the supervisor for containers cannot be read", path).with_source(e)
        })?;
        match found {
            None => Err(unusable(
                "the supervisor for containers is no program",
                path,
            )),
            Some((_, true)) => Err(unusable(
                "the supervisor for containers is not static: it would run in few images",
                path,
            )),
            Some((number, false)) => match machine(number) {
                Some(architecture) => Ok(Self {
                    path: path.to_owned(),
                    architecture,
                }),
                None => Err(unusable(
                    "the supervisor for containers is for a machine that is not known",
                    path,
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_loader_is_refused_with_what_to_do() {
        let dynamic = PathBuf::from("/proc/self/exe");
        let error = Program::find(&[PathBuf::from("/nowhere"), dynamic]).unwrap_err();
        assert!(error.message().contains("not static"), "{error}");
        assert!(
            error
                .get("advice")
                .unwrap()
                .contains("cargo xtask supervisor")
        );
        let none = Program::find(&[PathBuf::from("/nowhere")]).unwrap_err();
        assert_eq!(none.get("looked_for"), Some("/nowhere"));
        let ground = tempfile::tempdir().unwrap();
        let script = ground.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n".repeat(20)).unwrap();
        let error = Program::find(&[script]).unwrap_err();
        assert!(error.message().contains("no program"), "{error}");
    }
}
