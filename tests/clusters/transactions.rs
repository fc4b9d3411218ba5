//! Locks and counters in a transaction whose connection is to another node than their client's.
//!
//! A row that the transaction has locked is locked on its own node only. What protects it elsewhere is that the
//! transaction changes the row: its COMMIT fails if another node was faster.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection};
use tag_lock::AtClose;

use crate::nodes::{Cluster, Kind, patient_client};
use crate::support::{TestDatabase, connect, number, run};

const MULTI_WRITER: &[Kind] = &[Kind::Galera, Kind::MultiPrimary];

/// A connection to a node that first applies what the others have committed.
async fn connection(cluster: &Cluster, node: usize, database: &TestDatabase) -> MySqlConnection {
    let mut connection = connect(&cluster.nodes[node].database(&database.name)).await;
    let causal = match cluster.kind {
        Kind::Galera => "SET SESSION wsrep_sync_wait = 7",
        _ => "SET SESSION group_replication_consistency = 'BEFORE'",
    };
    run(&mut connection, causal).await;
    connection
}

/// A database with a table of the application's.
async fn database(cluster: &Cluster) -> TestDatabase {
    let database = crate::database(cluster).await;
    let mut connection = connection(cluster, 0, &database).await;
    run(
        &mut connection,
        "CREATE TABLE done (id INT PRIMARY KEY) ENGINE = InnoDB",
    )
    .await;
    cluster.settle().await;
    database
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stale_holder_cannot_commit_on_another_node() {
    let Some(cluster) = Cluster::of(MULTI_WRITER).await else {
        return;
    };
    let database = database(&cluster).await;
    let holder = patient_client(&cluster.nodes[0].database(&database.name)).await;
    let other = patient_client(&cluster.nodes[2].database(&database.name)).await;
    let request = holder.lock("job").ttl(Duration::from_secs(5));
    let guard = request.auto_renew(false).acquire().await.unwrap();

    let mut application = connection(&cluster, 1, &database).await;
    let mut transaction = application.begin().await.unwrap();
    guard.verify_in(&mut transaction).await.unwrap();
    run(&mut transaction, "INSERT INTO done VALUES (1)").await;
    // The transaction holds the row on its own node; on this one the lease ends.
    let next = other.lock("job").acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    let commit = transaction.commit().await;
    println!("{:?}: the stale holder's commit: {commit:?}", cluster.kind);
    assert!(commit.is_err(), "a stale holder has committed");

    let mut look = connection(&cluster, 2, &database).await;
    assert_eq!(number(&mut look, "SELECT COUNT(*) FROM done").await, 0);
    next.release().await.unwrap();
    close(database, &[holder, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_holder_commits_on_another_node() {
    let Some(cluster) = Cluster::of(MULTI_WRITER).await else {
        return;
    };
    let database = database(&cluster).await;
    let holder = patient_client(&cluster.nodes[0].database(&database.name)).await;
    let guard = holder.lock("job").acquire().await.unwrap();
    let mut application = connection(&cluster, 1, &database).await;
    let mut transaction = application.begin().await.unwrap();
    guard.verify_in(&mut transaction).await.unwrap();
    run(&mut transaction, "INSERT INTO done VALUES (1)").await;
    guard.release_in(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    drop(guard);
    let other = patient_client(&cluster.nodes[2].database(&database.name)).await;
    drop(other.lock("job").acquire().await.unwrap());
    close(database, &[holder, other]).await;
}

/// Two nodes take one lock for a transaction; each holds the row on its own node, and one of them commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_two_transactions_with_one_lock_commits() {
    let Some(cluster) = Cluster::of(MULTI_WRITER).await else {
        return;
    };
    let database = database(&cluster).await;
    let (mut clients, mut connections) = (Vec::new(), Vec::new());
    for (number, node) in cluster.nodes[..2].iter().enumerate() {
        let client = patient_client(&node.database(&database.name)).await;
        let mut connection = connection(&cluster, number, &database).await;
        // A client's first use of a name in a transaction marks its row through a lane.
        let mut transaction = connection.begin().await.unwrap();
        client.lock_in(&mut transaction, "job").await.unwrap();
        transaction.rollback().await.unwrap();
        clients.push(client);
        connections.push(connection);
    }
    cluster.settle().await;
    let mut transactions = Vec::new();
    for (number, (client, connection)) in clients.iter().zip(&mut connections).enumerate() {
        let mut transaction = connection.begin().await.unwrap();
        client.lock_in(&mut transaction, "job").await.unwrap();
        let insert = format!("INSERT INTO done VALUES ({number})");
        run(&mut transaction, &insert).await;
        transactions.push(transaction);
    }
    let mut outcomes = Vec::new();
    for transaction in transactions {
        outcomes.push(transaction.commit().await);
    }
    println!("{:?}: {outcomes:?}", cluster.kind);
    let committed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(committed, 1, "{outcomes:?}");
    close(database, &clients).await;
}

/// What a transaction has read with `get_in` still holds when it commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_counter_read_in_a_transaction_holds_until_it_commits() {
    let Some(cluster) = Cluster::of(MULTI_WRITER).await else {
        return;
    };
    let database = database(&cluster).await;
    let here = patient_client(&cluster.nodes[1].database(&database.name)).await;
    let there = patient_client(&cluster.nodes[0].database(&database.name)).await;
    there.counter("n").add(1).await.unwrap();
    cluster.settle().await;
    let mut application = connection(&cluster, 1, &database).await;
    let mut transaction = application.begin().await.unwrap();
    let seen = here.counter("n").get_in(&mut transaction).await.unwrap();
    there.counter("n").add(1).await.unwrap();
    // An UPDATE may fail by itself, if the other node's change has arrived.
    let insert = AssertSqlSafe(format!("INSERT INTO done VALUES ({seen})"));
    let inserted = sqlx::raw_sql(insert).execute(&mut *transaction).await;
    let commit = match inserted {
        Ok(_) => transaction.commit().await,
        Err(error) => Err(error),
    };
    println!("{:?}: the reader's commit: {commit:?}", cluster.kind);
    assert!(
        commit.is_err(),
        "what it had read was changed before it committed"
    );
    close(database, &[here, there]).await;
}

async fn close(database: TestDatabase, clients: &[tag_lock::LockClient]) {
    for client in clients {
        client.close(AtClose::Release).await;
    }
    database.remove().await;
}
