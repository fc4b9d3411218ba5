//! A TCP relay in front of the cluster, as a user's router: it forwards to one node, and breaks its connections
//! when that is another.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Relay {
    port: u16,
    target: watch::Sender<u16>,
}

impl Relay {
    /// Forwards to `target`, a port of this machine.
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("binds");
        let port = listener.local_addr().expect("an address").port();
        let (target, targets) = watch::channel(target);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, targets.clone()));
            }
        });
        Self { port, target }
    }

    pub(crate) fn turn_to(&self, target: u16) {
        self.target.send_replace(target);
    }

    /// `url` with this relay's address.
    pub(crate) fn url(&self, url: &str) -> String {
        let (head, database) = url.rsplit_once('/').expect("the URL names a database");
        let (account, _) = head.rsplit_once(':').expect("the URL has a port");
        format!("{account}:{}/{database}", self.port)
    }
}

async fn forward(mut client: TcpStream, mut targets: watch::Receiver<u16>) {
    let target = *targets.borrow_and_update();
    let connecting = TcpStream::connect(("127.0.0.1", target));
    let Ok(Ok(mut server)) = tokio::time::timeout(Duration::from_secs(20), connecting).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = targets.changed() => {}
    }
}
