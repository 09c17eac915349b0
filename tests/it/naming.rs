//! Names made from what people type: always valid, always different, always inside.

use std::collections::BTreeSet;

use crate::ground::{Ground, path, text};

#[test]
fn c23_f062_any_title_works() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let long = "日".repeat(300);
    let longer = "a".repeat(5000);
    let titles = [
        "update yarn.lock",
        "fix 2.0..rc1",
        "../../etc/passwd",
        "-x",
        "HEAD",
        "@{-1}",
        "a//b",
        ".hidden",
        "foo.",
        "x~1^2:3?*[",
        "tab\tand\nnewline",
        "DOMAIN\\name",
        "🙂🙂",
        "修正する",
        "追加する",
        "",
        " ",
        "same",
        "same",
        &long,
        &longer,
    ];
    let mut branches = BTreeSet::new();
    let mut workspaces = BTreeSet::new();
    for title in titles {
        let option = format!("--title={title}");
        let run = ground.ran(&repository, &[&option, "--keep"], "true");
        let branch = text(&run["branch"]).to_owned();
        let workspace = path(&run["workspace"]);
        repository.git(["check-ref-format", "--branch", &branch]);
        assert!(branch.starts_with("groundcrew/"), "{branch}");
        assert!(
            workspace.starts_with(ground.state().join("worktrees")),
            "{workspace:?}"
        );
        assert!(
            workspace
                .components()
                .all(|part| part.as_os_str().len() <= 255)
        );
        assert_eq!(workspace.canonicalize().unwrap(), workspace);
        assert!(branches.insert(branch), "{title:?}: the name is not new");
        assert!(workspaces.insert(workspace));
    }
    assert_eq!(repository.branches().len(), titles.len() + 1);
}

#[test]
fn f098_two_repositories_of_the_same_name_do_not_meet() {
    let ground = Ground::new();
    let (one, two) = (ground.repository("a/same"), ground.repository("b/same"));
    let first = ground.ran(&one, &["--keep", "--title", "t"], "true");
    let second = ground.ran(&two, &["--keep", "--title", "t"], "true");
    assert_ne!(first["workspace"], second["workspace"]);
    for run in [&first, &second] {
        ground.call(["rm", text(&run["id"])]).run().ok();
    }
    assert_eq!(
        one.worktree_entries().len() + two.worktree_entries().len(),
        0
    );
}
