//! What makes no sense.

use super::collectives::{RING, SERVER};
use super::complaint;
use super::patterns::{AMONG, STAR};

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let star = STAR
        .replace("from = 1\n", "")
        .replace("pattern = \"incast\"\n", "");
    for (content, settings, message) in [
        (
            STAR,
            &["topology.hosts=0"][..],
            "hosts = 0 in [topology] must be 2 to 1024",
        ),
        (STAR, &["traffic.load.from=0"], "from = 0 "),
        (
            STAR,
            &["traffic.load.from=16"],
            "is more than the 15 hosts there are",
        ),
        (
            STAR,
            &["traffic.load.to=[\"h0\", \"h1\"]"],
            "must be one host",
        ),
        (
            STAR,
            &["traffic.load.from=[\"h0\", \"h1\"]"],
            "has \"h0\", which is the one of \"to\"",
        ),
        (
            STAR,
            &["traffic.load.from=[\"h3\", \"h3\"]"],
            "has \"h3\" twice",
        ),
        (
            STAR,
            &["traffic.load.from=3", "traffic.load.qps=65536"],
            "makes 196608 queue pairs",
        ),
        (
            STAR,
            &["traffic.load.hosts=3"],
            "means nothing with pattern = \"incast\"",
        ),
        (
            STAR,
            &["traffic.load.pattern=incats"],
            "did you mean \"incast\"?",
        ),
        (
            STAR,
            &["traffic.load.flows=x.csv"],
            "means nothing with pattern = \"incast\"",
        ),
        (
            star.as_str(),
            &[],
            "has no \"from\", which pattern = \"pairs\" needs",
        ),
        (
            AMONG,
            &["traffic.x.pattern=shift", "traffic.x.by=16"],
            "less than the number of hosts, 16",
        ),
        (AMONG, &["traffic.x.hosts=1"], "hosts = 1 "),
        (AMONG, &["traffic.x.hosts=99999999999999999999"], "hosts = "),
        (AMONG, &["traffic.x.pattern=poisson"], "size"),
        (AMONG, &["topology.leaves=0"], "leaves = 0 "),
        (
            AMONG,
            &["topology.hosts-per-switch=1024"],
            "makes 4096 hosts in all; the limit is 1024",
        ),
        (
            AMONG,
            &["topology.kind=ring"],
            "means nothing with kind = \"ring\"",
        ),
        (
            RING,
            &["traffic.ring.operation=write"],
            "tells the next host nothing",
        ),
        (RING, &["traffic.ring.iterations=0"], "iterations = 0 "),
        (
            RING,
            &["topology.hosts=1024", "traffic.ring.iterations=65536"],
            "the limit is 4194304 in all",
        ),
        (RING, &["traffic.ring.slow=h9"], "names no host \"h9\""),
        (
            RING,
            &["traffic.ring.slow=h7", "traffic.ring.hosts=4"],
            "which has no part in it",
        ),
        (
            RING,
            &["traffic.ring.compute=1000s", "traffic.ring.slowdown=1e300"],
            "slowdown = ",
        ),
        (
            RING,
            &["traffic.ring.depth=4"],
            "means nothing with pattern = \"all-reduce\"",
        ),
        (RING, &["traffic.ring.rings=65"], "rings = 65 "),
        (
            SERVER,
            &["traffic.ps.operation=write"],
            "tells the server nothing",
        ),
        (
            SERVER,
            &["traffic.ps.parallel=2"],
            "is for a server that pulls",
        ),
    ] {
        let told = complaint(content, settings);
        assert!(told.contains(message), "{settings:?}: {told}");
    }
    let poisson = AMONG
        .replace("permutation", "poisson")
        .replace("size = \"10KB\"\n", "");
    for (keys, message) in [
        ("sizes = [[1, 1]]\n", "has no \"count\" and no \"duration\""),
        (
            "count = 1\n",
            "has no \"sizes\", which pattern = \"poisson\" needs",
        ),
        ("count = 1\nsizes = []\n", "has no points"),
        (
            "count = 1\nsizes = [[1, 0.5]]\n",
            "does not end with the probability 1",
        ),
        ("count = 1\nsizes = [[1, 2]]\n", "the probability 2"),
        ("count = 1\nsizes = [[\"3GiB\", 1]]\n", "the size \"3GiB\""),
        ("count = 1\nsizes = [[0, 1]]\n", "the gap between two flows"),
        (
            "count = 1\nload = 0\nsizes = [[9, 1]]\n",
            "the gap between two flows",
        ),
        (
            "count = 1\nload = 1e308\nsizes = [[9, 1]]\n",
            "the gap between two flows",
        ),
        ("count = 1000000\nsizes = [[9, 1]]\n", "the limit is 131072"),
        (
            "duration = \"1000s\"\nsizes = [[9, 1]]\n",
            "the limit is 131072",
        ),
    ] {
        let told = complaint(&format!("{poisson}{keys}"), &[]);
        assert!(told.contains(message), "{keys}: {told}");
    }
}

#[test]
fn a_sweep_of_many_large_loads_is_refused() {
    let seeds: Vec<_> = (1..200).map(|n| n.to_string()).collect();
    let sweep = format!("{AMONG}[sweep]\nseed = [{}]\n", seeds.join(", "));
    let large = [
        "topology.leaves=16",
        "topology.hosts-per-switch=20",
        "traffic.x.pattern=all-to-all",
    ];
    let told = complaint(&sweep, &large);
    assert!(
        told.contains("a sweep of 199 points over loads of 102080 flows"),
        "{told}"
    );
}
