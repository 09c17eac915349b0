//! The verbs of the control server: which request means what.

use std::{path::PathBuf, time::Duration};

use futures_util::StreamExt as _;
use groundcrew_core::{
    error::{Error, ErrorKind},
    id::ProcessId,
    process::{
        EndCause, Frame, FrameKind, Offset, ProcessPhase, ProcessSpec, ProcessState, Signal,
        TerminalSize,
    },
};
use hyper::{Method, Request, Response, body::Incoming, header::HeaderValue};

use super::{
    body::{self, MAX_ENVIRONMENT, ResponseBody},
    control::Control,
    streams,
};
use crate::wire::{self, Hello, PROTOCOL_HEADER, Shutdown};

/// Answers one request, in the version that it speaks.
pub(super) async fn answer(
    control: &std::rc::Rc<Control>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let version = match version(&request) {
        Ok(version) => version,
        Err(error) => return body::failure(&error),
    };
    let mut response = match route(control, version, request).await {
        Ok(response) => response,
        Err(error) => body::failure(&error),
    };
    response
        .headers_mut()
        .insert(PROTOCOL_HEADER, HeaderValue::from(version));
    response
}

/// Returns whether a request only asks: whoever does no more keeps nothing alive.
pub(super) fn only_asks(request: &Request<Incoming>) -> bool {
    let words = request.uri().path().trim_end_matches('/').split('/');
    let words: Vec<&str> = words.skip(2).collect();
    *request.method() == Method::GET
        && matches!(words.as_slice(), [] | ["processes" | "mcp-servers"])
}

fn version(request: &Request<Incoming>) -> Result<u32, Error> {
    if let Some(theirs) = request.headers().get(PROTOCOL_HEADER)
        && wire::spoken(theirs.as_bytes()).is_none()
    {
        return Err(wire::mismatch(&String::from_utf8_lossy(theirs.as_bytes())));
    }
    let word = request.uri().path().split('/').nth(1).unwrap_or_default();
    let Some(number) = word.strip_prefix('v') else {
        return Err(unknown(request.method(), request.uri().path()));
    };
    match wire::spoken(number.as_bytes()) {
        Some(version) => Ok(version),
        None if number.parse::<u32>().is_ok() => Err(wire::mismatch(number)),
        None => Err(unknown(request.method(), request.uri().path())),
    }
}

fn unknown(method: &Method, path: &str) -> Error {
    Error::new(ErrorKind::NotFound, "the control server has no such verb")
        .with("verb", format!("{method} {path}"))
}

async fn route(
    control: &std::rc::Rc<Control>,
    version: u32,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Error> {
    let (head, incoming) = request.into_parts();
    let path = head.uri.path().to_owned();
    let words: Vec<&str> = path.trim_end_matches('/').split('/').skip(2).collect();
    let query = head.uri.query();
    match (&head.method, words.as_slice()) {
        (&Method::GET, []) => Ok(body::json(&hello(control, version))),
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
        (&Method::GET, ["processes"]) => Ok(body::json(&listed(control, version))),
        (method, ["processes", id, verb @ ..]) => {
            let asked = Asked {
                version,
                method,
                verb,
                query,
            };
            process(control, id, asked, incoming).await
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

/// What is asked of a process.
struct Asked<'a> {
    version: u32,
    method: &'a Method,
    verb: &'a [&'a str],
    query: Option<&'a str>,
}

async fn process(
    control: &std::rc::Rc<Control>,
    id: &str,
    asked: Asked<'_>,
    incoming: Incoming,
) -> Result<Response<ResponseBody>, Error> {
    let Asked {
        version,
        method,
        verb,
        query,
    } = asked;
    let id = ProcessId::new(id)?;
    let processes = &control.processes;
    match (method, verb) {
        (&Method::PUT, []) => {
            let spec: ProcessSpec = body::read_json(incoming).await?;
            Ok(body::json(&processes.start(&id, &spec).await?))
        }
        (&Method::GET, ["wait"]) => {
            let status = processes.wait(&id).await?;
            Ok(body::json(&wire::told_in(version, status)))
        }
        (&Method::GET, ["output"]) => {
            let frames = processes.attach(&id, offset(query)?)?;
            let frames = frames.map(move |frame| frame.map(|frame| told_in(version, frame)));
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
            &format!("/v{version}/processes/{id}/{}", verb.join("/")),
        )),
    }
}

fn told_in(version: u32, mut frame: Frame) -> Frame {
    if let FrameKind::Exit(status) = frame.kind {
        frame.kind = FrameKind::Exit(wire::told_in(version, status));
    }
    frame
}

fn listed(control: &Control, version: u32) -> Vec<ProcessState> {
    let mut listed = control.processes.list();
    for process in &mut listed {
        if let ProcessPhase::Ended(status) = &mut process.phase {
            *status = wire::told_in(version, *status);
        }
    }
    listed
}

fn hello(control: &Control, version: u32) -> Hello {
    let start = &control.start;
    Hello {
        protocol: version,
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
