//! Errors that a user meets: each says what to do, and none shows a password.

use std::time::Duration;

use crate::support;
use crate::support::account::{Account, options};
use crate::support::lateness::with_ttl;
use crate::support::{TestDatabase, assert_says, connected, is_mariadb, number, run, server_url};
use sqlx::mysql::MySqlSslMode;
use sqlx::{ConnectOptions, Connection, Row};
use tag_lock::{Error, LockClient};

#[tokio::test(flavor = "multi_thread")]
async fn no_server() {
    // A port that nobody else can take, and on which nobody listens.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let options = options(&server_url()).port(port);
    let error = LockClient::builder(options).connect().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_says(&error, &["cannot be reached", "check the address"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_password_and_unknown_database() {
    let database = TestDatabase::new().await;
    let account = Account::new("").await;
    account.grant("SELECT", &database).await;
    let wrong = account.options(&database).password("wrong");
    let error = LockClient::builder(wrong).connect().await.unwrap_err();
    assert!(matches!(error, Error::AccessDenied { .. }), "{error:?}");
    assert_says(&error, &["check user and password", &account.name]);

    let unknown = options(&server_url()).database("no_such_database");
    let error = LockClient::builder(unknown).connect().await.unwrap_err();
    assert!(matches!(error, Error::NoDatabase { .. }), "{error:?}");
    assert_says(
        &error,
        &["create it", "correct the URL", "no_such_database"],
    );
    account.remove().await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_privileges() {
    let database = TestDatabase::new().await;
    let account = Account::new("").await;
    account.grant("SELECT", &database).await;
    let client = account.builder(&database).connect().await.unwrap();
    // What only reads works.
    assert_eq!(client.counter("n").get().await.unwrap(), 0);
    assert_eq!(client.inspect("job").await.unwrap(), None);
    let denied = [
        client.lock("job").acquire().await.unwrap_err(),
        client.lock("job").try_acquire().await.unwrap_err(),
        client.counter("n").add(1).await.unwrap_err(),
        client.migrate().await.unwrap_err(),
    ];
    for error in denied {
        assert!(matches!(error, Error::AccessDenied { .. }), "{error:?}");
        assert_says(&error, &["grant SELECT, INSERT, UPDATE", "command denied"]);
    }
    // What the message says is enough, and the client heals.
    account.grant("INSERT, UPDATE", &database).await;
    support::eventually("the grant takes effect", async || {
        client.counter("n").add(1).await.is_ok()
    })
    .await;
    let guard = client.lock("job").acquire().await.unwrap();
    assert!(client.force_release("job").await.unwrap());
    drop(guard);
    account.remove().await;
    database.remove().await;
}

/// One connection is enough, but it takes one: here the application has the only one.
#[tokio::test(flavor = "multi_thread")]
async fn no_connection_left() {
    let database = TestDatabase::new().await;
    let account = Account::limited(1).await;
    account.grant("SELECT, INSERT, UPDATE", &database).await;
    // Short, since each request waits for its end; longer than a machine may stand still.
    let builder = account
        .builder(&database)
        .packet_timeout(Duration::from_secs(4))
        .request_timeout(Duration::from_secs(4));
    let client = connected(builder).await;
    // The one by which the client has found that all is well goes first.
    let application = loop {
        if let Ok(application) = account.options(&database).connect().await {
            break application;
        }
    };
    let (job, n) = (client.lock("job"), client.counter("n"));
    let (acquired, added, value) = tokio::join!(job.acquire(), n.add(1), n.get());
    let refused = [
        LockClient::builder(account.options(&database))
            .connect()
            .await
            .unwrap_err(),
        acquired.unwrap_err(),
        added.unwrap_err(),
        value.unwrap_err(),
    ];
    for error in refused {
        assert!(
            matches!(error, Error::TooManyConnections { .. }),
            "{error:?}"
        );
        assert_says(
            &error,
            &["max_user_connections", "close others", &account.name],
        );
    }
    application.close().await.unwrap();
    support::eventually("the client heals", async || n.add(1).await.is_ok()).await;
    account.remove().await;
    database.remove().await;
}

/// What somebody does at a prompt, and the error that it gives rise to.
struct Obstacle {
    /// Holds a lock until the connection is closed.
    held: &'static str,
    /// The table that is locked as a whole, or in which rows are; none if it is the rows of the requests.
    locked: Option<(&'static str, bool)>,
    /// Nor can anything be read.
    reads_wait: bool,
}

const OBSTACLES: [Obstacle; 6] = [
    Obstacle {
        held: "LOCK TABLES t_tag_lock WRITE",
        locked: Some(("t_tag_lock", true)),
        reads_wait: true,
    },
    Obstacle {
        held: "LOCK TABLES t_tag_lock READ",
        locked: Some(("t_tag_lock", true)),
        reads_wait: false,
    },
    Obstacle {
        held: "LOCK TABLES t_tag_lock_lane WRITE",
        locked: Some(("t_tag_lock_lane", true)),
        reads_wait: false,
    },
    Obstacle {
        held: "LOCK TABLES t_tag_lock WRITE, t_tag_lock_lane READ",
        locked: Some(("t_tag_lock_lane", true)),
        reads_wait: true,
    },
    Obstacle {
        held: "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN; \
               SELECT * FROM t_tag_lock_lane FOR UPDATE",
        locked: Some(("t_tag_lock_lane", false)),
        reads_wait: false,
    },
    Obstacle {
        held: "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN; \
               SELECT * FROM t_tag_lock FOR UPDATE",
        locked: None,
        reads_wait: false,
    },
];

impl Obstacle {
    async fn is_told(&self) {
        // Each request waits for its end; a packet has longer than a machine may stand still.
        with_ttl(Duration::from_secs(4), async |packet| {
            self.is_told_within(packet).await;
        })
        .await;
    }

    async fn is_told_within(&self, packet: Duration) {
        let database = TestDatabase::new().await;
        let builder = LockClient::builder(options(&database.url))
            .packet_timeout(packet)
            .request_timeout(packet * 3);
        let (client, fresh) = (connected(builder.clone()).await, connected(builder).await);
        // Each name has its lane, and each lane a row.
        for name in 0..8 {
            client.counter(&name.to_string()).add(1).await.unwrap();
        }
        client
            .lock("job")
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let mut somebody = database.connection().await;
        run(&mut somebody, self.held).await;
        for client in [&client, &fresh] {
            let (job, other, n) = (
                client.lock("job"),
                client.lock("other"),
                client.counter("1"),
            );
            let (new, value) = (client.counter("new"), client.counter("1"));
            let (acquired, tried, added, created, value) = tokio::join!(
                job.acquire(),
                other.try_acquire(),
                n.add(1),
                new.add(1),
                value.get()
            );
            let mut errors = vec![added.unwrap_err(), created.unwrap_err()];
            errors.extend(tried.err());
            errors.extend(acquired.err());
            match value {
                Ok(value) => assert!(!self.reads_wait && value == 1, "{}", self.held),
                Err(error) => errors.push(error),
            }
            for error in errors {
                let said = error.to_string();
                match (&error, self.locked) {
                    (Error::Locked { table, whole }, Some(expected)) => {
                        assert!(
                            (*table, *whole) == expected
                                // What is only read meets the other table.
                                || *table == "t_tag_lock" && self.reads_wait,
                            "{}: {error:?}",
                            self.held
                        );
                        let way = if *whole { "LOCK TABLES" } else { "INNODB_TRX" };
                        assert!(said.contains(way) && said.contains(table), "{said}");
                    }
                    (Error::Busy { .. }, None) => {}
                    _ => panic!("{}: {error:?}", self.held),
                }
            }
        }
        somebody.close().await.unwrap();
        for client in [&client, &fresh] {
            support::eventually("the client heals", async || {
                client.counter("1").add(1).await.is_ok()
            })
            .await;
            let guard = client.lock("job").acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        database.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_has_locked() {
    let told = OBSTACLES.iter().map(Obstacle::is_told);
    futures_util::future::join_all(told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_shows_a_password() {
    let database = TestDatabase::new().await;
    let account = Account::new("").await;
    account.grant("SELECT", &database).await;
    let builder = account.builder(&database);
    let client = builder.clone().connect().await.unwrap();
    let mut shown = vec![
        format!("{builder:?}"),
        format!("{client:?} {client:#?}"),
        format!("{:?} {:?}", client.lock("job"), client.counter("n")),
    ];
    let mut errors = vec![client.counter("n").add(1).await.unwrap_err()];
    for user in [&account.name, "nobody"] {
        let denied = account.options(&database).username(user);
        let denied = denied.database("mysql");
        errors.push(LockClient::builder(denied).connect().await.unwrap_err());
    }
    let gone = account.options(&database).host("127.0.0.1").port(1);
    errors.push(LockClient::builder(gone).connect().await.unwrap_err());
    let password = &account.password;
    for url in [
        format!("mysql://u:{password}@127.0.0.1:99999/d"),
        format!("mysql://u:{password}@127.0.0.1:port/d"),
        format!("mysql://u:{password}@127.0.0.1:1/d?ssl-mode=nonsense"),
        format!("mysql://u:{password}@127.0.0.1:1/d"),
        format!("mysql//u:{password}@127.0.0.1:1/d"),
        format!("mysql://u:{password}@[127.0.0.1/d"),
        format!("u:{password}"),
    ] {
        errors.push(LockClient::connect(&url).await.unwrap_err());
    }
    for error in errors {
        shown.push(format!("{error} {error:?} {error:#?}"));
    }
    for shown in shown {
        assert!(!shown.contains(password), "{shown}");
    }
    account.remove().await;
    database.remove().await;
}

/// MySQL's usual way to check a password: in full at first, then from the server's cache.
#[tokio::test(flavor = "multi_thread")]
async fn caching_sha2_password_over_tls_and_plain_tcp() {
    if is_mariadb() {
        return;
    }
    let database = TestDatabase::new().await;
    for (mode, encrypted) in [
        (MySqlSslMode::Required, true),
        (MySqlSslMode::Preferred, true),
        (MySqlSslMode::Disabled, false),
    ] {
        // An account that the server has not in its cache yet.
        let account = Account::new("WITH caching_sha2_password").await;
        account.grant("SELECT, INSERT, UPDATE", &database).await;
        for _ in 0..2 {
            let options = account.options(&database).ssl_mode(mode);
            let client = LockClient::builder(options.clone()).connect().await;
            let client = client.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            assert!(client.counter("n").add(1).await.unwrap() > 0);
            let mut connection = options.connect().await.unwrap();
            let cipher = sqlx::raw_sql("SHOW STATUS LIKE 'Ssl_cipher'")
                .fetch_one(&mut connection)
                .await
                .unwrap();
            let cipher: String = cipher.get_unchecked(1);
            assert_eq!(!cipher.is_empty(), encrypted, "{mode:?}");
            connection.close().await.unwrap();
        }
        account.remove().await;
    }
    let mut connection = database.connection().await;
    let by_default = number(
        &mut connection,
        "SELECT @@authentication_policy LIKE '*%' OR @@authentication_policy LIKE 'caching%'",
    );
    assert_eq!(by_default.await, 1);
    database.remove().await;
}
