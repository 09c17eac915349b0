//! What words come to.

use super::*;
use crate::args::{Cli, Verb};
use crate::inherit;
use clap::Parser as _;
use groundcrew_core::env::{Tier, Value};
use std::path::Path;

const NONE: Terminals = Terminals {
    input: false,
    output: false,
    error: false,
};
const ALL: Terminals = Terminals {
    input: true,
    output: true,
    error: true,
};

fn at(directory: &Path, terminals: Terminals) -> Surroundings {
    Surroundings {
        environment: vec![
            ("PATH".into(), "/bin".into()),
            ("GIT_DIR".into(), "/elsewhere".into()),
            ("A".into(), "inherited".into()),
        ],
        directory: directory.to_owned(),
        terminals,
    }
}

fn made(words: &[&str], surroundings: &Surroundings) -> Result<LaunchRequest, Failing> {
    let words = ["groundcrew", "run"]
        .iter()
        .chain(words)
        .chain(&["--", "prog", "-x"]);
    let cli = Cli::try_parse_from(words).unwrap();
    match cli.verb {
        Verb::Run(args) => fresh(
            &args,
            None,
            Vec::new(),
            cli.format,
            &Config::default(),
            surroundings,
        ),
        other => panic!("{other:?}"),
    }
}

fn agent(request: &LaunchRequest) -> AgentSpec {
    match &request.mode {
        Mode::Agent(agent) => agent.clone(),
        Mode::Workspace => panic!("no agent"),
    }
}

fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join(".git")).unwrap();
    std::fs::create_dir_all(root.path().join("sub")).unwrap();
    root
}

#[test]
fn k44_the_place_decides_where_nothing_is_said() {
    let repository = repository();
    let inside = repository.path().join("sub");
    let request = made(&[], &at(&inside, NONE)).unwrap();
    assert_eq!(request.executor.as_str(), "worktree");
    let WorkspaceRequest::Worktree(spec) = &request.workspace else {
        panic!("{:?}", request.workspace)
    };
    assert_eq!(spec, &[RepositorySpec::new(&inside)]);

    let outside = tempfile::tempdir().unwrap();
    let request = made(&[], &at(outside.path(), NONE)).unwrap();
    assert_eq!(request.executor.as_str(), "local");
    assert!(matches!(
        request.workspace,
        WorkspaceRequest::Scratch { .. }
    ));
    let request = made(&["--executor", "worktree"], &at(outside.path(), NONE)).unwrap();
    assert_eq!(request.executor.as_str(), "worktree");
    assert!(matches!(
        request.workspace,
        WorkspaceRequest::Scratch { .. }
    ));
}

#[test]
fn a_checkout_is_used_as_it_is_only_when_it_is_named() {
    let repository = repository();
    let here = at(repository.path(), NONE);
    let request = made(&["--executor", "local"], &here).unwrap();
    assert!(matches!(
        request.workspace,
        WorkspaceRequest::Scratch { .. }
    ));
    let request = made(&["--executor", "local", "--repo", "."], &here).unwrap();
    assert_eq!(
        request.workspace,
        WorkspaceRequest::InPlace {
            path: repository.path().to_owned()
        }
    );
}

#[test]
fn k36_k43_k44_the_kind_of_a_workspace_can_be_named() {
    let repository = repository();
    let here = at(repository.path(), NONE);
    let outside = tempfile::tempdir().unwrap();
    let of = |words: &[&str], here: &Surroundings| {
        let request = made(words, here).unwrap();
        (request.executor.to_string(), request.workspace)
    };
    let (executor, workspace) = of(&["--workspace", "in-place"], &here);
    let path = repository.path().to_owned();
    assert_eq!(
        (&*executor, workspace),
        ("local", WorkspaceRequest::InPlace { path })
    );
    let (executor, workspace) = of(&["--workspace", "ephemeral"], &here);
    assert_eq!(
        (&*executor, workspace),
        ("local", WorkspaceRequest::Ephemeral)
    );
    for words in [
        &["--workspace", "scratch"][..],
        &["--workspace", "worktree"],
        &["--workspace", "clone"],
    ] {
        let (_, workspace) = of(words, &at(outside.path(), NONE));
        assert!(
            matches!(workspace, WorkspaceRequest::Scratch { .. }),
            "{words:?}"
        );
    }
    let root = repository.path().to_str().unwrap();
    let words = [
        "--workspace",
        "clone",
        "--share-objects",
        "--repo",
        root,
        "--repo",
        "sub",
        "--branch-template",
        "{ticket}",
        "--ticket",
        "T-1",
        "--fetch",
    ];
    let (executor, workspace) = of(&words, &here);
    let WorkspaceRequest::Clone {
        repositories,
        objects,
    } = workspace
    else {
        panic!("{workspace:?}")
    };
    assert_eq!(
        (&*executor, objects, repositories.len()),
        ("worktree", CloneObjects::Shared, 2)
    );
    assert_eq!(
        repositories[1],
        RepositorySpec {
            template: Some("{ticket}".to_owned()),
            ticket: Some("T-1".to_owned()),
            fetch: Some(FetchSpec::default()),
            ..RepositorySpec::new(repository.path().join("sub"))
        }
    );
    for words in [
        &["--workspace", "in-place", "--repo", ".", "--repo", "sub"][..],
        &["--workspace", "ephemeral", "--repo", "."],
        &["--workspace", "scratch", "--branch-template", "x"],
    ] {
        assert_eq!(made(words, &here).unwrap_err().code(true), 2, "{words:?}");
    }
}

#[test]
fn a_session_finds_its_scratch_directory_again() {
    let outside = tempfile::tempdir().unwrap();
    let task = |words: &[&str]| {
        made(words, &at(outside.path(), NONE))
            .unwrap()
            .task
            .unwrap()
    };
    assert_eq!(task(&["--session", "s1"]).as_str(), "s1");
    assert_ne!(task(&[]), task(&[]));
}

#[test]
fn what_has_no_meaning_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    let here = at(outside.path(), NONE);
    for words in [
        &["--base", "main"][..],
        &["--executor", "local", "--branch", "x"],
        &["--env", "NOVALUE"],
        &["--env", "=x"],
    ] {
        assert_eq!(made(words, &here).unwrap_err().code(true), 2, "{words:?}");
    }
    for words in [&["--repo", "missing"][..], &["--repo", "~nobody-here/x"]] {
        assert_eq!(made(words, &here).unwrap_err().code(true), 125, "{words:?}");
    }
}

#[test]
fn c05_variables_come_with_their_tier_and_origin() {
    let outside = tempfile::tempdir().unwrap();
    let request = made(&["--env", "A=b=c"], &at(outside.path(), NONE)).unwrap();
    let of = |name: &str| {
        let all = request
            .environment
            .iter()
            .filter(|d| d.key.as_bytes() == name.as_bytes());
        all.map(|d| (d.tier, d.origin.0.as_str(), d.value.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("A"),
        [
            (
                Tier::Inherited,
                inherit::ORIGIN,
                Value::Literal("inherited".into())
            ),
            (Tier::Request, "--env", Value::Literal("b=c".into())),
        ]
    );
    assert_eq!(of("GIT_DIR"), []);
}

#[test]
fn c19_streams_follow_flags_terminals_and_format() {
    let outside = tempfile::tempdir().unwrap();
    let streams = |words: &[&str], terminals| {
        let agent = agent(&made(words, &at(outside.path(), terminals)).unwrap());
        let terminal = matches!(agent.stdio, StdioKind::Terminal(_));
        (terminal, agent.stdin == StdinPolicy::Open)
    };
    assert_eq!(streams(&[], NONE), (false, false));
    assert_eq!(streams(&["-i"], NONE), (false, true));
    assert_eq!(streams(&["-t"], NONE), (true, false));
    assert_eq!(streams(&["-t", "--detach"], NONE), (true, true));
    assert_eq!(streams(&[], ALL), (true, true));
    assert_eq!(streams(&["-T"], ALL), (false, false));
    assert_eq!(streams(&["--format", "json"], ALL), (false, false));
    let piped = Terminals {
        input: false,
        ..ALL
    };
    assert_eq!(streams(&[], piped), (false, false));
}

#[test]
fn leases_depend_on_who_stays() {
    let outside = tempfile::tempdir().unwrap();
    let lease = |words: &[&str]| made(words, &at(outside.path(), NONE)).unwrap().lease;
    assert_eq!(lease(&[]), Lease::ATTACHED);
    assert_eq!(lease(&["--detach"]), Lease::Unlimited);
    assert_eq!(lease(&["--lease", "none"]), Lease::Unlimited);
    assert_eq!(
        lease(&["--detach", "--lease", "5s"]),
        Lease::After(std::time::Duration::from_secs(5))
    );
}

#[test]
fn a_volume_is_a_clone_in_a_container_and_nothing_elsewhere() {
    let root = repository();
    let here = at(root.path(), NONE);
    let docker = ["--executor", "docker", "--image", "i"];
    for (kind, storage) in [("volume", "volume"), ("clone", "auto")] {
        let words = [&docker[..], &["--workspace", kind]].concat();
        let request = made(&words, &here).unwrap();
        assert!(
            matches!(request.workspace, WorkspaceRequest::Clone { .. }),
            "{kind}"
        );
        assert_eq!(request.options["storage"], storage);
    }
    let words = [&docker[..], &["--workspace", "bind", "--control", "exec"]].concat();
    let request = made(&words, &here).unwrap();
    assert!(!request.options.contains_key("storage"));
    assert_eq!(request.options["control"], "exec");
    assert!(made(&["--workspace", "volume"], &here).is_err());
    // No other executor knows the option.
    let request = made(&["--workspace", "clone"], &here).unwrap();
    assert!(request.options.is_empty());
}
