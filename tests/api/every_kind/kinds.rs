//! The kinds of holds, each as the tests of all of them want it. A new kind is added here, and to the lists in `main.rs`.

use std::time::Duration;

use tag_lock::{
    Error, JobLease, Leadership, LockAllGuard, LockClient, LockGuard, Permit, RunOnce, SharedGuard,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any test: a lease that ends by itself would hide one that leaked.
const TTL: Duration = Duration::from_secs(3_600);

/// One kind of hold of a name.
pub(crate) trait Kind: 'static {
    type Guard: Guard;
    /// The kind that it excludes, and that is asked for where the tests say that it is held: itself, as a rule.
    type Against: Kind;
    /// Whether one task at a time has it.
    const ALONE: bool = true;
    /// How many characters a name may have.
    const LONGEST: usize = 255;
    /// Characters that no name of this kind has.
    const FORBIDDEN: &'static [char] = &[];
    /// Whether who gives it back is told that it had lost it.
    const RELEASE_TELLS: bool = true;

    /// Waits until it has it.
    fn take(
        client: &LockClient,
        name: &str,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
    /// Frees it, whoever has it.
    fn free_by_force(
        client: &LockClient,
        name: &str,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// A kind that can be asked for without waiting.
pub(crate) trait Tries: Kind {
    fn try_take(
        client: &LockClient,
        name: &str,
    ) -> impl Future<Output = Result<Option<Self::Guard>, Error>> + Send;
}

/// A kind that can be waited for, for so long.
pub(crate) trait WaitsFor: Kind {
    fn take_within(
        client: &LockClient,
        name: &str,
        wait: Duration,
    ) -> impl Future<Output = Result<Self::Guard, Error>> + Send;
}

pub(crate) trait Guard: Send + 'static {
    /// Of several locks that of the first.
    fn token(&self) -> u64;
    fn is_held(&self) -> bool;
    fn lost(&self) -> CancellationToken;
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send;
}

macro_rules! guard {
    ($guard:ty, $release:ident) => {
        impl Guard for $guard {
            fn token(&self) -> u64 {
                self.fencing_token()
            }
            fn is_held(&self) -> bool {
                self.is_held()
            }
            fn lost(&self) -> CancellationToken {
                self.cancellation_token()
            }
            fn release(self) -> impl Future<Output = Result<(), Error>> + Send {
                self.$release()
            }
        }
    };
}
guard!(LockGuard, release);
guard!(Permit, release);
guard!(Leadership, resign);
guard!(SharedGuard, release);

impl Guard for LockAllGuard {
    fn token(&self) -> u64 {
        self.fencing_tokens().next().unwrap().1
    }
    fn is_held(&self) -> bool {
        self.is_held()
    }
    fn lost(&self) -> CancellationToken {
        self.cancellation_token()
    }
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send {
        self.release()
    }
}

/// A kind by the request that asks for it.
macro_rules! kind {
    ($(#[doc = $doc:literal])+ $kind:ident, $guard:ty, against $against:ident, |$client:ident, $name:ident| $request:expr, $force:expr $(, $constant:ident: $type:ty = $value:expr)*) => {
        $(#[doc = $doc])+
        pub(crate) struct $kind;
        impl Kind for $kind {
            type Guard = $guard;
            type Against = $against;
            $(const $constant: $type = $value;)*
            async fn take($client: &LockClient, $name: &str) -> Result<$guard, Error> {
                $request.acquire().await
            }
            async fn free_by_force($client: &LockClient, $name: &str) -> Result<bool, Error> {
                $force.await
            }
        }
        impl Tries for $kind {
            async fn try_take($client: &LockClient, $name: &str) -> Result<Option<$guard>, Error> {
                $request.try_acquire().await
            }
        }
        impl WaitsFor for $kind {
            async fn take_within($client: &LockClient, $name: &str, wait: Duration) -> Result<$guard, Error> {
                $request.wait(wait).acquire().await
            }
        }
    };
}

kind!(
    /// A lock.
    Exclusive,
    LockGuard,
    against Exclusive,
    |client, name| client.lock(name).ttl(TTL),
    client.force_release(name)
);
kind!(
    /// A lock of an owner, who is another one each time.
    Owned,
    LockGuard,
    against Owned,
    |client, name| client
        .lock(name)
        .owner(format!("{:032x}", rand::random::<u128>()))
        .ttl(TTL),
    client.force_release(name)
);
kind!(
    /// The only permit of a semaphore.
    OnePermit,
    Permit,
    against OnePermit,
    |client, name| client.semaphore(name, 1).ttl(TTL),
    client.semaphore(name, 1).force_release(0),
    LONGEST: usize = 250,
    FORBIDDEN: &'static [char] = &['#']
);
kind!(
    /// Several locks at once, which are one.
    AllOfOne,
    LockAllGuard,
    against AllOfOne,
    |client, name| client.lock_all([name]).ttl(TTL),
    client.force_release(name)
);
kind!(
    /// Two locks at once, of which all want the second.
    AllOfTwo,
    LockAllGuard,
    against AllOfTwo,
    |client, name| client.lock_all([name, &another(name)]).ttl(TTL),
    client.force_release(name),
    LONGEST: usize = 253
);

kind!(
    /// A lock that is held shared: who wants it for itself waits.
    Shared,
    SharedGuard,
    against BesideShared,
    |client, name| client.lock(name).ttl(TTL).shared(),
    client.force_release(name),
    ALONE: bool = false
);
kind!(
    /// A lock that others want to hold shared.
    BesideShared,
    LockGuard,
    against Shared,
    |client, name| client.lock(name).ttl(TTL),
    client.force_release(name)
);

fn another(name: &str) -> String {
    format!("{name}~2")
}

/// The lead in an election.
pub(crate) struct Lead;

impl Kind for Lead {
    type Guard = Leadership;
    type Against = Self;
    async fn take(client: &LockClient, name: &str) -> Result<Leadership, Error> {
        client.election(name).ttl(TTL).campaign("value").await
    }
    async fn free_by_force(client: &LockClient, name: &str) -> Result<bool, Error> {
        client.force_release(name).await
    }
}

/// A slot of a job, whose work fails when it ends: so the slot is free again.
pub(crate) struct Slot;

/// Work that goes on until it is told to end.
pub(crate) struct Work {
    lease: LeaseOfWork,
    end: oneshot::Sender<()>,
    ran: JoinHandle<Result<RunOnce<()>, Ended>>,
}

struct LeaseOfWork {
    token: u64,
    lost: CancellationToken,
    view: JobLease,
}

enum Ended {
    /// As it was told to.
    Told,
    By(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::By(error)
    }
}

const JOB: &str = "j";

impl Kind for Slot {
    type Guard = Work;
    type Against = Self;
    const LONGEST: usize = 253;
    /// The work says that it has failed, and that is what comes of it.
    const RELEASE_TELLS: bool = false;
    /// None waits for a slot: it asks again.
    async fn take(client: &LockClient, name: &str) -> Result<Work, Error> {
        loop {
            if let Some(work) = Self::try_take(client, name).await? {
                return Ok(work);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    async fn free_by_force(client: &LockClient, name: &str) -> Result<bool, Error> {
        client.job(JOB).slot(name).reset().await
    }
}

impl Tries for Slot {
    async fn try_take(client: &LockClient, name: &str) -> Result<Option<Work>, Error> {
        let slot = client.job(JOB).slot(name).ttl(TTL);
        let (began, begins) = oneshot::channel();
        let (end, told) = oneshot::channel();
        let ran = tokio::spawn(slot.run_once(move |lease: JobLease| async move {
            // Whoever asked may have gone away.
            drop(began.send(lease));
            drop(told.await);
            Err::<(), _>(Ended::Told)
        }));
        if let Ok(view) = begins.await {
            let lease = LeaseOfWork {
                token: view.fencing_token(),
                lost: view.cancellation_token(),
                view,
            };
            return Ok(Some(Work { lease, end, ran }));
        }
        match ran.await.unwrap() {
            Err(Ended::By(error)) => Err(error),
            _ => Ok(None),
        }
    }
}

impl Guard for Work {
    fn token(&self) -> u64 {
        self.lease.token
    }
    fn is_held(&self) -> bool {
        self.lease.view.is_held()
    }
    fn lost(&self) -> CancellationToken {
        self.lease.lost.clone()
    }
    async fn release(self) -> Result<(), Error> {
        // It may have ended because its lease was lost.
        let _ = self.end.send(());
        match self.ran.await.unwrap() {
            Err(Ended::By(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
