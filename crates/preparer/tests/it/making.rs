//! Making worktrees, and taking back those in which nothing was done.

use std::fs;

use crate::common::*;
use groundcrew_core::{preparer::Preparer as _, undo::Undone};

#[tokio::test]
async fn a_worktree_is_made_and_taken_back_without_a_trace() {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let launch = fixture.launch().await;
    assert_eq!(
        launch.passed,
        [
            "directory-made",
            "branch-made",
            "worktree-added",
            "checked-out"
        ]
    );
    let tree = launch.tree();
    assert_eq!(fs::read_to_string(tree.join("f")).unwrap(), "one\n");
    assert_eq!(git(tree, &["branch", "--show-current"]), launch.branch());
    assert_eq!(git(tree, &["status", "--porcelain"]), "");
    assert!(
        git(&fixture.repository, &["worktree", "list", "--porcelain"])
            .contains(&format!("locked groundcrew:testinstall/{}", launch.attempt))
    );
    let report = fixture.preparer().report(launch.workspace()).await.unwrap();
    assert_eq!((report.commit_count, report.dirty), (0, false));
    fixture.preparer().reopen(launch.workspace()).await.unwrap();
    assert_eq!(fixture.preparer().list().await.unwrap().len(), 1);

    let assessment = fixture
        .preparer()
        .assess(&launch.record("worktree"), REMOVE)
        .await
        .unwrap();
    assert!(
        !assessment.changed && assessment.losses.is_empty(),
        "{assessment:?}"
    );
    for (key, undone) in fixture.undo(&launch, REMOVE).await {
        assert_eq!(undone, Undone::REMOVED, "{key}");
    }
    assert_eq!(fixture.fingerprint(), before);
    fixture.assert_home_is_empty();
    for (key, undone) in fixture.undo(&launch, REMOVE).await {
        assert_eq!(undone, Undone::AlreadyGone, "{key}");
    }
}
