//! Going on in a kept workspace: there, on its branch, or not at all.

use std::fs;

use serde_json::json;

use crate::ground::{Ground, path, text};

#[test]
fn a_run_is_gone_on_with_in_its_workspace() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &[], "echo one >w; echo FIRST");
    let id = text(&run["id"]);
    let script = "cat w; echo two >>w; git branch --show-current; echo SECOND; exit 4";
    let words = ["resume", id, "--", "sh", "-c", script];
    let outcome = ground.call(words).run().code(4);
    assert_eq!(
        outcome.out(),
        format!("one\n{}\nSECOND\n", text(&run["branch"]))
    );
    let again = ground.show(id);
    assert_eq!(again["id"], run["id"]);
    assert_eq!(again["workspace"], run["workspace"]);
    assert_eq!(
        (&again["state"], &again["exit_code"]),
        (&json!("exited"), &json!(4))
    );
    // Without words it is the last command again.
    ground.call(["resume", id]).run().code(4).says("two");
    let logs = ground.call(["logs", id]).run().ok();
    assert!(logs.out().contains("SECOND"), "{logs:?}");
}

#[test]
fn a_stopped_run_is_gone_on_with_and_a_running_one_is_not() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.detached(&repository, &[], "echo w >w; echo UP; exec sleep 600");
    let id = text(&run["id"]);
    ground.call(["logs", "-f", id]).spawn().until_out("UP");
    let busy = ground
        .call(["--format", "json", "resume", id, "--", "true"])
        .run()
        .code(125);
    assert_eq!(busy.error()["kind"], "session_busy", "{busy:?}");
    ground.call(["stop", "--grace", "0s", id]).run().ok();
    ground
        .call(["resume", id, "--", "cat", "w"])
        .run()
        .ok()
        .says("w");
    ground.call(["rm", "--force", id]).run().ok();
    let gone = ground
        .call(["--format", "json", "resume", id, "--", "true"])
        .run()
        .code(125);
    assert!(gone.error()["message"].is_string(), "{gone:?}");
}

#[test]
fn c15_a_workspace_that_is_gone_is_named_and_nothing_runs_elsewhere() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let probe = ground.path("ran");
    let script = "echo x >c; git add c; git commit -qm c";
    let run = ground.ran(&repository, &[], script);
    let (id, workspace) = (text(&run["id"]), path(&run["workspace"]));
    let before = repository.fingerprint();
    let command = format!(
        "pwd -P >'{}'; git branch --show-current; git log -1 --format=%s",
        probe.display()
    );
    let resume = || {
        ground
            .call(["resume", id, "--", "sh", "-c", &command])
            .run()
    };
    let check = |outcome: &crate::ground::Outcome, when: &str| {
        if outcome.code == Some(0) {
            let place = fs::read_to_string(&probe).unwrap();
            assert_eq!(place.trim(), workspace.to_str().unwrap(), "{when}");
            assert_eq!(
                outcome.out(),
                format!("{}\nc\n", text(&run["branch"])),
                "{when}"
            );
        } else {
            assert!(
                !probe.exists(),
                "{when}: it ran in {}",
                fs::read_to_string(&probe).unwrap()
            );
            assert!(
                outcome.err().contains(workspace.to_str().unwrap()),
                "{when}: {outcome:?}"
            );
        }
        assert!(repository.fingerprint() == before, "{when}");
        drop(fs::remove_file(&probe));
    };
    let away = ground.path("away");
    fs::rename(&workspace, &away).unwrap();
    check(&resume(), "gone");
    drop(fs::remove_dir_all(&workspace));
    fs::create_dir_all(&workspace).unwrap();
    check(&resume(), "empty");
    drop(fs::remove_dir_all(&workspace));
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("notes"), "mine\n").unwrap();
    check(&resume(), "foreign");
    assert_eq!(
        fs::read_to_string(workspace.join("notes")).unwrap(),
        "mine\n"
    );
    fs::remove_dir_all(&workspace).unwrap();
    fs::rename(&away, &workspace).unwrap();
    let outcome = resume().ok();
    check(&outcome, "back");
}

#[test]
fn c15_w09_a_worktree_that_was_removed_by_hand_is_made_again_and_stays_the_runs() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let script = "echo x >c; git add c; git commit -qm c; echo y >s; git add s";
    let run = ground.ran(&repository, &[], script);
    let (id, workspace) = (text(&run["id"]), path(&run["workspace"]));
    let before = repository.fingerprint();
    for gone in [workspace.as_path(), workspace.parent().unwrap()] {
        fs::remove_dir_all(gone).unwrap();
        let words = [
            "resume",
            id,
            "--",
            "sh",
            "-c",
            "pwd -P; cat c s; git status -s",
        ];
        let outcome = ground.call(words).run().ok();
        let expected = format!("{}\nx\ny\nA  s\n", workspace.display());
        assert_eq!(outcome.out(), expected, "{outcome:?}");
        assert!(outcome.err().contains("is made again"), "{outcome:?}");
        assert!(repository.fingerprint() == before);
    }
    // It is the run's: its work is kept, saved, and goes with it.
    ground.call(["rm", id]).run().code(4).says("staged");
    ground.call(["rm", "--force", id]).run().ok();
    assert!(!workspace.exists());
    ground.call(["restore", id]).run().ok();
    assert_eq!(fs::read_to_string(workspace.join("s")).unwrap(), "y\n");
}

#[test]
fn c15_a_missing_program_is_no_missing_workspace() {
    let ground = Ground::new();
    let repository = ground.repository("r");
    let run = ground.ran(&repository, &[], "echo x >w");
    let id = text(&run["id"]);
    let orphan = ground.script("orphan", "#!/no/such/interpreter\n");
    let outcome = ground
        .call(["resume", id, "--", "/nonexistent/agent"])
        .run()
        .code(127);
    assert!(outcome.err().contains("/nonexistent/agent"), "{outcome:?}");
    let outcome = ground
        .call(["resume", id, "--", orphan.to_str().unwrap()])
        .run()
        .code(126);
    assert!(
        outcome.err().contains("/no/such/interpreter"),
        "{outcome:?}"
    );
    assert_eq!(ground.state_of(id), "exited");
    ground
        .call(["resume", id, "--", "cat", "w"])
        .run()
        .ok()
        .says("x");
}
