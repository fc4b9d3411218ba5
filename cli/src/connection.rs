//! The server that is meant, and the way to it.

use sqlx::mysql::MySqlConnectOptions;
use tag_lock::LockClient;

use crate::args::Common;
use crate::exit::Failure;

impl Common {
    /// The server's address.
    fn address(&self) -> Result<&str, Failure> {
        match self.url.as_deref() {
            Some(url) if !url.is_empty() => Ok(url),
            _ => Err(Failure::Other(
                "no server was named: set DATABASE_URL, or give --url mysql://user:password@host:port/database".to_owned(),
            )),
        }
    }

    /// Connects.
    pub(crate) async fn client(&self) -> Result<LockClient, Failure> {
        Ok(LockClient::connect(self.address()?).await?)
    }

    /// How to connect without the library.
    pub(crate) fn options(&self) -> Result<MySqlConnectOptions, Failure> {
        // The driver says what is wrong with an address, and nothing of what it says.
        self.address()?
            .parse()
            .map_err(|error| Failure::Other(format!("the server's address cannot be used: {error} (DATABASE_URL or --url)")))
    }
}
