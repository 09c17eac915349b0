//! The variables of a profile, with their origins; and profiles that are stored.

use super::*;
use crate::{
    env::Value,
    id::TenantId,
    profile::{ApprovalRule, CacheRule, ModelRule, Prefix, PromptRule, Route, Variable},
    secret::SecretRef,
    wire::OsText,
};

fn profile() -> AgentProfile {
    AgentProfile::new(crate::id::ProfileName::new("mock").unwrap(), ["agent"])
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn credential(variable: Key, secrets: &[&str]) -> Credential {
    Credential {
        variable,
        secrets: secrets
            .iter()
            .map(|name| SecretRef::new(*name).unwrap())
            .collect(),
        tenant: None,
        required: true,
        hint: "ask".into(),
    }
}

fn full() -> AgentProfile {
    let mut profile = profile();
    profile
        .environment
        .insert(key("ACCOUNT_DIR"), Variable::Path("/acc".into()));
    let tenant = TenantId::new("t").unwrap();
    profile.environment.insert(
        key("TOKEN"),
        Variable::Secret(SecretId::of_tenant(SecretRef::new("a/b").unwrap(), tenant)),
    );
    profile.defaults.insert(key("COLOR"), "never".into());
    profile.model = ModelRule {
        variable: Some(key("MODEL")),
        default: Some("own".into()),
        ..ModelRule::default()
    };
    profile.approval = Some(ApprovalRule {
        variables: [(key("YES"), "1".into())].into(),
        ..ApprovalRule::default()
    });
    profile.credentials = vec![
        credential(key("API_KEY"), &["first", "second"]),
        credential(key("OTHER"), &["none"]),
    ];
    profile.caches = vec![CacheRule {
        variable: key("GOCACHE"),
        directory: "go".into(),
    }];
    profile
}

fn told(definitions: &[Definition]) -> Vec<(String, String, Tier)> {
    let told = definitions.iter().map(|one| {
        let value = match &one.value {
            Value::Literal(text) => text.0.to_string_lossy().into_owned(),
            Value::Secret(secret) => format!("<{secret}>"),
        };
        (
            one.key.to_string(),
            format!("{value} from {}", one.origin),
            one.tier,
        )
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

#[test]
fn k12_k17_variables_come_with_their_origins() {
    let profile = full();
    let route = Route {
        environment: [(key("ROUTED"), "r".into())].into(),
        model: Some("routed".into()),
        ..Route::default()
    };
    let wishes = CommandWishes {
        auto_approve: true,
        route: Some(route),
        ..CommandWishes::default()
    };
    let known = [SecretId::from(SecretRef::new("second").unwrap())].into();
    let inputs = DefinitionInputs {
        wishes: &wishes,
        inherited: &BTreeSet::new(),
        known_secrets: &known,
    };
    let found = told(&profile.definitions(inputs).unwrap());
    let line = |key: &str, rest: &str, tier| (key.to_owned(), rest.to_owned(), tier);
    let token = SecretId::of_tenant(SecretRef::new("a/b").unwrap(), TenantId::new("t").unwrap());
    assert_eq!(
        found,
        [
            line("ACCOUNT_DIR", "/acc from profile mock", Tier::Profile),
            line(
                "API_KEY",
                "<second> from credentials of profile mock",
                Tier::Managed
            ),
            line(
                "COLOR",
                "never from defaults of profile mock",
                Tier::Fallback
            ),
            line("MODEL", "routed from model of profile mock", Tier::Managed),
            line("ROUTED", "r from route", Tier::Request),
            line(
                "TOKEN",
                &format!("<{token}> from profile mock"),
                Tier::Profile
            ),
            line("YES", "1 from approval of profile mock", Tier::Managed),
        ]
    );
}

#[test]
fn k16_a_concrete_route_defines_nothing() {
    let mut profile = full();
    profile.credentials.clear();
    let route = Route {
        profile: Some(profile.name.clone()),
        environment: [
            (key("ROUTED"), "r".into()),
            (key("ACCOUNT_DIR"), "r".into()),
        ]
        .into(),
        model: Some("routed".into()),
        ..Route::default()
    };
    let wishes = CommandWishes {
        route: Some(route),
        ..CommandWishes::default()
    };
    let known = [].into();
    let inputs = DefinitionInputs {
        wishes: &wishes,
        inherited: &BTreeSet::new(),
        known_secrets: &known,
    };
    let found = told(&profile.definitions(inputs).unwrap());
    let keys: Vec<_> = found.iter().map(|(key, ..)| key.as_str()).collect();
    assert_eq!(keys, ["ACCOUNT_DIR", "COLOR", "MODEL", "TOKEN"]);
    assert_eq!(found[2].1, "own from model of profile mock");
}

#[test]
fn credentials_that_nobody_gives_are_named_all() {
    let profile = full();
    let candidates: Vec<_> = profile
        .candidates()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(candidates, ["first", "second", "none"]);
    let missing = profile.missing_credentials(|key| key.as_bytes() == b"OTHER");
    let [error] = &missing[..] else {
        panic!("{missing:?}")
    };
    assert_eq!(error.kind(), ErrorKind::SecretUnavailable);
    assert_eq!(
        (
            error.get("variable"),
            error.get("secrets"),
            error.get("hint")
        ),
        (Some("API_KEY"), Some("first, second"), Some("ask"))
    );
    assert_eq!(profile.missing_credentials(|_| false).len(), 2);
}
#[test]
fn a_path_that_nobody_made_absolute_is_refused() {
    let mut profile = profile();
    profile
        .environment
        .insert(key("P"), Variable::Path("~/p".into()));
    let wishes = CommandWishes::default();
    let known = [].into();
    let inputs = DefinitionInputs {
        wishes: &wishes,
        inherited: &BTreeSet::new(),
        known_secrets: &known,
    };
    let errors = profile.definitions(inputs).unwrap_err();
    assert_eq!((errors.len(), errors[0].get("variable")), (1, Some("P")));
}

#[test]
fn a_stored_profile_is_read_again_as_it_was() {
    let mut profile = full();
    profile.prefix = Prefix::Line("a 'b".into());
    profile.environment.insert(
        key("BYTES"),
        Variable::Literal(OsText::from_bytes(b"\xff".to_vec())),
    );
    profile.stop.signal = crate::process::Signal(40);
    profile.prompt = Some(PromptRule::Stdin);
    profile.command.push(OsText::from_bytes(b"\xfe".to_vec()));
    let text = serde_json::to_string(&profile).unwrap();
    assert_eq!(
        serde_json::from_str::<AgentProfile>(&text).unwrap(),
        profile,
        "{text}"
    );
    assert!(
        !format!("{:?}", full()).contains("never"),
        "Debug shows no literal"
    );
}

#[test]
fn k28_the_caches_of_a_profile_are_below_ours() {
    let caches = full().managed_caches(Path::new("/c"));
    let [cache] = &caches[..] else {
        panic!("{caches:?}")
    };
    assert_eq!(
        (&cache.variable, cache.directory.as_path()),
        (&key("GOCACHE"), Path::new("/c/go"))
    );
}

#[test]
fn a_default_does_not_replace_what_is_inherited() {
    let inputs = DefinitionInputs {
        wishes: &CommandWishes::default(),
        inherited: &[key("COLOR"), key("MODEL")].into(),
        known_secrets: &BTreeSet::new(),
    };
    let found = told(&full().definitions(inputs).unwrap());
    let keys: Vec<_> = found.iter().map(|(key, ..)| key.as_str()).collect();
    assert_eq!(keys, ["ACCOUNT_DIR", "MODEL", "TOKEN"]);
}

#[test]
fn what_an_agent_keeps_is_where_its_variable_says() {
    let mut profile = full();
    let wishes = CommandWishes {
        home: Some("/kept".into()),
        ..CommandWishes::default()
    };
    let inputs = DefinitionInputs {
        wishes: &wishes,
        inherited: &BTreeSet::new(),
        known_secrets: &BTreeSet::new(),
    };
    let found = |profile: &AgentProfile| told(&profile.definitions(inputs).unwrap());
    let of_home = |found: Vec<(String, String, Tier)>| {
        let mut lines = found.into_iter();
        lines.find(|(_, rest, _)| rest.contains("home of"))
    };
    assert_eq!(of_home(found(&profile)), None);
    profile.home = Some(key("MOCK_HOME"));
    let line = (
        "MOCK_HOME".to_owned(),
        "/kept from home of profile mock".to_owned(),
        Tier::Managed,
    );
    assert_eq!(of_home(found(&profile)), Some(line));
    profile.home = Some(key("GROUNDCREW_RUN_ID"));
    let refused = profile.check();
    assert!(
        refused.iter().any(|error| error.get("in") == Some("home")),
        "{refused:?}"
    );
}
