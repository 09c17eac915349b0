//! Turns: what is said, what is asked, and how they end.

use groundcrew_session::{
    event::{EventKind, TurnOutcome},
    failure,
    request::{Decision, DecisionKind, Question, RequestId},
    settings::Prompt,
};

use crate::{peer::Step, transport::Scene};

async fn asked(scene: &mut Scene) -> RequestId {
    let request = scene.until(|kind| match kind {
        EventKind::Asked { request } => Some(request.clone()),
        _ => None,
    });
    let request = request.await;
    assert!(
        matches!(&request.question, Question::Command { command, .. } if command == "touch it")
    );
    let kinds: Vec<_> = request
        .choices
        .iter()
        .map(|choice| choice.decision)
        .collect();
    assert_eq!(kinds, [DecisionKind::Approve, DecisionKind::Deny]);
    request.id
}

#[tokio::test]
async fn a_turn_is_told_step_by_step_and_permissions_are_answered_as_they_were_meant() {
    let mut scene = Scene::new();
    scene.engine.start(scene.settings()).await.unwrap();
    let (engine, session) = (scene.engine.clone(), scene.session.clone());
    let mut turn = engine.prompt(&session, Prompt::new("go")).await.unwrap();
    scene.world.step(Step::Say("hello"));
    let text = scene.until(|kind| match kind {
        EventKind::TextDelta { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert_eq!(text.await, "hello");
    for (decision, chosen) in [
        (Decision::Approve, "yes"),
        (Decision::deny(), "no"),
        (Decision::ApproveForSession, "yes"),
        (
            Decision::Choose {
                choice: "no".to_owned(),
            },
            "no",
        ),
    ] {
        scene.world.step(Step::Ask);
        let request = asked(&mut scene).await;
        engine
            .answer(&session, &request, decision.clone())
            .await
            .unwrap();
        let again = engine
            .answer(&session, &request, decision)
            .await
            .unwrap_err();
        assert!(failure::is(&again, failure::ALREADY_ANSWERED), "{again:?}");
        scene.world.step(Step::Say("heard"));
        let heard = |kind: &EventKind| matches!(kind, EventKind::TextDelta { .. }).then_some(());
        scene.until(heard).await;
        let permissions = scene.world.known().permissions.clone();
        assert_eq!(permissions.last().unwrap(), chosen);
    }
    scene.world.step(Step::End);
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
    let ended = |kind: &EventKind| matches!(kind, EventKind::TurnEnded { .. }).then_some(());
    scene.until(ended).await;
    assert!(engine.is_live(&session));
}

#[tokio::test]
async fn an_interruption_is_a_notification_and_what_was_asked_is_cancelled() {
    let mut scene = Scene::new();
    scene.engine.start(scene.settings()).await.unwrap();
    let (engine, session) = (scene.engine.clone(), scene.session.clone());
    engine.prompt(&session, Prompt::new("go")).await.unwrap();
    scene.world.step(Step::Ask);
    let request = asked(&mut scene).await;
    let end = engine.interrupt(&session).await.unwrap();
    assert_eq!(end.outcome, TurnOutcome::Interrupted);
    assert_eq!(scene.world.heard("session/cancel"), 1);
    assert_eq!(scene.world.known().permissions, ["cancelled"]);
    let late = engine.answer(&session, &request, Decision::Approve).await;
    assert!(late.is_err());
    // The process serves the next turn.
    let mut turn = engine.prompt(&session, Prompt::new("again")).await.unwrap();
    scene.world.step(Step::End);
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
}

#[tokio::test]
async fn a_turn_that_fails_and_a_prompt_in_the_middle_leave_the_session_whole() {
    let scene = Scene::new();
    scene.engine.start(scene.settings()).await.unwrap();
    let (engine, session) = (&scene.engine, &scene.session);
    let mut turn = engine.prompt(session, Prompt::new("go")).await.unwrap();
    let second = engine.prompt(session, Prompt::new("and more")).await;
    let second = second.unwrap_err();
    assert!(failure::is(&second, failure::CANNOT_STEER), "{second:?}");
    scene.world.step(Step::Fail);
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Failed);
    assert!(engine.is_live(session));
    assert_eq!(scene.world.heard("session/prompt"), 1);
}

#[tokio::test]
async fn a_permission_that_waits_when_the_turn_ends_is_cancelled() {
    let mut scene = Scene::new();
    scene.engine.start(scene.settings()).await.unwrap();
    let (engine, session) = (scene.engine.clone(), scene.session.clone());
    let mut turn = engine.prompt(&session, Prompt::new("go")).await.unwrap();
    scene.world.step(Step::AskAside);
    let request = asked(&mut scene).await;
    scene.world.step(Step::End);
    assert_eq!(turn.ended().await.outcome, TurnOutcome::Completed);
    scene.world.answered().await;
    assert_eq!(scene.world.known().permissions, ["cancelled"]);
    let late = engine.answer(&session, &request, Decision::Approve).await;
    assert!(failure::is(&late.unwrap_err(), failure::REQUEST_GONE));
}
