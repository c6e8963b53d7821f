//! The exchange of addresses: over TCP, or by the side in virtual time.
//!
//! It begins as that of `ibv_rc_pingpong`: the client sends 52 bytes, the server answers with 52 bytes.
//! They are `LID:QPN:PSN:GID` in hexadecimal digits (4, 6, 6 and 32 of them) and one byte more. That
//! byte is NUL from `ibv_rc_pingpong`, whose client then sends `done` and a NUL, and both begin to
//! send.
//!
//! An end that is softroce puts a newline where the NUL would be. If both ends do, the client sends,
//! instead of `done`, one line, and the server answers with one:
//!
//! ```text
//! softroce 1 size 4096 mtu 1024 iters 1000 chk 0 addr 0x7f12a4c0f000 rkey 0x1a2b0001 len 24576
//! ```
//!
//! `addr`, `rkey` and `len` name the memory that the peer may WRITE and READ; `session` has its layout.
//! What comes after these is ignored, so that later versions can add to it. The TCP connection stays
//! open, and each end sends `done` and a NUL when it has its last completion.

use super::{Options, PingpongError};
use softroce_verbs::{Gid, Partner, Psn, QpNumber, Remote, RemoteKey};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Length of an address on TCP, the byte after it included.
const ADDRESS_LEN: usize = 52;
/// What an end of `ibv_rc_pingpong` sends when it is ready.
const DONE: &[u8; 5] = b"done\0";
/// How long the other end of a TCP connection may take for its next line.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest line of details that is read.
const MAX_LINE: usize = 4096;

/// Where an end can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) lid: u16,
    pub(super) qpn: QpNumber,
    pub(super) psn: Psn,
    pub(super) gid: Gid,
}

/// The other end as its first 52 bytes tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Introduction {
    pub(super) address: Address,
    /// It is softroce too.
    extended: bool,
}

/// What two ends of softroce tell each other beyond their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Details {
    size: u64,
    mtu: u64,
    iters: u64,
    chk: u64,
    memory: Remote,
    len: u64,
}

/// The other end, ready to talk to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Its memory; `None` from `ibv_rc_pingpong`, which takes SENDs alone.
    pub(super) memory: Option<Remote>,
}

impl Address {
    fn to_bytes(self) -> [u8; ADDRESS_LEN] {
        let mut text = format!(
            "{:04x}:{:06x}:{:06x}:",
            self.lid,
            self.qpn.get(),
            self.psn.get()
        );
        for byte in self.gid.0 {
            text += &format!("{byte:02x}");
        }
        text.push('\n');
        let mut bytes = [0; ADDRESS_LEN];
        for (to, from) in bytes.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        bytes
    }

    fn parse(text: &str) -> Option<Address> {
        let mut fields = text.split(':');
        let mut number = |digits| {
            let field = fields.next().filter(|f| f.len() == digits)?;
            // `from_str_radix` takes a sign.
            let is_number = field.bytes().all(|b| b.is_ascii_hexdigit());
            u128::from_str_radix(field, 16).ok().filter(|_| is_number)
        };
        let (lid, qpn, psn, gid) = (number(4)?, number(6)?, number(6)?, number(32)?);
        fields.next().is_none().then_some(Address {
            lid: lid as u16,
            qpn: QpNumber::new(qpn as u32),
            psn: Psn::new(psn as u32),
            gid: Gid(gid.to_be_bytes()),
        })
    }
}

impl Details {
    /// What this end tells, with `len` bytes at `memory` for the peer.
    pub(super) fn new(options: &Options, (memory, len): (Remote, u64)) -> Details {
        Details {
            size: options.size.into(),
            mtu: options.mtu.bytes().into(),
            iters: options.iters.into(),
            chk: options.chk.into(),
            memory,
            len,
        }
    }

    fn line(&self) -> String {
        let Details {
            size,
            mtu,
            iters,
            chk,
            memory,
            len,
        } = self;
        format!(
            "softroce 1 size {size} mtu {mtu} iters {iters} chk {chk} addr {:#x} rkey {:#x} len {len}\n",
            memory.addr, memory.rkey.0
        )
    }

    fn parse(line: &str) -> Option<Details> {
        let mut words = line.split_ascii_whitespace();
        if (words.next(), words.next()) != (Some("softroce"), Some("1")) {
            return None;
        }
        let mut value = |name| {
            if words.next()? != name {
                return None;
            }
            let text = words.next()?;
            match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            }
        };
        Some(Details {
            size: value("size")?,
            mtu: value("mtu")?,
            iters: value("iters")?,
            chk: value("chk")?,
            memory: Remote {
                addr: value("addr")?,
                rkey: RemoteKey(u32::try_from(value("rkey")?).ok()?),
            },
            len: value("len")?,
        })
    }

    fn check(&self, theirs: &Details) -> Result<(), PingpongError> {
        for (option, own, theirs) in [
            ("--size", self.size, theirs.size),
            ("--mtu", self.mtu, theirs.mtu),
            ("--iters", self.iters, theirs.iters),
            ("--chk", self.chk, theirs.chk),
        ] {
            if own != theirs {
                return Err(PingpongError::Options {
                    option,
                    own,
                    theirs,
                });
            }
        }
        Ok(())
    }
}

/// What carries bytes to the other end and back.
#[derive(Debug)]
enum Wire {
    Tcp(TcpStream),
    /// In virtual time; what has come and was not read yet.
    Beside(Partner, VecDeque<u8>),
}

impl Wire {
    /// Takes what has come, without waiting; how many bytes that was, 0 at the end.
    fn take(&mut self) -> io::Result<usize> {
        match self {
            Wire::Tcp(tcp) => tcp.read(&mut [0; 64]),
            Wire::Beside(partner, _) => match partner.try_receive() {
                Ok(Some(message)) => Ok(message.len()),
                Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
                Err(_) => Ok(0),
            },
        }
    }
}

/// A connection and who is at its other end.
#[derive(Debug)]
pub(super) struct Stream {
    wire: Wire,
    peer: String,
}

impl Stream {
    fn new(tcp: TcpStream, peer: SocketAddr) -> Result<Stream, PingpongError> {
        let set = |tcp: &TcpStream| {
            tcp.set_nonblocking(false)?;
            tcp.set_nodelay(true)?;
            tcp.set_read_timeout(Some(PATIENCE))?;
            tcp.set_write_timeout(Some(PATIENCE))
        };
        let outcome = set(&tcp);
        let stream = Stream {
            wire: Wire::Tcp(tcp),
            peer: peer.to_string(),
        };
        outcome.map_err(|e| stream.error(e))?;
        Ok(stream)
    }

    /// To the program in the other role of the same network.
    pub(super) fn beside(partner: Partner) -> Stream {
        Stream {
            wire: Wire::Beside(partner, VecDeque::new()),
            peer: "the other role".into(),
        }
    }

    fn error(&self, source: io::Error) -> PingpongError {
        let source = match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer for {} s", PATIENCE.as_secs()),
            ),
            io::ErrorKind::UnexpectedEof => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the peer closed the connection",
            ),
            _ => source,
        };
        PingpongError::Exchange {
            peer: self.peer.clone(),
            source,
        }
    }

    fn garbled(&self, what: &'static str, bytes: &[u8]) -> PingpongError {
        PingpongError::Garbled {
            peer: self.peer.clone(),
            what,
            text: String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PingpongError> {
        match &mut self.wire {
            Wire::Tcp(tcp) => tcp.write_all(bytes),
            Wire::Beside(partner, _) => partner.send(bytes).map_err(io::Error::other),
        }
        .map_err(|e| self.error(e))
    }

    /// Fills `bytes` with what comes.
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), PingpongError> {
        match &mut self.wire {
            Wire::Tcp(tcp) => tcp.read_exact(bytes),
            Wire::Beside(partner, unread) => loop {
                if unread.len() >= bytes.len() {
                    break unread.read_exact(bytes);
                }
                match partner.receive() {
                    Ok(more) => unread.extend(more),
                    Err(e) => break Err(io::Error::other(e)),
                }
            },
        }
        .map_err(|e| self.error(e))
    }

    /// Tells the peer where this end is.
    pub(super) fn introduce(&mut self, own: &Address) -> Result<(), PingpongError> {
        self.write(&own.to_bytes())
    }

    /// Waits to be told where the peer is.
    pub(super) fn read_introduction(&mut self) -> Result<Introduction, PingpongError> {
        let mut bytes = [0; ADDRESS_LEN];
        self.read(&mut bytes)?;
        let (text, last) = bytes.split_at(ADDRESS_LEN - 1);
        let address = std::str::from_utf8(text)
            .ok()
            .and_then(Address::parse)
            .ok_or_else(|| self.garbled("not LID:QPN:PSN:GID", &bytes))?;
        Ok(Introduction {
            address,
            extended: last == b"\n",
        })
    }

    /// Reads a line of details; or `done`, which gives `None`.
    fn read_details(&mut self) -> Result<Option<Details>, PingpongError> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < MAX_LINE {
            self.read(&mut byte)?;
            line.push(byte[0]);
            if line == DONE {
                return Ok(None);
            }
            if byte == *b"\n" {
                break;
            }
        }
        std::str::from_utf8(&line)
            .ok()
            .and_then(Details::parse)
            .map(Some)
            .ok_or_else(|| self.garbled("not a line of details", &line))
    }
}

/// Listens where a client will look.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, PingpongError> {
    let listener =
        TcpListener::bind(address).map_err(|source| PingpongError::Listen { address, source })?;
    Ok(listener)
}

/// Says where a client is waited for.
pub(super) fn announce(listener: &TcpListener) {
    if let Ok(bound) = listener.local_addr() {
        eprintln!("softroce pingpong: waiting for a client on TCP {bound}");
    }
}

/// Waits for a client.
pub(super) fn accept(listener: &TcpListener) -> Result<Stream, PingpongError> {
    let (tcp, peer) = loop {
        match listener.accept() {
            Ok(accepted) => break accepted,
            // The client was gone before it was its turn.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                let address = listener
                    .local_addr()
                    .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
                return Err(PingpongError::Listen { address, source });
            }
        }
    };
    Stream::new(tcp, peer)
}

/// The addresses of the server; those on the loopback network, if the card is there.
pub(super) fn resolve(
    server: &str,
    port: u16,
    on_loopback: bool,
) -> Result<Vec<SocketAddr>, PingpongError> {
    let found = (server, port)
        .to_socket_addrs()
        .map_err(|source| PingpongError::Resolve {
            server: server.into(),
            source,
        })?;
    let addresses: Vec<_> = found
        .filter(|address| !on_loopback || address.ip().to_canonical().is_loopback())
        .collect();
    if addresses.is_empty() {
        return Err(PingpongError::NotLoopback {
            server: server.into(),
        });
    }
    Ok(addresses)
}

/// Connects to the server at one of its addresses, which may be about to listen.
pub(super) fn call(
    server: &str,
    addresses: &[SocketAddr],
    options: &Options,
) -> Result<Stream, PingpongError> {
    let port = options.device.port;
    let tell = || {
        eprintln!(
            "softroce pingpong: waiting for a server at {server}, TCP port {port}, for at most {} s (--wait)",
            options.device.wait
        );
    };
    match softroce_verbs::reach(addresses, options.device.wait(), tell) {
        Ok((tcp, address)) => Stream::new(tcp, address),
        Err(source) => Err(PingpongError::Connect {
            server: server.into(),
            port,
            source,
        }),
    }
}

/// Says that this end is ready and waits until the other is.
pub(super) fn finish(
    stream: &mut Stream,
    theirs: Introduction,
    own: &Details,
    is_server: bool,
) -> Result<Peer, PingpongError> {
    let details = match (theirs.extended, is_server) {
        (false, true) => {
            let mut bytes = [0; DONE.len()];
            stream.read(&mut bytes)?;
            if bytes != *DONE {
                return Err(stream.garbled("not done", &bytes));
            }
            None
        }
        (false, false) => {
            stream.write(DONE)?;
            None
        }
        (true, true) => {
            let details = stream.read_details()?;
            if details.is_some() {
                stream.write(own.line().as_bytes())?;
            }
            details
        }
        (true, false) => {
            stream.write(own.line().as_bytes())?;
            stream.read_details()?
        }
    };
    if let Some(theirs) = details {
        own.check(&theirs)?;
        if theirs.len < own.len {
            return Err(stream.garbled("too little memory", theirs.line().as_bytes()));
        }
        if theirs.memory.addr.checked_add(theirs.len).is_none() {
            let what = "memory beyond the last address";
            return Err(stream.garbled(what, theirs.line().as_bytes()));
        }
    }
    Ok(Peer {
        memory: details.map(|d| d.memory),
    })
}

/// The connection while the cards talk: it tells when the peer is done, or gone.
#[derive(Debug)]
pub(super) struct Control {
    wire: Wire,
    received: usize,
    closed: bool,
}

impl Control {
    pub(super) fn new(stream: Stream) -> Result<Control, PingpongError> {
        let mut received = 0;
        match &stream.wire {
            Wire::Tcp(tcp) => tcp.set_nonblocking(true).map_err(|e| stream.error(e))?,
            Wire::Beside(_, unread) => received = unread.len(),
        }
        Ok(Control {
            wire: stream.wire,
            received,
            closed: false,
        })
    }

    /// Tells the peer that this end has all it waited for. A peer that is gone does not mind.
    pub(super) fn say_done(&mut self) {
        let _ = match &mut self.wire {
            Wire::Tcp(tcp) => tcp.write_all(DONE).is_ok(),
            Wire::Beside(partner, _) => partner.send(DONE).is_ok(),
        };
    }

    /// Takes what has come; true once the peer has said that it is done.
    pub(super) fn peer_is_done(&mut self) -> bool {
        while !self.closed && self.received < DONE.len() {
            match self.wire.take() {
                Ok(0) => self.closed = true,
                Ok(n) => self.received += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
        self.received >= DONE.len()
    }

    /// True if the peer is gone without having been done.
    pub(super) fn peer_is_gone(&mut self) -> bool {
        !self.peer_is_done() && self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address() -> Address {
        Address {
            lid: 0,
            qpn: QpNumber::new(0x11),
            psn: Psn::new(0xabcdef),
            gid: Ipv4Addr::new(127, 0, 0, 2).into(),
        }
    }

    #[test]
    fn an_address_is_52_bytes_as_ibv_rc_pingpong_has_them() {
        let bytes = address().to_bytes();
        assert_eq!(
            &bytes[..],
            b"0000:000011:abcdef:00000000000000000000ffff7f000002\n"
        );
        let text = std::str::from_utf8(&bytes[..51]).unwrap();
        assert_eq!(Address::parse(text), Some(address()));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in ["", "0000", "0000:000011:abcdef:", "g:1:2:3", "0:1:2:ffff"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
        // Of the right length, but with signs, letters or colons too many.
        let good = "0000:000011:abcdef:00000000000000000000ffff7f000002";
        assert!(Address::parse(good).is_some());
        for (at, bad) in [
            (0, "+"),
            (0, "-"),
            (5, "+"),
            (12, "g"),
            (19, "+"),
            (30, ":"),
        ] {
            let mut text = good.to_string();
            text.replace_range(at..at + 1, bad);
            assert_eq!(Address::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn details_survive_the_wire_and_what_comes_after_them() {
        let details = Details {
            size: 4096,
            mtu: 1024,
            iters: 10,
            chk: 1,
            memory: Remote {
                addr: 0x7f00_0000_1000,
                rkey: RemoteKey(0x1234_5678),
            },
            len: 24_576,
        };
        let line = details.line();
        assert_eq!(Details::parse(&line), Some(details));
        assert_eq!(
            Details::parse(&format!("{} later 1", line.trim_end())),
            Some(details)
        );
        assert_eq!(Details::parse("softroce 2 size 1"), None);
        assert_eq!(
            Details::parse(&line.replace("0x12345678", "0x112345678")),
            None
        );
    }

    #[test]
    fn two_ends_must_be_started_alike() {
        let a = Details {
            size: 1,
            mtu: 256,
            iters: 1,
            chk: 0,
            memory: Remote {
                addr: 0,
                rkey: RemoteKey(0),
            },
            len: 6,
        };
        let error = a.check(&Details { size: 2, ..a }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this end has --size 1, the peer has 2: start both alike"
        );
    }
}
