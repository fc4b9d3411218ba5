//! Redis servers of the race's own, on free ports, in a directory that goes when they go.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::arena::RedisAddresses;
use crate::contestants::Result;

/// The running servers; ended when dropped.
pub struct RedisServers {
    program: PathBuf,
    children: Vec<Child>,
    directory: PathBuf,
    /// Where they listen.
    pub addresses: RedisAddresses,
}

impl RedisServers {
    /// Starts one without persistence, one that syncs each change, and two more for Redlock's majority of three.
    /// Starts none when there is no `redis-server`, nor a way to get it.
    pub async fn start() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("race-redis-{}", std::process::id()));
        let mut servers = Self {
            program: find_program(),
            children: Vec::new(),
            directory,
            addresses: RedisAddresses::default(),
        };
        let Some(plain) = servers.launch("plain", false).await? else {
            return Ok(servers);
        };
        servers.addresses.plain = Some(plain.clone());
        servers.addresses.fsync = servers.launch("fsync", true).await?;
        servers.addresses.quorum.push(plain);
        for name in ["second", "third"] {
            let address = servers.launch(name, false).await?;
            servers.addresses.quorum.extend(address);
        }
        Ok(servers)
    }

    /// Their name and version, as the program tells it.
    pub fn version(&self) -> Option<String> {
        let output = Command::new(&self.program).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let number = text
            .split_whitespace()
            .find_map(|word| word.strip_prefix("v="))?;
        Some(format!("Redis {number}"))
    }

    /// The new server's address; `None` when the program is missing.
    async fn launch(&mut self, name: &str, fsync: bool) -> Result<Option<String>> {
        let directory = self.directory.join(name);
        std::fs::create_dir_all(&directory)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        match spawn(&self.program, &directory, port, fsync) {
            Ok(child) => self.children.push(child),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        for _ in 0..100 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .is_ok()
            {
                return Ok(Some(format!("redis://127.0.0.1:{port}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(format!("redis-server did not open port {port} within five seconds").into())
    }
}

/// The installed program, or the one that the repository's script gets. The script says why when there is none.
fn find_program() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/find-redis");
    let found = Command::new(script).stderr(Stdio::inherit()).output();
    match found {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim_end().into()
        }
        _ => "redis-server".into(),
    }
}

fn spawn(program: &Path, directory: &Path, port: u16, fsync: bool) -> io::Result<Child> {
    Command::new(program)
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
        ])
        .arg(directory)
        .args([
            "--appendonly",
            if fsync { "yes" } else { "no" },
            "--appendfsync",
            "always",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

impl Drop for RedisServers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
