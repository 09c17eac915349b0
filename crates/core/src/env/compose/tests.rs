//! What the composer decides, and what it refuses.

use super::*;
use crate::env::environment::Key;
use crate::secret::{SecretId, SecretRef};

pub(super) fn def(key: &str, value: &str, tier: Tier, origin: &str) -> Definition {
    Definition::literal(Key::new(key).unwrap(), value, tier, origin)
}

fn value<'a>(composition: &'a Composition, key: &str) -> &'a [u8] {
    match &composition.get(key).unwrap().definition.value {
        Value::Literal(text) => text.as_bytes(),
        Value::Secret(_) => b"<secret>",
    }
}

#[test]
fn the_strongest_tier_wins_and_the_loser_is_recorded_without_value() {
    let composition = compose([
        def("A", "weak", Tier::Inherited, "caller"),
        def("A", "strong", Tier::Request, "--env"),
    ])
    .unwrap();
    assert_eq!(value(&composition, "A"), b"strong");
    let lost = &composition.get("A").unwrap().overridden;
    assert_eq!(
        (lost[0].origin.0.as_str(), lost[0].tier),
        ("caller", Tier::Inherited)
    );
    assert!(!format!("{composition:?}").contains("weak"));
}

#[test]
fn all_conflicts_are_reported_at_once_with_every_origin() {
    let secret = Definition::secret(
        Key::new("B").unwrap(),
        SecretRef::new("b").unwrap(),
        Tier::Profile,
        "profile",
    );
    let conflicts = compose([
        def("A", "1", Tier::Request, "one"),
        def("A", "2", Tier::Request, "two"),
        secret,
        def("B", "x", Tier::Request, "--env"),
        def("GROUNDCREW_RUN_ID", "fake", Tier::Request, "--env"),
        def("GROUNDCREW_RUN_ID", "real", Tier::Identity, "run"),
    ])
    .unwrap_err();
    assert_eq!(
        conflicts.iter().map(|c| c.key.as_str()).collect::<Vec<_>>(),
        ["A", "B", "GROUNDCREW_RUN_ID"]
    );
    assert!(conflicts.iter().all(|c| c.origins.len() == 2));
}

#[test]
fn git_lists_of_two_definers_are_merged_and_damaged_ones_refused() {
    let list = |tier, origin: &str, key: &str| {
        [
            def("GIT_CONFIG_COUNT", "1", tier, origin),
            def("GIT_CONFIG_KEY_0", key, tier, origin),
            def("GIT_CONFIG_VALUE_0", "v", tier, origin),
        ]
    };
    let merged = compose(
        [
            list(Tier::Request, "b", "y.y"),
            list(Tier::Inherited, "a", "x.x"),
        ]
        .concat(),
    )
    .unwrap();
    assert_eq!(value(&merged, "GIT_CONFIG_COUNT"), b"2");
    assert_eq!(
        (
            value(&merged, "GIT_CONFIG_KEY_0"),
            value(&merged, "GIT_CONFIG_KEY_1")
        ),
        (&b"x.x"[..], &b"y.y"[..])
    );
    let conflicts = compose([
        def("GIT_CONFIG_COUNT", "2", Tier::Request, "a"),
        def("GIT_CONFIG_KEY_0", "x", Tier::Request, "a"),
    ])
    .unwrap_err();
    assert_eq!(conflicts[0].origins[0].0, "a");
}

#[test]
fn k18_git_lists_keep_their_order_and_what_they_repeat() {
    let list = |tier, origin: &str, entries: &[(&str, &str)]| {
        let mut block = vec![def(
            "GIT_CONFIG_COUNT",
            &entries.len().to_string(),
            tier,
            origin,
        )];
        for (index, (key, value)) in entries.iter().enumerate() {
            block.push(def(&format!("GIT_CONFIG_KEY_{index}"), key, tier, origin));
            block.push(def(
                &format!("GIT_CONFIG_VALUE_{index}"),
                value,
                tier,
                origin,
            ));
        }
        block
    };
    let request = list(
        Tier::Request,
        "request",
        &[("core.hooksPath", "/h"), ("x.y", "1"), ("x.y", "2")],
    );
    let route = list(
        Tier::Managed,
        "route",
        &[("x.y", "1"), ("credential.helper", "store")],
    );
    let merged = compose([route, request].concat()).unwrap();
    assert_eq!(value(&merged, "GIT_CONFIG_COUNT"), b"5");
    let entries: Vec<_> = (0..5)
        .map(|n| {
            let text = |name: &str| {
                String::from_utf8(value(&merged, &format!("GIT_CONFIG_{name}_{n}")).to_vec())
                    .unwrap()
            };
            format!("{}={}", text("KEY"), text("VALUE"))
        })
        .collect();
    // `x.y=1` stands again behind `x.y=2`: to git the last one counts.
    assert_eq!(
        entries,
        [
            "core.hooksPath=/h",
            "x.y=1",
            "x.y=2",
            "x.y=1",
            "credential.helper=store"
        ]
    );
    let origins = &merged.get("GIT_CONFIG_KEY_0").unwrap().agreeing;
    assert_eq!(
        origins.iter().map(|o| o.0.as_str()).collect::<Vec<_>>(),
        ["request", "route"]
    );
}

#[test]
fn k19_damaged_git_lists_are_all_named() {
    let damaged: &[(&[(&str, &str)], &str)] = &[
        (
            &[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "a.b")],
            "GIT_CONFIG_VALUE_0 is missing",
        ),
        (
            &[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_VALUE_0", "v")],
            "GIT_CONFIG_KEY_0 is missing",
        ),
        (&[("GIT_CONFIG_COUNT", "-1")], "not a number"),
        (&[("GIT_CONFIG_COUNT", "257")], "not a number"),
        (&[("GIT_CONFIG_COUNT", "one")], "not a number"),
        (&[("GIT_CONFIG_COUNT", "")], "not a number"),
        (
            &[
                ("GIT_CONFIG_COUNT", "1"),
                ("GIT_CONFIG_KEY_0", ""),
                ("GIT_CONFIG_VALUE_0", "v"),
            ],
            "GIT_CONFIG_KEY_0 is empty",
        ),
        (
            &[
                ("GIT_CONFIG_COUNT", "1"),
                ("GIT_CONFIG_COUNT", "2"),
                ("GIT_CONFIG_KEY_0", "a"),
                ("GIT_CONFIG_VALUE_0", "v"),
            ],
            "two different values",
        ),
    ];
    for (variables, why) in damaged {
        let block = variables
            .iter()
            .map(|(key, value)| def(key, value, Tier::Request, "route"));
        let other = [
            def("GIT_CONFIG_COUNT", "x", Tier::Profile, "profile"),
            def("A", "1", Tier::Request, "p"),
        ];
        let conflicts = compose(block.chain(other)).unwrap_err();
        assert_eq!(conflicts.len(), 2, "{variables:?}");
        assert!(
            conflicts
                .iter()
                .any(|c| c.origins[0].0 == "route" && c.why.contains(why)),
            "{variables:?}: {conflicts:?}"
        );
    }
    let strays = [
        def("GIT_CONFIG_KEY_0", "a", Tier::Request, "p"),
        def("GIT_CONFIG_VALUE_9", "a", Tier::Request, "p"),
    ];
    assert_eq!(compose(strays).unwrap().variables, []);
}

#[test]
fn k12_identity_holds_against_a_profile_and_a_request_that_names_it_is_refused() {
    let id = || {
        def(
            "GROUNDCREW_AGENT_PROFILE_ID",
            "office-cto",
            Tier::Identity,
            "the run itself",
        )
    };
    let profile = |name: &str, value: &str| def(name, value, Tier::Profile, "profile claude");
    let composed = compose([
        id(),
        profile("CLAUDE_CONFIG_DIR", "/accounts/a"),
        profile("GROUNDCREW_AGENT_PROFILE_ID", "somebody"),
    ])
    .unwrap();
    assert_eq!(value(&composed, "CLAUDE_CONFIG_DIR"), b"/accounts/a");
    assert_eq!(
        value(&composed, "GROUNDCREW_AGENT_PROFILE_ID"),
        b"office-cto"
    );
    assert_eq!(
        composed
            .get("GROUNDCREW_AGENT_PROFILE_ID")
            .unwrap()
            .overridden[0]
            .origin
            .0,
        "profile claude"
    );
    let asked = def(
        "GROUNDCREW_AGENT_PROFILE_ID",
        "somebody",
        Tier::Request,
        "--env",
    );
    assert_eq!(compose([id(), asked]).unwrap_err()[0].origins.len(), 2);
}

#[test]
fn k13_a_late_managed_value_conflicts_with_a_repository_s_secret() {
    let tenant = crate::id::TenantId::new("acme").unwrap();
    for (name, managed) in [
        (
            "AGENT_MODEL",
            def("AGENT_MODEL", "large", Tier::Managed, "managed model"),
        ),
        (
            "AUTO_APPROVE",
            def("AUTO_APPROVE", "true", Tier::Managed, "managed approval"),
        ),
        (
            "GOCACHE",
            def("GOCACHE", "/cache/go", Tier::Managed, "managed cache"),
        ),
        (
            "API_KEY",
            Definition::secret(
                Key::new("API_KEY").unwrap(),
                SecretRef::new("managed/api-key").unwrap(),
                Tier::Managed,
                "managed credentials",
            ),
        ),
    ] {
        let secret = SecretId::of_tenant(SecretRef::new("app/key").unwrap(), tenant.clone());
        let bound = Definition::secret(
            Key::new(name).unwrap(),
            secret,
            Tier::Workspace,
            "repository app",
        );
        let conflicts = compose([managed, bound]).unwrap_err();
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].key, name);
        assert_eq!(conflicts[0].origins.len(), 2, "{conflicts:?}");
        assert_eq!(conflicts[0].origins[0].0, "repository app");
    }
}

#[test]
fn the_same_name_of_two_owners_is_two_secrets() {
    let name = SecretRef::new("key").unwrap();
    let of =
        |tenant: &str| SecretId::of_tenant(name.clone(), crate::id::TenantId::new(tenant).unwrap());
    let bound = |secret: SecretId, origin: &str| {
        Definition::secret(Key::new("K").unwrap(), secret, Tier::Workspace, origin)
    };
    assert!(compose([bound(of("a"), "one"), bound(of("b"), "two")]).is_err());
    assert!(compose([bound(of("a"), "one"), bound(name.clone().into(), "two")]).is_err());
    let merged = compose([bound(of("a"), "one"), bound(of("a"), "two")]).unwrap();
    assert_eq!(merged.get("K").unwrap().agreeing[0].0, "one");
}
