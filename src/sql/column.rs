//! The columns of a batch's lists, by their names: a statement's template says `v.ttl` where it means the row's ttl.

macro_rules! columns {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A column of a list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Column {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Column {
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

columns! {
    /// The row's name.
    Name = "name",
    /// The row's kind.
    Kind = "kind",
    /// The row's slot.
    Slot = "slot",
    /// The stripe of the row's name.
    Stripe = "stripe",
    /// The operation's position in the batch.
    Position = "position",
    /// How long the list of positions is if all of the batch is granted.
    AllGranted = "all_granted",
    /// The packet's mark.
    Mark = "mark",
    /// Which verb the operation is.
    Verb = "verb",
    /// What `holder` is compared with, and becomes.
    Token = "token",
    /// After which time no lock is granted any more, in microseconds since 1970.
    NotAfter = "not_after",
    /// 1 if it lets those go first that wait already.
    GivesWay = "gives_way",
    /// How long the lease is, in microseconds.
    Ttl = "ttl",
    /// How many fencing tokens the grant reserves.
    Block = "block",
    /// What the holder says about the lock.
    Description = "description",
    /// Who the holder is.
    HeldBy = "held_by",
    /// The end of the grant's block of fencing tokens; of a stripe, the floor that it is raised to.
    Fence = "fence",
    /// The last fencing token that was used.
    Used = "used",
    /// For how long a lock stays taken after its release, in microseconds.
    Hold = "hold",
    /// The mark of an owner's operation.
    Level = "level",
    /// Until when the holder of an owner's level knows its lease to run, in microseconds since 1970 on the server.
    Until = "until",
    /// For how long a wish is known, in microseconds.
    Wait = "wait",
    /// The lowest value of a counter from which it is changed.
    Low = "low",
    /// The highest one.
    High = "high",
    /// 1 if the counter's value counts, 0 if it is replaced.
    Keeps = "keeps",
    /// What is added each time.
    Step = "step",
    /// How often at most.
    Times = "times",
    /// Which value is not passed.
    Edge = "edge",
    /// How long the counter's window is, in microseconds; 0 for none.
    Window = "length",
    /// 1 if a new window begins.
    Restart = "restart",
    /// The counter of an operation that runs once.
    Counter = "counter",
    /// For how long its id is remembered, in microseconds.
    Retention = "retention",
}
