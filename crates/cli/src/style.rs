//! Colours, where they are wanted and can be shown.

/// Whether words are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style(bool);

impl Style {
    /// No colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self(false);

    /// Makes a style that colours or does not.
    pub(crate) const fn new(colours: bool) -> Self {
        Self(colours)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// For what matters most.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// For what matters least.
    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// For what went wrong.
    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// For what went well.
    pub(crate) fn green(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// For what needs care.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.wrap("33", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_text_is_left_as_it_is() {
        assert_eq!(Style::new(false).red("x"), "x");
        assert_eq!(Style::new(true).red("x"), "\x1b[31mx\x1b[0m");
    }
}
