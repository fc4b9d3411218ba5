//! Passwords stay out of what is printed.

/// The text without the passwords of the addresses in it: what stands between the user's name and the last `@` behind `://`.
pub(crate) fn redacted(text: &str) -> String {
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
    use super::redacted;

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
        ] {
            assert_eq!(redacted(text), clean);
        }
    }
}
