//! Starts: exactly what was asked for, and each way to fail told apart.

use std::{os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use groundcrew_core::{
    command::Command,
    env::{Environment, Key},
    error::ErrorKind,
    process::{EnvironmentSource, Signal},
    wire::OsText,
};

use crate::support::{BOTH, Ground, environment, id, order, until};

fn write(path: &Path, bytes: &[u8], mode: u32) {
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn status_of(pid: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

alone! {
    async fn f029_program_interpreter_and_directory_are_told_apart() {
        let ground = Ground::new(BOTH[0]);
        let error = ground.fails(&ground.spec(&["no-such-program"])).await;
        assert_eq!(error.kind(), ErrorKind::ProgramNotFound);
        assert_eq!(error.get("program"), Some("no-such-program"));
        assert!(error.get("searched").unwrap().contains("/usr/bin"));

        let error = ground.fails(&ground.spec(&["./no-such-program"])).await;
        assert_eq!(error.kind(), ErrorKind::ProgramNotFound);

        for (line, name) in [
            ("#!/no/such/interpreter -x\n", "/no/such/interpreter"),
            ("#! \t/no/such/other\n", "/no/such/other"),
            ("#!/bin/sh\r\n", "/bin/sh\\r"),
        ] {
            write(&ground.path().join("script"), line.as_bytes(), 0o755);
            let error = ground.fails(&ground.spec(&["./script"])).await;
            assert_eq!((error.kind(), error.get("interpreter")), (ErrorKind::InterpreterNotFound, Some(name)));
            assert!(error.get("program").unwrap().ends_with("script"));
        }
        // An interpreter that is itself a script without one.
        write(&ground.path().join("outer"), format!("#!{}\n", ground.path().join("script").display()).as_bytes(), 0o755);
        assert_eq!(ground.fails(&ground.spec(&["./outer"])).await.kind(), ErrorKind::InterpreterNotFound);

        // A binary whose loader is missing gives the very same errno.
        let mut binary = std::fs::read("/bin/sh").unwrap();
        let loader = b"/ld-linux";
        let at = binary.windows(loader.len()).position(|part| part == loader);
        if let Some(at) = at {
            binary[at + 1] = b'X';
            write(&ground.path().join("binary"), &binary, 0o755);
            assert_eq!(ground.fails(&ground.spec(&["./binary"])).await.kind(), ErrorKind::InterpreterNotFound);
        }

        let mut spec = ground.spec(&["true"]);
        spec.directory = ground.path().join("missing");
        let error = ground.fails(&spec).await;
        assert_eq!(error.kind(), ErrorKind::DirectoryNotFound);
        assert!(error.get("directory").unwrap().ends_with("missing"));
        spec.directory = ground.path().join("script");
        assert_eq!(ground.fails(&spec).await.kind(), ErrorKind::DirectoryNotFound);
        spec.directory = "relative".into();
        assert_eq!(ground.fails(&spec).await.kind(), ErrorKind::InvalidInput);
        ground.nothing_left().await;
    }

    async fn f030_f031_what_cannot_be_executed_is_said_and_never_given_to_a_shell() {
        let ground = Ground::new(BOTH[0]);
        write(&ground.path().join("plain"), b"#!/bin/sh\ntouch ran\n", 0o644);
        assert_eq!(ground.fails(&ground.spec(&["./plain"])).await.kind(), ErrorKind::NotExecutable);
        std::fs::create_dir(ground.path().join("dir")).unwrap();
        assert_eq!(ground.fails(&ground.spec(&["./dir"])).await.kind(), ErrorKind::NotExecutable);
        write(&ground.path().join("garbage"), b"touch ran\n", 0o755);
        assert_eq!(ground.fails(&ground.spec(&["./garbage"])).await.kind(), ErrorKind::NotExecutable);
        write(&ground.path().join("nothing"), b"#!\n", 0o755);
        assert_eq!(ground.fails(&ground.spec(&["./nothing"])).await.kind(), ErrorKind::NotExecutable);
        assert!(!ground.path().join("ran").exists());
        // A failure leaves the name free.
        ground.start("fails", &ground.spec(&["true"])).await;
        ground.processes.main_ended().await;
        ground.nothing_left().await;
    }

    async fn f032_too_much_environment_is_refused_with_sizes() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.spec(&["true"]);
        let many: Environment = (0..40)
            .map(|n| (Key::new(format!("K{n}").as_str()).unwrap(), vec![b'x'; 100_000]))
            .collect();
        spec.environment = EnvironmentSource::Exact(many);
        let error = ground.fails(&spec).await;
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.get("bytes").is_some());
        // What passes our check and not the kernel's, under a small stack.
        let stack = rustix::process::getrlimit(rustix::process::Resource::Stack);
        let small = rustix::process::Rlimit { current: Some(512 * 1024), maximum: stack.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Stack, small).unwrap();
        let some: Environment = (0..10)
            .map(|n| (Key::new(format!("K{n}").as_str()).unwrap(), vec![b'x'; 100_000]))
            .collect();
        spec.environment = EnvironmentSource::Exact(some);
        let error = ground.fails(&spec).await;
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.get("environment_bytes").unwrap().parse::<usize>().unwrap() > 1_000_000);
        ground.nothing_left().await;
    }

    async fn f033_a_program_that_is_being_written_is_waited_for_and_then_named() {
        let ground = Ground::new(BOTH[0]);
        let path = ground.path().join("program");
        std::fs::copy("/bin/true", &path).unwrap();
        let writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let error = ground.fails(&ground.spec(&["./program"])).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
        let spec = ground.spec(&["./program"]);
        let (status, ()) = tokio::join!(
            async {
                ground.start("agent", &spec).await;
                ground.processes.wait(&id("agent")).await.unwrap()
            },
            async {
                tokio::time::sleep(Duration::from_millis(150)).await;
                drop(writer);
            }
        );
        assert_eq!(status.code, Some(0));
        ground.nothing_left().await;
    }

    async fn f035_no_descriptors_left_is_said_and_leaves_none_behind() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let ground = Ground::new(BOTH[0]);
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let limit = getrlimit(Resource::Nofile);
        let highest = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        for room in 0..12 {
            setrlimit(Resource::Nofile, Rlimit { current: Some(highest + room), maximum: limit.maximum }).unwrap();
            let result = ground.processes.start(&id(&format!("room{room}")), &ground.spec(&["true"])).await;
            setrlimit(Resource::Nofile, limit).unwrap();
            match result {
                Ok(_) => {
                    ground.processes.wait(&id(&format!("room{room}"))).await.unwrap();
                    break;
                }
                Err(error) => assert!(open() == before, "{room}: {error}"),
            }
        }
        ground.nothing_left().await;
    }

    async fn f037_nothing_is_started_from_the_workspace_by_its_mere_name() {
        let ground = Ground::new(BOTH[0]);
        write(&ground.path().join("tool"), b"#!/bin/sh\ntouch ran\n", 0o755);
        // Wherever the supervisor itself stands.
        std::env::set_current_dir(ground.path()).unwrap();
        for path in ["", ".", ":", "::/usr/bin:.", "sub/../.", "/usr/bin:"] {
            let mut spec = ground.spec(&["tool"]);
            spec.environment = EnvironmentSource::Exact(environment(&[("PATH", path)]));
            assert_eq!(ground.fails(&spec).await.kind(), ErrorKind::ProgramNotFound, "{path:?}");
        }
        assert!(!ground.path().join("ran").exists());
        // Asked for by a path, it is.
        let started = ground.processes.start(&id("agent"), &ground.spec(&["./tool"])).await.unwrap();
        assert!(started.program.is_absolute());
        assert_eq!(ground.processes.wait(&id("agent")).await.unwrap().code, Some(0));
        assert!(ground.path().join("ran").exists());
        ground.nothing_left().await;
    }

    async fn f038_the_path_of_the_process_counts_and_its_order() {
        let ground = Ground::new(BOTH[0]);
        for directory in ["a", "b"] {
            std::fs::create_dir(ground.path().join(directory)).unwrap();
            write(&ground.path().join(directory).join("tool"), format!("#!/bin/sh\necho {directory}\n").as_bytes(), 0o755);
        }
        write(&ground.path().join("a/tool"), b"not executable", 0o644);
        let path = format!("{0}/a:{0}/b", ground.path().display());
        let mut spec = ground.spec(&["tool"]);
        spec.environment = EnvironmentSource::Exact(environment(&[("PATH", &path)]));
        assert_eq!(ground.run("agent", &spec).await.text(), "b\n");
        ground.nothing_left().await;
    }

    async fn f043_only_the_three_standard_streams_are_open() {
        for policy in BOTH {
            let ground = Ground::new(policy);
            let leak = std::fs::File::open("/").unwrap();
            rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
            let pid = ground.start("agent", &ground.spec(&["sleep", "1000"])).await;
            // The loader of a program that has just begun opens libraries and closes them; what was inherited stays.
            until(|| {
                let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
                let mut open: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
                open.sort();
                (open == ["0", "1", "2"]).then_some(())
            })
            .await;
            ground.nothing_left().await;
        }
    }

    async fn f045_f145_signals_session_and_limits_are_as_for_a_fresh_program() {
        let own = std::process::id();
        assert_ne!(status_of(own, "SigIgn"), "0000000000000000", "the test must ignore some itself");
        for policy in BOTH {
            let ground = Ground::new(policy);
            for no_new_privileges in [false, true] {
                let name = if no_new_privileges { "yes" } else { "no" };
                let mut spec = ground.spec(&["sleep", "1000"]);
                spec.no_new_privileges = no_new_privileges;
                let pid = ground.start(name, &spec).await;
                for field in ["SigIgn", "SigBlk", "SigCgt"] {
                    assert_eq!(status_of(pid, field), "0000000000000000", "{field}");
                }
                assert_eq!(status_of(pid, "NoNewPrivs") == "1", no_new_privileges || status_of(own, "NoNewPrivs") == "1");
                assert_eq!(status_of(pid, "NSsid"), status_of(pid, "NSpid"));
                assert_eq!(status_of(pid, "Umask"), status_of(own, "Umask"));
                let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
                let core = limits.lines().find(|line| line.starts_with("Max core")).unwrap();
                assert_eq!(core.split_ascii_whitespace().nth(4), Some("0"));
            }
            ground.nothing_left().await;
        }
    }

    async fn c36_arguments_and_variables_arrive_byte_for_byte() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.spec(&["sleep"]);
        let odd = OsText::from_bytes(b"\xff \n'\"$(x)\xfe".to_vec());
        spec.command = Command::new([OsText::new("sh"), OsText::new("-c"), OsText::new("exec sleep 1000"), odd.clone(), OsText::new("")]).unwrap();
        let mut exact = environment(&[("PATH", "/usr/bin:/bin"), ("EMPTY", "")]);
        exact.set(Key::new("ODD").unwrap(), b"\xff=\xfe\n".to_vec());
        spec.environment = EnvironmentSource::Exact(exact);
        spec.command = Command::new([OsText::new("sleep"), OsText::new("1000")]).unwrap();
        let pid = ground.start("agent", &spec).await;
        assert_eq!(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap(), b"sleep\x001000\0");
        assert_eq!(
            std::fs::read(format!("/proc/{pid}/environ")).unwrap(),
            b"EMPTY=\0ODD=\xff=\xfe\n\0PATH=/usr/bin:/bin\0"
        );
        let mut spec = ground.shell("");
        spec.command = Command::new([OsText::new("printf"), OsText::new("[%s]"), odd, OsText::new(""), OsText::new("a b")]).unwrap();
        assert_eq!(&ground.run("print", &spec).await.stdout[..], b"[\xff \n'\"$(x)\xfe][][a b]");
        ground.nothing_left().await;
    }

    async fn the_snapshot_is_laid_under_the_overlay_and_can_be_replaced() {
        let ground = Ground::new(BOTH[0]);
        let mut spec = ground.shell("echo $A $B $C");
        spec.environment = EnvironmentSource::Run(environment(&[("B", "over"), ("C", "3")]));
        ground.processes.set_environment(environment(&[("PATH", "/usr/bin:/bin"), ("A", "1"), ("B", "2")]));
        assert_eq!(ground.run("one", &spec).await.text(), "1 over 3\n");
        ground.processes.set_environment(environment(&[("PATH", "/usr/bin:/bin"), ("A", "new")]));
        assert_eq!(ground.run("two", &spec).await.text(), "new over 3\n");
        ground.nothing_left().await;
    }

    async fn a_start_is_repeatable_and_a_name_is_taken_by_another_spec() {
        let ground = Ground::new(BOTH[0]);
        let spec = ground.spec(&["sleep", "1000"]);
        let agent = id("agent");
        let (first, second) = tokio::join!(
            ground.processes.start(&agent, &spec),
            ground.processes.start(&agent, &spec)
        );
        assert_eq!(first.unwrap(), second.unwrap());
        let other = ground.spec(&["sleep", "1001"]);
        let error = ground.processes.start(&id("agent"), &other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        ground.stop("agent", Duration::from_secs(20)).await;
        assert!(ground.processes.start(&id("agent"), &spec).await.is_ok(), "also after its end");
        assert_eq!(ground.processes.list().len(), 1);
        let unknown = ground.processes.stop(&id("nobody"), &order(Duration::ZERO), groundcrew_core::process::EndCause::Stopped).await;
        assert_eq!(unknown.unwrap_err().kind(), ErrorKind::NotFound);
        ground.nothing_left().await;
    }

    async fn f020_every_way_to_end_is_reported_exactly() {
        let ground = Ground::new(BOTH[0]);
        for code in [0, 1, 2, 126, 127, 128, 130, 137, 255] {
            let status = ground.run(&format!("exit-{code}"), &ground.shell(&format!("exit {code}"))).await.status();
            assert_eq!((status.code, status.signal, status.core_dumped), (Some(code), None, false));
        }
        for signal in [1, 2, 9, 10, 13, 14, 15] {
            let status = ground.run(&format!("signal-{signal}"), &ground.shell(&format!("kill -{signal} $$"))).await.status();
            assert_eq!((status.code, status.signal, status.core_dumped), (None, Some(Signal(signal)), false));
        }
        let script = "ulimit -c unlimited; kill -ABRT $$";
        let status = ground.run("core", &ground.shell(script)).await.status();
        assert_eq!(status.signal, Some(Signal(6)));
        let dumped = std::fs::read_dir(ground.path()).unwrap().any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("core"));
        assert!(status.core_dumped || !dumped, "a core was dumped and not reported");
        let status = ground.run("no-core", &ground.shell("kill -ABRT $$")).await.status();
        assert_eq!((status.signal, status.core_dumped), (Some(Signal(6)), false));
        ground.nothing_left().await;
    }
}
