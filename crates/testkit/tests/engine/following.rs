//! Following a run: its output from any offset, its end, and what follows from that.

use groundcrew_core::{
    error::{Error, ErrorKind},
    process::{FrameKind, Offset},
    request::LaunchRequest,
    store::RunState,
};

use crate::support::{Machine, agent};

#[tokio::test(start_paused = true)]
async fn a_run_is_followed_from_an_offset_to_its_end_and_settled() {
    let machine = Machine::new();
    let process = machine.process();
    let request = LaunchRequest {
        keep: true,
        ..agent(&["echo", "ready", "for", "work"])
    };
    let record = process.ticket(request).await.wait().await.unwrap().record;
    // Whoever cannot show a frame stops reading, and nothing else.
    let broken = || Err(Error::new(ErrorKind::Protocol, "the screen is gone"));
    let followed = process.launcher.follow(&record, Offset(0), |_| broken());
    assert_eq!(followed.await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(machine.record(&record.run).await.state, RunState::Running);
    for (from, wanted) in [(0, "ready for work\n"), (6, "for work\n")] {
        let (mut said, mut ends) = (Vec::new(), 0);
        let followed = process.launcher.follow(&record, Offset(from), |frame| {
            match frame.kind {
                FrameKind::Stdout(bytes) => said.extend_from_slice(&bytes),
                FrameKind::Exit(_) => ends += 1,
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        let settled = followed.await.unwrap();
        assert_eq!(settled.record.state, RunState::Exited);
        assert_eq!(settled.record.exit.unwrap().code, Some(0));
        assert_eq!(
            (String::from_utf8(said).unwrap().as_str(), ends),
            (wanted, 1)
        );
    }
    assert!(machine.world.instances().is_empty(), "its instance stays");
    process.lawful();
}
