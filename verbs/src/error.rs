//! What can go wrong.

use softroce_sim::card::{CreateError, ModifyError, PostError};
use softroce_sim::cm::{AgentError, CmError};
use softroce_sim::memory::{RegisterError, WindowError};
use std::time::Duration;

/// Why a call of this crate failed. Nothing was changed by it.
///
/// Which variant it is depends on the device: software cards explain what they refuse ([`Error::Create`],
/// [`Error::Modify`]), of hardware there is a number of the operating system's ([`Error::Os`]). [`Error::kind`] is the same
/// on all of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No device has the name.
    #[error("there is no device {name:?}; there are: {known}")]
    NoDevice {
        /// The name asked for.
        name: String,
        /// Names that there are.
        known: String,
    },
    /// A name of a device has something wrong behind its `@`.
    #[error("device {name:?}: {why}")]
    BadName {
        /// The name asked for.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The program has asked for what cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Something could not be made or destroyed.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A window could not be made or bound.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// Attributes of a queue pair were refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// A request was not taken.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A request of a list was not taken.
    #[error(transparent)]
    PostList(#[from] BadRequest),
    /// The connection manager refuses.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// There is no connection manager: another program has it, or the card no room for it.
    #[error("connection manager: {0}")]
    Agent(#[from] AgentError),
    /// There is no such port, or no such entry in one of its tables.
    #[error("device {device} has no {what} {value}; it has {limit}")]
    NoSuch {
        /// The device.
        device: String,
        /// "port", "GID", "P_Key".
        what: &'static str,
        /// Number asked for.
        value: u32,
        /// How many there are, or which.
        limit: String,
    },
    /// Objects of two contexts, or of two protection domains, do not go together.
    #[error("the {0} belongs to another device context")]
    Foreign(&'static str),
    /// The device does not have what was asked for.
    #[error("device {device} has no {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// What it does not have.
        what: String,
    },
    /// A call of the operating system or of libibverbs failed.
    #[error("{call}: {source}")]
    Os {
        /// The call, and on what.
        call: String,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The port of a card in real time is broken.
    #[error("{0}")]
    Port(String),
    /// The exchange with the other program failed.
    #[error("exchange with {peer}: {why}")]
    Exchange {
        /// The other side.
        peer: String,
        /// What happened.
        why: String,
    },
    /// Nothing came in time.
    #[error("{what} did not come within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// In virtual time: every program waits, and nothing is left that could wake one of them.
    #[error(
        "virtual time stands still at {at:?}: every program waits and the network is idle (this one waits for {what})"
    )]
    StandsStill {
        /// The present.
        at: Duration,
        /// What this program waits for.
        what: &'static str,
    },
    /// A program in virtual time was called from a thread that is none of the network's.
    #[error("this thread is no program of the network; Context::spawn starts one")]
    NotAProgram,
    /// The partner has sent a message that does not fit what the programs agreed on.
    #[error("{0}")]
    Protocol(String),
}

/// Why a list of requests was not taken to its end ([`QueuePair::post_send_list`](crate::QueuePair::post_send_list)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("request {index} of the list: {source}")]
#[doc(alias = "bad_wr")]
pub struct BadRequest {
    /// Place in the list, from 0, of the request that was not taken: so many before it were.
    pub index: usize,
    /// What is wrong with it.
    pub source: PostError,
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of thing went wrong, in words that are the same on every device ([`Error::kind`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The program has asked for what cannot be: a value out of range, objects that do not go together, a state that
    /// does not allow it. On devices of libibverbs, `EINVAL`.
    InvalidArgument,
    /// There is no such device, port, table entry or connection.
    NotFound,
    /// Someone has it already, or still uses it.
    InUse,
    /// The device does not have it.
    NotSupported,
    /// There is no room: a queue is full, or there are as many objects as there can be.
    NoResources,
    /// Nothing came in time, or nothing can come any more.
    Timeout,
    /// The other program has gone, cannot be reached, or says what makes no sense.
    Peer,
    /// The device, its port or the operating system failed.
    Io,
}

impl Error {
    /// What kind of thing went wrong. That of a [`PostError`] or [`BadRequest`] is `Error::from(e).kind()`.
    pub fn kind(&self) -> ErrorKind {
        use ErrorKind as K;
        match self {
            Error::NoDevice { .. } | Error::NoSuch { .. } => K::NotFound,
            Error::BadName { .. } | Error::Invalid(_) | Error::Foreign(_) | Error::NotAProgram => {
                K::InvalidArgument
            }
            Error::Unsupported { .. } => K::NotSupported,
            Error::Create(e) | Error::Agent(AgentError::Create(e)) => create(e),
            Error::Modify(e) | Error::Agent(AgentError::Modify(e)) => modify(e),
            Error::Register(e) | Error::Agent(AgentError::Register(e)) => register(e),
            Error::Post(e) | Error::Agent(AgentError::Post(e)) => post(e),
            Error::Window(WindowError::Full) => K::NoResources,
            Error::Window(_) => K::InvalidArgument,
            Error::PostList(e) => post(&e.source),
            Error::Cm(e) => cm(e),
            Error::Os { source, .. } => system(source),
            Error::Port(_) => K::Io,
            Error::Exchange { .. } | Error::Protocol(_) => K::Peer,
            Error::TimedOut { .. } | Error::StandsStill { .. } => K::Timeout,
        }
    }
}

fn create(e: &CreateError) -> ErrorKind {
    match e {
        CreateError::Full { .. } => ErrorKind::NoResources,
        CreateError::GsiExists | CreateError::InUse { .. } | CreateError::Attached { .. } => {
            ErrorKind::InUse
        }
        _ => ErrorKind::InvalidArgument,
    }
}

fn modify(e: &ModifyError) -> ErrorKind {
    match e {
        ModifyError::NoAddressHandle { .. } => ErrorKind::NoResources,
        _ => ErrorKind::InvalidArgument,
    }
}

fn register(e: &RegisterError) -> ErrorKind {
    match e {
        RegisterError::Full => ErrorKind::NoResources,
        _ => ErrorKind::InvalidArgument,
    }
}

fn post(e: &PostError) -> ErrorKind {
    match *e {
        PostError::QueueFull { .. } => ErrorKind::NoResources,
        PostError::Unsupported(_) => ErrorKind::NotSupported,
        PostError::Device { code } => system(&std::io::Error::from_raw_os_error(code)),
        _ => ErrorKind::InvalidArgument,
    }
}

fn cm(e: &CmError) -> ErrorKind {
    match e {
        CmError::UnknownConnection(_) | CmError::NotListening(_) => ErrorKind::NotFound,
        CmError::InUse(_) => ErrorKind::InUse,
        CmError::Full(_) => ErrorKind::NoResources,
        _ => ErrorKind::InvalidArgument,
    }
}

fn system(e: &std::io::Error) -> ErrorKind {
    use std::io::ErrorKind as E;
    match e.kind() {
        E::InvalidInput | E::ArgumentListTooLong => ErrorKind::InvalidArgument,
        E::NotFound => ErrorKind::NotFound,
        E::AddrInUse | E::ResourceBusy | E::AlreadyExists => ErrorKind::InUse,
        E::Unsupported => ErrorKind::NotSupported,
        E::OutOfMemory | E::StorageFull | E::QuotaExceeded | E::WouldBlock => {
            ErrorKind::NoResources
        }
        E::TimedOut => ErrorKind::Timeout,
        E::ConnectionRefused
        | E::ConnectionReset
        | E::ConnectionAborted
        | E::NotConnected
        | E::BrokenPipe
        | E::HostUnreachable
        | E::NetworkUnreachable
        | E::UnexpectedEof => ErrorKind::Peer,
        // What the standard library has no name for, by Linux' numbers.
        _ => match e.raw_os_error() {
            // ENXIO, ENODEV, ENODATA.
            Some(6 | 19 | 61) => ErrorKind::NotFound,
            // ENFILE, EMFILE, ENOBUFS.
            Some(23 | 24 | 105) => ErrorKind::NoResources,
            // ENOTTY, EPROTONOSUPPORT.
            Some(25 | 93) => ErrorKind::NotSupported,
            // EFAULT, EDOM, ERANGE.
            Some(14 | 33 | 34) => ErrorKind::InvalidArgument,
            _ => ErrorKind::Io,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind as K;

    /// What the drivers of libibverbs say of a mishap is of the kind that software cards have for it.
    #[test]
    fn numbers_of_the_operating_system_are_of_the_kinds_that_software_cards_give() {
        let unknown =
            |key| WindowError::Region(softroce_sim::memory::AccessError::UnknownKey { key });
        let in_use = CreateError::InUse {
            what: "completion queue",
            users: 1,
        };
        let full = CreateError::Full {
            what: "queue pairs",
            limit: 1,
        };
        let too_many = CreateError::OutOfRange {
            what: "cqe",
            value: 0,
            least: 1,
            limit: 2,
        };
        let pairs: [(i32, Error, ErrorKind); 8] = [
            (22, too_many.into(), K::InvalidArgument),
            (22, ModifyError::GsiQkey(1).into(), K::InvalidArgument),
            (22, unknown(7).into(), K::InvalidArgument),
            (22, RegisterError::UnknownKey(7).into(), K::InvalidArgument),
            (12, full.into(), K::NoResources),
            (
                12,
                PostError::QueueFull { capacity: 1 }.into(),
                K::NoResources,
            ),
            (16, in_use.into(), K::InUse),
            (
                95,
                Error::Unsupported {
                    device: "a".into(),
                    what: "b".into(),
                },
                K::NotSupported,
            ),
        ];
        for (number, error, kind) in pairs {
            let source = std::io::Error::from_raw_os_error(number);
            let call = "ibv_something".into();
            assert_eq!(Error::Os { call, source }.kind(), kind, "{number}");
            assert_eq!(error.kind(), kind, "{error}");
            let posted = PostError::Device { code: number };
            assert_eq!(Error::from(posted).kind(), kind, "{number}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn numbers_that_the_standard_library_has_no_name_for_have_a_kind() {
        use rustix::io::Errno as E;
        for (number, kind) in [
            (E::NODEV, K::NotFound),
            (E::NXIO, K::NotFound),
            (E::NODATA, K::NotFound),
            (E::NOENT, K::NotFound),
            (E::MFILE, K::NoResources),
            (E::NFILE, K::NoResources),
            (E::NOBUFS, K::NoResources),
            (E::NOSPC, K::NoResources),
            (E::AGAIN, K::NoResources),
            (E::NOTTY, K::NotSupported),
            (E::PROTONOSUPPORT, K::NotSupported),
            (E::OPNOTSUPP, K::NotSupported),
            (E::NOSYS, K::NotSupported),
            (E::FAULT, K::InvalidArgument),
            (E::DOM, K::InvalidArgument),
            (E::RANGE, K::InvalidArgument),
            (E::TIMEDOUT, K::Timeout),
            (E::CONNREFUSED, K::Peer),
            (E::NETUNREACH, K::Peer),
            (E::HOSTUNREACH, K::Peer),
            (E::ADDRINUSE, K::InUse),
            (E::IO, K::Io),
            (E::ACCESS, K::Io),
        ] {
            assert_eq!(system(&number.into()), kind, "{number:?}");
        }
    }
}
