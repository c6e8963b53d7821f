//! One sends datagrams to a multicast group, and each member receives all of them: two on the server's device, and
//! the sender itself, whose queue pair is a member too. In front of what was sent each buffer has the forty bytes
//! of the header that it came with.

use softroce_verbs::{
    Access, AddressVector, Completion, CompletionKind, CompletionQueue, Context, Error, Gid,
    MemoryRegion, ProtectionDomain, Psn, QpNumber, QpType, QueuePair, RecvRequest, Result, Role,
    SendRequest, Status, Work,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

/// Datagrams, all of which each member has room for.
const COUNT: u32 = 50;
const SIZE: u32 = 256;
/// The GRH, or the IP header in its place.
const HEADER: u32 = 40;
const PLACE: u32 = HEADER + SIZE;
const QKEY: u32 = 0x0019_2002;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    softroce::device::main(|context, role| match role {
        Role::Server { .. } => receive(&context, &role),
        Role::Client { .. } => send(&context, &role),
    })
}

/// The group, of the kind that a device's own address is of.
fn group(own: Gid) -> Gid {
    match own.ipv4() {
        Some(_) => Ipv4Addr::new(239, 255, 19, 2).into(),
        None => Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x1902).into(),
    }
}

/// The bytes of datagram `number`.
fn text(number: u32) -> [u8; SIZE as usize] {
    std::array::from_fn(|i| (number as usize * 7 + i) as u8)
}

/// A member of the group, with a buffer posted for each datagram.
struct Member {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// Datagrams that have come.
    got: u32,
    sent: u32,
}

impl Member {
    fn new(context: &Context, pd: &ProtectionDomain) -> Result<Member> {
        let cq = context.create_cq(2 * COUNT, None)?;
        let mut qp = pd
            .create_qp(QpType::Ud)
            .cq(&cq)
            .max_send_wr(COUNT)
            .max_recv_wr(COUNT)
            .build()?;
        // The last place is what is sent from.
        let memory = pd.reg_new((PLACE * (COUNT + 1)) as usize, Access::LOCAL_WRITE)?;
        qp.activate(QKEY, Psn::new(1))?;
        for place in 0..u64::from(COUNT) {
            let sges = &[memory.sge(place * u64::from(PLACE), PLACE)];
            qp.post_recv(&RecvRequest { wr_id: place, sges })?;
        }
        let own = qp.endpoint(Psn::new(1))?.gid;
        qp.attach_mcast(group(own))?;
        Ok(Member {
            qp,
            cq,
            memory,
            got: 0,
            sent: 0,
        })
    }

    /// Takes the next completion; a datagram must be the next that was sent to the group, by `sender`.
    fn take(&mut self, sender: Gid) -> Result<()> {
        let completion = self.cq.wait(PATIENCE)?;
        if completion.status != Status::Success {
            let status = completion.status;
            return Err(Error::Protocol(format!("a request ended with {status}")));
        }
        if completion.kind == CompletionKind::Receive {
            self.check(&completion, sender)?;
            self.got += 1;
        } else {
            self.sent += 1;
        }
        Ok(())
    }

    fn check(&self, completion: &Completion, sender: Gid) -> Result<()> {
        let mut whole = [0; PLACE as usize];
        let at = completion.wr_id * u64::from(PLACE);
        self.memory.memory().read_at(at as usize, &mut whole);
        let (header, data) = whole.split_at(HEADER as usize);
        let (from, to) = addresses(header);
        if !completion.grh || completion.byte_len != PLACE || (from, to) != (sender, group(sender))
        {
            return Err(Error::Protocol(format!(
                "{} bytes from {from} to {to}",
                completion.byte_len
            )));
        }
        if data != text(self.got) {
            let number = self.got;
            return Err(Error::Protocol(format!("datagram {number} is another")));
        }
        Ok(())
    }
}

/// Source and destination in the header of a datagram: an IPv4 header stands in the second half.
fn addresses(header: &[u8]) -> (Gid, Gid) {
    let v4 = |at: usize| {
        let octets: [u8; 4] = std::array::from_fn(|i| header[at + i]);
        Gid::from(Ipv4Addr::from(octets))
    };
    let v6 = |at: usize| Gid(std::array::from_fn(|i| header[at + i]));
    match header[20] {
        0x45 if header[0] >> 4 != 6 => (v4(32), v4(36)),
        _ => (v6(8), v6(24)),
    }
}

fn receive(context: &Context, role: &Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut members = [Member::new(context, &pd)?, Member::new(context, &pd)?];
    let mut partner = context.exchange(role)?;
    let sender = partner.swap(&members[0].qp.endpoint(Psn::new(1))?)?.gid;
    for (number, member) in (1..).zip(&mut members) {
        while member.got < COUNT {
            member.take(sender)?;
        }
        println!("server: member {number} got {COUNT} datagrams");
    }
    partner.barrier()
}

fn send(context: &Context, role: &Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut member = Member::new(context, &pd)?;
    let own = member.qp.endpoint(Psn::new(1))?;
    let to = pd.create_ah(&AddressVector::new(group(own.gid)))?;
    let mut partner = context.exchange(role)?;
    partner.swap(&own)?;
    let place = u64::from(PLACE * COUNT);
    for number in 0..COUNT {
        member
            .memory
            .memory()
            .write_at(place as usize, &text(number));
        let sges = [member.memory.sge(place, SIZE)];
        member.qp.post_send(&SendRequest {
            to: Some(to.to(QpNumber::MULTICAST, QKEY)),
            ..SendRequest::new(u64::from(COUNT), Work::Send, &sges)
        })?;
        while member.got <= number || member.sent <= number {
            member.take(own.gid)?;
        }
    }
    println!(
        "client: sent {COUNT} datagrams, and got {} as a member",
        member.got
    );
    partner.barrier()
}
