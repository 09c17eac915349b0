//! Submodules: filled where that is asked for, without executing anything of theirs, and work in them is work.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use groundcrew_core::{
    error::ErrorKind,
    preparer::Preparer as _,
    request::LaunchRequest,
    undo::Undone,
    workspace::{CloneObjects, Submodules, WorkspaceRequest},
};
use groundcrew_preparer::UserGitConfig;

use crate::fixture::*;

/// A repository with a submodule `lib`, which has one itself, `lib/deep`.
struct Nest {
    fixture: Fixture,
    lib: PathBuf,
}

fn nest() -> Nest {
    let fixture = Fixture::new();
    let (deep, lib) = (fixture.path().join("deep"), fixture.path().join("lib"));
    for path in [&deep, &lib] {
        fs::create_dir(path).unwrap();
        git(path, &["init", "-q"]);
        // Two that are alike would be one commit, and hide what is missing.
        write(path.join("code"), &format!("{}\n", path.display()));
        write(path.join(".gitignore"), "*.o\n");
        git(path, &["add", "."]);
        git(path, &["commit", "-qm", "first"]);
    }
    let add = |path: &PathBuf, from: &PathBuf, name: &str| {
        git(
            path,
            &["submodule", "--quiet", "add", from.to_str().unwrap(), name],
        );
        git(path, &["commit", "-qm", name]);
    };
    add(&lib, &deep, "deep");
    add(&fixture.repository, &lib, "lib");
    git(
        &fixture.repository,
        &["submodule", "--quiet", "update", "--init", "--recursive"],
    );
    Nest { fixture, lib }
}

impl Nest {
    fn request(&self, which: Submodules, clone: Option<CloneObjects>) -> LaunchRequest {
        let mut spec = self.fixture.spec();
        spec.submodules = which;
        request(match clone {
            None => WorkspaceRequest::Worktree(vec![spec]),
            Some(objects) => WorkspaceRequest::Clone {
                repositories: vec![spec],
                objects,
            },
        })
    }

    async fn launch(&self, which: Submodules, clone: Option<CloneObjects>) -> Launch {
        let request = self.request(which, clone);
        let launch = self
            .fixture
            .launch_with(&request, Recorder::default())
            .await;
        launch.result.as_ref().unwrap();
        launch
    }

    async fn losses(&self, launch: &Launch) -> Vec<groundcrew_core::workspace::Finding> {
        let key = if launch.workspace().kind == "clone" {
            "clone"
        } else {
            "worktree"
        };
        self.fixture
            .preparer()
            .assess(&launch.record(key), CLOSE)
            .await
            .unwrap()
            .losses
    }
}

const KINDS: [Option<CloneObjects>; 3] =
    [None, Some(CloneObjects::Copied), Some(CloneObjects::Shared)];

#[tokio::test]
async fn c30_f092_submodules_are_filled_where_that_is_asked_for() {
    let nest = nest();
    let before = nest.fixture.fingerprint();
    for kind in KINDS {
        for which in [Submodules::Empty, Submodules::Top, Submodules::All] {
            let launch = nest.launch(which, kind).await;
            let what = format!("{which:?} {kind:?}");
            let lib = launch.tree().join("lib");
            assert_eq!(
                lib.join("code").exists(),
                which != Submodules::Empty,
                "{what}"
            );
            let deep = lib.join("deep/code").exists();
            assert_eq!(deep, which == Submodules::All, "{what}");
            let warned = launch
                .contribution
                .warnings
                .iter()
                .any(|w| w.contains("lib"));
            assert_eq!(warned, which == Submodules::Empty, "{what}");
            assert_eq!(git(launch.tree(), &["status", "--porcelain"]), "", "{what}");
            if which != Submodules::Empty {
                let head = git(&nest.lib, &["rev-parse", "HEAD"]);
                assert_eq!(git(&lib, &["rev-parse", "HEAD"]), head, "{what}");
                assert_eq!(git(&lib, &["status", "--porcelain"]), "", "{what}");
                git(&lib, &["fsck", "--full"]);
                // It knows the branches of its origin, and the user's own git goes on with it.
                git(&lib, &["rev-parse", "refs/remotes/origin/main"]);
                git(launch.tree(), &["submodule", "--quiet", "update"]);
            }
            assert_eq!(nest.losses(&launch).await, [], "{what}");
            let undone = nest.fixture.undo(&launch, REMOVE).await;
            assert_gone(&undone, &what);
            nest.fixture.assert_home_is_empty();
            nest.fixture.assert_same(&before, &what);
        }
    }
}

#[tokio::test]
async fn c30_c01_work_in_a_submodule_is_work_and_names_it() {
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change); 9] = [
        ("untracked", |lib| write(lib.join("new"), "x\n")),
        ("modified", |lib| write(lib.join("code"), "other\n")),
        ("commits", |lib| {
            git(lib, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        }),
        ("commits", |lib| {
            git(lib, &["checkout", "-qb", "topic"]);
            git(lib, &["commit", "-q", "--allow-empty", "-m", "mine"]);
            git(lib, &["checkout", "-q", "--detach", "origin/main"]);
        }),
        ("commits", |lib| {
            write(lib.join("code"), "stashed\n");
            git(lib, &["stash", "-q"]);
        }),
        ("untracked", |lib| write(lib.join("deep/new"), "x\n")),
        ("unreadable", |lib| {
            let exclude = git(lib, &["rev-parse", "--git-path", "info/exclude"]);
            write(lib.join(exclude), "hidden\n");
            write(lib.join("hidden"), "x\n");
        }),
        ("unreadable", |lib| {
            fs::remove_file(lib.join(".git")).unwrap();
            git(lib, &["init", "-q"]);
        }),
        ("operation", |lib| {
            let path = git(lib, &["rev-parse", "--git-path", "MERGE_HEAD"]);
            write(lib.join(path), "x\n");
        }),
    ];
    for kind in [None, Some(CloneObjects::Copied)] {
        let nest = nest();
        for (number, (what, change)) in changes.iter().enumerate() {
            let launch = nest.launch(Submodules::All, kind).await;
            change(&launch.tree().join("lib"));
            let losses = nest.losses(&launch).await;
            let name = format!("{kind:?} {number} {what}: {losses:?}");
            let named = losses
                .iter()
                .any(|one| one.what == *what && one.items.iter().any(|item| item.contains("lib")));
            assert!(named, "{name}");
            let nested = losses.iter().any(|one| {
                one.what == "nested_repository" && one.items.contains(&"lib".to_owned())
            });
            assert!(nested, "{name}");
            let undone = nest.fixture.undo(&launch, CLOSE).await;
            let tree = undone.get("worktree").or(undone.get("clone")).unwrap();
            kept(tree);
            assert!(launch.tree().join("lib").exists(), "{name}");
            let undone = nest.fixture.undo(&launch, FORCE).await;
            let tree = undone.get("worktree").or(undone.get("clone")).unwrap();
            assert!(
                matches!(tree, Undone::Removed { snapshot: Some(_) }),
                "{name}: {undone:?}"
            );
        }
    }
}

#[tokio::test]
async fn c30_a_submodule_that_the_command_filled_is_looked_into_as_well() {
    let nest = nest();
    let launch = nest.launch(Submodules::Empty, None).await;
    git(launch.tree(), &["submodule", "--quiet", "update", "--init"]);
    assert_eq!(nest.losses(&launch).await, []);
    // One that is emptied again leaves its git directory, and that may hold anything.
    git(
        launch.tree(),
        &["submodule", "--quiet", "deinit", "-f", "lib"],
    );
    assert_eq!(kinds(&nest.losses(&launch).await), ["nested_repository"]);
    git(launch.tree(), &["submodule", "--quiet", "update", "--init"]);
    // Ignored files go to the trash with the tree.
    write(launch.tree().join("lib/a.o"), "x\n");
    assert_eq!(nest.losses(&launch).await, []);
    let undone = nest.fixture.undo(&launch, REMOVE).await;
    assert_eq!(undone["worktree"], Undone::REMOVED);
    let trash: Vec<_> = fs::read_dir(nest.fixture.home().join("trash"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("lib/a.o"))
        .filter(|path| path.exists())
        .collect();
    assert_eq!(trash.len(), 1, "{trash:?}");
}

#[tokio::test]
async fn c30_a_commit_of_a_submodule_that_the_branch_names_is_work_of_the_submodule() {
    let nest = nest();
    let launch = nest.launch(Submodules::Top, None).await;
    let lib = launch.tree().join("lib");
    git(&lib, &["commit", "-q", "--allow-empty", "-m", "mine"]);
    git(launch.tree(), &["commit", "-qam", "lib"]);
    let losses = nest.losses(&launch).await;
    assert_eq!(
        kinds(&losses),
        ["commits", "nested_repository"].map(|x| x).as_slice(),
        "{losses:?}"
    );
    // What its origin has is no loss.
    git(&lib, &["push", "-q", "origin", "HEAD:refs/heads/topic"]);
    git(&lib, &["fetch", "-q"]);
    assert_eq!(nest.losses(&launch).await, []);
}

#[tokio::test]
async fn f127_f092_a_launch_that_ends_while_submodules_are_filled_leaves_nothing() {
    for kind in KINDS {
        let nest = nest();
        let before = nest.fixture.fingerprint();
        for point in ["files-written", "submodule-filled", "checked-out"] {
            let request = nest.request(Submodules::All, kind);
            let recorder = Recorder {
                fail_at: Some(point),
                ..Recorder::default()
            };
            let launch = nest.fixture.launch_with(&request, recorder).await;
            launch.result.as_ref().unwrap_err();
            let what = format!("{kind:?} {point}");
            assert_undone(&nest.fixture, &launch, &what).await;
            nest.fixture.assert_same(&before, &what);
        }
    }
}

#[tokio::test]
async fn f075_f092_filling_executes_nothing_of_the_repository_or_of_the_submodule() {
    let mut nest = nest();
    let canary = nest.fixture.path().join("canary");
    let touch = format!("touch '{}'", canary.display());
    write(nest.lib.join(".gitattributes"), "* filter=evil\n");
    git(&nest.lib, &["add", "."]);
    git(&nest.lib, &["commit", "-qm", "attributes"]);
    let checkout = nest.fixture.repository.join("lib");
    git(&checkout, &["pull", "-q", "origin", "main"]);
    write(
        nest.fixture.repository.join(".gitmodules"),
        "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib\n\tupdate = !touch\n\tfetchRecurseSubmodules = true\n",
    );
    git(&nest.fixture.repository, &["commit", "-qam", "lib"]);
    let known = nest.fixture.repository.join(".git/modules/lib");
    for directory in [&known, &nest.fixture.repository.join(".git")] {
        for hook in [
            "post-checkout",
            "post-index-change",
            "reference-transaction",
            "post-merge",
        ] {
            let path = directory.join("hooks").join(hook);
            write(&path, &format!("#!/bin/sh\n{touch}\n"));
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let config = directory.join("config");
        let more = format!(
            "[core]\n\tfsmonitor = {touch}\n\tsshCommand = {touch}\n[filter \"evil\"]\n\tsmudge = {touch}\n\tclean = {touch}\n\
             [submodule \"lib\"]\n\tupdate = !{touch}\n[uploadpack]\n\tpackObjectsHook = {touch}\n"
        );
        let text = fs::read_to_string(&config).unwrap() + &more;
        fs::write(&config, text).unwrap();
    }
    for kind in KINDS {
        let launch = nest.launch(Submodules::Top, kind).await;
        assert!(launch.tree().join("lib/code").is_file());
        nest.losses(&launch).await;
        let undone = nest.fixture.undo(&launch, REMOVE).await;
        assert_gone(&undone, "removed");
    }
    assert!(!canary.exists());
    // What is not in the repository is fetched by few protocols, and a local path is none of them.
    fs::remove_dir_all(&known).unwrap();
    nest.fixture.git = nest.fixture.git.clone();
    let before = nest.fixture.fingerprint();
    for url in [
        "../lib",
        "ext::sh -c touch",
        "file:///x",
        "-oProxyCommand=x:y",
    ] {
        let config = nest.fixture.repository.join(".git/config");
        let config = config.to_str().unwrap();
        git(
            &nest.fixture.path(),
            &["config", "--file", config, "submodule.lib.url", url],
        );
        let request = nest.request(Submodules::Top, None);
        let launch = nest
            .fixture
            .launch_with(&request, Recorder::default())
            .await;
        let error = launch.result.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}: {error:?}");
        assert_eq!(error.get("submodule"), Some("lib"), "{url}");
        assert_undone(&nest.fixture, &launch, url).await;
    }
    let config = nest.fixture.repository.join(".git/config");
    fs::write(&config, &before[&config]).unwrap();
    nest.fixture.assert_same(&before, "refused");
    assert!(!canary.exists());
}

#[tokio::test]
async fn c30_a_submodule_that_is_not_there_is_fetched_over_ssh_with_the_users_own_settings() {
    let nest = nest();
    let script = nest.fixture.path().join("ssh");
    write(
        &script,
        "#!/bin/sh\nfor word; do last=$word; done\nPATH=/usr/local/bin:/usr/bin:/bin\neval \"exec $last\"\n",
    );
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let user = nest.fixture.path().join("gitconfig");
    write(
        &user,
        &format!(
            "[core]\n\tsshCommand = {}\n[safe]\n\tdirectory = *\n",
            script.display()
        ),
    );
    fs::remove_dir_all(nest.fixture.repository.join(".git/modules")).unwrap();
    let config = nest.fixture.repository.join(".git/config");
    git(
        &nest.fixture.path(),
        &[
            "config",
            "--file",
            config.to_str().unwrap(),
            "submodule.lib.url",
            &format!("ssh://host{}", nest.lib.display()),
        ],
    );
    let preparer = nest.fixture.preparer_of(UserGitConfig {
        global: Some(user),
        ..UserGitConfig::default()
    });
    let request = nest.request(Submodules::Top, None);
    let cancel = groundcrew_core::cancel::CancelToken::new();
    let launch = launch(
        &preparer,
        &nest.fixture.install,
        &request,
        &Recorder::default(),
        &cancel,
    )
    .await;
    launch.result.as_ref().unwrap();
    assert!(launch.tree().join("lib/code").is_file());
    assert_eq!(nest.losses(&launch).await, []);
    let undone = nest.fixture.undo(&launch, REMOVE).await;
    assert_gone(&undone, "removed");
}

#[tokio::test]
async fn c30_f096_the_branch_of_a_clone_with_submodules_comes_back() {
    let nest = nest();
    for which in [Submodules::Empty, Submodules::Top] {
        for objects in [CloneObjects::Copied, CloneObjects::Shared] {
            let launch = nest.launch(which, Some(objects)).await;
            write(launch.tree().join("new"), "x\n");
            git(launch.tree(), &["add", "new"]);
            git(launch.tree(), &["commit", "-qm", "new"]);
            let undone = nest.fixture.undo(&launch, CLOSE).await;
            assert_gone(&undone, launch.branch());
            let at = format!("{}:new", launch.branch());
            assert_eq!(git(&nest.fixture.repository, &["show", &at]), "x");
        }
    }
}
