//! One sends datagrams to a multicast group, and each member receives all of them: two on the server's device, and
//! the sender itself, whose queue pair is a member too. In front of what was sent each buffer has the forty bytes
//! of the header that it came with. Datagrams may be lost, as with `--loss 5%`: each says which it is, and what does
//! not come is counted; what comes must be as it was sent.

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
/// What the sender has sent and has not come for so long is lost.
const LOST: Duration = Duration::from_millis(200);
/// Between two looks in vain.
const PAUSE: Duration = Duration::from_micros(100);
/// The sender says nothing for so long: it has failed.
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

/// The bytes of datagram `number`, which begin with it.
fn text(number: u32) -> [u8; SIZE as usize] {
    let mut text = std::array::from_fn(|i| (number as usize * 7 + i) as u8);
    text[..4].copy_from_slice(&number.to_be_bytes());
    text
}

/// A member of the group, with a buffer posted for each datagram.
struct Member {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// Which datagrams have come.
    got: [bool; COUNT as usize],
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
        let own = qp.endpoint(Psn::new(1))?.gid;
        qp.attach_mcast(group(own))?;
        let mut member = Member {
            qp,
            cq,
            memory,
            got: [false; COUNT as usize],
            sent: 0,
        };
        for place in 0..u64::from(COUNT) {
            member.post(place)?;
        }
        Ok(member)
    }

    /// How many datagrams have come.
    fn count(&self) -> usize {
        self.got.iter().filter(|&&got| got).count()
    }

    /// Takes a completion, if there is one; a datagram must be as `sender` sent it to the group.
    fn take(&mut self, sender: Gid) -> Result<bool> {
        let Some(completion) = self.cq.poll()? else {
            return Ok(false);
        };
        if completion.status != Status::Success {
            let status = completion.status;
            return Err(Error::Protocol(format!("a request ended with {status}")));
        }
        if completion.kind == CompletionKind::Receive {
            let number = self.check(&completion, sender)?;
            // It may come twice; there is room for it.
            self.got[number] = true;
            self.post(completion.wr_id)?;
        } else {
            self.sent += 1;
        }
        Ok(true)
    }

    /// Takes what comes until all is there, or nothing has come for a while of what `is_sent` says has been sent.
    fn take_all(
        &mut self,
        context: &Context,
        sender: Gid,
        mut is_sent: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let mut last = context.now();
        let mut sent = false;
        while self.count() < COUNT as usize {
            if self.take(sender)? {
                last = context.now();
                continue;
            }
            let quiet = context.now() - last;
            if !sent && is_sent()? {
                sent = true;
                last = context.now();
            } else if sent && quiet >= LOST {
                break;
            } else if quiet >= PATIENCE {
                return Err(Error::TimedOut {
                    what: "what the sender has to say",
                    limit: PATIENCE,
                });
            }
            context.sleep(PAUSE)?;
        }
        Ok(())
    }

    /// What has not come, in words.
    fn lost(&self) -> String {
        match COUNT as usize - self.count() {
            0 => String::new(),
            lost => format!("; {lost} of {COUNT} were lost"),
        }
    }

    /// Posts the buffer at a place.
    fn post(&mut self, place: u64) -> Result<()> {
        let sges = &[self.memory.sge(place * u64::from(PLACE), PLACE)];
        let wr_id = place;
        Ok(self.qp.post_recv(&RecvRequest { wr_id, sges })?)
    }

    /// Which datagram it is, if it is as it was sent.
    fn check(&self, completion: &Completion, sender: Gid) -> Result<usize> {
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
        let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
        if number >= COUNT || data != text(number) {
            return Err(Error::Protocol(format!(
                "what came as datagram {number} is not what was sent"
            )));
        }
        Ok(number as usize)
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
    let mut sent = false;
    for (number, member) in (1..).zip(&mut members) {
        member.take_all(context, sender, || {
            sent = sent || partner.try_receive()?.is_some();
            Ok(sent)
        })?;
        let (got, lost) = (member.count(), member.lost());
        println!("server: member {number} got {got} datagrams{lost}");
    }
    if !sent {
        partner.receive()?;
    }
    partner.send(b"taken")
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
        // The place is free when the request is done.
        while member.sent <= number {
            if !member.take(own.gid)? {
                context.sleep(PAUSE)?;
            }
        }
    }
    member.take_all(context, own.gid, || Ok(true))?;
    println!(
        "client: sent {COUNT} datagrams, and got {} as a member{}",
        member.count(),
        member.lost()
    );
    partner.send(b"sent")?;
    partner.receive().map(drop)
}
