//! What a request wants: routes, arguments, prompts.

use super::*;

#[test]
fn k17_an_open_route_adds_its_flags_behind_the_profiles_and_k16_a_concrete_one_adds_nothing() {
    let mut agent = profile(&["agent"]);
    agent.flags = vec![Flag::on("--own")];
    agent.model = ModelRule {
        arguments: words(&["--model={model}"]),
        ..ModelRule::default()
    };
    let mut route = Route {
        flags: vec!["--routed 1".into(), "--bad 'x".into()],
        model: Some("routed".into()),
        ..Route::default()
    };
    let mut wishes = CommandWishes {
        extra: words(&["--extra", ""]),
        route: Some(route.clone()),
        ..CommandWishes::default()
    };
    let built = build(&agent, &wishes).unwrap();
    assert_eq!(
        shown(&built.start),
        [
            "agent",
            "--model=routed",
            "--own",
            "--routed",
            "1",
            "--extra",
            ""
        ]
    );
    assert_eq!(built.dropped.len(), 1);
    wishes.model = Some("wished".into());
    assert_eq!(start(&agent, &wishes)[1], "--model=wished");
    route.profile = Some(ProfileName::new("mock").unwrap());
    let wishes = CommandWishes {
        route: Some(route),
        ..CommandWishes::default()
    };
    let built = build(&agent, &wishes).unwrap();
    assert_eq!(
        (shown(&built.start), built.dropped),
        (vec!["agent".to_owned(), "--own".into()], Vec::new())
    );
}

#[test]
fn k26_words_arrive_one_by_one_whatever_they_hold() {
    let odd = [
        "a b", "", r"C:\dir\", "'", "\"", "$HOME", "*", "#", "{prompt}", "{model}", "\n",
    ];
    let agent = profile(&[&["agent"][..], &odd].concat());
    let bytes = OsText::from_bytes(b"\xff\xfe".to_vec());
    let wishes = CommandWishes {
        extra: [words(&odd), vec![bytes.clone()]].concat(),
        ..CommandWishes::default()
    };
    let built = build(&agent, &wishes).unwrap();
    let expected = [words(&["agent"]), words(&odd), words(&odd), vec![bytes]].concat();
    assert_eq!(built.start.arguments(), expected);
}

#[test]
fn c13_a_prompt_is_one_argument_unchanged() {
    let prompts = [
        "- first point",
        "--help",
        "--",
        "$(touch PWNED)",
        "`touch PWNED`",
        "\"; touch PWNED; \"",
        "two\nlines",
        "it's",
        r"a\b",
        "*",
        "",
    ];
    let mut agent = profile(&["/my tools/agent"]);
    agent.continue_command = Some(words(&["/my tools/agent", "more"]));
    for prompt in prompts {
        let wishes = CommandWishes {
            prompt: Some(prompt.into()),
            follow_up: Some(prompt.into()),
            ..CommandWishes::default()
        };
        agent.prompt = Some(PromptRule::Argument(words(&["--", "{prompt}"])));
        assert!(agent.check().is_empty());
        let built = build(&agent, &wishes).unwrap();
        assert_eq!(shown(&built.start), ["/my tools/agent", "--", prompt]);
        assert_eq!(
            shown(&built.continued.unwrap()),
            ["/my tools/agent", "more", "--", prompt]
        );
        agent.prompt = Some(PromptRule::Argument(words(&["--interactive={prompt}"])));
        assert!(agent.check().is_empty());
        assert_eq!(start(&agent, &wishes)[1], format!("--interactive={prompt}"));
        agent.prompt = Some(PromptRule::Stdin);
        let built = build(&agent, &wishes).unwrap();
        assert_eq!(shown(&built.start), ["/my tools/agent"]);
        assert_eq!(built.stdin.as_deref(), Some(prompt.as_bytes()));
        assert_eq!(built.continued_stdin.as_deref(), Some(prompt.as_bytes()));
    }
}

#[test]
fn what_the_profile_cannot_do_is_said() {
    let agent = profile(&["agent"]);
    let none = CommandWishes::default;
    let table = [
        (
            CommandWishes {
                model: Some("m".into()),
                ..none()
            },
            ErrorKind::Unsupported,
            "model",
        ),
        (
            CommandWishes {
                model: Some("-m".into()),
                ..none()
            },
            ErrorKind::InvalidInput,
            "model",
        ),
        (
            CommandWishes {
                model: Some(" ".into()),
                ..none()
            },
            ErrorKind::InvalidInput,
            "blank",
        ),
        (
            CommandWishes {
                auto_approve: true,
                ..none()
            },
            ErrorKind::Unsupported,
            "ask nobody",
        ),
        (
            CommandWishes {
                prompt: Some("p".into()),
                ..none()
            },
            ErrorKind::Unsupported,
            "prompt",
        ),
        (
            CommandWishes {
                extra: words(&["a\0b"]),
                ..none()
            },
            ErrorKind::InvalidInput,
            "NUL",
        ),
        (
            CommandWishes {
                extra: words(&[&"x".repeat(200_000)]),
                ..none()
            },
            ErrorKind::TooLarge,
            "longer than the kernel",
        ),
    ];
    for (wishes, kind, word) in table {
        let error = only(build(&agent, &wishes));
        assert_eq!(
            (error.kind(), error.get("profile")),
            (kind, Some("mock")),
            "{error}"
        );
        assert!(error.message().contains(word), "{error}");
    }
    let mut agent = agent;
    agent.prompt = Some(PromptRule::Argument(words(&["--", "{prompt}"])));
    let wishes = CommandWishes {
        prompt: Some("p".into()),
        extra: words(&["--"]),
        ..none()
    };
    assert!(only(build(&agent, &wishes)).message().contains("`--`"));
    let wishes = CommandWishes {
        follow_up: Some("p".into()),
        ..none()
    };
    assert_eq!(only(build(&agent, &wishes)).kind(), ErrorKind::Unsupported);
}

#[test]
fn approval_and_model_stand_between_command_and_flags() {
    let mut agent = resuming();
    agent.model = ModelRule {
        arguments: words(&["-m", "{model}"]),
        default: Some("own".into()),
        ..ModelRule::default()
    };
    agent.approval = Some(ApprovalRule {
        arguments: words(&["--yes"]),
        ..ApprovalRule::default()
    });
    agent.flags = vec![Flag::on("--f")];
    agent.continue_command = Some(words(&["mock", "more"]));
    let wishes = CommandWishes {
        auto_approve: true,
        resume_token: Some("t".into()),
        ..CommandWishes::default()
    };
    let built = build(&agent, &wishes).unwrap();
    assert_eq!(
        shown(&built.start),
        ["mock", "--resume", "t", "-m", "own", "--yes", "--f"]
    );
    assert_eq!(
        shown(&built.continued.unwrap()),
        ["mock", "more", "-m", "own", "--yes", "--f"]
    );
}

#[test]
fn f144_stored_wishes_hold_no_prompt_and_debug_no_value() {
    let route = Route {
        environment: [(
            crate::env::Key::new("T").unwrap(),
            Variable::from("hunter2"),
        )]
        .into(),
        ..Route::default()
    };
    let wishes = CommandWishes {
        prompt: Some("secret plan".into()),
        follow_up: Some("secret plan".into()),
        model: Some("m".into()),
        route: Some(route),
        ..CommandWishes::default()
    };
    let text = serde_json::to_string(&wishes).unwrap();
    assert!(!text.contains("secret plan"), "{text}");
    let back: CommandWishes = serde_json::from_str(&text).unwrap();
    assert_eq!(
        back,
        CommandWishes {
            prompt: None,
            follow_up: None,
            ..wishes.clone()
        }
    );
    assert!(!format!("{wishes:?}").contains("hunter2"));
}
