//! Multicast groups of a card on a socket: those of this machine, on its loopback interface.
//!
//! A socket that is bound to an address of the card's own is not given what is sent to a group, so each group has
//! a socket more, at the group's address.

use super::UdpConfig;
use super::inbox::{Arrival, Inbox};
use super::socket::Socket;
use crate::wire::Gid;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The sockets of a card: its own, and those of its groups.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) own: Socket,
    groups: Vec<Group>,
    /// Whose turn it is to be asked: 0 for the own socket, then the groups.
    turn: usize,
    /// Readable when one of them is.
    any: OwnedFd,
    /// Datagrams that the kernel dropped at sockets of groups that have been left.
    dropped_before: u64,
    config: UdpConfig,
}

#[derive(Debug)]
struct Group {
    gid: Gid,
    socket: Socket,
}

impl Sockets {
    pub(super) fn new(own: Socket, config: &UdpConfig) -> io::Result<Sockets> {
        let any = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&any, &own, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Sockets {
            own,
            groups: Vec::new(),
            turn: 0,
            any,
            dropped_before: 0,
            config: config.clone(),
        })
    }

    /// True if all there is to receive from is the own socket.
    pub(super) fn is_alone(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn join(&mut self, group: Gid) -> io::Result<()> {
        let address = SocketAddr::new(group.ip(), self.config.port);
        let socket = Socket::open_group(address, &self.config).map_err(io::Error::other)?;
        epoll::add(&self.any, &socket, EventData::new_u64(0), EventFlags::IN)?;
        self.groups.push(Group { gid: group, socket });
        Ok(())
    }

    pub(super) fn leave(&mut self, group: Gid, inbox: &mut Inbox) {
        let Some(at) = self.groups.iter().position(|g| g.gid == group) else {
            return;
        };
        // Nothing is lost but the rest of a batch, if it is not the own socket's.
        if self.turn > 0 {
            inbox.turn();
            self.turn = 0;
        }
        let group = self.groups.remove(at);
        self.dropped_before += u64::from(group.socket.overflow());
    }

    /// The next datagram, and the group that it was sent to; from each socket in turn, a batch at a time.
    #[inline]
    pub(super) fn next(&mut self, inbox: &mut Inbox) -> io::Result<Option<(Arrival, Option<Gid>)>> {
        if self.groups.is_empty() {
            let arrival = inbox.next(&self.own)?;
            return Ok(arrival.map(|arrival| (arrival, None)));
        }
        self.next_of_many(inbox)
    }

    #[inline(never)]
    fn next_of_many(&mut self, inbox: &mut Inbox) -> io::Result<Option<(Arrival, Option<Gid>)>> {
        for _ in 0..=self.groups.len() {
            if inbox.is_done() {
                inbox.turn();
                self.turn = (self.turn + 1) % (self.groups.len() + 1);
            }
            let of = self.turn.checked_sub(1).map(|i| &self.groups[i]);
            let socket = of.map_or(&self.own, |group| &group.socket);
            if let Some(arrival) = inbox.next(socket)? {
                return Ok(Some((arrival, of.map(|group| group.gid))));
            }
        }
        Ok(None)
    }

    /// Datagrams that the kernel has dropped because a receive buffer was full.
    pub(super) fn overflow(&self) -> u64 {
        let groups = self.groups.iter().map(|group| &group.socket);
        let now: u64 = groups
            .chain([&self.own])
            .map(|socket| u64::from(socket.overflow()))
            .sum();
        self.dropped_before + now
    }

    /// A descriptor that is readable when there is something to receive.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.any.try_clone()
    }
}

impl AsFd for Sockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.any.as_fd()
    }
}
