//! Options that limit what a run may use, and how its numbers are written.

use clap::Args;
use groundcrew_core::executor::Limits;

/// How much of the machine a run may use.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// Memory of all processes of the run together, such as 512M or 4G.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub memory: Option<u64>,
    /// Processors that all processes of the run together may use, such as 2 or 0.5.
    #[arg(long, value_name = "N", value_parser = cpus, help_heading = "Limits")]
    pub cpus: Option<u64>,
    /// Processes and threads that the run may have at once.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub pids: Option<u64>,
    /// Descriptors that each process may have open.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub nofile: Option<u64>,
    /// The largest file that each process may write, such as 100M.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub fsize: Option<u64>,
}

impl LimitArgs {
    /// Returns what they mean.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            memory: self.memory,
            milli_cpus: self.cpus,
            processes: self.pids,
            open_files: self.nofile,
            file_size: self.fsize,
            core_size: None,
        }
    }
}

/// Reads a size in bytes, with K, M, G or T for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let advice = || format!("{text:?} is no size; write it like 512M or 4G");
    let upper = text.to_ascii_uppercase();
    let upper = upper
        .strip_suffix("IB")
        .or(upper.strip_suffix('B'))
        .unwrap_or(&upper);
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units
        .iter()
        .find_map(|(name, shift)| Some((upper.strip_suffix(*name)?, *shift)));
    let (number, shift) = unit.unwrap_or((upper, 0));
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(advice());
    }
    let number: u64 = number.parse().map_err(|_| advice())?;
    number.checked_mul(1 << shift).ok_or_else(advice)
}

/// Reads a count of processors in thousandths.
fn cpus(text: &str) -> Result<u64, String> {
    let advice = || format!("{text:?} is no count of processors; write it like 2 or 0.5");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return Err(advice());
    }
    let whole: u64 = whole.parse().map_err(|_| advice())?;
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| advice())?;
    whole
        .checked_mul(1000)
        .and_then(|milli| milli.checked_add(part))
        .ok_or_else(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("1", 1),
            ("2k", 2048),
            ("512M", 512 << 20),
            ("4GiB", 4 << 30),
            ("1tb", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "1.5G", "4 G", "1E", "99999999999T", "١"] {
            assert!(size(bad).unwrap_err().contains("512M"), "{bad}");
        }
    }

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, milli) in [("2", 2000), ("0.5", 500), ("1.25", 1250), ("0.001", 1)] {
            assert_eq!(cpus(text), Ok(milli), "{text}");
        }
        for bad in [
            "",
            ".5",
            "1.",
            "-1",
            "0.0001",
            "1e3",
            "99999999999999999999",
        ] {
            assert!(cpus(bad).unwrap_err().contains("0.5"), "{bad}");
        }
    }
}
