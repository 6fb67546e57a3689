//! Listing of the locks of a cluster: scans one server after the other.

use std::sync::Arc;

use super::nodes::Nodes;
use crate::engine::redis::find;
use crate::engine::{Page, StoreError, StoreErrorKind};

/// Position of the server's index in a cursor. It is between the server's own SCAN cursor (low bits) and the flags that
/// [`find`](mod@find) sets above it.
const NODE_SHIFT: u32 = 48;
const MAX_NODES: u64 = 1 << 14;
const CURSOR_BITS: u64 = (1 << NODE_SHIFT) - 1;
const FLAG_BITS: u64 = !(CURSOR_BITS | (MAX_NODES - 1) << NODE_SHIFT);

/// Returns one page of the locks whose names match a pattern. A lock whose slot moves during the scan may be found twice, or
/// not at all.
pub(super) async fn find(nodes: Arc<Nodes>, pattern: &str, from: u64) -> Result<Page, StoreError> {
    nodes.not_forked()?;
    let all = nodes.all().await?;
    let position = (from & !(CURSOR_BITS | FLAG_BITS)) >> NODE_SHIFT;
    let index = usize::try_from(position).unwrap_or(usize::MAX);
    let Some((_, node)) = all.get(index) else {
        return Ok(Page::default());
    };
    let page = find::find(node, pattern, from & (CURSOR_BITS | FLAG_BITS)).await?;
    let next = match page.next {
        Some(next) if next & !(CURSOR_BITS | FLAG_BITS) != 0 => {
            let why =
                format!("unexpected SCAN cursor {next}: it is greater than that of any server");
            return Err(StoreError::new(StoreErrorKind::Unexpected, why));
        }
        Some(next) => Some(next | position << NODE_SHIFT),
        None if index + 1 < all.len() => Some((position + 1) << NODE_SHIFT),
        None => None,
    };
    Ok(Page { next, ..page })
}
