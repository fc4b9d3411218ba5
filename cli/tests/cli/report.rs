//! What `doctor --json` printed.

use serde_json::Value;

pub(crate) fn level<'r>(report: &'r Value, check: &str) -> Option<&'r str> {
    finding(report, check)?["level"].as_str()
}

pub(crate) fn finding<'r>(report: &'r Value, check: &str) -> Option<&'r Value> {
    report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["check"] == check)
}

/// What is wrong, by name.
pub(crate) fn problems(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["level"] == "problem")
        .map(|finding| finding["check"].as_str().unwrap())
        .collect()
}
