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
    /// A message, if one is there.
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
    /// [`Error::Exchange`] if the partner has gone.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if message.len() > MAX_MESSAGE {
            return Err(Error::Protocol(format!(
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

    /// A message if one is there; does not wait. This is also how a program that is busy learns that its
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
        Ok(TcpExchange { stream, peer })
    }

    /// True if there is something to receive, an end among it.
    fn has_begun(&self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let found = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match found {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
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
        let mut len = [0; 4];
        self.stream
            .read_exact(&mut len)
            .map_err(|e| self.failed(e))?;
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_MESSAGE {
            return Err(Error::Exchange {
                peer: self.peer.clone(),
                why: format!("it announced {len} bytes; at most {MAX_MESSAGE} come"),
            });
        }
        let mut message = vec![0; len];
        self.stream
            .read_exact(&mut message)
            .map_err(|e| self.failed(e))?;
        Ok(message)
    }

    fn try_receive(&mut self) -> Result<Option<Vec<u8>>> {
        let begun = self.has_begun();
        match begun.map_err(|e| self.failed(e))? {
            // The rest of it is on its way.
            true => self.receive().map(Some),
            false => Ok(None),
        }
    }
}
