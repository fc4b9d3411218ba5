//! The server that is meant, and the way to it.

use sqlx::mysql::MySqlConnectOptions;
use tag_lock::LockClient;

use crate::args::Common;
use crate::exit::Failure;

/// How an address is written.
const FORM: &str = "write mysql://user:password@host:port/database, with special characters of the password as %XX";

impl Common {
    /// Connects.
    pub(crate) async fn client(&self) -> Result<LockClient, Failure> {
        let client = LockClient::builder(self.options()?)
            .request_timeout(self.request_timeout)
            .packet_timeout(self.request_timeout / 2);
        Ok(client.connect().await?)
    }

    /// The server's address.
    pub(crate) fn options(&self) -> Result<MySqlConnectOptions, Failure> {
        let url = self.url.as_deref().unwrap_or_default();
        if url.is_empty() {
            return Err(Failure::Other(format!(
                "no server was named: set DATABASE_URL, or give --url; {FORM}"
            )));
        }
        let refused = |what: &str| {
            Failure::Other(format!(
                "the server's address cannot be used: {what}; {FORM}"
            ))
        };
        if !["mysql://", "mariadb://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err(refused("it does not begin with mysql://"));
        }
        // The driver says what is wrong with an address, and nothing of what it says.
        url.parse().map_err(|error| match error {
            sqlx::Error::Configuration(cause) => refused(&cause.to_string()),
            error => refused(&error.to_string()),
        })
    }
}
