//! Clusters with one primary: whoever has to write follows it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::faults::Rig;
use crate::server::{Node, Servers, Topology};

/// How often the members are asked.
const LOOK: Duration = Duration::from_millis(200);

const PRIMARY: &str = "SELECT MEMBER_PORT FROM performance_schema.replication_group_members \
                       WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'";
/// Only what a member says of itself counts when it says that it is the primary.
const OWN_PORT: &str = "SELECT @@port";

/// Leads the workers to the primary, as a router would, until the load ends and beyond: until the task is aborted.
pub async fn follow(rig: std::sync::Arc<Rig>) {
    if rig.servers.topology != Topology::SinglePrimary {
        return;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(found) = find(&rig.servers).await else {
            continue;
        };
        if rig.servers.primary.swap(found, Ordering::Relaxed) == found {
            continue;
        }
        eprintln!("torture: node {found} is the primary now");
        let address = crate::proxy::host_and_port(&rig.servers.nodes[found].url);
        for slot in &rig.fleet.slots {
            slot.wire.proxy.set_upstream(&address);
            slot.wire.proxy.cut_all();
        }
        rig.count("failover");
    }
}

/// The node that says of itself that it is the primary.
async fn find(servers: &Servers) -> Option<usize> {
    for node in &servers.nodes {
        if is_primary(node).await {
            return Some(node.number);
        }
    }
    None
}

async fn is_primary(node: &Node) -> bool {
    let (Ok(primary), Ok(own)) = (node.numbers(PRIMARY).await, node.numbers(OWN_PORT).await) else {
        return false;
    };
    !primary.is_empty() && primary == own
}
