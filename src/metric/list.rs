//! Every metric and what it means.

/// How it is measured.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A histogram of times.
    Seconds,
}

pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) meaning: &'static str,
}

const fn counter(name: &'static str, meaning: &'static str) -> Metric {
    let kind = Kind::Counter;
    Metric {
        name,
        kind,
        meaning,
    }
}

const fn gauge(name: &'static str, meaning: &'static str) -> Metric {
    let kind = Kind::Gauge;
    Metric {
        name,
        kind,
        meaning,
    }
}

const fn seconds(name: &'static str, meaning: &'static str) -> Metric {
    let kind = Kind::Seconds;
    Metric {
        name,
        kind,
        meaning,
    }
}

/// All of them, in the order of the table in `docs/operations.md`, which says the same.
pub(super) const ALL: &[Metric] = &[
    seconds(
        "tag_lock_acquire_seconds",
        "From the call of an acquire to its guard. Acquires without a guard are not in it.",
    ),
    seconds(
        "tag_lock_hold_seconds",
        "From a guard to its release, its drop, or the loss of its lease, whichever is first.",
    ),
    seconds(
        "tag_lock_handover_seconds",
        "From the end of one task's hold to the beginning of the next one's, where a lock passes in memory.",
    ),
    seconds(
        "tag_lock_commit_seconds",
        "From the sending of a packet to its answer, which comes behind its COMMIT. Packets that failed are not in it.",
    ),
    gauge("tag_lock_held", "Guards whose lock is held."),
    gauge("tag_lock_waiting", "Acquires that have no answer yet."),
    gauge(
        "tag_lock_server_reachable",
        "1 if the server answered when it was last asked, 0 if the last attempt to connect had no answer.",
    ),
    counter("tag_lock_acquired_total", "Acquires that got the lock."),
    counter(
        "tag_lock_refused_total",
        "Acquires that did not get the lock, because it was held.",
    ),
    counter(
        "tag_lock_waits_total",
        "Acquires that had to wait, for a task of this process or for somebody else; each once.",
    ),
    counter(
        "tag_lock_handed_on_total",
        "Locks that passed to the next task in memory.",
    ),
    counter(
        "tag_lock_reused_total",
        "Acquires that took a lease which idled in this process, without a statement.",
    ),
    counter(
        "tag_lock_renewed_total",
        "Renewals that extended their lease.",
    ),
    counter(
        "tag_lock_renewal_failures_total",
        "Renewals without an answer. The lease goes on until its end, and is renewed again.",
    ),
    counter(
        "tag_lock_lost_total",
        "Leases that were lost: run out, or released by force.",
    ),
    counter(
        "tag_lock_released_total",
        "Leases that were released through the table.",
    ),
    counter(
        "tag_lock_jobs_done_total",
        "Slots of jobs that this process recorded as done.",
    ),
    counter(
        "tag_lock_release_failures_total",
        "Releases of dropped guards that failed. The lock is free at the end of its lease.",
    ),
    counter("tag_lock_batches_total", "Packets that were committed."),
    counter(
        "tag_lock_batch_rows_total",
        "Rows of locks and counters in these packets.",
    ),
    counter(
        "tag_lock_conflicts_total",
        "Packets that met another transaction, and ran again.",
    ),
    counter(
        "tag_lock_unknown_outcomes_total",
        "Packets without an answer: whether they ran was found out afterwards.",
    ),
    counter(
        "tag_lock_connection_failures_total",
        "Attempts to reach the server that failed.",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        let is_end = |character: char| !character.is_ascii_lowercase() && character != '_';
        let starts = text.match_indices("tag_lock_").map(|(start, _)| start);
        starts
            .map(|start| text[start..].split(is_end).next().unwrap_or_default())
            .filter(|name| name.len() > "tag_lock_".len())
            .collect()
    }

    /// The dashboard shows each metric, and neither it nor an alert asks for one that there is not, or as another kind.
    #[test]
    fn dashboard_and_alerts_ask_for_what_there_is() {
        let dashboard = include_str!("../../docs/grafana-dashboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let targets = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array());
        let shown: Vec<&str> = targets
            .flatten()
            .filter_map(|target| target["expr"].as_str())
            .collect();
        let alerts = include_str!("../../docs/prometheus-alerts.yml");
        let alerts: Vec<&str> = alerts
            .lines()
            .filter_map(|line| line.trim().strip_prefix("expr: "))
            .collect();
        assert!(!alerts.is_empty());
        // A histogram is asked for by its buckets.
        let asked_for = |metric: &Metric| match metric.kind {
            Kind::Counter | Kind::Gauge => metric.name.to_owned(),
            Kind::Seconds => format!("{}_bucket", metric.name),
        };
        let listed: BTreeSet<String> = ALL.iter().map(asked_for).collect();
        let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        let shown = shown.join("\n");
        assert_eq!(names(&shown), listed);
        let alerts = alerts.join("\n");
        let unknown: Vec<_> = names(&alerts).difference(&listed).copied().collect();
        assert_eq!(unknown, [""; 0]);
        // How much a gauge has risen says nothing, nor does the value of a counter.
        for metric in ALL
            .iter()
            .filter(|metric| !matches!(metric.kind, Kind::Seconds))
        {
            for (at, _) in format!("{shown}\n{alerts}").match_indices(metric.name) {
                let text = format!("{shown}\n{alerts}");
                let is_rise = text[..at].ends_with("rate(") || text[..at].ends_with("increase(");
                assert_eq!(
                    is_rise,
                    matches!(metric.kind, Kind::Counter),
                    "{}",
                    metric.name
                );
            }
        }
    }

    /// What is told is listed, described and documented, each by the same words.
    #[test]
    fn code_list_and_documentation_name_the_same() {
        let listed: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        let code = concat!(include_str!("../telemetry.rs"), include_str!("exported.rs"));
        assert_eq!(names(code), listed);
        let documentation = include_str!("../../docs/operations.md");
        for Metric {
            name,
            kind,
            meaning,
        } in ALL
        {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Seconds => "histogram, seconds",
            };
            let line = format!("| `{name}` | {kind} | {meaning} |");
            assert!(documentation.contains(&line), "{line}");
        }
        let rows = documentation
            .lines()
            .filter(|line| line.starts_with("| `tag_lock_"));
        assert_eq!(rows.count(), ALL.len());
    }
}
