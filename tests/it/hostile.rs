//! A repository that wants to be executed: each of its ways is a canary of its own, and we start none of them in the whole
//! life of a run, before and after the command rewrote what it can reach.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::ground::{Call, Ground, Repository, path, text};

/// Settings whose value is a program, or a line for a shell.
const PROGRAMS: [&str; 43] = [
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.sshCommand",
    "core.askPass",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "credential.helper",
    "credential.https://example.invalid.helper",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "merge.evil.driver",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "filter.lfs.clean",
    "filter.lfs.smudge",
    "filter.lfs.process",
    "gpg.program",
    "gpg.ssh.program",
    "gpg.x509.program",
    "gpg.ssh.defaultKeyCommand",
    "sequence.editor",
    "interactive.diffFilter",
    "uploadpack.packObjectsHook",
    "receive.procReceiveRefs",
    "remote.origin.uploadpack",
    "remote.origin.receivepack",
    "remote.origin.vcs",
    "difftool.evil.cmd",
    "mergetool.evil.cmd",
    "pager.status",
    "pager.log",
    "pager.diff",
    "pager.worktree",
    "pager.config",
    "trailer.evil.command",
    "gc.recentObjectsHook",
    "hook.evil.command",
    "lfs.customtransfer.evil.path",
    "web.browser",
    "sendemail.sendmailcmd",
];

/// Settings whose value is a line for a shell behind a mark.
const LINES: [&str; 9] = [
    "alias.status",
    "alias.worktree",
    "alias.update-ref",
    "alias.read-tree",
    "alias.checkout-index",
    "alias.config",
    "alias.fetch",
    "submodule.lib.update",
    "credential.https://example.org.helper",
];

const HOOKS: [&str; 27] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-pre-submit",
    "p4-post-changelist",
    "post-index-change",
];

/// Variables that git takes programs from.
const VARIABLES: [&str; 9] = [
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "GIT_PROXY_COMMAND",
];

/// Programs that write down that they were started, each under its own name.
struct Canaries {
    tools: PathBuf,
    dead: PathBuf,
}

impl Canaries {
    fn new(ground: &Ground) -> Self {
        let (tools, dead) = (ground.path("tools"), ground.path("dead"));
        fs::create_dir_all(&tools).unwrap();
        fs::create_dir_all(&dead).unwrap();
        Self { tools, dead }
    }

    /// Makes one, and returns its path.
    fn tool(&self, name: &str) -> PathBuf {
        let file: String = name
            .chars()
            .map(|c| if c == '/' || c == ':' { '_' } else { c })
            .collect();
        let path = self.tools.join(&file);
        let dead = self.dead.join(&file);
        fs::write(
            &path,
            format!("#!/bin/sh\n: >'{}'\nexit 1\n", dead.display()),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Makes the text of a configuration that names all of them; `who` tells one such text from another.
    fn configuration(&self, who: &str) -> String {
        let mut text = String::new();
        let programs = PROGRAMS.iter().map(|key| (*key, ""));
        for (key, mark) in programs.chain(LINES.iter().map(|key| (*key, "!"))) {
            let (section, name) = key.rsplit_once('.').unwrap();
            let head = match section.split_once('.') {
                Some((section, subsection)) => format!("[{section} \"{subsection}\"]"),
                None => format!("[{section}]"),
            };
            let tool = self.tool(&format!("{who}-{key}"));
            text.extend([format!("{head}\n\t{name} = \"{mark}{}\"\n", tool.display())]);
        }
        text += "[filter \"evil\"]\n\trequired = true\n[hook \"evil\"]\n\tevent = post-checkout\n";
        text += "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[interactive]\n\tsingleKey = true\n";
        let included = self.tools.join(format!("{who}-included"));
        let tool = self.tool(&format!("{who}-include.path"));
        let more = format!(
            "[diff \"more\"]\n\ttextconv = {0}\n\tcommand = {0}\n[filter \"more\"]\n\tsmudge = {0}\n\tclean = {0}\n\tprocess = {0}\n",
            tool.display()
        );
        fs::write(&included, more).unwrap();
        let hooks = self.hooks(&format!("{who}-core.hooksPath"));
        text.extend([format!(
            "[include]\n\tpath = {0}\n[includeIf \"gitdir:/\"]\n\tpath = {0}\n[init]\n\ttemplateDir = {1}\n",
            included.display(),
            hooks.display()
        )]);
        // Where it is set, those in the git directory are silent: the user's repository has these.
        if who != "user" {
            text.extend([format!("[core]\n\thooksPath = {}\n", hooks.display())]);
        }
        text
    }

    /// Makes a directory of hooks.
    fn hooks(&self, who: &str) -> PathBuf {
        let directory = self.tools.join(format!("{who}-hooks"));
        fs::create_dir_all(&directory).unwrap();
        for hook in HOOKS {
            let tool = self.tool(&format!("{who}-hook-{hook}"));
            fs::copy(tool, directory.join(hook)).unwrap();
        }
        directory
    }

    /// Fills a git directory with everything.
    fn infest(&self, git_dir: &Path, who: &str) {
        let config = git_dir.join("config");
        let text = fs::read_to_string(&config).unwrap_or_default();
        fs::write(&config, text + &self.configuration(who)).unwrap();
        fs::create_dir_all(git_dir.join("hooks")).unwrap();
        fs::create_dir_all(git_dir.join("info")).unwrap();
        let hooks = self.hooks(&format!("{who}-own"));
        for hook in HOOKS {
            fs::copy(hooks.join(hook), git_dir.join("hooks").join(hook)).unwrap();
        }
        fs::write(
            git_dir.join("info/attributes"),
            "* filter=evil diff=evil merge=evil\n*.m filter=more\n*.l filter=lfs\n",
        )
        .unwrap();
    }

    /// Which ones were started.
    fn started(&self) -> BTreeSet<String> {
        fs::read_dir(&self.dead)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// A call in an environment that wants to be executed as well.
    fn call(&self, call: Call) -> Call {
        let mut call = call;
        for name in VARIABLES {
            call = call.env(name, self.tool(&format!("variable-{name}")));
        }
        call.env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
            .env("GIT_CONFIG_VALUE_0", self.tool("variable-GIT_CONFIG"))
    }
}

/// A repository and its origin, both full of canaries.
fn hostile(ground: &Ground, canaries: &Canaries) -> Repository {
    let origin = ground.repository("origin");
    let repository = ground.repository("r");
    repository.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    repository.write("a.m", "more\n");
    repository.commit_all("attributes");
    let at = origin.path().to_str().unwrap();
    repository.git(["remote", "add", "origin", at]);
    canaries.infest(&origin.git_dir(), "origin");
    canaries.infest(&repository.git_dir(), "user");
    repository
}

/// What the command does to everything that it can write, without git.
fn rewrite(canaries: &Canaries, evil: &Path) -> String {
    let own = canaries.tools.join("agent-config");
    fs::write(&own, canaries.configuration("agent")).unwrap();
    let hooks = canaries.hooks("agent-own");
    format!(
        "set -e
        if [ -d .git ]; then git=.git; common=.git
        else git=$(sed 's/^gitdir: //' .git); common=$git/../..; fi
        cat '{config}' >>$common/config
        cat '{config}' >$git/config.worktree
        printf '[extensions]\\n\\tworktreeConfig = true\\n' >>$common/config
        mkdir -p $common/hooks $common/info $git/info
        cp '{hooks}'/* $common/hooks/
        echo '* filter=evil diff=evil merge=evil' >$common/info/attributes
        echo '*.new filter=evil' >>.gitattributes
        echo changed >f; echo new >x.new
        mkdir -p nested; cp -r '{evil}' nested/.git
        printf '[submodule \"lib\"]\\n\\tpath = lib\\n\\turl = ext::sh -c x\\n\\tupdate = !false\\n' >.gitmodules
        echo READY",
        config = own.display(),
        hooks = hooks.display(),
        evil = evil.display(),
    )
}

/// What the command does last: its tree leads to a git directory of its own.
fn replace(kind: &str, evil: &Path) -> String {
    if kind == "clone" {
        format!(
            "set -e; mkdir -p .git/objects/info; echo '{evil}/objects' >.git/objects/info/alternates
            echo '{evil}' >.git/commondir; echo REPLACED",
            evil = evil.display()
        )
    } else {
        format!(
            "set -e; rm .git; echo 'gitdir: {}' >.git; echo REPLACED",
            evil.display()
        )
    }
}

fn whole_life(kind: &str) {
    let ground = Ground::new();
    let canaries = Canaries::new(&ground);
    // A git directory that the command puts in the place of its own.
    let evil = ground.repository("evil");
    let evil_git = evil.git_dir();
    canaries.infest(&evil_git, "evil");
    let repository = hostile(&ground, &canaries);
    let none = |when: &str| {
        let started = canaries.started();
        assert!(started.is_empty(), "{kind}, {when}: {started:?}");
    };
    drop(fs::remove_dir_all(&canaries.dead));
    fs::create_dir(&canaries.dead).unwrap();
    let call = |words: &[&str]| {
        canaries
            .call(ground.call(words))
            .directory(repository.path())
            .run()
    };
    call(&[
        "plan",
        "--workspace",
        kind,
        "--fetch",
        "--base",
        "main",
        "--",
        "true",
    ])
    .ok();
    none("plan");
    let script = rewrite(&canaries, &evil_git);
    let place = ["--workspace", kind, "--keep", "--fetch", "--base", "main"];
    let words = [
        "--format",
        "json",
        "--setup",
        "echo made >s",
        "--teardown",
        "true",
    ];
    let mut all = vec!["run"];
    all.extend(place);
    all.extend(words);
    all.extend(["--", "sh", "-c", &script]);
    let run = call(&all).ok().json();
    none("run");
    let (id, workspace) = (text(&run["id"]).to_owned(), path(&run["workspace"]));
    let looks = |when: &str| {
        for words in [
            &["show", &id][..],
            &["--format", "json", "show", &id],
            &["ls", "-a"],
            &["ls", "--workspaces"],
            &["gc", "--dry-run"],
            &["doctor"],
        ] {
            call(words);
            none(&format!("{when}: {words:?}"));
        }
    };
    looks("rewritten");
    call(&["close", &id]).code(4);
    call(&["rm", &id]).code(4);
    none("kept");
    call(&["resume", &id, "--", "sh", "-c", "echo more >more"]).ok();
    none("resume");
    call(&["rm", "--force", &id]).ok();
    none("rm --force");
    call(&["trash", "ls"]).ok();
    call(&["restore", &id]).ok();
    none("restore");
    assert_eq!(
        fs::read_to_string(workspace.join("more")).unwrap(),
        "more\n"
    );
    let last = replace(kind, &evil_git);
    call(&["resume", &id, "--", "sh", "-c", &last]).ok();
    none("replaced");
    looks("replaced");
    call(&["rm", &id]).code(4);
    none("kept again");
    call(&["resume", &id, "--", "true"]);
    none("resumed with another git directory");
    call(&["rm", "--force", &id]);
    none("rm --force again");
    call(&["gc", "--older-than", "0s"]);
    call(&["trash", "empty", "--older-than", "0s"]);
    call(&["recover"]);
    none("the end");
    sing(&ground, &canaries, kind);
}

/// They do sing where git is run as usual, in the user's repository and in that of others.
fn sing(ground: &Ground, canaries: &Canaries, kind: &str) {
    // What comes last counts: out of a worktree, the command wrote in the user's own.
    let users: &[&str] = if kind == "clone" {
        &[
            "user-core.fsmonitor",
            "user-own-hook-",
            "user-filter.evil",
            "user-include.path",
        ]
    } else {
        &[
            "agent-core.fsmonitor",
            "agent-core.hooksPath-hook-",
            "agent-filter.evil",
        ]
    };
    let others: &[&str] = &["evil-core.fsmonitor", "evil-core.hooksPath-hook-"];
    for (place, wanted) in [("r", users), ("evil", others)] {
        let repository = ground.repository_at(&ground.root().join(place));
        let tree = ground.path(format!("control-{place}"));
        let tree = tree.to_str().unwrap();
        repository.write("w.m", "x\n");
        let control = [
            &["worktree", "add", "-b", "control", tree][..],
            &["add", "w.m"],
            &["status"],
            &["diff", "HEAD"],
            &["commit", "--no-gpg-sign", "-m", "x"],
        ];
        // What sings may well fail; it is told where one of them did not sing.
        let told = control.map(|words| repository.try_git(words));
        let started = canaries.started();
        for wanted in wanted {
            let sang = started.iter().any(|name| name.starts_with(wanted));
            assert!(sang, "{wanted}: {started:?}: {told:#?}");
        }
    }
}

#[test]
fn f075_f076_f077_f078_f079_g24_nothing_is_executed_in_the_life_of_a_worktree() {
    whole_life("worktree");
}

#[test]
fn f075_f076_f077_f078_f079_g24_nothing_is_executed_in_the_life_of_a_clone() {
    whole_life("clone");
}
