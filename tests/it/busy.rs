//! Removal of a workspace in which something is still at work.

use crate::ground::{Ground, is_alive, path, text, until};

/// Writes without end, in a session of its own and deep in the workspace, and holds a file open there.
const WRITER: &str = "mkdir -p a/b/c; setsid sh -c 'trap \"\" TERM HUP; cd a/b/c; exec 7>open; echo $$ >../../../daemon; \
    i=0; while :; do i=$((i+1)); mkdir -p d$((i % 7)); echo $i >d$((i % 7))/f$((i % 50)); done' </dev/null >/dev/null 2>&1 & \
    cd a/b; while :; do sleep 1000; done";

#[test]
fn f027_f028_a_workspace_goes_whole_while_something_writes_in_it() {
    for executor in ["worktree", "local"] {
        let ground = Ground::new();
        let repository = ground.repository("r");
        let call = if executor == "worktree" {
            ground.detached(&repository, &[], WRITER)
        } else {
            let words = [
                "--format",
                "json",
                "run",
                "--detach",
                "--executor",
                "local",
                "--",
                "sh",
                "-c",
                WRITER,
            ];
            let nowhere = ground.path("nowhere");
            std::fs::create_dir_all(&nowhere).unwrap();
            ground.call(words).directory(&nowhere).run().ok().json()
        };
        let (id, workspace) = (text(&call["id"]), path(&call["workspace"]));
        until("it writes", || workspace.join("a/b/c/d6/f0").exists());
        let daemon: i32 = std::fs::read_to_string(workspace.join("daemon"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        ground.call(["stop", "--grace", "100ms", id]).run().ok();
        assert!(
            !is_alive(daemon),
            "{executor}: what writes ends before anything is removed"
        );
        ground.call(["rm", "--force", id]).run().ok();
        if executor == "worktree" {
            assert!(!workspace.exists(), "nothing was written again");
        }
        ground.until_quiet();
    }
}

#[test]
fn f027_f028_removal_by_force_ends_what_still_writes() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], WRITER);
    let (id, workspace) = (text(&run["id"]), path(&run["workspace"]));
    until("it writes", || workspace.join("a/b/c/d6/f0").exists());
    let daemon: i32 = std::fs::read_to_string(workspace.join("daemon"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    ground.call(["rm", "--force", id]).run().ok();
    assert!(!is_alive(daemon) && !workspace.exists());
    ground.until_quiet();
}
