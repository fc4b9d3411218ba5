//! A server's address, as it is given to the library.

use sqlx::mysql::MySqlConnectOptions;

use crate::error::Error;

/// The options that a URL stands for.
pub(crate) fn read(url: &str) -> Result<MySqlConnectOptions, Error> {
    if !["mysql://", "mariadb://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return Err(invalid("it does not begin with mysql://"));
    }
    // The driver says what is wrong with it, and nothing of what it says.
    url.parse().map_err(|error| match error {
        sqlx::Error::Configuration(cause) => invalid(&cause.to_string()),
        error => invalid(&error.to_string()),
    })
}

/// Fails if the options name no database.
pub(crate) fn check_database(options: &MySqlConnectOptions) -> Result<(), Error> {
    if options.get_database().is_none_or(str::is_empty) {
        return Err(invalid("it names no database"));
    }
    Ok(())
}

fn invalid(what: &str) -> Error {
    Error::InvalidOption {
        option: "url",
        reason: format!("{what}; write mysql://user:password@host:port/database"),
    }
}
