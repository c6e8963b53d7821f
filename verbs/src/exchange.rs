//! How two programs tell each other addresses and keys before they have a connection: over TCP on real
//! devices, by the side in virtual time.

use crate::error::{Error, Result};
use crate::{Gid, Psn, QpNumber, Remote, RemoteKey};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Which part a program has. In virtual time the addresses mean nothing: client and server of one network
/// find each other in the order in which they ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Waits for a client.
    Server {
        /// Where, by TCP.
        listen: SocketAddr,
    },
    /// Goes to a server.
    Client {
        /// Where it is, by TCP.
        server: SocketAddr,
        /// How long to ask again while nobody listens there.
        wait: Duration,
    },
}

impl Role {
    /// True for the server.
    pub fn is_server(&self) -> bool {
        matches!(self, Role::Server { .. })
    }
}

/// A pipe for messages between two programs.
pub(crate) trait Exchange: Send {
    fn send(&mut self, message: &[u8]) -> Result<()>;
    fn receive(&mut self) -> Result<Vec<u8>>;
    /// A message, if a whole one is there.
    fn try_receive(&mut self) -> Result<Option<Vec<u8>>>;
}

/// The program in the other role ([`Context::exchange`](crate::Context::exchange)).
pub struct Partner(Box<dyn Exchange>);

impl Partner {
    pub(crate) fn new(exchange: Box<dyn Exchange>) -> Partner {
        Partner(exchange)
    }

    /// Sends a message of at most [`MAX_MESSAGE`] bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Exchange`] if the partner has gone, [`Error::Invalid`] if the message is longer.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if message.len() > MAX_MESSAGE {
            return Err(Error::Invalid(format!(
                "a message of {} bytes to the partner; at most {MAX_MESSAGE} go",
                message.len()
            )));
        }
        self.0.send(message)
    }

    /// Waits for a message.
    ///
    /// # Errors
    ///
    /// [`Error::Exchange`] if the partner has gone.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        self.0.receive()
    }

    /// A message if a whole one is there; does not wait. This is also how a program that is busy learns that its
    /// partner has gone.
    ///
    /// # Errors
    ///
    /// [`Error::Exchange`] if the partner has gone.
    pub fn try_receive(&mut self) -> Result<Option<Vec<u8>>> {
        self.0.try_receive()
    }

    /// Tells the partner of one's own queue pair, and is told of the partner's.
    ///
    /// # Errors
    ///
    /// As [`Partner::send`]; [`Error::Protocol`] if something else came.
    pub fn swap(&mut self, own: &Endpoint) -> Result<Endpoint> {
        self.send(&own.encode())?;
        Endpoint::decode(&self.receive()?)
    }

    /// Tells the partner of memory, and is told of the partner's.
    ///
    /// # Errors
    ///
    /// As [`Partner::swap`].
    pub fn swap_memory(&mut self, own: Remote, len: u64) -> Result<(Remote, u64)> {
        let mut message = [0; 20];
        message[..8].copy_from_slice(&own.addr.to_be_bytes());
        message[8..12].copy_from_slice(&own.rkey.0.to_be_bytes());
        message[12..].copy_from_slice(&len.to_be_bytes());
        self.send(&message)?;
        let answer = self.receive()?;
        let Ok(answer) = <[u8; 20]>::try_from(&answer[..]) else {
            return Err(unexpected("memory, 20 bytes", &answer));
        };
        let [addr @ .., _, _, _, _, _, _, _, _, _, _, _, _] = answer;
        let [_, _, _, _, _, _, _, _, a, b, c, d, len @ ..] = answer;
        let remote = Remote {
            addr: u64::from_be_bytes(addr),
            rkey: RemoteKey(u32::from_be_bytes([a, b, c, d])),
        };
        let len = u64::from_be_bytes(len);
        match remote.addr.checked_add(len) {
            Some(_) => Ok((remote, len)),
            None => Err(Error::Protocol(format!(
                "the partner says that it has {len} bytes at {:#x}; there are at most {}",
                remote.addr,
                u64::MAX - remote.addr
            ))),
        }
    }

    /// Waits until the partner has come to the same point.
    ///
    /// # Errors
    ///
    /// As [`Partner::swap`].
    pub fn barrier(&mut self) -> Result<()> {
        self.send(b"barrier")?;
        match self.receive()? {
            m if m == b"barrier" => Ok(()),
            m => Err(unexpected("a barrier", &m)),
        }
    }
}

impl fmt::Debug for Partner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Partner")
    }
}

fn unexpected(what: &str, found: &[u8]) -> Error {
    Error::Protocol(format!(
        "the partner sent {} bytes where {what} were expected",
        found.len()
    ))
}

/// The longest message between partners.
pub const MAX_MESSAGE: usize = 1 << 16;

/// What a queue pair's peer needs to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Queue pair.
    pub qp: QpNumber,
    /// First PSN it sends.
    pub psn: Psn,
    /// Address.
    pub gid: Gid,
}

impl Endpoint {
    fn encode(&self) -> [u8; 24] {
        let mut m = [0; 24];
        m[..4].copy_from_slice(&self.qp.get().to_be_bytes());
        m[4..8].copy_from_slice(&self.psn.get().to_be_bytes());
        m[8..].copy_from_slice(&self.gid.0);
        m
    }

    fn decode(message: &[u8]) -> Result<Endpoint> {
        let Ok([a, b, c, d, e, f, g, h, gid @ ..]) = <[u8; 24]>::try_from(message) else {
            return Err(unexpected("a queue pair's 24 bytes", message));
        };
        let within = |what, n: [u8; 4]| match u32::from_be_bytes(n) {
            n @ 0..=0xff_ffff => Ok(n),
            n => Err(Error::Protocol(format!(
                "the partner says {what} {n}; at most {} can be",
                0xff_ffff
            ))),
        };
        Ok(Endpoint {
            qp: QpNumber::new(within("queue pair", [a, b, c, d])?),
            psn: Psn::new(within("PSN", [e, f, g, h])?),
            gid: Gid(gid),
        })
    }
}

/// How long to wait for each message of a partner.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a client asks again while nobody listens.
const AGAIN: Duration = Duration::from_millis(50);

/// Connects to a TCP server at one of its addresses, and gives that address too. While it refuses, it may be about to
/// come: it is asked again for as long as `wait`, after `tell` was called.
///
/// # Errors
///
/// What the operating system says, and how long nobody listened.
pub fn reach(
    servers: &[SocketAddr],
    wait: Duration,
    tell: impl FnOnce(),
) -> io::Result<(TcpStream, SocketAddr)> {
    let start = Instant::now();
    let mut tell = Some(tell);
    loop {
        let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
        let mut is_refused = false;
        for &server in servers {
            let left = wait.saturating_sub(start.elapsed()).max(AGAIN);
            match TcpStream::connect_timeout(&server, left) {
                // Where the system gives out the port that is asked for, a connection finds itself.
                Ok(stream) if stream.local_addr()? == server => {
                    is_refused = true;
                    failure = ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => return Ok((stream, server)),
                Err(e) => {
                    is_refused |= e.kind() == ErrorKind::ConnectionRefused;
                    failure = e;
                }
            }
        }
        if !is_refused {
            return Err(failure);
        }
        if start.elapsed() >= wait {
            let text = format!(
                "nobody listened there for {} s: {failure}",
                wait.as_secs_f64()
            );
            return Err(io::Error::new(ErrorKind::ConnectionRefused, text));
        }
        if let Some(tell) = tell.take() {
            tell();
        }
        std::thread::sleep(AGAIN);
    }
}

/// Messages over TCP, each behind its length in four bytes.
#[derive(Debug)]
pub(crate) struct TcpExchange {
    stream: TcpStream,
    peer: String,
    /// What has come of the next message, its length in front.
    begun: Vec<u8>,
}

impl TcpExchange {
    /// Meets the program in the other role; `tell` is told of what is waited for ([`Context::telling`]).
    ///
    /// [`Context::telling`]: crate::Context::telling
    pub(crate) fn meet(role: &Role, tell: &dyn Fn(&Role)) -> Result<TcpExchange> {
        let (stream, peer) = match *role {
            Role::Server { listen } => {
                let at = |source| Error::Os {
                    call: format!("listening at {listen}"),
                    source,
                };
                let listener = TcpListener::bind(listen).map_err(at)?;
                let listen = listener.local_addr().map_err(at)?;
                tell(&Role::Server { listen });
                listener.accept().map_err(at)?
            }
            Role::Client { server, wait } => {
                reach(&[server], wait, || tell(role)).map_err(|source| Error::Os {
                    call: format!("connecting to {server}"),
                    source,
                })?
            }
        };
        let peer = peer.to_string();
        let set = |source| Error::Os {
            call: format!("setting up the connection with {peer}"),
            source,
        };
        stream.set_nodelay(true).map_err(set)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(set)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(set)?;
        Ok(TcpExchange {
            stream,
            peer,
            begun: Vec::new(),
        })
    }

    /// Bytes that are still to come of the next message, of its length first; 0 if it is whole.
    fn missing(&self) -> io::Result<usize> {
        let Some((len, body)) = self.begun.split_first_chunk::<4>() else {
            return Ok(4 - self.begun.len());
        };
        match u32::from_be_bytes(*len) as usize {
            len if len > MAX_MESSAGE => Err(io::Error::other(format!(
                "it announced {len} bytes; at most {MAX_MESSAGE} come"
            ))),
            len => Ok(len - body.len()),
        }
    }

    /// Reads until the next message is whole. What has come of it before an error is kept.
    fn read_message(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let (had, missing) = (self.begun.len(), self.missing()?);
            if missing == 0 {
                let mut message = std::mem::take(&mut self.begun);
                message.drain(..4);
                return Ok(message);
            }
            self.begun.resize(had + missing, 0);
            let read = self.stream.read(&mut self.begun[had..]);
            self.begun.truncate(had + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }

    fn failed(&self, e: io::Error) -> Error {
        Error::Exchange {
            peer: self.peer.clone(),
            why: match e.kind() {
                ErrorKind::UnexpectedEof => "it has ended".into(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("it said nothing for {} s", PATIENCE.as_secs())
                }
                _ => e.to_string(),
            },
        }
    }
}

impl Exchange for TcpExchange {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        // Checked by whoever calls: at most MAX_MESSAGE.
        let len = (message.len() as u32).to_be_bytes();
        let whole = [&len, message].concat();
        self.stream.write_all(&whole).map_err(|e| self.failed(e))
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        self.read_message().map_err(|e| self.failed(e))
    }

    fn try_receive(&mut self) -> Result<Option<Vec<u8>>> {
        let set = |this: &Self, on| this.stream.set_nonblocking(on).map_err(|e| this.failed(e));
        set(self, true)?;
        let found = self.read_message();
        set(self, false)?;
        match found {
            Ok(message) => Ok(Some(message)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange, and the stream at its other end.
    fn met() -> (TcpExchange, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let role = Role::Client {
            server,
            wait: Duration::ZERO,
        };
        let exchange = TcpExchange::meet(&role, &|_| {}).unwrap();
        let (other, _) = listener.accept().unwrap();
        other.set_nodelay(true).unwrap();
        (exchange, other)
    }

    /// What `try_receive` finds once all that was written so far can have come, which takes it no time.
    fn look(exchange: &mut TcpExchange) -> Result<Option<Vec<u8>>> {
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        let found = exchange.try_receive();
        assert!(start.elapsed() < PATIENCE / 4);
        found
    }

    const MESSAGE: &[u8] = b"\0\0\0\x05hello";

    #[test]
    fn a_message_that_comes_in_parts_is_not_waited_for() {
        for cut in 1..MESSAGE.len() {
            let (mut exchange, mut other) = met();
            assert_eq!(look(&mut exchange).unwrap(), None);
            other.write_all(&MESSAGE[..cut]).unwrap();
            assert_eq!(look(&mut exchange).unwrap(), None, "{cut} bytes");
            assert_eq!(look(&mut exchange).unwrap(), None, "{cut} bytes");
            other.write_all(&MESSAGE[cut..]).unwrap();
            // Another one is right behind it.
            other.write_all(MESSAGE).unwrap();
            let whole = Some(b"hello".to_vec());
            assert_eq!(look(&mut exchange).unwrap(), whole, "{cut} bytes");
            assert_eq!(exchange.receive().unwrap(), b"hello");
            assert_eq!(look(&mut exchange).unwrap(), None);
        }
    }

    #[test]
    fn a_message_that_was_begun_is_waited_for_to_its_end_or_that_of_its_sender() {
        let (mut exchange, mut other) = met();
        other.write_all(&MESSAGE[..6]).unwrap();
        assert_eq!(look(&mut exchange).unwrap(), None);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| exchange.receive().unwrap());
            std::thread::sleep(Duration::from_millis(20));
            other.write_all(&MESSAGE[6..]).unwrap();
            assert_eq!(waiter.join().unwrap(), b"hello");
        });
        other.write_all(&MESSAGE[..6]).unwrap();
        assert_eq!(look(&mut exchange).unwrap(), None);
        drop(other);
        for _ in 0..2 {
            let gone = look(&mut exchange).unwrap_err();
            assert!(gone.to_string().contains("it has ended"), "{gone}");
        }
    }

    #[test]
    fn a_message_without_bytes_is_one_and_one_that_is_too_long_is_none() {
        let (mut exchange, mut other) = met();
        other.write_all(&[0; 4]).unwrap();
        assert_eq!(look(&mut exchange).unwrap(), Some(Vec::new()));
        let len = MAX_MESSAGE as u32 + 1;
        other.write_all(&len.to_be_bytes()).unwrap();
        let refused = look(&mut exchange).unwrap_err();
        assert!(refused.to_string().contains("65537 bytes"), "{refused}");
    }
}
