//! What an agent asked, whatever dialect it asked it in.

use super::script::{self, Step};

/// A request of an agent for the model's next words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The path that it came to.
    pub path: String,
    /// The model that it is for.
    pub model: String,
    /// Everything that was said so far, by anybody, in its order.
    pub said: Vec<String>,
    /// The last prompt that holds a script; empty where none does.
    pub prompt: String,
    /// What came of the tool calls since that prompt, in their order.
    pub outputs: Vec<String>,
    /// The tools that the model may call.
    pub tools: Vec<String>,
}

impl Question {
    /// Takes a text of the user's.
    pub(crate) fn user_said(&mut self, text: &str) {
        self.said.push(text.to_owned());
        if script::is_script(text) {
            text.clone_into(&mut self.prompt);
            self.outputs.clear();
        }
    }

    /// Takes a text of the model's.
    pub(crate) fn model_said(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }

    /// Takes what came of a tool call.
    pub(crate) fn tool_said(&mut self, text: String) {
        self.outputs.push(text);
    }

    /// Decides what to answer.
    pub(crate) fn step(&self) -> Step {
        let done = || match self.outputs.last() {
            Some(last) => Step::Say(format!("done; the last output was: {last}")),
            None => Step::Say("there is nothing to do".to_owned()),
        };
        // Agents ask for titles and summaries as well, and offer no tools then.
        if self.tools.is_empty() {
            return Step::Say("a title".to_owned());
        }
        let mut steps = script::steps(&self.prompt);
        if self.outputs.len() < steps.len() {
            steps.swap_remove(self.outputs.len())
        } else {
            done()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_a_tool_leads_to_the_next_step_of_the_last_script() {
        let mut question = Question {
            tools: vec!["shell".to_owned()],
            ..Question::default()
        };
        assert_eq!(
            question.step(),
            Step::Say("there is nothing to do".to_owned())
        );
        question.user_said("do: run a\ndo: hang");
        assert_eq!(question.step(), Step::Run("a".to_owned()));
        question.tool_said("out of a".to_owned());
        question.user_said("and be quick");
        assert_eq!(question.step(), Step::Hang);
        question.user_said("do: run b");
        assert_eq!(question.step(), Step::Run("b".to_owned()));
        question.tool_said("out of b".to_owned());
        let Step::Say(last) = question.step() else {
            panic!("it should end");
        };
        assert!(last.contains("out of b"), "{last}");
        question.tools.clear();
        assert_eq!(question.step(), Step::Say("a title".to_owned()));
    }
}
