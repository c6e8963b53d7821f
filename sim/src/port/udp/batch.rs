//! Datagrams on their way to the socket, many of them in one system call.

#![allow(unsafe_code)]

use super::datagram::LONGEST;
use super::socket::Socket;
use crate::port::link::is_not_ready;
use nix::libc;
use socket2::SockAddr;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::net::SocketAddr;
use std::ops::Range;

/// Datagrams of one batch.
const MOST: usize = 64;
/// Bytes of what the kernel is to cut into datagrams: the longest that IP carries.
const LONGEST_RUN: usize = 65_507;
/// Room for the control message that says where to cut.
// SAFETY: it is arithmetic alone.
const CONTROL: usize = unsafe { libc::CMSG_SPACE(2) } as usize;

/// Where a datagram goes, and as what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub(super) to: SocketAddr,
    pub(super) tos: u8,
    pub(super) ttl: u8,
}

/// A datagram, by its place among the bytes.
#[derive(Clone, Debug)]
struct Queued {
    way: Way,
    bytes: Range<usize>,
    acknowledges: bool,
}

/// Datagrams that go in one message: one, or a run of equally long ones that the kernel cuts.
#[derive(Clone, Copy, Debug)]
struct Message {
    first: usize,
    count: usize,
}

/// What becomes of a datagram.
pub(super) enum Outcome<'a> {
    Sent(&'a Way, &'a [u8]),
    Refused(&'a Way, io::Error),
}

/// Datagrams that wait for the end of the batch, or for room.
#[derive(Debug)]
pub(super) struct Batch {
    /// All datagrams, one after the other.
    bytes: Vec<u8>,
    queued: Vec<Queued>,
    /// In the order in which they go, once they do.
    messages: Vec<Message>,
    /// Of those, how many are done with.
    done: usize,
    /// The kernel cuts runs of datagrams.
    offload: bool,
}

impl Batch {
    pub(super) fn new(offload: bool) -> Batch {
        Batch {
            bytes: Vec::with_capacity(MOST * LONGEST),
            queued: Vec::with_capacity(MOST),
            messages: Vec::with_capacity(MOST),
            done: 0,
            offload,
        }
    }

    /// Appends the datagram that `write` puts at the end of the bytes; nothing if it fails.
    pub(super) fn push<E>(
        &mut self,
        way: Way,
        acknowledges: bool,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        if let Err(e) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(e);
        }
        self.queued.push(Queued {
            way,
            bytes: start..self.bytes.len(),
            acknowledges,
        });
        Ok(())
    }

    /// No more fit.
    pub(super) fn is_full(&self) -> bool {
        self.queued.len() >= MOST
    }

    /// Something waits for room.
    pub(super) fn keeps(&self) -> bool {
        self.done < self.messages.len()
    }

    /// Gives all of it to the socket, and tells what became of each; false if there is no room for all.
    pub(super) fn transmit(
        &mut self,
        socket: &mut Socket,
        mut tell: impl FnMut(Outcome<'_>),
    ) -> bool {
        if self.queued.is_empty() {
            return true;
        }
        if self.messages.is_empty() {
            self.arrange();
        }
        while self.done < self.messages.len() {
            match self.call(socket) {
                Ok(sent) => {
                    for _ in 0..sent.max(1) {
                        for queued in self.datagrams() {
                            tell(Outcome::Sent(
                                &queued.way,
                                &self.bytes[queued.bytes.clone()],
                            ));
                        }
                        self.done += 1;
                    }
                }
                Err(e) if is_not_ready(&e) => return false,
                Err(e) => {
                    let code = e.raw_os_error().unwrap_or_default();
                    for queued in self.datagrams() {
                        let e = io::Error::from_raw_os_error(code);
                        tell(Outcome::Refused(&queued.way, e));
                    }
                    self.done += 1;
                }
            }
        }
        self.bytes.clear();
        self.queued.clear();
        self.messages.clear();
        self.done = 0;
        true
    }

    /// Datagrams of the message that is next.
    fn datagrams(&self) -> &[Queued] {
        let Message { first, count } = self.messages[self.done];
        &self.queued[first..first + count]
    }

    /// What acknowledges goes last: it leaves in the same call, and nobody's next step waits for it.
    fn arrange(&mut self) {
        for acknowledges in [false, true] {
            for (i, queued) in self.queued.iter().enumerate() {
                if queued.acknowledges != acknowledges {
                    continue;
                }
                if self.offload
                    && let Some(last) = self.messages.last_mut()
                    && last.first + last.count == i
                {
                    let first = &self.queued[last.first];
                    let before = &self.queued[i - 1];
                    // All are as long as the first, and a shorter one ends the run.
                    if first.way == queued.way
                        && before.bytes.len() == first.bytes.len()
                        && queued.bytes.len() <= first.bytes.len()
                        && queued.bytes.end - first.bytes.start <= LONGEST_RUN
                    {
                        last.count += 1;
                        continue;
                    }
                }
                self.messages.push(Message { first: i, count: 1 });
            }
        }
    }

    /// One system call for the next messages of the same class and hop limit; how many went.
    fn call(&self, socket: &mut Socket) -> io::Result<usize> {
        let way = self.datagrams()[0].way;
        socket.set_way(&way)?;
        let like = |m: &&Message| {
            let other = &self.queued[m.first].way;
            (other.tos, other.ttl) == (way.tos, way.ttl)
        };
        let messages = &self.messages[self.done..];
        let n = messages.iter().take_while(like).count();
        if n == 1 && messages[0].count == 1 {
            let bytes = self.queued[messages[0].first].bytes.clone();
            return socket.send(&self.bytes[bytes], way.to).map(|()| 1);
        }
        // Written as far as they are used: most batches are short.
        let mut names = [const { MaybeUninit::<SockAddr>::uninit() }; MOST];
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; MOST];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; MOST];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MOST];
        for (i, message) in messages[..n].iter().enumerate() {
            let first = &self.queued[message.first];
            let last = &self.queued[message.first + message.count - 1];
            let run = &self.bytes[first.bytes.start..last.bytes.end];
            let name = names[i].write(SockAddr::from(first.way.to));
            // SAFETY: this is plain data of C, for which zero is a value.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = name.len();
            header.msg_hdr.msg_iov = pieces[i].write(libc::iovec {
                iov_base: run.as_ptr().cast_mut().cast(),
                iov_len: run.len(),
            });
            header.msg_hdr.msg_iovlen = 1;
            if message.count > 1 {
                let control = controls[i].write(Control::cut(first.bytes.len() as u16));
                header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL as _;
            }
            headers[i].write(header);
        }
        // SAFETY: the first `n` have just been written.
        let headers = unsafe { std::slice::from_raw_parts_mut(headers.as_mut_ptr().cast(), n) };
        socket.send_many(headers)
    }
}

/// A control message, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL]);

impl Control {
    /// Says that the datagrams are `len` long.
    fn cut(len: u16) -> Control {
        let mut control = Control([0; CONTROL]);
        // SAFETY: the buffer is aligned for the header and has room for it and two bytes, which is what
        // CONTROL was worked out for.
        unsafe {
            let header: *mut libc::cmsghdr = control.0.as_mut_ptr().cast();
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(2) as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(len);
        }
        control
    }
}
