//! Agents by profile, from a file of the user's to the command that runs.

use std::fs;

use crate::ground::{Ground, text};

/// Writes a profile of the user's.
fn profile(ground: &Ground, name: &str, body: &str) {
    let directory = ground.root().join("home/.config/groundcrew/profiles");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join(format!("{name}.toml")),
        format!("name = \"{name}\"\n{body}"),
    )
    .unwrap();
}

/// A script that tells its arguments, in a directory whose name has a space.
fn teller(ground: &Ground) -> String {
    fs::create_dir_all(ground.path("my tools")).unwrap();
    let script = ground.script(
        "my tools/agent",
        "#!/bin/sh\nfor a in \"$@\"; do printf '[%s]' \"$a\"; done\n",
    );
    script.display().to_string()
}

/// What a task may begin with, or be.
const PROMPTS: [&str; 11] = [
    "- first point",
    "--help",
    "--",
    "$(touch PWNED)",
    "`touch PWNED`",
    "\"; touch PWNED; \"",
    "two\nlines",
    "it's",
    "a\\b",
    "*",
    "",
];

#[test]
fn c13_a_prompt_is_one_argument_whatever_it_says() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let agent = teller(&ground);
    profile(
        &ground,
        "teller",
        &format!("command = \"'{agent}' --x\"\n[prompt]\nargument = [\"--\", \"{{prompt}}\"]\n"),
    );
    for prompt in PROMPTS {
        let words = ["run", "--keep", "--agent", "teller", "--prompt", prompt];
        let outcome = ground.call(words).directory(repository.path()).run().ok();
        assert_eq!(outcome.out(), format!("[--x][--][{prompt}]"));
    }
    for run in ground.runs(false) {
        assert!(
            !crate::ground::path(&run["workspace"])
                .join("PWNED")
                .exists()
        );
    }
    assert!(!repository.path().join("PWNED").exists());
}

#[test]
fn c13_k07_a_template_that_is_open_starts_nothing_and_names_the_quote() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let agent = teller(&ground);
    for body in [
        format!("command = \"'{agent}' --x 'unclosed\"\n"),
        format!("command = [\"{agent}\"]\nprefix = \"wrapper 'unclosed\"\n"),
    ] {
        profile(&ground, "open", &body);
        let outcome = ground
            .call(["run", "--agent", "open"])
            .directory(repository.path())
            .run()
            .code(125);
        assert!(outcome.err().contains("quote"), "{outcome:?}");
        assert_eq!(ground.runs(true).len(), 0);
        assert_eq!(repository.branches(), ["main"]);
    }
}

#[test]
fn k03_k04_w12_prefix_command_flags_and_further_words_in_their_order() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let agent = teller(&ground);
    let body = format!(
        "command = [\"{agent}\", \"base\"]\nprefix = \"/usr/bin/env\"\n\
        [[flags]]\ntext = \"--one two\"\nenabled = true\n\
        [[flags]]\ntext = \"--off\"\nenabled = false\n\
        [[flags]]\ntext = \"--open 'quote\"\nenabled = true\n\
        [model]\narguments = [\"--model\", \"{{model}}\"]\n"
    );
    profile(&ground, "flags", &body);
    let words = [
        "run",
        "--agent",
        "flags",
        "--model",
        "large",
        "--",
        "more words",
        "",
    ];
    let outcome = ground.call(words).directory(repository.path()).run().ok();
    assert_eq!(
        outcome.out(),
        "[base][--model][large][--one][two][more words][]"
    );
    assert!(
        outcome.err().contains("--open 'quote") && outcome.err().contains("left out"),
        "{outcome:?}"
    );
    // The same is seen without an effect, and the prefix stands first.
    let plan = ground
        .call(["plan", "--format", "json", "--agent", "flags"])
        .directory(repository.path())
        .run()
        .ok()
        .json();
    assert_eq!(plan["command"][0], "/usr/bin/env");
}

#[test]
fn k01_a_resumed_agent_takes_its_continue_command_and_the_profile_may_change_meanwhile() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let agent = teller(&ground);
    let body = |flag: &str| {
        format!(
            "command = [\"{agent}\", \"start\"]\ncontinue_command = [\"{agent}\", \"continue\"]\n\
            [[flags]]\ntext = \"{flag}\"\nenabled = true\n[environment]\nOF_PROFILE = \"{flag}\"\n\
            [resume]\narguments = [\"--resume\", \"{{token}}\"]\n"
        )
    };
    profile(&ground, "both", &body("--first"));
    let words = ["run", "--keep", "--agent", "both", "--", "extra"];
    let outcome = ground.call(words).directory(repository.path()).run().ok();
    assert_eq!(outcome.out(), "[start][--first][extra]");
    let run = &ground.runs(false)[0];
    profile(&ground, "both", &body("--second"));
    let outcome = ground.call(["resume", text(&run["id"])]).run().ok();
    assert_eq!(outcome.out(), "[continue][--second][extra]");
    // Another command in the same workspace, and back.
    let outcome = ground
        .call([
            "resume",
            text(&run["id"]),
            "--",
            "sh",
            "-c",
            "echo \"${OF_PROFILE-none}\"",
        ])
        .run()
        .ok();
    assert_eq!(outcome.out(), "none\n");
}

#[test]
fn k12_who_the_agent_is_reaches_it() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    profile(
        &ground,
        "who",
        "command = [\"sh\", \"-c\", 'echo \"$GROUNDCREW_AGENT_PROFILE_ID $GROUNDCREW_EXECUTION_PROFILE_ID $ACCOUNT ${NESTED-absent}\"']\nstrip = [\"NESTED\"]\n[environment]\nACCOUNT = \"/accounts/a\"\n",
    );
    let call = ground
        .call(["run", "--agent", "who"])
        .directory(repository.path())
        .env("NESTED", "1");
    assert_eq!(call.run().ok().out(), "who who /accounts/a absent\n");
}

#[test]
fn k11_w16_what_an_agent_needs_and_does_not_get_is_told_before_anything_is_made() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    profile(
        &ground,
        "needs",
        "command = [\"sh\", \"-c\", 'printf %s \"$THE_KEY\" | wc -c']\n[[credentials]]\nvariable = \"THE_KEY\"\nsecrets = [\"maker/key\"]\nrequired = true\n",
    );
    profile(
        &ground,
        "elsewhere",
        "command = [\"true\"]\nexecutor = \"microvm\"\n",
    );
    let call = |name: &str| {
        ground
            .call(["run", "--agent", name])
            .directory(repository.path())
    };
    let outcome = call("needs").run().code(125);
    assert!(
        outcome.err().contains("maker/key") && outcome.err().contains("THE_KEY"),
        "{outcome:?}"
    );
    let outcome = call("elsewhere").run().code(125);
    assert!(outcome.err().contains("microvm"), "{outcome:?}");
    let outcome = call("nobody").run().code(125);
    assert!(
        outcome.err().contains("codex") && outcome.err().contains("needs"),
        "{outcome:?}"
    );
    assert_eq!(ground.runs(true).len(), 0);
    assert_eq!(repository.branches(), ["main"]);
    // A stored secret, or the caller's own variable, is what it needs.
    ground
        .call(["secret", "set", "maker/key"])
        .input("0123456789")
        .run()
        .ok();
    assert_eq!(call("needs").run().ok().out().trim(), "10");
    ground.call(["secret", "rm", "maker/key"]).run().ok();
    assert_eq!(
        call("needs").env("THE_KEY", "abc").run().ok().out().trim(),
        "3"
    );
}

#[test]
fn a_prompt_on_standard_input_reaches_its_end() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    profile(
        &ground,
        "reader",
        "command = [\"cksum\"]\nprompt = \"stdin\"\n",
    );
    let large = "words and more words\n".repeat(20_000);
    let file = ground.file("task", &large);
    let word = format!("@{}", file.display());
    let outcome = ground
        .call(["run", "--agent", "reader", "--prompt", &word])
        .directory(repository.path())
        .run()
        .ok();
    assert_eq!(
        outcome.out().split(' ').nth(1).unwrap().trim(),
        large.len().to_string()
    );
    let outcome = ground
        .call(["run", "--agent", "reader", "--prompt", "-"])
        .directory(repository.path())
        .input("abc")
        .run()
        .ok();
    assert_eq!(outcome.out().split(' ').nth(1).unwrap().trim(), "3");
}

#[test]
fn words_about_agents_without_one_are_refused() {
    let ground = Ground::new();
    let outcome = ground
        .call(["run", "--model", "x", "--", "true"])
        .run()
        .code(2);
    assert!(outcome.err().contains("--agent"), "{outcome:?}");
    ground.call(["run"]).run().code(2);
}
