//! The script that a prompt holds: what the model does, one step for each time that it is asked.

/// What the model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `do: say TEXT`: it says that.
    Say(String),
    /// `do: run COMMAND`: it has a shell command run.
    Run(String),
    /// `do: ask COMMAND`: the same, with more permissions than a sandbox gives.
    Ask(String),
    /// `do: wait GATE`: it says some words, waits for the gate, and says some more.
    Wait(String),
    /// `do: hang`: it takes the request and never answers.
    Hang,
    /// `do: fail STATUS`: it answers with an HTTP status and a reason.
    Fail(u16),
    /// `do: flood BYTES`: it says so many bytes.
    Flood(u64),
}

impl Step {
    /// Reads one line of a prompt; what is no step is `None`.
    fn read(line: &str) -> Option<Self> {
        let words = line.trim().strip_prefix("do: ")?;
        let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
        let rest = rest.to_owned();
        Some(match verb {
            "say" => Self::Say(rest),
            "run" => Self::Run(rest),
            "ask" => Self::Ask(rest),
            "wait" => Self::Wait(rest),
            "hang" => Self::Hang,
            "fail" => Self::Fail(rest.parse().ok()?),
            "flood" => Self::Flood(rest.parse().ok()?),
            _ => return None,
        })
    }
}

/// Returns the steps of a prompt.
pub(crate) fn steps(prompt: &str) -> Vec<Step> {
    prompt.lines().filter_map(Step::read).collect()
}

/// Returns whether a text holds a script.
pub(crate) fn is_script(text: &str) -> bool {
    text.lines().any(|line| Step::read(line).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_says_what_the_model_does() {
        let prompt = "Please:\n  do: run echo hi > f\ndo: fail 500\ndo: nothing\ndo: hang\ndo: say so it is\n";
        let expected = [
            Step::Run("echo hi > f".to_owned()),
            Step::Fail(500),
            Step::Hang,
            Step::Say("so it is".to_owned()),
        ];
        assert_eq!(steps(prompt), expected);
        assert!(is_script(prompt) && !is_script("what to do: nothing"));
        assert!(!is_script("do: fail soon"));
    }
}
