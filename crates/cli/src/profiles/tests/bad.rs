//! Files that are wrong, and what is said of them.

use super::*;

/// What is wrong, behind the lines that every profile has.
const BAD: &[(&str, &str)] = &[
    (
        "colour = 1",
        "unknown field `colour`, expected one of `name`, `title`",
    ),
    ("flag = []", "`flags`"),
    ("title = 1", "invalid type: integer"),
    ("title = [\"x\"]", "invalid type"),
    ("description = true", "invalid type: boolean"),
    ("command = \"x\"", "duplicate key"),
    ("continue_command = 1", "a list of arguments, or one string"),
    (
        "continue_command = { a = 1 }",
        "a list of arguments, or one string",
    ),
    ("continue_command = [1]", "expected text"),
    ("continue_command = [[\"a\"]]", "expected text"),
    (
        "continue_command = [{ base16 = \"zz\" }]",
        "not hexadecimal",
    ),
    (
        "continue_command = \"a 'b\"",
        "single quote is never closed",
    ),
    ("continue_command = 'a \"b'", "double quote is never closed"),
    ("continue_command = 'a\\'", "backslash"),
    ("continue_command = 'a # b'", "comment"),
    ("prefix = 1", "a list of arguments, or one string"),
    ("prefix = [true]", "expected text"),
    ("flags = [\"--x\"]", "struct Flag"),
    ("flags = [{ enabled = true }]", "missing field `text`"),
    (
        "flags = [{ text = \"x\", on = true }]",
        "unknown field `on`, expected `text` or `enabled`",
    ),
    ("flags = [{ text = [\"x\"] }]", "invalid type"),
    (
        "flags = [{ text = \"x\", enabled = \"yes\" }]",
        "expected a boolean",
    ),
    ("flags = { text = \"x\" }", "expected a sequence"),
    ("model = \"x\"", "struct ModelRule"),
    (
        "model = { argument = [\"{model}\"] }",
        "unknown field `argument`",
    ),
    (
        "model = { arguments = \"--m {model}\" }",
        "expected a sequence",
    ),
    ("model = { variable = \"\" }", "must not be empty"),
    ("model = { variable = \"A=B\" }", "hold '='"),
    ("model = { variable = 1 }", "expected text"),
    ("model = { default = 4 }", "expected a string"),
    ("approval = true", "struct ApprovalRule"),
    ("approval = { args = [] }", "unknown field `args`"),
    ("approval = { variables = [\"A\"] }", "expected a map"),
    ("approval = { variables = { A = 1 } }", "a string, { secret"),
    ("resume = false", "struct ResumeRule"),
    ("resume = { supported = \"no\" }", "expected a boolean"),
    ("resume = { token = \"x\" }", "unknown field `token`"),
    (
        "prompt = \"stdout\"",
        "unknown variant `stdout`, expected `argument` or `stdin`",
    ),
    ("prompt = { arguments = [] }", "unknown variant `arguments`"),
    (
        "prompt = { argument = \"{prompt}\" }",
        "expected a sequence",
    ),
    ("prompt = 1", "wanted string or table"),
    ("package = \"x\"", "struct ManagedPackage"),
    (
        "package = { name = \"x\", version = \"1.0.0\" }",
        "missing field `program`",
    ),
    (
        "package = { name = \"x\", program = \"x\" }",
        "missing field `version`",
    ),
    (
        "package = { name = \"x\", version = 1.0, program = \"x\" }",
        "expected a string",
    ),
    (
        "package = { name = \"x\", version = \"1.0.0\", program = \"x\", tag = \"latest\" }",
        "unknown field `tag`",
    ),
    ("environment = [\"A=1\"]", "expected a map"),
    ("environment = { A = 1 }", "a string, { secret"),
    ("environment = { A = true }", "a string, { secret"),
    ("environment = { A = [\"x\"] }", "a string, { secret"),
    ("environment = { \"\" = \"x\" }", "must not be empty"),
    ("environment = { \"A=B\" = \"x\" }", "hold '='"),
    ("environment = { A = {} }", "either `secret`"),
    (
        "environment = { A = { secret = \"../x\" } }",
        "a secret's name",
    ),
    ("environment = { A = { secret = \"\" } }", "a secret's name"),
    (
        "environment = { A = { secret = \"x\", path = \"y\" } }",
        "either `secret`",
    ),
    (
        "environment = { A = { tenant = \"t\" } }",
        "either `secret`",
    ),
    (
        "environment = { A = { secret = \"x\", tenant = \"../t\" } }",
        "tenant id",
    ),
    (
        "environment = { A = { value = \"x\" } }",
        "unknown field `value`",
    ),
    ("environment = { A = { path = \"\" } }", "the path is empty"),
    (
        "environment = { A = { path = \"~root/x\" } }",
        "another user's `~`",
    ),
    ("environment = { A = \"1\", A = \"2\" }", "duplicate key"),
    ("defaults = { A = { path = \"a\\u0000b\" } }", "NUL"),
    ("credentials = [\"A\"]", "struct Credential"),
    (
        "credentials = [{ secrets = [\"x\"] }]",
        "missing field `variable`",
    ),
    (
        "credentials = [{ variable = \"A\", secrets = \"x\" }]",
        "expected a sequence",
    ),
    (
        "credentials = [{ variable = \"A\", secrets = [\" \"] }]",
        "a secret's name",
    ),
    (
        "credentials = [{ variable = \"A\", needed = true }]",
        "unknown field `needed`",
    ),
    ("strip = \"A\"", "expected a sequence"),
    ("strip = [1]", "expected a string"),
    ("caches = { GOCACHE = \"go\" }", "expected a sequence"),
    (
        "caches = [{ variable = \"GOCACHE\" }]",
        "missing field `directory`",
    ),
    ("stop = \"TERM\"", "struct StopRule"),
    ("stop = { signal = \"NOPE\" }", "no such signal"),
    ("stop = { signal = 15 }", "expected a string"),
    ("stop = { signal = \"0\" }", "no such signal"),
    ("stop = { grace_seconds = -1 }", "expected u32"),
    ("stop = { grace_seconds = \"10s\" }", "expected u32"),
    ("stop = { grace = 1 }", "unknown field `grace`"),
    ("executor = \"\"", "executor name is empty"),
    ("executor = \"../docker\"", "executor name"),
    ("executor = 1", "expected a string"),
    ("[environment", "unclosed"),
    ("title = \"x", "invalid basic string"),
    ("title = x", "must be quoted"),
    ("= 1", "key"),
    ("title = \"a\\q\"", "escape"),
    ("\u{feff}title = \"x\"", "invalid"),
];

#[test]
fn c17_what_is_wrong_in_a_file_is_told_with_its_place() {
    let mut untold = Vec::new();
    for (line, word) in BAD {
        let text = format!("name = \"a\"\ncommand = [\"agent\"]\n{line}\n");
        let errors = parse(&text, Path::new("/c/a.toml"), Some(Path::new(HOME))).unwrap_err();
        let [error] = &errors[..] else {
            panic!("{line}: {errors:?}")
        };
        let whole = Chain(error).to_string();
        let kind = error.kind() == ErrorKind::InvalidInput;
        // A path is looked at after the file was read; it names its variable instead.
        let place = match error.get("line") {
            Some(line) => line == "3" || line == "4",
            None => error.get("variable").is_some(),
        };
        if !(kind && place && whole.contains(word) && error.get("file") == Some("/c/a.toml")) {
            untold.push(format!("{line} should tell {word:?}: {whole}"));
        }
    }
    assert!(untold.is_empty(), "{untold:#?}");
    let count = BAD.len();
    assert!(count >= 80, "{count} cases");
}

#[test]
fn f062_names_of_profiles_are_names() {
    for bad in ["", "-x", ".x", "a/b", "a b", "ä", "..", "x\0"] {
        let text = format!("name = {bad:?}\ncommand = [\"agent\"]\n").replace("\\0", "\\u0000");
        let errors = parse(&text, Path::new("/c/a.toml"), None).unwrap_err();
        assert!(
            errors[0].message().contains("profile name"),
            "{bad:?}: {errors:?}"
        );
        assert_eq!(
            (errors[0].get("line"), errors[0].get("column")),
            (Some("1"), Some("8"))
        );
    }
    let errors = parse("name = \"b\"\ncommand = []\n", Path::new("/c/a.toml"), None).unwrap_err();
    assert!(
        errors[0].message().contains("the name of its file"),
        "{errors:?}"
    );
    for bad in ["-x.toml", "a b.toml", ".toml", "ä.toml"] {
        assert!(name_of(Path::new(bad)).is_err(), "{bad}");
    }
}
