//! Congestion control of `[card]`: what it does to a run, and what is refused by name.

mod common;

use common::{run, text, with};

const TWO: &str = "payload = \"counted\"\nstop = \"20ms\"\n[topology]\nkind = \"star\"\nhosts = 3\n\
    [link]\nrate = \"10Gbps\"\n[[traffic]]\nname = \"load\"\nfrom = [\"h1\", \"h2\"]\nto = \"h0\"\n\
    pattern = \"incast\"\noperation = \"write\"\nsize = \"1MB\"\n";

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (settings, message) in [
        (
            &["card.congestion=dctcp"][..],
            "congestion = \"dctcp\" in [card] must be one of \"none\", \"fixed\", \"dcqcn\"",
        ),
        (
            &["card.congestion=fixed"],
            "needs a \"rate-limit\", a \"window\", or both",
        ),
        (
            &["card.congestion=fixed", "card.rate-limit=11Gbps"],
            "rate-limit = \"11Gbps\" in [card] is more than 10Gbps, the rate of the link of host \"h0\"",
        ),
        (
            &[
                "card.congestion=fixed",
                "card.rate-limit=1Gbps",
                "card.h2.rate-limit=12Gbps",
            ],
            "rate-limit = \"12Gbps\" in [card.h2] is more than 10Gbps, the rate of the link of host \"h2\"",
        ),
        (
            &["card.rate-limit=1Gbps"],
            "means nothing with congestion = \"none\"; it is for \"fixed\"",
        ),
        (
            &["card.congestion=fixed", "card.window=0"],
            "window = 0 in [card] must be a size from 1B",
        ),
        (
            &[
                "card.congestion=fixed",
                "card.window=1MB",
                "card.dcqcn-g=0.5",
            ],
            "means nothing with congestion = \"fixed\"; it is for \"dcqcn\"",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-ai-rate=20Gbps"],
            "dcqcn-ai-rate = \"20Gbps\" in [card] is more than 10Gbps",
        ),
        (
            &["card.congestion=dcqcn", "link.rate=100Mbps"],
            "congestion = \"dcqcn\" in [card] has a dcqcn-hai-rate of",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-g=2"],
            "must be from 0 to 1",
        ),
        (
            &["card.congestion=dcqcn", "card.dcqcn-fast-recovery=0"],
            "must be an integer from 1 to 1000",
        ),
        (
            &["card.congestion=dcqcn", "card.gid=rocev1"],
            "needs RoCEv2",
        ),
        (&["card.cnp=true", "card.gid=rocev1"], "needs RoCEv2"),
        (
            &["card.cnp-interval=4us"],
            "cnp-interval = \"4us\" in [card] means nothing without \"cnp\" = true",
        ),
        (
            &["card.cnp=true", "card.cnp-scope=host"],
            "must be one of \"qp\", \"address\", \"port\"",
        ),
        (&["card.cnp=true", "card.cnp-priority=8"], "from 0 to 7"),
    ] {
        let out = with("check", TWO, &[], settings);
        let (code, err) = (out.status.code(), text(&out.stderr));
        assert_eq!(code, Some(2), "{settings:?}");
        assert!(err.contains(message), "{settings:?}: {err}");
    }
}

/// A host may differ from the others, which its keys are then read with.
#[test]
fn a_host_may_have_its_own() {
    for settings in [
        &[
            "card.congestion=dcqcn",
            "card.dcqcn-g=0.5",
            "card.h1.congestion=none",
        ][..],
        &["card.congestion=dcqcn", "card.h1.dcqcn-g=0.5"],
        &[
            "card.congestion=dcqcn",
            "card.cnp-scope=port",
            "card.h1.cnp=false",
        ],
        &["card.h0.cnp=true", "card.h0.cnp-interval=4us"],
    ] {
        let out = with("check", TWO, &[], settings);
        let (code, err) = (out.status.code(), text(&out.stderr));
        assert_eq!(code, Some(0), "{settings:?}: {err}");
    }
}

/// 1 MB takes 8 ms of payload at 1 Gb/s; 82 bytes of headers, preamble and gap for each 1024 are paced too,
/// so two senders come to 2 * 1024 / 1106 = 1.85 Gb/s.
#[test]
fn a_fixed_rate_is_kept() {
    let run = run(TWO, &["card.congestion=fixed", "card.rate-limit=1Gbps"]);
    let goodput = run["traffic"][0]["goodput_bps"].as_u64().unwrap();
    assert!(
        (1_800_000_000..1_900_000_000).contains(&goodput),
        "{goodput}"
    );
}
