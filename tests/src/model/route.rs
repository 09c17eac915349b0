//! Which dialect a request is in, by its path.

use serde_json::Value;

use super::{
    chat::Chat, dialect::Dialect, gemini::Gemini, messages::Messages, question::Question,
    responses::Responses,
};

/// Reads a request by its path and returns how it is answered; `None` for what is no request to a model.
pub(crate) fn of(
    path: &str,
    number: usize,
    body: &Value,
) -> Option<(Question, Box<dyn Dialect + Sync>)> {
    let route = path.split('?').next().unwrap_or_default();
    let (mut question, dialect): (_, Box<dyn Dialect + Sync>) = if route.ends_with("/v1/responses")
    {
        (Responses::read(body), Box::new(Responses::new(number)))
    } else if route.ends_with("/v1/chat/completions") {
        (Chat::read(body), Box::new(Chat::new(number, body)))
    } else if route.ends_with("/v1/messages") {
        (Messages::read(body), Box::new(Messages::new(number, body)))
    } else if let Some((model, verb)) = route.rsplit('/').next()?.split_once(':') {
        let streamed = match verb {
            "streamGenerateContent" => true,
            "generateContent" => false,
            _ => return None,
        };
        let mut question = Gemini::read(body);
        model.clone_into(&mut question.model);
        (question, Box::new(Gemini::new(streamed)))
    } else {
        return None;
    };
    path.clone_into(&mut question.path);
    Some((question, dialect))
}
