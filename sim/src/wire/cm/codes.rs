//! Numbers that messages are about.

use super::fields::Number;
use std::fmt;

/// A communication ID: what one end calls a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommId(pub u32);

/// A service ID: what a connection is made to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceId(pub u64);

/// The name space of a port number (`rdma_port_space`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortSpace {
    /// `RDMA_PS_TCP`: connections.
    Tcp,
    /// `RDMA_PS_UDP`: datagrams.
    Udp,
    /// Another IP protocol.
    Other(u8),
}

impl PortSpace {
    /// The IP protocol.
    pub const fn protocol(self) -> u8 {
        match self {
            PortSpace::Tcp => 6,
            PortSpace::Udp => 17,
            PortSpace::Other(n) => n,
        }
    }
}

impl ServiceId {
    /// What the service IDs of IP services begin with (annex A11): the protocol and the port follow.
    const IP: u64 = 0x01;

    /// The service at an IP port.
    pub const fn ip(space: PortSpace, port: u16) -> ServiceId {
        ServiceId(ServiceId::IP << 24 | (space.protocol() as u64) << 16 | port as u64)
    }

    /// The port, if it is an IP service.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        if self.0 >> 24 != ServiceId::IP {
            return None;
        }
        let space = match (self.0 >> 16) as u8 {
            6 => PortSpace::Tcp,
            17 => PortSpace::Udp,
            n => PortSpace::Other(n),
        };
        Some((space, self.0 as u16))
    }
}

/// Transport service of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// One of the extended ones.
    Extended,
}

/// The message that a MRA or a REJ is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum About {
    /// A REQ.
    #[default]
    Req,
    /// A REP.
    Rep,
    /// Another one: of a MRA, a LAP.
    Other,
    /// Reserved.
    Reserved,
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RejectReason(pub u16);

/// What became of a SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SidrStatus(pub u8);

macro_rules! codes {
    ($ty:ident($raw:ty) { $($(#[$doc:meta])* $name:ident = $code:literal, $words:literal;)* }) => {
        impl $ty {
            $($(#[$doc])* pub const $name: $ty = $ty($code);)*

            /// In words; `None` if it has no meaning.
            pub const fn meaning(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($words),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} ({})", self.meaning().unwrap_or("unknown"), self.0)
            }
        }

        impl fmt::Debug for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Number for $ty {
            fn of(bits: u64) -> $ty {
                $ty(bits as $raw)
            }

            fn bits(self) -> u64 {
                self.0.into()
            }
        }
    };
}

codes! {
    RejectReason(u16) {
        /// No queue pair is left.
        NO_QP = 1, "no QP available";
        /// No end-to-end context is left.
        NO_EEC = 2, "no EEC available";
        /// Something else is not left.
        NO_RESOURCES = 3, "no resources available";
        /// The other end did not answer in time.
        TIMEOUT = 4, "timeout";
        /// The message cannot be dealt with.
        UNSUPPORTED = 5, "unsupported request";
        /// No connection has that name.
        INVALID_COMM_ID = 6, "invalid communication ID";
        /// No connection has these two names.
        INVALID_COMM_INSTANCE = 7, "invalid communication instance";
        /// Nobody listens there.
        INVALID_SERVICE_ID = 8, "invalid service ID";
        /// Not this transport service.
        INVALID_TRANSPORT = 9, "invalid transport service type";
        /// The queue pair has a connection already.
        STALE_CONNECTION = 10, "stale connection";
        /// The reliable datagram channel does not exist.
        NO_RDC = 11, "RDC does not exist";
        /// Not this address.
        INVALID_GID = 12, "primary remote port GID rejected";
        /// Not this LID; not sent in RoCEv2 (CA17-35).
        INVALID_LID = 13, "primary remote port LID rejected";
        /// Not this service level.
        INVALID_SL = 14, "invalid primary SL";
        /// Not this traffic class.
        INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
        /// Not this hop limit.
        INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
        /// Not this rate.
        INVALID_PACKET_RATE = 17, "invalid primary packet rate";
        /// Not this alternate address.
        INVALID_ALTERNATE_GID = 18, "alternate remote port GID rejected";
        /// Not this LID; not sent in RoCEv2 (CA17-35).
        INVALID_ALTERNATE_LID = 19, "alternate remote port LID rejected";
        /// Not this service level.
        INVALID_ALTERNATE_SL = 20, "invalid alternate SL";
        /// Not this traffic class.
        INVALID_ALTERNATE_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
        /// Not this hop limit.
        INVALID_ALTERNATE_HOP_LIMIT = 22, "invalid alternate hop limit";
        /// Not this rate.
        INVALID_ALTERNATE_PACKET_RATE = 23, "invalid alternate packet rate";
        /// Ask elsewhere, and connect there.
        PORT_CM_REDIRECTION = 24, "port and CM redirection";
        /// Connect elsewhere.
        PORT_REDIRECTION = 25, "port redirection";
        /// Not this path MTU.
        INVALID_MTU = 26, "invalid path MTU";
        /// Too few READs and atomics.
        INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
        /// The program said no.
        CONSUMER = 28, "consumer reject";
        /// Not so many RNR retries.
        INVALID_RNR_RETRY = 29, "RNR retry count rejected";
        /// The name is used for another connection.
        DUPLICATE_COMM_ID = 30, "duplicate local communication ID";
        /// Not this version of the class.
        INVALID_CLASS_VERSION = 31, "invalid class version";
        /// Not this flow label.
        INVALID_FLOW_LABEL = 32, "invalid primary flow label";
        /// Not this flow label.
        INVALID_ALTERNATE_FLOW_LABEL = 33, "invalid alternate flow label";
    }
}

codes! {
    SidrStatus(u8) {
        /// Here it is.
        SUCCESS = 0, "success";
        /// Nobody listens there.
        UNSUPPORTED = 1, "service ID not supported";
        /// The program said no.
        REJECTED = 2, "rejected by service provider";
        /// No queue pair is left.
        NO_QP = 3, "no QP available";
        /// Ask elsewhere.
        REDIRECTED = 4, "request should be redirected";
        /// Not this version of the class.
        UNSUPPORTED_VERSION = 5, "version is not supported";
    }
}

impl Number for CommId {
    fn of(bits: u64) -> CommId {
        CommId(bits as u32)
    }

    fn bits(self) -> u64 {
        self.0.into()
    }
}

impl Number for ServiceId {
    fn of(bits: u64) -> ServiceId {
        ServiceId(bits)
    }

    fn bits(self) -> u64 {
        self.0
    }
}

impl Number for Transport {
    fn of(bits: u64) -> Transport {
        match bits & 3 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Rd,
            _ => Transport::Extended,
        }
    }

    fn bits(self) -> u64 {
        self as u64
    }
}

impl Number for About {
    fn of(bits: u64) -> About {
        match bits & 3 {
            0 => About::Req,
            1 => About::Rep,
            2 => About::Other,
            _ => About::Reserved,
        }
    }

    fn bits(self) -> u64 {
        self as u64
    }
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl fmt::Debug for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommId({self})")
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((PortSpace::Tcp, port)) => write!(f, "TCP port {port}"),
            Some((PortSpace::Udp, port)) => write!(f, "UDP port {port}"),
            _ => write!(f, "{:#018x}", self.0),
        }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({self})")
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Rd => "RD",
            Transport::Extended => "extended",
        })
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            About::Req => "REQ",
            About::Rep => "REP",
            About::Other => "another message",
            About::Reserved => "a reserved message",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ids_of_ports_are_those_of_the_kernel() {
        // tests/captures: rping's default port 7174, and udaddy's on UDP.
        let rping = ServiceId::ip(PortSpace::Tcp, 7174);
        assert_eq!(rping, ServiceId(0x0000_0000_0106_1c06));
        let udaddy = ServiceId::ip(PortSpace::Udp, 7174);
        assert_eq!(udaddy, ServiceId(0x0000_0000_0111_1c06));
        assert_eq!(udaddy.port(), Some((PortSpace::Udp, 7174)));
        assert_eq!(ServiceId(0x0000_0001_0106_1c06).port(), None);
    }
}
