//! Remote procedure calls by SEND: the client keeps several calls under way and sends them inline; the server
//! sleeps until one comes, takes it from a shared receive queue, and answers.

use softroce_verbs::{
    Access, CompletionKind, Connection, Context, Error, MemoryRegion, Notify, Psn, QpType,
    RecvRequest, Result, Role, SendRequest, Status, Work,
};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// A call or an answer: its number, and the argument or the result.
const SIZE: u32 = 16;
const CALLS: u64 = 500;
/// Calls under way.
const WINDOW: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    softroce::device::main(|context, role| match role {
        Role::Server { .. } => serve(&context, &role),
        Role::Client { .. } => call(&context, &role),
    })
}

/// What is computed on the server.
fn procedure(argument: u64) -> u64 {
    argument.wrapping_mul(argument).wrapping_add(1)
}

fn encode(number: u64, value: u64) -> [u8; SIZE as usize] {
    let mut message = [0; SIZE as usize];
    message[..8].copy_from_slice(&number.to_be_bytes());
    message[8..].copy_from_slice(&value.to_be_bytes());
    message
}

/// The message in a place of the memory.
fn decode(memory: &MemoryRegion, place: u64) -> (u64, u64) {
    let mut message = [0; SIZE as usize];
    memory
        .memory()
        .read_at((place * u64::from(SIZE)) as usize, &mut message);
    let [a, b, c, d, e, f, g, h, value @ ..] = message;
    let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    (number, u64::from_be_bytes(value))
}

fn serve(context: &Context, role: &Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(4 * WINDOW, Some(&channel))?;
    let mut srq = pd.create_srq(2 * WINDOW, 1)?;
    let mut qp = pd
        .create_qp(QpType::Rc)
        .cq(&cq)
        .srq(&srq)
        .max_send_wr(2 * WINDOW)
        .max_inline_data(SIZE)
        .build()?;
    let memory = pd.reg_new((2 * WINDOW * SIZE) as usize, Access::LOCAL_WRITE)?;
    let mut receive = |place: u64| -> Result<()> {
        let sge = [memory.sge(place * u64::from(SIZE), SIZE)];
        Ok(srq.post_recv(&RecvRequest {
            wr_id: place,
            sges: &sge,
        })?)
    };
    for place in 0..u64::from(2 * WINDOW) {
        receive(place)?;
    }

    let mut partner = context.exchange(role)?;
    let peer = partner.swap(&qp.endpoint(Psn::new(3))?)?;
    qp.connect(Psn::new(3), &peer, &Connection::default())?;
    cq.req_notify(Notify::Next)?;
    partner.barrier()?;

    let (mut answered, mut told) = (0, 0);
    let mut wakes = 0u64;
    while told < CALLS {
        // Asked first and looked at after, so that nothing comes unseen in between.
        if channel.get_cq_event(Some(PATIENCE))?.is_none() {
            return Err(Error::Protocol(format!(
                "no call for {} s; {answered} of {CALLS} came",
                PATIENCE.as_secs()
            )));
        }
        wakes += 1;
        cq.req_notify(Notify::Next)?;
        while let Some(completion) = cq.poll()? {
            if completion.status != Status::Success {
                return Err(Error::Protocol(format!(
                    "a request ended with {}",
                    completion.status
                )));
            }
            if completion.kind != CompletionKind::Receive {
                told += 1;
                continue;
            }
            let (number, argument) = decode(&memory, completion.wr_id);
            let answer = encode(number, procedure(argument));
            qp.post_send(&SendRequest {
                inline: Some(&answer),
                ..SendRequest::new(number, Work::Send, &[])
            })?;
            receive(completion.wr_id)?;
            answered += 1;
        }
    }
    println!("server: answered {answered} calls, woken {wakes} times");
    partner.barrier()
}

fn call(context: &Context, role: &Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(4 * WINDOW, None)?;
    let mut qp = pd
        .create_qp(QpType::Rc)
        .cq(&cq)
        .max_send_wr(2 * WINDOW)
        .max_recv_wr(WINDOW)
        .max_inline_data(SIZE)
        .build()?;
    let memory = pd.reg_new((WINDOW * SIZE) as usize, Access::LOCAL_WRITE)?;
    let mut partner = context.exchange(role)?;
    let peer = partner.swap(&qp.endpoint(Psn::new(5))?)?;
    qp.connect(Psn::new(5), &peer, &Connection::default())?;
    partner.barrier()?;

    let start = context.now();
    let mut under_way = BTreeMap::new();
    let (mut called, mut slowest) = (0, Duration::ZERO);
    let mut free: Vec<u64> = (0..u64::from(WINDOW)).collect();
    let mut done = 0;
    while done < CALLS {
        while called < CALLS
            && let Some(place) = free.pop()
        {
            let sge = [memory.sge(place * u64::from(SIZE), SIZE)];
            qp.post_recv(&RecvRequest {
                wr_id: place,
                sges: &sge,
            })?;
            let call = encode(called, called * 3);
            qp.post_send(&SendRequest {
                inline: Some(&call),
                ..SendRequest::new(called, Work::Send, &[])
            })?;
            under_way.insert(called, context.now());
            called += 1;
        }
        let completion = cq.wait(PATIENCE)?;
        if completion.status != Status::Success {
            return Err(Error::Protocol(format!(
                "a request ended with {}",
                completion.status
            )));
        }
        if completion.kind != CompletionKind::Receive {
            continue;
        }
        let (number, result) = decode(&memory, completion.wr_id);
        let Some(since) = under_way.remove(&number) else {
            return Err(Error::Protocol(format!(
                "an answer to call {number}, which is not under way"
            )));
        };
        if result != procedure(number * 3) {
            return Err(Error::Protocol(format!("call {number} came to {result}")));
        }
        slowest = slowest.max(context.now() - since);
        free.push(completion.wr_id);
        done += 1;
    }
    let time = context.now() - start;
    println!(
        "client: {CALLS} calls, {WINDOW} at a time, in {:.3} ms; the slowest took {:.3} us",
        time.as_secs_f64() * 1e3,
        slowest.as_secs_f64() * 1e6
    );
    partner.barrier()
}
