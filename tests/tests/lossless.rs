//! Priority-based flow control and ECN through the public door: random networks whose headroom is what
//! the arithmetic asks for lose nothing, and tshark reads the frames.

use softroce_sim::card::PriorityMask;
use softroce_sim::fabric::bare::{Bare, route};
use softroce_sim::fabric::{
    Capture, ChannelId, Config, Direction, EcnSpec, HostId, LinkSpec, Network, PayloadMode,
    PfcSpec, Rate, Ratio, SwitchSpec, Threshold, Topology,
};
use softroce_sim::random::{Probability, Stream};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;
use softroce_tests::peers;
use std::process::Command;

/// The priority that bare hosts send in.
const PRIORITY: u8 = 3;

fn lossless(threshold: Threshold) -> PfcSpec {
    PfcSpec::new(PriorityMask::NONE.with(PRIORITY), threshold)
}

fn channels(topology: &Topology) -> impl Iterator<Item = ChannelId> + use<> {
    (0..topology.links().len())
        .flat_map(|l| [Direction::Forward, Direction::Backward].map(|d| ChannelId::new(l, d)))
}

/// A tree of up to five switches with up to twelve hosts, no two links alike.
fn random_tree(random: &mut Stream, payload: u16) -> Topology {
    const RATES: [u32; 5] = [10, 25, 40, 100, 400];
    let mut t = Topology::new();
    let switches = 1 + random.below(5) as usize;
    let hosts = 3 + random.below(10) as usize;
    for s in 0..switches {
        let threshold = match random.below(2) {
            0 => Threshold::Static(random.below(100_000)),
            _ => {
                let alpha = Ratio::new(1 + random.below(4) as u16, 1 + random.below(64) as u16);
                Threshold::Dynamic(alpha.unwrap())
            }
        };
        let mut pfc = PfcSpec {
            resume: random.below(20_000),
            ..lossless(threshold)
        };
        // The longest pause, or one that must be asked for again and again, but in time: some are asked for
        // again for the last time before they end when the port has yet to respond to that.
        match random.below(4) {
            0 => pfc.quanta = 20_000 + random.below(40_000) as u16,
            1 => pfc.quanta = 1_001 + random.below(2_000) as u16,
            _ => {}
        }
        let spec = SwitchSpec {
            // Beside the headroom, which is known when the links are: see below.
            buffer: random.below(200_000),
            reserved: random.below(2) * random.below(3_000),
            pfc: Some(pfc),
            ..SwitchSpec::default()
        };
        t.add_switch(&format!("s{s}"), spec).unwrap();
    }
    let link = |random: &mut Stream| {
        let rate = Rate::from_gbps(RATES[random.below(5) as usize]);
        LinkSpec {
            pfc_response: [None, Some(random.below(1000) as u32)][random.below(2) as usize],
            ..LinkSpec::new(rate, Span::from_ps(random.below(3_000_000)))
        }
        .with_mtu(payload + 60)
    };
    for s in 1..switches {
        let up = format!("s{}", random.below(s as u64));
        t.connect(&format!("s{s}"), &up, link(random)).unwrap();
    }
    for h in 0..hosts {
        let host = format!("h{h}");
        t.add_host(&host).unwrap();
        let up = format!("s{}", random.below(switches as u64));
        t.connect(&host, &up, link(random)).unwrap();
    }
    for s in 0..switches {
        let name = format!("s{s}");
        let ends = channels(&t).filter(|&c| t.channel_ends(c).1 == name);
        let links: Vec<LinkSpec> = ends.map(|c| t.links()[c.link()].spec).collect();
        let spec = t.switch_mut(&name).unwrap();
        for link in links {
            // One longest frame goes into the way of the pause, one comes after it, one crosses.
            let longest = link.longest_frame() + 20;
            spec.buffer += softroce_sim::fabric::headroom(&link, longest, longest) + longest;
            spec.buffer += 8 * spec.reserved;
        }
    }
    t
}

/// Runs a random load on a random tree. Gives how often anyone was paused.
fn run(seed: u64) -> u64 {
    let mut random = Stream::new(seed, "lossless");
    let payload = [256, 1024, 4096][random.below(3) as usize];
    let topology = random_tree(&mut random, payload);
    let hosts = topology.hosts();
    let table = RouteTable::new();
    let config = Config {
        seed,
        payload: PayloadMode::Counted,
        routes: table.clone(),
    };
    let hot = random.below(hosts.len() as u64) as usize;
    let mut sent = 0;
    let mut net = Network::new(&topology, config, (), |id, node| {
        let to = match random.below(3) {
            0 => random.below(hosts.len() as u64) as usize,
            _ => hot,
        };
        let host = Bare::new(table.clone());
        if to == id.index() {
            return host;
        }
        let packets = 1 + random.below(600);
        sent += packets;
        host.sending(
            &route(node, &hosts[to], id.index() as u16),
            packets,
            payload,
        )
    })
    .unwrap();
    assert!(
        net.run_until_idle(Time::ZERO + Span::from_ms(2_000)),
        "seed {seed}"
    );
    let done: u64 = net.hosts().map(|h| h.acknowledged).sum();
    let mut pauses = 0;
    for c in channels(&topology) {
        let counters = net.counters(c);
        assert_eq!(
            counters.all_drops(),
            0,
            "seed {seed}, {:?}",
            topology.channel_name(c)
        );
        assert_eq!(
            net.waiting_from(c, PRIORITY) + net.queued_bytes(c),
            0,
            "seed {seed}"
        );
        pauses += counters.by_priority[usize::from(PRIORITY)].pauses_sent;
    }
    for s in 0..topology.switches().len() {
        assert_eq!(net.pool_used(s), 0, "seed {seed}");
    }
    assert_eq!((done, net.in_flight()), (sent, 0), "seed {seed}");
    pauses
}

/// `SOFTROCE_LOSSLESS=10000` runs as many networks; without it there are 300.
#[test]
fn networks_with_the_headroom_of_the_arithmetic_lose_nothing() {
    let most = std::env::var("SOFTROCE_LOSSLESS").map_or(300, |n| n.parse().unwrap());
    let paused = (0..most).filter(|&seed| run(seed) > 0).count();
    println!("{most} networks, {paused} of them with pauses, nothing lost");
    assert!(
        paused as u64 > most / 2,
        "{paused} of {most} networks paused anyone"
    );
}

/// The fat tree and the incast of 15 to 1, with the buffer of HPCC's switches at 100 Gb/s.
#[test]
fn an_incast_loses_nothing_and_fills_its_bottleneck() {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1)).with_mtu(1100);
    let ratio = Ratio::new(1, 8).unwrap();
    let switch = SwitchSpec {
        buffer: 32_000_000,
        pfc: Some(lossless(Threshold::Dynamic(ratio))),
        ..SwitchSpec::default()
    };
    let topology = Topology::fat_tree(4, link, switch).unwrap();
    let table = RouteTable::new();
    let config = Config {
        payload: PayloadMode::Counted,
        routes: table.clone(),
        ..Config::default()
    };
    let hosts = topology.hosts();
    let packets = 8_000;
    let mut net = Network::new(&topology, config, (), |id, node| {
        let host = Bare::new(table.clone());
        match id.index() {
            0 => host,
            n => host.sending(&route(node, &hosts[0], n as u16), packets, 1024),
        }
    })
    .unwrap();
    assert!(net.run_until_idle(Time::ZERO + Span::from_ms(100)));
    for c in channels(&topology) {
        assert_eq!(net.counters(c).all_drops(), 0);
    }
    let host = net.host(HostId::new(0));
    assert_eq!(host.received, 15 * packets);
    // The last link is never idle from the first packet on: 1106 bytes each, after six hops.
    let ideal = 15 * packets * 1106 * 80;
    let last = host.last.as_ps();
    assert!(
        (ideal..ideal + 8_000_000).contains(&last),
        "{last} for {ideal}"
    );
}

/// What tshark says of the fields of each frame.
fn tshark(program: &std::path::Path, file: &std::path::Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new(program);
    command.args(["-n", "-r"]).arg(file);
    command.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .map(|l| l.split('|').map(str::to_owned).collect())
        .collect()
}

#[test]
fn tshark_reads_pauses_and_marks() {
    let Some(program) = peers::find("tshark") else {
        return;
    };
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    let mut ecn = [None; 8];
    ecn[usize::from(PRIORITY)] = Some(EcnSpec {
        kmin: 5_000,
        kmax: 20_000,
        pmax: Probability::new(0.1).unwrap(),
    });
    let switch = SwitchSpec {
        pfc: Some(lossless(Threshold::Static(50_000))),
        ecn,
        ..SwitchSpec::default()
    };
    let topology = Topology::star(3, link, switch).unwrap();
    let file = tempfile::NamedTempFile::with_suffix(".pcapng").unwrap();
    let tap = Capture::new(file.reopen().unwrap(), &topology, channels(&topology)).unwrap();
    let table = RouteTable::new();
    let config = Config {
        routes: table.clone(),
        ..Config::default()
    };
    let hosts = topology.hosts();
    let mut net = Network::new(&topology, config, tap, |id, node| {
        let host = Bare::new(table.clone());
        match id.index() {
            2 => host,
            n => host.sending(&route(node, &hosts[2], n as u16), 300, 1024),
        }
    })
    .unwrap();
    assert!(net.run_until_idle(Time::ZERO + Span::from_ms(10)));
    let counters = |f: &dyn Fn(&softroce_sim::fabric::PriorityCounters) -> u64| -> u64 {
        let of = |c| f(&net.counters(c).by_priority[usize::from(PRIORITY)]);
        channels(&topology).map(of).sum()
    };
    let (stops, goes, marks) = (
        counters(&|c| c.pauses_sent),
        counters(&|c| c.resumes_sent),
        counters(&|c| c.marks),
    );
    assert!(stops > 0 && goes > 0 && marks > 0);
    net.into_parts().0.finish().unwrap();
    let rows = tshark(
        &program,
        file.path(),
        &[
            "macc.opcode",
            "macc.cbfc.enbv",
            "macc.cbfc.pause_time.c3",
            "eth.dst",
            "ip.dsfield.ecn",
            "frame.len",
            "_ws.malformed",
        ],
    );
    let (pfc, rest): (Vec<_>, Vec<_>) = rows.iter().partition(|r| !r[0].is_empty());
    for r in &pfc {
        assert_eq!(r[0], "0x0101", "{r:?}");
        assert_eq!(r[3], "01:80:c2:00:00:01", "{r:?}");
        assert_eq!(r[5], "60", "{r:?}");
        assert!(r[6].is_empty(), "{r:?}");
    }
    let with = |time: &str| pfc.iter().filter(|r| r[2] == time).count() as u64;
    assert_eq!((with("65535"), with("0")), (stops, goes), "{pfc:?}");
    // A packet is marked as it leaves the one switch it crosses.
    let marked = rest.iter().filter(|r| r[4] == "3").count() as u64;
    assert_eq!(marked, marks);
    println!("{stops} pauses, {goes} ends of them, {marks} marks, as tshark has it");
}
