//! How the scripted agent answers, as Codex does: threads that are written down once they hold something, a lock on their
//! writer where the world has one, a turn at a time.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    process::FakeProcess,
    script::{Behaviour, Said},
};

/// Hears one message.
pub(crate) fn hear(process: &Arc<FakeProcess>, message: &Value) {
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
        return;
    };
    let call = Call {
        process,
        id,
        params: &message["params"],
    };
    let behaviour = process.state().script.take(method);
    match behaviour {
        None => call.run(method),
        Some(Behaviour::Hold) => {}
        Some(Behaviour::Refuse(code, text)) => call.refuse(code, text),
        Some(Behaviour::Exit(code, text)) => {
            process.warn(text);
            process.exit(code);
        }
        Some(Behaviour::Instead(said)) => say(process, &said),
        Some(Behaviour::With(said)) => {
            say(process, &said);
            call.run(method);
        }
        Some(Behaviour::After(said, pause)) => {
            say(process, &said);
            let (process, method) = (Arc::clone(process), method.to_owned());
            let (id, params) = (id.clone(), call.params.clone());
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let (process, id, params) = (&process, &id, &params);
                Call {
                    process,
                    id,
                    params,
                }
                .run(&method);
                process.change();
            });
        }
    }
}

fn say(process: &FakeProcess, said: &[Said]) {
    for said in said {
        match said {
            Said::Note(method, params) => process.tell(method, params.clone()),
            Said::Stderr(text) => process.warn(text),
        }
    }
}

struct Call<'a> {
    process: &'a Arc<FakeProcess>,
    id: &'a Value,
    params: &'a Value,
}

impl Call<'_> {
    fn answer(&self, result: Value) {
        self.process.say(&json!({"id": self.id, "result": result}));
    }

    fn refuse(&self, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.process.say(&json!({"id": self.id, "error": error}));
    }

    fn run(&self, method: &str) {
        let process = self.process;
        match method {
            "initialize" => self.answer(json!({"userAgent": "scripted/1"})),
            "account/read" => {
                let wants = process.state().script.wants_login;
                self.answer(json!({"account": null, "requiresOpenaiAuth": wants}));
            }
            "collaborationMode/list" => self.answer(json!({"data": []})),
            "thread/start" => {
                let id = process.ground.new_thread(process.index);
                self.opened(&id, true);
            }
            "thread/resume" => self.resume(),
            "thread/inject_items" => {
                let id = self.params["threadId"].as_str().unwrap_or_default();
                process.ground.write_down(id);
                self.answer(json!({}));
            }
            "turn/start" => self.turn(),
            "turn/steer" => self.steer(),
            "turn/interrupt" => self.interrupt(),
            other => self.refuse(
                -32600,
                &format!("Invalid request: unknown variant `{other}`"),
            ),
        }
    }

    fn opened(&self, thread: &str, started: bool) {
        self.process.state().thread = Some(thread.to_owned());
        self.answer(json!({"thread": {"id": thread}, "model": "scripted-model"}));
        if started && !self.process.state().script.silent_threads {
            self.process
                .tell("thread/started", json!({"thread": {"id": thread}}));
        }
    }

    fn resume(&self) {
        let id = self.params["threadId"].as_str().unwrap_or_default();
        match self.process.ground.resume_thread(id, self.process.index) {
            Ok(()) => {
                let usage = json!({"total": {"totalTokens": 7}});
                let usage = json!({"threadId": id, "tokenUsage": usage});
                self.process.tell("thread/tokenUsage/updated", usage);
                self.opened(id, false);
            }
            Err(text) => self.refuse(-32600, &text),
        }
    }

    fn turn(&self) {
        let thread = self.process.state().thread.clone().unwrap_or_default();
        let running = self.process.state().turn.clone();
        let turn = running
            .clone()
            .unwrap_or_else(|| self.process.ground.new_turn());
        self.answer(json!({"turn": {"id": turn, "status": "inProgress"}}));
        if running.is_none() {
            self.process.state().turn = Some(turn.clone());
            self.process.ground.write_down(&thread);
            let turn = json!({"id": turn, "status": "inProgress"});
            self.process
                .tell("turn/started", json!({"threadId": thread, "turn": turn}));
        }
    }

    fn steer(&self) {
        let expected = self.params["expectedTurnId"].as_str().unwrap_or_default();
        let running = self.process.state().turn.clone();
        match running {
            Some(turn) if turn == expected => self.answer(json!({"turnId": turn})),
            Some(turn) => self.mismatch(expected, &turn),
            None => self.refuse(-32600, "no active turn to steer"),
        }
    }

    fn interrupt(&self) {
        let expected = self.params["turnId"].as_str().unwrap_or_default();
        let running = self.process.state().turn.clone();
        match running {
            Some(turn) if turn == expected => {
                self.answer(json!({}));
                self.process.end_turn("interrupted");
            }
            Some(turn) => self.mismatch(expected, &turn),
            None => self.refuse(-32600, "no active turn to interrupt"),
        }
    }

    fn mismatch(&self, expected: &str, found: &str) {
        let text = format!("expected active turn id `{expected}` but found `{found}`");
        self.refuse(-32600, &text);
    }
}

impl FakeProcess {
    /// Ends the turn that runs.
    pub(crate) fn end_turn(&self, status: &str) {
        let (turn, thread) = {
            let mut state = self.state();
            (state.turn.take(), state.thread.clone())
        };
        let turn = json!({"id": turn, "status": status, "error": null});
        self.tell("turn/completed", json!({"threadId": thread, "turn": turn}));
    }

    /// Says something of the turn that runs.
    pub(crate) fn say_text(&self, text: &str) {
        let (turn, thread) = {
            let state = self.state();
            (state.turn.clone(), state.thread.clone())
        };
        let params = json!({"threadId": thread, "turnId": turn, "itemId": "i1", "delta": text});
        self.tell("item/agentMessage/delta", params);
    }

    /// Asks for an approval in the turn that runs.
    pub(crate) fn ask(&self, id: Value) {
        let (turn, thread) = {
            let state = self.state();
            (state.turn.clone(), state.thread.clone())
        };
        let params = json!({
            "threadId": thread, "turnId": turn, "itemId": "c1", "command": "touch x", "cwd": "/w",
            "availableDecisions": ["accept", {"acceptWithExecpolicyAmendment": {"rule": 1}}, "cancel"],
        });
        let method = "item/commandExecution/requestApproval";
        self.say(&json!({"id": id, "method": method, "params": params}));
    }
}
