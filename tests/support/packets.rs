//! What stands in a recorded packet.

use std::collections::HashMap;

/// The statements of a packet that read a table, in full where they were `prepared` before.
pub fn statements_of(packet: &str, prepared: &mut HashMap<String, String>) -> Vec<String> {
    let mut statements = vec![String::new()];
    let mut quoted = false;
    for character in packet.chars() {
        quoted ^= character == '\'';
        match (character, quoted) {
            (';', false) => statements.push(String::new()),
            _ => statements.last_mut().unwrap().push(character),
        }
    }
    let mut whole = Vec::new();
    // On MySQL the first statement sets what the others are executed with.
    let variables: HashMap<String, String> = statements
        .iter()
        .filter(|sql| sql.starts_with("SET @tag_lock_changed=NULL"))
        .flat_map(|sql| sql.split(','))
        .filter_map(|assignment| assignment.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for sql in statements {
        let sql = sql.trim_start_matches("BEGIN NOT ATOMIC ");
        if let Some((name, text)) = word_behind(sql, "PREPARE ") {
            let text = text
                .strip_prefix("FROM '")
                .and_then(|text| text.strip_suffix('\''));
            prepared.insert(name.to_owned(), text.unwrap().replace("''", "'"));
        } else if let Some((name, arguments)) = word_behind(sql, "EXECUTE ") {
            let arguments = arguments.strip_prefix("USING ").unwrap();
            let mut text = prepared[name].clone();
            for argument in arguments.split(',') {
                assert!(text.contains('?'), "{sql}: {text}");
                let value = variables.get(argument).map_or(argument, String::as_str);
                text = text.replacen('?', value, 1);
            }
            assert!(!text.contains('?'), "{sql}: {text}");
            whole.push(text);
        } else {
            whole.push(sql.to_owned());
        }
    }
    // The number of the batch is written by the key of its lane, which a plan does not show.
    let number = "INSERT INTO t_tag_lock_lane";
    whole.retain(|sql| {
        let answer = sql.starts_with("SELECT CONCAT(@tag_lock_granted");
        let ends = ["COMMIT", "IF ", "ELSE SIGNAL ", "END"]
            .iter()
            .any(|word| sql.starts_with(word));
        !sql.starts_with("SET ") && !sql.starts_with(number) && !answer && !ends
    });
    whole
}

/// What stands behind `start`: a word, and the rest.
fn word_behind<'s>(sql: &'s str, start: &str) -> Option<(&'s str, &'s str)> {
    sql.strip_prefix(start)?.split_once(' ')
}
