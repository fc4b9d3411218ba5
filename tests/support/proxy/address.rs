//! The host and port within a `mysql://` URL.

use std::net::SocketAddr;

const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: &str = "3306";

/// A URL, cut where its host and port stand.
struct Parts<'a> {
    /// Scheme, user and password, up to the host.
    head: &'a str,
    host_and_port: &'a str,
    /// From the path's slash on, without the query.
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Self {
        let after_scheme = url.find("://").map_or(0, |at| at + 3);
        let authority_end = url[after_scheme..]
            .find(['/', '?', '#'])
            .map_or(url.len(), |at| after_scheme + at);
        let host_start = url[after_scheme..authority_end]
            .rfind('@')
            .map_or(after_scheme, |at| after_scheme + at + 1);
        let rest = url[authority_end..].split('#').next().unwrap_or_default();
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        Self {
            head: &url[..host_start],
            host_and_port: &url[host_start..authority_end],
            path,
            query,
        }
    }
}

/// `host:port` of a URL, with the defaults of MySQL.
pub fn host_and_port(url: &str) -> String {
    let given = Parts::of(url).host_and_port;
    // The colons of an IPv6 address stand within brackets.
    match given.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => given.to_owned(),
        _ if given.is_empty() => format!("{DEFAULT_HOST}:{DEFAULT_PORT}"),
        _ => format!("{given}:{DEFAULT_PORT}"),
    }
}

/// The URL with another address, and all else as it is, but for what would lead past the proxy or blind it: `socket`
/// goes, and TLS is off unless the URL says something about it.
pub fn with_address(url: &str, address: SocketAddr) -> String {
    let parts = Parts::of(url);
    let name_of = |pair: &str| {
        pair.split('=')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let mut query: Vec<&str> = parts
        .query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && name_of(pair) != "socket")
        .collect();
    if !query
        .iter()
        .any(|pair| matches!(name_of(pair).as_str(), "ssl-mode" | "sslmode"))
    {
        query.push("ssl-mode=DISABLED");
    }
    format!("{}{address}{}?{}", parts.head, parts.path, query.join("&"))
}
