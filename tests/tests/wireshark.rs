//! Captures of virtual links as tshark sees them.

use softroce_sim::card::{Card, CardConfig};
use softroce_sim::fabric::machine::{self, FlowOperation, FlowSpec, Machine};
use softroce_sim::fabric::topology::{AddressFamily, Topology};
use softroce_sim::fabric::{Capture, Config, Direction, LinkSpec, Network, Rate};
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::{Encapsulation, RouteTable};
use softroce_tests::{peers, tshark};

fn capture(family: AddressFamily, encapsulation: Encapsulation) -> tempfile::NamedTempFile {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    let topology = Topology::back_to_back(link).with_addresses(family);
    let routes = RouteTable::new();
    let config = Config {
        seed: 1,
        routes: routes.clone(),
        ..Default::default()
    };
    let file = tempfile::NamedTempFile::with_suffix(".pcapng").unwrap();
    let channels =
        [Direction::Forward, Direction::Backward].map(|d| topology.channel("h0-h1", d).unwrap());
    let tap = Capture::new(file.reopen().unwrap(), &topology, channels).unwrap();
    let mut net = Network::new(&topology, config, tap, |_, node| {
        let card = CardConfig {
            encapsulation,
            ..CardConfig::new(node.name.clone(), node.gid(), node.mac)
        };
        Machine::new(Card::new(card, 1, routes.clone()), 4096).unwrap()
    })
    .unwrap();
    let (a, b) = (topology.host("h0").unwrap(), topology.host("h1").unwrap());
    for operation in [
        FlowOperation::Send,
        FlowOperation::SendImmediate,
        FlowOperation::Write,
        FlowOperation::WriteImmediate,
        FlowOperation::Read,
    ] {
        for size in [0, 1, 2, 3, 1024, 3001] {
            let spec = FlowSpec {
                carried: true,
                ..FlowSpec::new(operation, size, 2)
            };
            machine::connect(&mut net, a, b, &spec).unwrap();
        }
    }
    net.run_until(Time::ZERO + Span::from_ms(1));
    assert!(net.host(a).is_done(net.now()));
    net.into_parts().0.finish().unwrap();
    file
}

#[test]
fn tshark_reads_what_cards_send() {
    let Some(program) = peers::find("tshark") else {
        return;
    };
    for (family, encapsulation) in [
        (AddressFamily::Ipv4, Encapsulation::RoceV2),
        (AddressFamily::Ipv6, Encapsulation::RoceV2),
        (AddressFamily::Ipv4, Encapsulation::RoceV1),
    ] {
        let file = capture(family, encapsulation);
        let packets = tshark::check(&program, file.path());
        // Per size and operation two messages of one packet (four for 3001 bytes), and answers.
        assert!(packets > 100, "{packets}");
        println!("{encapsulation:?} {family:?}: {packets} packets, tshark and softroce agree");
    }
}

#[test]
fn tshark_reads_the_capture_of_a_scenario() {
    let Some(program) = peers::find("tshark") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let options = softroce::run::Options {
        out: Some(dir.path().to_path_buf()),
        ..Default::default()
    };
    let file = softroce::library::find("two-hosts").unwrap().file();
    for gid in ["ipv4", "ipv6", "rocev1"] {
        let plan = file.plan(&[format!("card.gid={gid}")]).unwrap();
        let report = softroce::run::run("two-hosts", &plan, &options, &|_| {}).unwrap();
        assert!(report.held);
        let capture = &report.runs[0].captures[0];
        let packets = tshark::check(&program, &dir.path().join(&capture.file));
        assert_eq!(packets as u64, capture.frames);
        println!("{gid}: {packets} packets, tshark and softroce agree");
    }
}

/// The port of a TCP listener that was free a moment ago.
#[cfg(target_os = "linux")]
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
#[cfg(target_os = "linux")]
fn tshark_reads_the_capture_of_a_socket() {
    let Some(program) = peers::find("tshark") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let end = |name: &str, server: Option<&str>| softroce::pingpong::Options {
        device: softroce::device::DeviceArgs {
            wait: 10,
            device: "softroce0".into(),
            server: server.map(String::from),
            port,
            seed: None,
            set: Vec::new(),
            mishaps: softroce::device::MishapArgs::default(),
        },
        size: 3001,
        mtu: softroce_sim::card::Mtu::M1024,
        rx_depth: 16,
        iters: 20,
        sl: 0,
        gid_idx: None,
        chk: true,
        bind: None,
        timeout: 14,
        retry_cnt: 7,
        capture: Some(dir.path().join(name)),
        json: true,
    };
    let (serving, asking) = (
        end("server.pcapng", None),
        end("client.pcapng", Some("127.0.0.1")),
    );
    std::thread::scope(|s| {
        let server = s.spawn(|| softroce::pingpong::run(&serving).unwrap());
        // The server may not be there yet.
        let mut tries = 0;
        while let Err(error) = softroce::pingpong::run(&asking) {
            tries += 1;
            assert!(tries < 50, "{error}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        server.join().unwrap();
    });
    for name in ["server.pcapng", "client.pcapng"] {
        let packets = tshark::check(&program, &dir.path().join(name));
        // Five operations of three packets each way, 20 pings and pongs of three, and their ACKs.
        assert!(packets >= 2 * 5 * 3 + 2 * 20 * 3, "{packets}");
        println!("{name}: {packets} packets, tshark and softroce agree");
    }
}

#[test]
fn tshark_reads_the_messages_of_the_connection_manager_as_we_do() {
    let Some(program) = peers::find("tshark") else {
        return;
    };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("captures");
    let messages = |case: &str| tshark::check_messages(&program, &folder.join(case));
    let connection = ["REQ", "REP", "RTU", "DREQ", "DREP"];
    assert_eq!(messages("cm_rping.pcap"), connection);
    assert_eq!(messages("cm_rstream.pcap"), connection);
    assert_eq!(messages("cm_reject.pcap"), ["REQ", "REJ"]);
    assert_eq!(messages("cm_udaddy.pcap"), ["SIDR_REQ", "SIDR_REP"]);
}
