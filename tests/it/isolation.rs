//! Isolation that cannot be provided is an error: never another directory, never half of it.

use std::{fs, path::Path};

use crate::ground::{Ground, Leaks, path, text};

/// Puts a `git` in front of the real one that does something else for some words.
fn git_that(ground: &Ground, case: &str) -> String {
    let tools = ground.path("tools");
    drop(fs::create_dir(&tools));
    let real = ground
        .environment()
        .iter()
        .find(|(name, _)| name == "PATH")
        .and_then(|(_, paths)| {
            paths
                .to_str()?
                .split(':')
                .map(|place| Path::new(place).join("git"))
                .find(|git| git.is_file())
        })
        .unwrap();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in {case} esac\nexec '{}' \"$@\"\n",
        real.display()
    );
    ground.script("tools/git", &script);
    let path = ground
        .environment()
        .into_iter()
        .find(|(name, _)| name == "PATH")
        .unwrap()
        .1;
    format!("{}:{}", tools.display(), path.to_str().unwrap())
}

#[test]
fn c03_a_workspace_that_cannot_be_made_starts_nothing_anywhere() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let probe = ground.path("ran");
    let script = format!("pwd >'{}'", probe.display());
    let leaks = Leaks::watch(&ground, &[&repository]);
    let failing = git_that(
        &ground,
        "*' worktree add '*) echo 'fatal: the worktree is refused' >&2; exit 1;;",
    );
    let outcome = ground
        .run_shell(&repository, &["--format", "json"], &script)
        .env("PATH", &failing)
        .run()
        .code(125);
    assert!(
        outcome
            .error()
            .to_string()
            .contains("the worktree is refused"),
        "{outcome:?}"
    );
    leaks.none("git that fails");

    let outcome = ground
        .run_shell(&repository, &["--base", "no-such-ref"], &script)
        .run()
        .code(125);
    assert!(outcome.err().contains("no-such-ref"));
    leaks.none("no base");
    assert!(
        !probe.exists(),
        "the command ran: {}",
        fs::read_to_string(&probe).unwrap()
    );
}

#[test]
fn c03_a_room_that_is_taken_starts_nothing_anywhere() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let probe = ground.path("ran");
    let script = format!("pwd >'{}'", probe.display());
    ground.runs(false);
    let room = ground.state().join("worktrees");
    drop(fs::remove_dir_all(&room));
    fs::write(&room, "mine\n").unwrap();
    let before = repository.fingerprint();
    ground.run_shell(&repository, &[], &script).run().code(125);
    assert!(!probe.exists());
    assert!(repository.fingerprint() == before);
    assert_eq!(repository.branches(), ["main"]);
    assert_eq!(fs::read_to_string(&room).unwrap(), "mine\n");
}

#[test]
fn c22_a_failed_preparation_blocks_no_retry_and_the_retry_honours_its_base() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.git(["checkout", "-q", "-b", "other"]);
    repository.write("f", "other\n");
    let tip = repository.commit_all("other");
    repository.git(["checkout", "-q", "main"]);
    let options = [
        "--title",
        "same title",
        "--session",
        "same",
        "--branch",
        "topic",
    ];
    for fault in [
        "prepare:worktree.branch-made=error",
        "prepare:worktree.checked-out=panic",
        "create.after=error",
    ] {
        ground
            .run_shell(&repository, &options, "true")
            .fault(fault)
            .run()
            .code(125);
    }
    ground
        .run_shell(
            &repository,
            &[&options[..], &["--base", "no-such-ref"]].concat(),
            "true",
        )
        .run()
        .code(125);
    let last = [&options[..], &["--base", "other", "--keep"]].concat();
    let run = ground.ran(&repository, &last, "cat f");
    assert_eq!(run["base"], tip.as_str());
    assert_eq!(repository.commit("topic"), tip);
}

#[test]
fn c26_a_branch_that_exists_is_refused_and_stays() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.git(["branch", "topic"]);
    repository.git(["branch", "free"]);
    let held = ground.path("held");
    repository.git(["worktree", "add", "-q", held.to_str().unwrap(), "topic"]);
    let leaks = Leaks::watch(&ground, &[&repository]);
    for branch in ["topic", "free", "main"] {
        let outcome = ground
            .run_shell(
                &repository,
                &["--format", "json", "--branch", branch],
                "touch ran",
            )
            .run()
            .code(125);
        assert_eq!(outcome.error()["kind"], "already_exists", "{outcome:?}");
        leaks.none(branch);
    }
}

#[test]
fn c27_a_base_that_only_a_remote_has_is_resolved_and_never_checked_out_itself() {
    let ground = Ground::new();
    let up = ground.repository("up");
    up.git(["branch", "develop"]);
    let place = ground.root().join("c");
    up.git(["clone", "-q", ".", place.to_str().unwrap()]);
    let clone = ground.repository_at(&place);
    let config = fs::read(clone.git_dir().join("config")).unwrap();
    let options = ["--base", "develop", "--keep"];
    let outcome = ground
        .run_shell(&clone, &options, "git branch --show-current")
        .run();
    let run = &ground.runs(false)[0];
    assert_eq!(outcome.ok().out().trim(), text(&run["branch"]));
    assert_eq!(run["base"], up.commit("develop").as_str());
    assert!(!clone.branches().contains(&"develop".to_owned()));
    assert_eq!(fs::read(clone.git_dir().join("config")).unwrap(), config);

    // A base that is behind is used, and said to be behind.
    up.commit_all("one");
    up.commit_all("two");
    clone.git(["fetch", "-q"]);
    let outcome = ground
        .run_shell(&clone, &["--base", "main"], "true")
        .run()
        .ok();
    let told = outcome.err();
    assert!(told.contains("2 commits behind origin/main"), "{outcome:?}");
    assert!(told.contains(&clone.commit("main")[..7]), "{outcome:?}");

    // Of two that have the name, neither is guessed.
    clone.git(["remote", "add", "two", up.path().to_str().unwrap()]);
    clone.git(["fetch", "-q", "two"]);
    let outcome = ground
        .run_shell(&clone, &options, "touch ran")
        .run()
        .code(125);
    for named in ["origin/develop", "two/develop"] {
        assert!(outcome.err().contains(named), "{outcome:?}");
    }
}

#[test]
fn c28_f093_a_required_filter_that_is_missing_is_named_and_leaves_nothing_half_made() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    repository.write(
        ".gitattributes",
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    );
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{:064}\nsize 5\n",
        0
    );
    repository.write("a.bin", &pointer);
    repository.commit_all("lfs");
    repository.git(["config", "filter.lfs.process", "absent-lfs filter-process"]);
    repository.git(["config", "filter.lfs.smudge", "absent-lfs smudge -- %f"]);
    repository.git(["config", "filter.lfs.required", "true"]);
    let leaks = Leaks::watch(&ground, &[&repository]);
    for _ in 0..2 {
        let outcome = ground
            .run_shell(&repository, &["--keep"], "git status --porcelain")
            .run();
        if outcome.code == Some(0) {
            assert_eq!(outcome.out(), "", "{outcome:?}");
            assert!(outcome.err().contains("lfs"), "no warning: {outcome:?}");
        } else {
            assert_eq!(outcome.code, Some(125), "{outcome:?}");
            assert!(outcome.err().contains("lfs"), "{outcome:?}");
            leaks.none("a missing filter");
        }
    }
}

#[test]
fn c29_f073_a_post_checkout_hook_neither_breaks_nor_confuses_nor_stalls() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let hook = repository.git_dir().join("hooks/post-checkout");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    for body in [
        "echo NOISE; exit 1",
        "sleep 600",
        "echo '{\"path\":\"/etc\"}'; exit 0",
    ] {
        ground.script("hook", &format!("#!/bin/sh\n{body}\n"));
        fs::copy(ground.path("hook"), &hook).unwrap();
        let run = ground.ran(
            &repository,
            &["--keep"],
            "git branch --show-current; test -f f",
        );
        assert_eq!(run["exit_code"], 0, "{body}: {run:#}");
        assert!(
            path(&run["workspace"]).starts_with(ground.state()),
            "{run:#}"
        );
        ground.call(["rm", text(&run["id"])]).run().ok();
    }
    repository.git(["config", "core.hooksPath", ".hooks-not-there"]);
    ground.ran(&repository, &[], "true");
    ground.until_quiet();
}

#[test]
fn f074_f075_nothing_that_a_repository_could_run_is_run_but_its_filters() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let canary = ground.path("canary");
    let tool = ground.script(
        "tool",
        &format!(
            "#!/bin/sh\necho \"$0 $*\" >>'{}'\nexit 1\n",
            canary.display()
        ),
    );
    let hooks = repository.git_dir().join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-commit",
        "post-commit",
        "pre-auto-gc",
    ] {
        fs::copy(&tool, hooks.join(hook)).unwrap();
    }
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "diff.external",
        "credential.helper",
        "alias.worktree",
        "gpg.program",
        "core.askPass",
    ] {
        repository.git(["config", key, tool.to_str().unwrap()]);
    }
    drop(fs::remove_file(&canary));
    let run = ground.ran(&repository, &["--keep"], "echo x >u");
    ground.call(["rm", text(&run["id"])]).run().code(4);
    ground.call(["rm", "--force", text(&run["id"])]).run().ok();
    ground.recover();
    let ran = fs::read_to_string(&canary).unwrap_or_default();
    assert_eq!(ran, "", "programs of the repository were run");
}

#[test]
fn f081_f083_locks_of_others_are_waited_for_or_named_and_never_taken() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    for name in ["index.lock", "config.lock"] {
        let lock = repository.git_dir().join(name);
        fs::write(&lock, "").unwrap();
        ground.ran(&repository, &[], "true");
        assert!(lock.exists());
        fs::remove_file(&lock).unwrap();
    }
}
