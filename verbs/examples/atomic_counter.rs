//! A counter in the server's memory that the client and the server's own card count up at the same time:
//! FETCH ADD until it is there, then COMPARE SWAP to claim the end. The server's program sleeps meanwhile.

use softroce_verbs::{
    Access, Connection, Context, Error, Psn, QpType, RecvRequest, Result, Role, SendRequest,
    Status, Work,
};
use std::process::ExitCode;
use std::time::Duration;

const COUNT: u64 = 1000;
/// Fetch-and-adds outstanding.
const DEPTH: u32 = 8;
const PATIENCE: Duration = Duration::from_secs(10);
const CLAIMED: u64 = 0xc1a1_3ed0;

fn main() -> ExitCode {
    softroce::device::main(count)
}

fn count(context: Context, role: Role) -> Result<()> {
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(2 * DEPTH, Some(&channel))?;
    let mut qp = pd
        .create_qp(QpType::Rc)
        .cq(&cq)
        .max_send_wr(DEPTH)
        .build()?;
    // The counter here, or what was there before each of the client's additions.
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::REMOTE_READ;
    let memory = pd.reg_new(8 * (DEPTH as usize + 1), access)?;

    let mut partner = context.exchange(&role)?;
    let psn = Psn::new(1);
    let peer = partner.swap(&qp.endpoint(psn)?)?;
    let (counter, _) = partner.swap_memory(memory.remote(0), 8)?;
    qp.connect(psn, &peer, &Connection::default())?;

    if role.is_server() {
        qp.post_recv(&RecvRequest {
            wr_id: 0,
            sges: &[],
        })?;
        cq.req_notify(softroce_verbs::Notify::Next)?;
        partner.barrier()?;
        // Nothing is left to do for this program: its card does all the work.
        if channel.get_cq_event(Some(PATIENCE))?.is_none() {
            return Err(Error::Protocol("the client did not come to an end".into()));
        }
        let mut word = [0; 8];
        memory.memory().read_at(0, &mut word);
        let value = u64::from_ne_bytes(word);
        println!("server: the counter is {value:#x}");
        partner.barrier()?;
        return match value {
            CLAIMED => Ok(()),
            _ => Err(Error::Protocol(format!(
                "the counter is {value}, not {CLAIMED}"
            ))),
        };
    }

    partner.barrier()?;
    let (mut posted, mut done) = (0, 0);
    let mut seen = vec![false; COUNT as usize];
    while done < COUNT {
        while posted < COUNT && posted - done < DEPTH.into() {
            let place = posted % u64::from(DEPTH);
            let work = Work::FetchAdd {
                at: counter,
                add: 1,
            };
            let sge = [memory.sge(8 * place, 8)];
            qp.post_send(&SendRequest::new(posted, work, &sge))?;
            posted += 1;
        }
        let completion = finished(cq.wait(PATIENCE)?)?;
        let place = completion % u64::from(DEPTH);
        let before = word(&memory, place) as usize;
        match seen.get_mut(before) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(Error::Protocol(format!("{before} was there twice"))),
        }
        done += 1;
    }
    let work = Work::CompareSwap {
        at: counter,
        compare: COUNT,
        swap: CLAIMED,
    };
    qp.post_send(&SendRequest::new(0, work, &[memory.sge(0, 8)]))?;
    finished(cq.wait(PATIENCE)?)?;
    println!(
        "client: counted to {COUNT}, every value once; found {} in the end and claimed it",
        word(&memory, 0)
    );
    // An empty message wakes the server's program.
    qp.post_send(&SendRequest::new(0, Work::Send, &[]))?;
    finished(cq.wait(PATIENCE)?)?;
    partner.barrier()
}

fn word(memory: &softroce_verbs::MemoryRegion, place: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.memory().read_at(8 * place as usize, &mut bytes);
    u64::from_ne_bytes(bytes)
}

/// The number of a request that has succeeded.
fn finished(completion: softroce_verbs::Completion) -> Result<u64> {
    match completion.status {
        Status::Success => Ok(completion.wr_id),
        status => Err(Error::Protocol(format!(
            "request {} ended with {status}",
            completion.wr_id
        ))),
    }
}
