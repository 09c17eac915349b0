//! How conversations are opened and closed, by what the agent says that it can do.

use groundcrew_core::{error::ErrorKind, instance::McpServer};
use groundcrew_session::{engine::Opening, event::EventKind, failure, settings::ConversationId};
use serde_json::json;

use crate::transport::Scene;

fn name(opening: Opening) -> ConversationId {
    match opening {
        Opening::Ready { conversation, .. } => conversation,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_conversation_is_resumed_by_presence_of_the_ability_else_loaded_else_not() {
    for (resumes, loads, method) in [
        (true, true, Some("session/resume")),
        (true, false, Some("session/resume")),
        (false, true, Some("session/load")),
        (false, false, None),
    ] {
        let mut scene = Scene::new();
        {
            let mut known = scene.world.known();
            (known.resumes, known.loads) = (resumes, loads);
        }
        let first = name(scene.engine.start(scene.settings()).await.unwrap());
        let settings = scene.settings();
        let again = scene.engine.resume(settings, Some(first.clone())).await;
        let Some(method) = method else {
            let error = again.unwrap_err();
            assert!(failure::is(&error, failure::RESUME_NOT_LOCAL), "{error:?}");
            // What cannot be gone on with is not given up, and what served before still does.
            let released = scene.engine.release(&scene.session).await.unwrap_err();
            assert_eq!(released.kind(), ErrorKind::Unsupported);
            assert!(scene.engine.is_live(&scene.session));
            continue;
        };
        assert_eq!(name(again.unwrap()), first);
        assert_eq!(scene.world.heard(method), 1, "{method}");
        assert_eq!(scene.engine.owned(&scene.session), 1);
        scene.engine.release(&scene.session).await.unwrap();
        // The past that is told again with a conversation is nobody's news.
        while let Ok(event) = scene.events.try_recv() {
            assert!(
                !matches!(event.kind, EventKind::TextDelta { .. }),
                "{event:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_conversation_that_the_agent_does_not_know_costs_nothing() {
    let scene = Scene::new();
    scene.world.known().resumes = true;
    scene.engine.start(scene.settings()).await.unwrap();
    let unknown = Some(ConversationId("acp-77".to_owned()));
    let error = scene.engine.resume(scene.settings(), unknown).await;
    let error = error.unwrap_err();
    assert!(
        failure::is(&error, failure::CONVERSATION_NOT_FOUND),
        "{error:?}"
    );
    assert!(scene.engine.is_live(&scene.session));
    assert_eq!(scene.engine.owned(&scene.session), 1);
}

#[tokio::test]
async fn a_login_is_made_where_a_way_is_named_and_asked_for_where_none_is() {
    let mut scene = Scene::new();
    scene.world.known().locked = true;
    let opening = scene.engine.start(scene.settings()).await.unwrap();
    assert!(matches!(opening, Opening::AuthenticationRequired { .. }));
    assert_eq!(scene.engine.owned(&scene.session), 0);
    let told =
        |kind: &EventKind| matches!(kind, EventKind::AuthenticationRequired { .. }).then_some(());
    scene.until(told).await;
    let mut settings = scene.settings();
    let ways = json!(["of another agent", "key"]);
    settings.options.insert("authenticate".to_owned(), ways);
    let opening = scene.engine.start(settings).await.unwrap();
    assert!(matches!(opening, Opening::Ready { .. }), "{opening:?}");
    assert_eq!(scene.world.heard("authenticate"), 1);
}

#[tokio::test]
async fn a_farewell_is_said_for_good_only_and_only_where_it_is_understood() {
    for closes in [true, false] {
        let scene = Scene::new();
        {
            let mut known = scene.world.known();
            (known.closes, known.resumes) = (closes, true);
        }
        let first = name(scene.engine.start(scene.settings()).await.unwrap());
        scene.engine.release(&scene.session).await.unwrap();
        assert_eq!(scene.world.heard("session/close"), 0);
        let settings = scene.settings();
        scene.engine.resume(settings, Some(first)).await.unwrap();
        scene.engine.close(&scene.session).await.unwrap();
        assert_eq!(scene.world.heard("session/close"), usize::from(closes));
    }
}

#[tokio::test]
async fn a_tool_server_that_the_agent_cannot_reach_is_a_warning_and_no_more() {
    let mut scene = Scene::new();
    let mut settings = scene.settings();
    for (name, definition) in [
        ("tools", json!({ "command": "/bin/tools" })),
        ("far", json!({ "url": "http://x.example/" })),
    ] {
        settings.mcp_servers.push(McpServer {
            name: name.to_owned(),
            definition,
        });
    }
    scene.engine.start(settings).await.unwrap();
    assert_eq!(scene.world.heard("1 servers"), 1);
    let warned = scene.until(|kind| match kind {
        EventKind::Warning { about, text } if about == "mcp" => Some(text.clone()),
        _ => None,
    });
    assert!(warned.await.contains("far"));
}
