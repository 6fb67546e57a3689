//! `watch`: prints acquires and releases as they happen.

use std::time::Duration;

use distlock::{Change, Event, LockKind, ReleaseOn};
use serde::Serialize;

use crate::args;
use crate::date::Date;
use crate::exit::Failure;
use crate::kind;
use crate::label::HolderInfo;
use crate::out::{Out, say, shown};
use crate::store;
use crate::style::Style;

/// Time between two checks for a closed output, and between two requests to a failing store.
const PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn watch(args: args::Locks) -> Result<u8, Failure> {
    let client = store::connect(&args.store, ReleaseOn::Process).await?;
    let mut watch = client.admin().watch(args.pattern);
    let mut out = Out::new();
    let mut in_trouble = false;
    loop {
        let next = tokio::select! {
            next = watch.next() => next,
            () = abandoned(&out) => return Ok(0),
        };
        match next {
            Ok(event) => {
                in_trouble = false;
                if args.json {
                    out.json(&EventOutput::new(&event, Date::now()))?;
                } else {
                    out.line(line(&event, Date::now(), out.style()))?;
                }
            }
            Err(error) if error.is_transient() => {
                if !in_trouble {
                    say(format!("{error}; retrying"));
                }
                in_trouble = true;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Resolves when the output is closed: without output of its own, `watch` would not notice.
async fn abandoned(out: &Out) {
    while !out.is_abandoned() {
        tokio::time::sleep(PAUSE).await;
    }
}

/// The JSON form of an event.
#[derive(Serialize)]
struct EventOutput<'a> {
    at: String,
    event: &'static str,
    name: &'a str,
    kind: Option<&'static str>,
    owner: Option<&'a str>,
    label: Option<&'a str>,
}

impl<'a> EventOutput<'a> {
    fn new(event: &'a Event, now: Date) -> Self {
        Self {
            at: now.to_string(),
            event: word(event.change),
            name: &event.name,
            kind: event.kind.map(kind::word),
            owner: event.owner.as_deref(),
            label: event.label.as_deref(),
        }
    }
}

fn line(event: &Event, now: Date, style: Style) -> String {
    let word = format!("{:<8}", word(event.change));
    let word = match event.change {
        Change::Expired | Change::Forced | Change::Gone => style.red(&word),
        Change::Granted => style.green(&word),
        _ => style.dim(&word),
    };
    let who = match &event.owner {
        Some(owner) => HolderInfo::new(event.label.as_deref(), owner).to_string(),
        None => "-".to_owned(),
    };
    let at = style.dim(&now.to_string());
    let name = style.bold(&shown(&event.name));
    match event.kind {
        None | Some(LockKind::Plain) => format!("{at}  {word}  {name}  {who}"),
        Some(kind) => format!("{at}  {word}  {name} ({})  {who}", kind::word(kind)),
    }
}

const fn word(change: Change) -> &'static str {
    match change {
        Change::Expired => "expired",
        Change::Forced => "forced",
        Change::Gone => "gone",
        Change::Granted => "granted",
        Change::Held => "held",
        Change::Released => "released",
        // A newer library may report more changes.
        _ => "changed",
    }
}
