//! The report of nextest: which test ended how.
//!
//! It reads the few elements that matter and skips everything else, so that a newer nextest may say more.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::results::Outcome;

/// Reads the report.
///
/// # Errors
///
/// Fails when the text is no report, or is cut off.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, Outcome>> {
    let mut outcomes = BTreeMap::new();
    let mut suite = String::new();
    let mut case: Option<(String, Outcome)> = None;
    let mut whole = false;
    let mut rest = text;
    // In text and attributes `<` is always escaped: each one begins a tag.
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let Some(end) = end_of_tag(rest) else {
            bail!("the report of nextest is cut off");
        };
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag
            .split(|c: char| c.is_whitespace() || c == '/')
            .find(|part| !part.is_empty())
            .unwrap_or_default();
        let (closes, empty) = (tag.starts_with('/'), tag.ends_with('/'));
        match (name, closes) {
            ("testsuites", _) => whole = closes || empty,
            ("testsuite", false) => suite = attribute(tag, "name").unwrap_or_default(),
            ("testcase", false) => {
                let Some(name) = attribute(tag, "name") else {
                    bail!("the report of nextest has a test without a name");
                };
                case = Some((format!("{suite} {name}"), Outcome::Passed));
            }
            ("failure" | "error", false) => {
                if let Some((_, outcome)) = &mut case {
                    *outcome = Outcome::Failed;
                }
            }
            ("skipped", false) => {
                if let Some((_, outcome)) = &mut case {
                    *outcome = Outcome::Skipped;
                }
            }
            _ => {}
        }
        if name == "testcase" && (closes || empty) {
            outcomes.extend(case.take());
        }
    }
    if !whole {
        bail!("the report of nextest is cut off");
    }
    Ok(outcomes)
}

/// Returns where the tag that began before `text` ends; `>` may stand in a quoted attribute.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices()
        .find(|(_, char)| {
            quoted ^= *char == '"';
            *char == '>' && !quoted
        })
        .map(|(at, _)| at)
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    let value = &tag[start..];
    let value = &value[..value.find('"')?];
    Some(
        value
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&apos;", "'")
            .replace("&amp;", "&"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_end_is_told_apart() {
        let text = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="4" failures="1" errors="1">
  <testsuite name="a::it" tests="3">
    <testcase name="m::one" classname="a::it" time="0.1"/>
    <testcase name="m::two" classname="a::it">
      <failure message="m::two &lt;x>" type="test failure">text &lt;testcase name="no"/&gt;</failure>
    </testcase>
    <testcase name="m::three&lt;&amp;lt;&gt;" classname="a::it"><error type="leaked"/></testcase>
    <testcase name="m::four" classname="a::it"><skipped/></testcase>
  </testsuite>
  <testsuite name="b" tests="1"><testcase name="one" classname="b"></testcase></testsuite>
</testsuites>"#;
        let found: Vec<_> = read(text).unwrap().into_iter().collect();
        let expected = [
            ("a::it m::four", Outcome::Skipped),
            ("a::it m::one", Outcome::Passed),
            ("a::it m::three<&lt;>", Outcome::Failed),
            ("a::it m::two", Outcome::Failed),
            ("b one", Outcome::Passed),
        ];
        assert_eq!(
            found,
            expected.map(|(name, outcome)| (name.to_owned(), outcome))
        );
    }

    #[test]
    fn a_report_that_is_cut_off_is_refused() {
        assert!(read("").is_err());
        assert!(read("<testsuites><testsuite name=\"a\"><testcase name=\"b\"/>").is_err());
        assert!(
            read("<testsuites name=\"a\" tests=\"0\"/>\n")
                .unwrap()
                .is_empty()
        );
    }
}
