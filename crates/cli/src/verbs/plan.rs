//! `plan`: what `run` would do, without an effect.

use std::os::unix::ffi::OsStrExt as _;

use groundcrew_core::{
    Plan,
    env::{Definition, Tier, Value},
    process::{Lease, StdioKind},
    request::Mode,
    undo::Due,
};
use serde::Serialize;

use crate::{
    args::{Format, PlanArgs},
    console::Console,
    documents::Document,
    exit,
    failing::Failing,
    program::Context,
    request,
    text::{Text, printable, printable_os},
};

/// The document of a plan.
#[derive(Debug, Serialize)]
struct Planned {
    executor: String,
    kind: String,
    workspace: Text,
    directory: Text,
    repository: Option<Text>,
    branch: Option<String>,
    base: Option<String>,
    command: Vec<Text>,
    terminal: bool,
    timeout_seconds: Option<f64>,
    lease_seconds: Option<f64>,
    keep: bool,
    steps: Vec<String>,
    resources: Vec<Resource>,
    environment: Vec<Variable>,
    overrides: Vec<Overridden>,
    warnings: Vec<String>,
}

/// Something that would be made.
#[derive(Debug, Serialize)]
struct Resource {
    what: String,
    due: Due,
}

/// A variable that the command would get.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Variable {
    name: Text,
    /// None where it is, or may be, a secret.
    value: Option<Text>,
    /// The name of the secret, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    origin: String,
    tier: Tier,
}

/// A definition that lost.
#[derive(Debug, Serialize)]
struct Overridden {
    name: String,
    winner: String,
    loser: String,
}

/// Plans.
///
/// # Errors
///
/// Everything that is wrong with the request, at once.
pub(crate) async fn plan(context: &Context, args: &PlanArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let request = request::fresh(&args.run, console.format, &context.surroundings)?;
    let crew = context.open(()).await?;
    let plan = crew.launcher.plan(request).await?;
    let planned = planned(&plan);
    if console.format == Format::Human {
        tell(console, &plan, &planned);
    }
    console.document(&Document::new(planned));
    Ok(exit::DONE)
}

fn planned(plan: &Plan) -> Planned {
    let workspace = plan.workspace();
    let request = plan.request();
    let agent = match &request.mode {
        Mode::Agent(agent) => Some(agent),
        Mode::Workspace => None,
    };
    Planned {
        executor: plan.executor().to_string(),
        kind: workspace.kind.clone(),
        workspace: Text::os(&workspace.path),
        directory: Text::os(&workspace.directory),
        repository: workspace.repository.as_ref().map(Text::os),
        branch: workspace.branch.clone(),
        base: workspace.base.clone(),
        command: agent.map_or_else(Vec::new, |agent| {
            agent.command.arguments().iter().map(Text::os).collect()
        }),
        terminal: agent.is_some_and(|agent| matches!(agent.stdio, StdioKind::Terminal(_))),
        timeout_seconds: agent
            .and_then(|agent| agent.time_limit)
            .map(|limit| limit.as_secs_f64()),
        lease_seconds: match request.lease {
            Lease::Unlimited => None,
            Lease::After(duration) => Some(duration.as_secs_f64()),
        },
        keep: request.keep,
        steps: plan.steps().iter().map(ToString::to_string).collect(),
        resources: plan
            .records()
            .into_iter()
            .map(|record| Resource {
                what: record.label,
                due: record.due,
            })
            .collect(),
        environment: plan.composition().variables.iter().map(variable).collect(),
        overrides: plan
            .composition()
            .overrides
            .iter()
            .map(|lost| Overridden {
                name: lost.key.to_string(),
                winner: lost.winner.to_string(),
                loser: lost.loser.to_string(),
            })
            .collect(),
        warnings: plan.warnings().to_vec(),
    }
}

fn variable(definition: &Definition) -> Variable {
    let name = definition.key.as_bytes();
    let (value, secret) = match &definition.value {
        // Who the run is, is no secret.
        Value::Literal(text)
            if definition.tier != Tier::Identity && may_be_secret(name, text.as_bytes()) =>
        {
            (None, None)
        }
        Value::Literal(text) => (Some(Text::new(text.as_bytes())), None),
        Value::Secret(name) => (None, Some(name.to_string())),
    };
    Variable {
        name: Text::new(name),
        value,
        secret,
        origin: definition.origin.to_string(),
        tier: definition.tier,
    }
}

/// Returns whether a value could be a secret, by the variable's name or by what it looks like; rather once too often.
fn may_be_secret(name: &[u8], value: &[u8]) -> bool {
    const WORDS: [&str; 13] = [
        "TOKEN",
        "SECRET",
        "PASS",
        "PWD",
        "KEY",
        "CREDENTIAL",
        "AUTH",
        "COOKIE",
        "PRIVATE",
        "SESSION",
        "DSN",
        "GIT_CONFIG_VALUE",
        "CONNECTION",
    ];
    let name = name.to_ascii_uppercase();
    let named = WORDS
        .iter()
        .any(|word| name.windows(word.len()).any(|part| part == word.as_bytes()));
    // A URL with a user in it usually has the password there as well.
    let url = value.windows(3).any(|part| part == b"://") && value.contains(&b'@');
    named || url
}

fn tell(console: &Console, plan: &Plan, planned: &Planned) {
    let style = console.out_style;
    let fact = |name: &str, value: &str| console.result(&format!("{name:<10} {value}"));
    fact("executor", &planned.executor);
    if let Mode::Agent(agent) = &plan.request().mode {
        fact("command", &agent.command.to_string());
    }
    let workspace = plan.workspace();
    fact("workspace", &printable_os(&workspace.path));
    if workspace.directory != workspace.path {
        fact("directory", &printable_os(&workspace.directory));
    }
    if let Some(repository) = &workspace.repository {
        fact("repository", &printable_os(repository));
    }
    if let Some(branch) = &workspace.branch {
        fact("branch", &printable(branch));
    }
    if let Some(base) = &workspace.base {
        fact("base", &printable(base));
    }
    fact("steps", &printable(&planned.steps.join(", ")));
    console.result(&style.bold("would make"));
    for resource in &planned.resources {
        console.result(&format!("  {}", printable(&resource.what)));
    }
    console.result(&style.bold("environment"));
    for definition in &plan.composition().variables {
        let shown = variable(definition);
        let value = match (&shown.value, &shown.secret, &definition.value) {
            (Some(_), _, Value::Literal(text)) => printable_os(text),
            (_, Some(name), _) => format!("<secret {name}>"),
            _ => "<not shown>".to_owned(),
        };
        let name = printable_os(std::ffi::OsStr::from_bytes(definition.key.as_bytes()));
        console.result(&format!(
            "  {name}={value}  {}",
            style.faint(&printable(&format!("({})", shown.origin)))
        ));
    }
    for warning in &planned.warnings {
        console.warn(&printable(warning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use groundcrew_core::{env::Key, secret::SecretRef};

    fn shown(name: &str, value: &str) -> Option<Text> {
        let key = Key::new(name).unwrap();
        variable(&Definition::literal(key, value, Tier::Request, "--env")).value
    }

    #[test]
    fn f144_values_that_may_be_secret_are_not_shown() {
        for (name, value) in [
            ("OPENAI_API_KEY", "x"),
            ("github_token", "x"),
            ("PGPASSWORD", "x"),
            ("HTTPS_PROXY", "http://u:p@h:1"),
            ("GIT_CONFIG_VALUE_0", "AUTHORIZATION: basic x"),
        ] {
            assert_eq!(shown(name, value), None, "{name}");
        }
        assert_eq!(shown("EDITOR", "vi"), Some(Text::new(b"vi")));
        assert_eq!(
            shown("HTTPS_PROXY", "http://h:1"),
            Some(Text::new(b"http://h:1"))
        );
        let secret = SecretRef::new("a/b").unwrap();
        let shown = variable(&Definition::secret(
            Key::new("X").unwrap(),
            secret,
            Tier::Request,
            "--env",
        ));
        assert_eq!((shown.value, shown.secret.as_deref()), (None, Some("a/b")));
    }
}
