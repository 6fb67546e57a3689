//! Which locks there are: at one server after the other.

use std::sync::Arc;

use super::nodes::Nodes;
use crate::engine::redis::find;
use crate::engine::{Cause, Failure, Page};

/// A server's own cursor, and what [`find`](mod@find) adds to it in front, leave room for the server's place between them.
const PLACE: u32 = 48;
const MOST: u64 = 1 << 14;
const OWN: u64 = (1 << PLACE) - 1;
const ADDED: u64 = !(OWN | (MOST - 1) << PLACE);

/// Locks whose names match a pattern, some at a time. What changes hands meanwhile may be found twice, or not.
pub(super) async fn find(nodes: Arc<Nodes>, pattern: &str, from: u64) -> Result<Page, Failure> {
    nodes.not_forked()?;
    let all = nodes.all().await?;
    let place = (from & !(OWN | ADDED)) >> PLACE;
    let index = usize::try_from(place).unwrap_or(usize::MAX);
    let Some((_, node)) = all.get(index) else {
        return Ok(Page::default());
    };
    let page = find::find(node, pattern, from & (OWN | ADDED)).await?;
    let next = match page.next {
        Some(next) if next & !(OWN | ADDED) != 0 => {
            let why = format!("a cursor that is greater than any server's: {next}");
            return Err(Failure::new(Cause::Unexpected, why));
        }
        Some(next) => Some(next | place << PLACE),
        None if index + 1 < all.len() => Some((place + 1) << PLACE),
        None => None,
    };
    Ok(Page { next, ..page })
}
