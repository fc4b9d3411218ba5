//! Passwords stay out of what is printed.

use std::ffi::OsString;

/// The address in help texts and in errors: it has nobody's password.
const SAMPLE: &str = "user:password@host:port/database";
/// What an address begins with, also one that was mistyped.
const HEADS: [&str; 5] = ["://", "mysql:", "mariadb:", "MYSQL:", "MARIADB:"];
/// And what is left of that where its scheme was forgotten.
const BARE: &str = "//";

/// The text without the passwords of the addresses in it: what stands between the user's name and the last `@` behind `://`; and without
/// those of the addresses on the command line.
pub(crate) fn redacted(text: &str) -> String {
    let mut text = text.to_owned();
    for word in words() {
        if word.starts_with(BARE) || HEADS.iter().any(|head| word.contains(head)) {
            text = without_password_of(&word, &text);
        }
    }
    in_addresses(&text)
}

/// What is told about a wrong command line: any word of it may be an address, which stands in the wrong place.
pub(crate) fn redacted_usage(text: &str) -> String {
    let mut text = text.to_owned();
    for word in words() {
        text = without_password_of(&word, &text);
    }
    in_addresses(&text)
}

/// The words of the command line, and the address in the environment.
fn words() -> impl Iterator<Item = String> {
    let words = std::env::args_os()
        .skip(1)
        .chain(std::env::var_os("DATABASE_URL"));
    words.map(|word: OsString| word.to_string_lossy().into_owned())
}

/// The text without the password of this word, if that is an address. It may have quotation marks and blanks in it.
fn without_password_of(word: &str, text: &str) -> String {
    let head = HEADS.iter().find_map(|head| word.split_once(head));
    let account = head.map_or(word, |(_, behind)| behind);
    let account = account.trim_start_matches('/').rsplit_once('@');
    match account.and_then(|(account, _)| account.split_once(':')) {
        Some((_, password)) if !password.is_empty() => {
            text.replace(&format!(":{password}@"), ":***@")
        }
        _ => text.to_owned(),
    }
}

fn in_addresses(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        // An address ends where a quotation or a word does; a password may have anything else in it.
        let end = behind
            .find(|character: char| {
                character.is_whitespace() || matches!(character, '\'' | '"' | '`')
            })
            .unwrap_or(behind.len());
        let (address, tail) = behind.split_at(end);
        match address.rsplit_once('@') {
            Some(_) if address.starts_with(SAMPLE) => clean.push_str(address),
            Some((account, host)) => {
                let user = account.split_once(':').map_or(account, |(user, _)| user);
                clean.push_str(user);
                if user.len() < account.len() {
                    clean.push_str(":***");
                }
                clean.push('@');
                clean.push_str(host);
            }
            None => clean.push_str(address),
        }
        rest = tail;
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::{in_addresses, without_password_of};

    #[test]
    fn a_password_is_not_shown() {
        for (text, clean) in [
            ("nothing here", "nothing here"),
            ("mysql://u:secret@h/d", "mysql://u:***@h/d"),
            (
                "'mysql://u:se:c@ret@h:3306/d' is wrong",
                "'mysql://u:***@h:3306/d' is wrong",
            ),
            (
                "mysql://u@h/d and mysql://h/d",
                "mysql://u@h/d and mysql://h/d",
            ),
            (
                "a mysql://u:p@h b mysql://v:q@i c",
                "a mysql://u:***@h b mysql://v:***@i c",
            ),
            ("mysql://:p@h", "mysql://:***@h"),
            (
                "write mysql://user:password@host:port/database",
                "write mysql://user:password@host:port/database",
            ),
        ] {
            assert_eq!(in_addresses(text), clean);
        }
    }
    #[test]
    fn a_password_that_no_address_should_have_is_not_shown() {
        for word in [
            "mysql://u:se'cr et@h/d",
            "--url=mysql://u:se'cr et@h/d",
            "mysql:u:se'cr et@h/d",
            "//u:se'cr et@h/d",
            "u:se'cr et@h/d",
        ] {
            let shown = without_password_of(word, &format!("error: '{word}' is wrong"));
            assert!(!shown.contains("se'cr et"), "{shown}");
            assert!(shown.contains("u:***@h/d"), "{shown}");
        }
        assert_eq!(without_password_of("a@b", "a@b"), "a@b");
        assert_eq!(without_password_of("a:@b", "a:@b"), "a:@b");
    }
}
