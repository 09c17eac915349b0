//! The verbs of the control server: which request means what.

use std::{path::PathBuf, time::Duration};

use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{EndCause, Offset, ProcessSpec, Signal, TerminalSize},
};
use hyper::{Method, Request, Response, body::Incoming};

use super::{
    body::{self, MAX_ENVIRONMENT, ResponseBody},
    control::Control,
    streams,
};
use crate::wire::{self, Hello, PROTOCOL, PROTOCOL_HEADER, Shutdown};

/// Answers one request.
pub(super) async fn answer(
    control: &std::rc::Rc<Control>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    match route(control, request).await {
        Ok(response) => response,
        Err(error) => body::failure(&error),
    }
}

fn check_version(request: &Request<Incoming>) -> Result<(), Error> {
    if let Some(theirs) = request.headers().get(PROTOCOL_HEADER)
        && theirs.as_bytes() != PROTOCOL.to_string().as_bytes()
    {
        return Err(wire::mismatch(&String::from_utf8_lossy(theirs.as_bytes())));
    }
    let version = request.uri().path().split('/').nth(1).unwrap_or_default();
    match version.strip_prefix('v') {
        Some(version) if version == PROTOCOL.to_string() => Ok(()),
        Some(version) if version.parse::<u32>().is_ok() => Err(wire::mismatch(version)),
        _ => Err(unknown(request.method(), request.uri().path())),
    }
}

fn unknown(method: &Method, path: &str) -> Error {
    Error::new(ErrorKind::NotFound, "the control server has no such verb")
        .with("verb", format!("{method} {path}"))
}

async fn route(
    control: &std::rc::Rc<Control>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Error> {
    check_version(&request)?;
    let (head, incoming) = request.into_parts();
    let path = head.uri.path().to_owned();
    let words: Vec<&str> = path.trim_end_matches('/').split('/').skip(2).collect();
    let query = head.uri.query();
    match (&head.method, words.as_slice()) {
        (&Method::GET, []) => Ok(body::json(&hello(control))),
        (&Method::PUT, ["environment"]) => {
            let bytes = body::read(incoming, MAX_ENVIRONMENT).await?;
            control.set_environment(&wire::decode_environment(&bytes)?);
            Ok(body::json(&()))
        }
        (&Method::PUT, ["lease"]) => {
            control.lease.set(body::read_json(incoming).await?);
            Ok(body::json(&()))
        }
        (&Method::GET, ["mcp-servers"]) => Ok(body::json(&*control.mcp_servers.borrow())),
        (&Method::PUT, ["mcp-servers"]) => {
            let servers = body::read_json(incoming).await?;
            control.mcp_servers.replace(servers);
            Ok(body::json(&()))
        }
        (&Method::GET, ["processes"]) => Ok(body::json(&control.processes.list())),
        (method, ["processes", id]) => process(control, method, id, &[], query, incoming).await,
        (method, ["processes", id, verb @ ..]) => {
            process(control, method, id, verb, query, incoming).await
        }
        (&Method::PUT, ["archive"]) => {
            crate::archive::unpack(&archive_path(query)?, streams::incoming(incoming)).await?;
            Ok(body::json(&()))
        }
        (&Method::GET, ["archive"]) => {
            let stream = crate::archive::pack(&archive_path(query)?)?;
            Ok(body::bytes(streams::outgoing(
                std::rc::Rc::clone(control),
                stream,
            )))
        }
        (&Method::POST, ["shutdown"]) => {
            let Shutdown { grace_ms } = body::read_json(incoming).await?;
            let grace = Some(Duration::from_millis(grace_ms));
            control.processes.stop_all(grace, EndCause::Stopped).await?;
            control.ended.notify_one();
            Ok(body::json(&()))
        }
        (method, _) => Err(unknown(method, &path)),
    }
}

async fn process(
    control: &std::rc::Rc<Control>,
    method: &Method,
    id: &str,
    verb: &[&str],
    query: Option<&str>,
    incoming: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let id = ProcessId::new(id)?;
    let processes = &control.processes;
    match (method, verb) {
        (&Method::PUT, []) => {
            let spec: ProcessSpec = body::read_json(incoming).await?;
            Ok(body::json(&processes.start(&id, &spec).await?))
        }
        (&Method::GET, ["wait"]) => Ok(body::json(&processes.wait(&id).await?)),
        (&Method::GET, ["output"]) => {
            let frames = processes.attach(&id, offset(query)?)?;
            Ok(body::bytes(streams::output(
                std::rc::Rc::clone(control),
                frames,
            )))
        }
        (&Method::POST, ["input"]) => {
            streams::check_started(control, &id)?;
            let taken = control.take_over(&id);
            Ok(body::bytes(streams::input(
                std::rc::Rc::clone(control),
                id,
                taken,
                incoming,
            )))
        }
        (&Method::DELETE, ["input"]) => {
            processes.close_stdin(&id)?;
            Ok(body::json(&()))
        }
        (&Method::PUT, ["size"]) => {
            let size: TerminalSize = body::read_json(incoming).await?;
            processes.resize(&id, size)?;
            Ok(body::json(&()))
        }
        (&Method::POST, ["signal"]) => {
            let signal: Signal = body::read_json(incoming).await?;
            processes.signal(&id, signal)?;
            Ok(body::json(&()))
        }
        (method, verb) => Err(unknown(
            method,
            &format!("/v{PROTOCOL}/processes/{id}/{}", verb.join("/")),
        )),
    }
}

fn hello(control: &Control) -> Hello {
    let start = &control.start;
    Hello {
        protocol: PROTOCOL,
        pid: std::process::id(),
        install: start.install.clone(),
        instance: start.instance.clone(),
        run: start.run.clone(),
        session: start.session.clone(),
        lease: control.lease.lease(),
    }
}

fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    query?
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn offset(query: Option<&str>) -> Result<Offset, Error> {
    match parameter(query, "from") {
        None => Ok(Offset(0)),
        Some(text) => text.parse().map(Offset).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, "an offset is a count of bytes").with("from", text)
        }),
    }
}

fn archive_path(query: Option<&str>) -> Result<PathBuf, Error> {
    parameter(query, "at")
        .and_then(wire::percent_decode)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                "an archive needs an absolute path: ?at=/…",
            )
        })
}
