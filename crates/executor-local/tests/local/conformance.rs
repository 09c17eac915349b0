//! The suite for instances against real supervisors.

use std::{path::PathBuf, sync::Mutex};

use groundcrew_core::{
    async_trait, error::Error, executor::Executor as _, id::InstanceId, instance::SharedInstance,
    process::Lease, wire::OsText,
};
use groundcrew_testkit::conformance::{self, Fixture, Need, Program, posix};

use crate::{
    place::{Place, fresh},
    runner::say,
};

crate::runner::tests![a_local_instance_keeps_the_contract];

struct Local {
    place: Place,
    made: Mutex<Vec<InstanceId>>,
    directory: PathBuf,
}

#[async_trait]
impl Fixture for Local {
    async fn instance(&self) -> Result<SharedInstance, Error> {
        let id = fresh();
        self.made.lock().unwrap().push(id.clone());
        self.place.create(&id, Lease::Unlimited).await;
        self.place.executor.connect(&id).await
    }

    fn command(&self, program: &Program<'_>) -> Vec<OsText> {
        posix(program)
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned())]
    }

    fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    fn has(&self, _: Need) -> bool {
        true
    }
}

async fn a_local_instance_keeps_the_contract() {
    let place = Place::new();
    let directory = place.root.path().join("workspace");
    std::fs::create_dir(&directory).unwrap();
    let local = Local {
        directory: directory.canonicalize().unwrap(),
        place,
        made: Mutex::default(),
    };
    let report = conformance::instance(&local).await;
    say(format_args!("{report}"));
    assert_eq!(report.failed(), Vec::<&str>::new(), "{report}");
    assert_eq!(report.skipped(), []);
    for id in local.made.into_inner().unwrap() {
        local.place.executor.delete(&id, None).await.unwrap();
    }
    assert_eq!(local.place.executor.list().await.unwrap(), []);
}
