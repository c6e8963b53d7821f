//! Two cards on the ends of a veth pair, in a network namespace that the test makes.

use crate::ethernet::{Kind, PLAIN, converse};
use softroce_sim::port::RawDevice;
use softroce_tests::peers;
use std::process::Command;

/// Played by [`cards_on_a_veth_pair`] inside the namespace.
#[test]
#[ignore = "needs a network namespace of its own; another test makes one and runs this"]
fn inside_the_namespace() {
    let ip = |arguments: &str| {
        let status = Command::new("ip").args(arguments.split(' ')).status();
        assert!(status.unwrap().success(), "ip {arguments}");
    };
    ip("link add left0 mtu 4500 type veth peer name right0 mtu 4500");
    let down = RawDevice::open("left0").unwrap_err().to_string();
    assert_eq!(down, "interface left0 is down");
    ip("link set left0 up");
    ip("link set right0 up");
    for ipv6 in [false, true] {
        let devices = ["left0", "right0"].map(|name| RawDevice::open(name).unwrap());
        let ends = converse(devices, Kind { ipv6, ..PLAIN });
        for end in &ends {
            let port = end.port.counters();
            // The kernel, which has an address of its own on either end, may say something too.
            assert_eq!((port.malformed, port.refused), (0, 0), "{port:?}");
            assert!(port.asked >= 1 && port.answered >= 1, "{port:?}");
        }
    }
}

#[test]
fn cards_on_a_veth_pair() {
    let (Some(unshare), Some(_)) = (peers::find("unshare"), peers::find("ip")) else {
        return;
    };
    let namespace = |program: &std::path::Path, arguments: &[&str]| {
        Command::new(&unshare)
            .args(["--net", "--map-root-user"])
            .arg(program)
            .args(arguments)
            .output()
            .unwrap()
    };
    let probe = namespace("ip".as_ref(), &["link", "add", "probe0", "type", "veth"]);
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        peers::missing(&format!(
            "a network namespace with a veth pair cannot be made ({})",
            why.trim()
        ));
        return;
    }
    let own = std::env::current_exe().unwrap();
    let output = namespace(
        &own,
        &[
            "--ignored",
            "--exact",
            "raw::inside_the_namespace",
            "--nocapture",
        ],
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{errors}"
    );
}
