//! Tests of the registry alone.

use super::registry::{HandleError, PendingRelease};
use super::*;
use crate::layers::maker::Makers;

fn site(function: &'static str) -> CallSite {
    CallSite {
        function,
        stack: None,
        place: None,
    }
}

fn by(function: &'static str) -> impl Fn() -> Origin {
    move || Origin {
        maker: Makers::new().made(function),
        site: site(function),
    }
}

/// `ok`, or why the handle cannot be used.
fn state(handles: &Registry, kind: Kind, address: usize) -> String {
    match handles.check(kind, address) {
        Ok(()) => "ok".into(),
        Err(error) => describe(&error),
    }
}

fn describe(error: &HandleError) -> String {
    match error {
        HandleError::Unknown => "unknown".into(),
        HandleError::OtherKind { kind, .. } => format!("a {}", name(*kind)),
        HandleError::Borrowed { created } => format!("borrowed by {}", created.maker.function),
        HandleError::Dead { created, released } => {
            let end = released.as_ref().map_or("lender", |end| end.function);
            format!("created by {}, ended by {end}", created.maker.function)
        }
    }
}

fn release(
    handles: &Registry,
    kind: Kind,
    address: usize,
) -> std::result::Result<PendingRelease, String> {
    handles
        .release(kind, address, || site("release"))
        .map_err(|error| describe(&error))
}

const QUEUE: usize = 0x1000;
const CONTEXT: usize = 0x2000;
const EVENT: usize = 0x3000;

#[test]
fn references_are_counted() {
    let handles = Registry::new();
    assert_eq!(state(&handles, Kind::Queue, QUEUE), "unknown");
    handles.created(Kind::Queue, QUEUE, by("create"));
    handles.retained(Kind::Queue, QUEUE, by("retain"));
    assert_eq!(state(&handles, Kind::Event, QUEUE), "a queue");
    assert!(release(&handles, Kind::Event, QUEUE).is_err_and(|why| why == "a queue"));
    assert!(release(&handles, Kind::Queue, QUEUE).is_ok());
    assert_eq!(state(&handles, Kind::Queue, QUEUE), "ok");
    // A release that the adapter refuses changes nothing.
    let pending = release(&handles, Kind::Queue, QUEUE).expect("a reference is left");
    let dead = "created by create, ended by release";
    assert_eq!(state(&handles, Kind::Queue, QUEUE), dead);
    handles.restore(&pending);
    assert_eq!(state(&handles, Kind::Queue, QUEUE), "ok");
    assert!(release(&handles, Kind::Queue, QUEUE).is_ok());
    assert!(release(&handles, Kind::Queue, QUEUE).is_err_and(|why| why == dead));

    // A new handle at the address is unrelated to the old one.
    handles.created(Kind::Queue, QUEUE, by("create"));
    handles.restore(&pending);
    handles.created(Kind::Context, CONTEXT, by("create"));
    let leaks: Vec<_> = handles
        .clear()
        .iter()
        .map(|leak| (leak.kind, leak.address, leak.references))
        .collect();
    assert_eq!(
        leaks,
        [(Kind::Queue, QUEUE, 1), (Kind::Context, CONTEXT, 1)]
    );
    assert_eq!(state(&handles, Kind::Queue, QUEUE), "unknown");
}

#[test]
fn a_lent_handle_is_alive_while_its_lender_is() {
    let handles = Registry::new();
    handles.created(Kind::Event, EVENT, by("enqueue"));
    handles.lent(Kind::Queue, QUEUE, Some(EVENT), by("event info"));
    handles.lent(Kind::Context, CONTEXT, Some(QUEUE), by("queue info"));
    assert_eq!(state(&handles, Kind::Context, CONTEXT), "ok");
    let borrowed = release(&handles, Kind::Context, CONTEXT);
    assert!(borrowed.is_err_and(|why| why == "borrowed by queue info"));

    // A retain and a release leave the handle lent.
    handles.retained(Kind::Context, CONTEXT, by("retain"));
    assert!(release(&handles, Kind::Context, CONTEXT).is_ok());
    assert_eq!(state(&handles, Kind::Context, CONTEXT), "ok");

    handles.retained(Kind::Queue, QUEUE, by("retain"));
    assert!(release(&handles, Kind::Event, EVENT).is_ok());
    assert_eq!(
        state(&handles, Kind::Context, CONTEXT),
        "ok",
        "through the queue"
    );
    assert!(release(&handles, Kind::Queue, QUEUE).is_ok());
    assert_eq!(
        state(&handles, Kind::Context, CONTEXT),
        "created by retain, ended by release"
    );
    // A new event at the event's address lends nothing.
    handles.created(Kind::Event, EVENT, by("enqueue"));
    assert_eq!(
        state(&handles, Kind::Queue, QUEUE),
        "created by retain, ended by release"
    );
    assert_eq!(handles.clear().len(), 1, "lent handles are no leaks");
}

#[test]
fn lenders_of_each_other_can_end() {
    let handles = Registry::new();
    handles.created(Kind::Context, CONTEXT, by("create"));
    handles.lent(Kind::UsmPool, QUEUE, Some(CONTEXT), by("pool"));
    handles.lent(Kind::Context, CONTEXT, Some(QUEUE), by("context of pool"));
    assert_eq!(state(&handles, Kind::UsmPool, QUEUE), "ok");
    assert!(release(&handles, Kind::Context, CONTEXT).is_ok());
    assert_eq!(
        state(&handles, Kind::UsmPool, QUEUE),
        "created by pool, ended by lender"
    );
    assert_eq!(
        state(&handles, Kind::Context, CONTEXT),
        "created by create, ended by release"
    );
}

#[test]
fn kinds_without_a_count_have_one_reference() {
    let handles = Registry::new();
    handles.created(Kind::Graph, QUEUE, by("create"));
    handles.created(Kind::Graph, QUEUE, by("end of capture"));
    assert!(release(&handles, Kind::Graph, QUEUE).is_ok());
    assert_eq!(
        state(&handles, Kind::Graph, QUEUE),
        "created by create, ended by release"
    );
}

#[test]
fn dead_entries_are_removed_from_a_full_shard() {
    let handles = Registry::new();
    for at in 1..=10_000usize {
        let address = at << 4;
        handles.created(Kind::Event, address, by("enqueue"));
        assert!(release(&handles, Kind::Event, address).is_ok());
    }
    assert_eq!(state(&handles, Kind::Event, 1 << 4), "unknown");
    assert!(state(&handles, Kind::Event, 10_000 << 4).starts_with("created by"));
}
