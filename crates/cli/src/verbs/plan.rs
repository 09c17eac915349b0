//! `plan`: what `run` would do, without an effect.

use groundcrew_core::{
    Plan,
    process::{Lease, StdioKind},
    script::Script,
    undo::Due,
};
use serde::Serialize;

use crate::{
    agents,
    args::{Format, PlanArgs},
    console::Console,
    documents::Document,
    exit,
    explanation::{Explained, explain},
    failing::Failing,
    program::Context,
    request,
    signals::Signals,
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
    idle_timeout_seconds: Option<f64>,
    limits: groundcrew_core::executor::Limits,
    lease_seconds: Option<f64>,
    keep: bool,
    steps: Vec<String>,
    setup: Vec<String>,
    teardown: Vec<String>,
    resources: Vec<Resource>,
    environment: Vec<Explained>,
    payloads: Vec<InFile>,
    warnings: Vec<String>,
}

/// Something that would be made.
#[derive(Debug, Serialize)]
struct Resource {
    what: String,
    due: Due,
}

/// A payload that goes into a file.
#[derive(Debug, Serialize)]
struct InFile {
    name: Text,
    bytes: usize,
}

/// Plans.
///
/// # Errors
///
/// Everything that is wrong with the request, at once.
pub(crate) async fn plan(context: &Context, args: &PlanArgs) -> Result<u8, Failing> {
    let console = &context.console;
    let explained = args.run.command.explains();
    let mut run = args.run.clone();
    run.command.env.retain(|word| !word.is_empty());
    let agents::Asked {
        agent,
        conversation,
    } = agents::of_run(context, &run, &mut Signals::listen()?).await?;
    let request = request::fresh(
        &run,
        agent,
        conversation.map(|held| held.servers).unwrap_or_default(),
        console.format,
        context.settings.config()?,
        &context.surroundings,
    )?;
    let crew = context.open(()).await?;
    let plan = crew.launcher.plan(request).await?;
    let planned = planned(&plan);
    if console.format == Format::Human {
        tell(console, &plan, &planned, explained);
    }
    console.document(&Document::new(planned));
    Ok(exit::DONE)
}

fn planned(plan: &Plan) -> Planned {
    let workspace = plan.workspace();
    let request = plan.request();
    let agent = plan.agent();
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
        idle_timeout_seconds: agent
            .and_then(|agent| agent.idle_limit)
            .map(|limit| limit.as_secs_f64()),
        limits: request.limits,
        lease_seconds: match request.lease {
            Lease::Unlimited => None,
            Lease::After(duration) => Some(duration.as_secs_f64()),
        },
        keep: request.keep,
        steps: plan.steps().iter().map(ToString::to_string).collect(),
        setup: names(plan.setup()),
        teardown: names(&request.teardown),
        resources: plan
            .records()
            .into_iter()
            .map(|record| Resource {
                what: record.label,
                due: record.due,
            })
            .collect(),
        environment: explain(plan.composition()),
        payloads: request
            .payloads
            .iter()
            .filter(|payload| payload.needs_file())
            .map(|payload| InFile {
                name: Text::new(payload.variable.as_bytes()),
                bytes: payload.content.len(),
            })
            .collect(),
        warnings: plan.warnings().to_vec(),
    }
}

fn names(scripts: &[Script]) -> Vec<String> {
    scripts.iter().map(|script| script.name.clone()).collect()
}

fn tell(console: &Console, plan: &Plan, planned: &Planned, explained: bool) {
    let style = console.out_style;
    let fact = |name: &str, value: &str| console.result(&format!("{name:<10} {value}"));
    fact("executor", &planned.executor);
    if let Some(agent) = plan.agent() {
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
    for script in plan.setup() {
        fact("setup", &printable(&script.name));
    }
    for script in &plan.request().teardown {
        fact("teardown", &printable(&script.name));
    }
    console.result(&style.bold("would make"));
    for resource in &planned.resources {
        console.result(&format!("  {}", printable(&resource.what)));
    }
    let count = planned.environment.len();
    if explained {
        console.result(&style.bold(&format!("environment, {count} variables")));
        for variable in &planned.environment {
            for line in variable.lines(style) {
                console.result(&format!("  {line}"));
            }
        }
    } else {
        fact("variables", &format!("{count}, listed by --env"));
    }
    for payload in &planned.payloads {
        let what = format!("{}, {} bytes, in a file", payload.name, payload.bytes);
        fact("payload", &what);
    }
    for warning in &planned.warnings {
        console.warn(&printable(warning));
    }
}
