//! Requests that are given up or refused, and responders that go back to the beginning of a message.

use crate::forge::{Forge, bytes_of, look, violations};
use crate::virtual_link::inspect_scenario;
use softroce::inspect::{GivenUp, Inspection, Options, Rule, write_json};

/// What is said of the one request that was given up, and the same as data.
fn told(inspection: &Inspection) -> (String, GivenUp) {
    let all: Vec<_> = inspection.of(Rule::GivenUp).collect();
    let [one] = all[..] else { panic!("{all:?}") };
    let mut flows = inspection.connections.iter().flat_map(|c| &c.flows);
    let data = flows.find_map(|f| f.given_up.clone());
    let data = data.expect("data");
    assert_eq!(data.to_string(), one.text);
    (one.text.clone(), data)
}

#[test]
fn tries_that_get_no_answer() {
    // Times and PSN are those of loss_all.txt.
    let (text, data) = told(&look(&bytes_of("loss_all")));
    assert_eq!(
        text,
        "RC Send Only with PSN 6144, seen 3 times (packets 1, 2, 3; 67.638 ms, 67.146 ms apart): no answer in \
         this capture; with it the capture ends"
    );
    assert_eq!(data.psn, 6144);
    let tries: Vec<_> = data
        .tries
        .iter()
        .map(|t| (t.packet, t.why, t.after))
        .collect();
    assert_eq!(
        tries,
        [
            (1, "first", None),
            (2, "timeout", Some(0.067_638)),
            (3, "timeout", Some(0.067_146))
        ]
    );
    assert_eq!((data.answered_by, data.fatal), (None, None));
    // A capture that goes on for a second.
    let mut longer = Forge::of("loss_all");
    let (time, mut other) = longer.packets[2].clone();
    other.bth = softroce_sim::wire::Bth::new(
        softroce_sim::wire::Opcode(0x24),
        softroce_sim::wire::QpNumber::new(99),
        other.bth.psn(),
    );
    other.seal();
    longer.packets.push((time + 1_000_000, other));
    let (text, data) = told(&longer.inspect());
    assert!(
        text.ends_with(": no answer in this capture; the capture ends 1 s later"),
        "{text}"
    );
    assert_eq!(data.silence, Some(1.0));
    // One that begins behind the first try.
    let (text, data) = told(&Forge::of("loss_all").without(1).inspect());
    assert!(
        text.starts_with(
            "RC Send Only with PSN 6144, seen 2 times (packets 1, 2; 67.146 ms apart)"
        ),
        "{text}"
    );
    assert_eq!(data.tries.len(), 2);
    // Once is no try again: nothing tells a loss from the end of the capture.
    let once = Forge::of("loss_all").without(3).without(2).inspect();
    assert_eq!(once.of(Rule::GivenUp).count(), 0);
}

#[test]
fn what_was_answered_is_not_given_up() {
    for case in [
        "loss_ack",
        "loss_send_last",
        "loss_send_middle",
        "loss_read_resp_last",
        "rc_rnr_late",
        "corrupt_icrc",
    ] {
        let inspection = look(&bytes_of(case));
        assert_eq!(inspection.of(Rule::GivenUp).count(), 0, "{case}");
    }
    // The ACK behind the last RNR NAK is not in the capture.
    let mut cut = Forge::of("rc_rnr_late");
    cut.packets.truncate(13);
    let (text, data) = told(&cut.inspect());
    assert!(
        text.starts_with("RC Send Only with PSN 256, seen 7 times (packets 1, 3, 5, 7, 9, 11, 13;"),
        "{text}"
    );
    assert!(
        text.contains(
            "): 6 RNR NAKs, the last (packet 12) asks for 20.48 ms; no answer to the last try"
        ),
        "{text}"
    );
    assert_eq!(data.rnr_naks, 6);
    assert!(data.tries[1..].iter().all(|t| t.why == "rnr-nak"));
}

#[test]
fn an_rnr_nak_that_is_the_last_word() {
    // rnr_retry is 0; syndrome 44 is an RNR NAK with timer code 12, 0.64 ms.
    let (text, data) = told(&look(&bytes_of("rc_rnr_exhausted")));
    assert_eq!(
        text,
        "RC Send Only with PSN 256, seen once (packet 1): 1 RNR NAK, the last (packet 2) asks for 640 us; not \
         seen again after it; with it the capture ends"
    );
    assert_eq!(data.last_nak.and_then(|n| n.wait), Some(0.000_64));
}

#[test]
fn fatal_naks_are_named() {
    for (case, nak, code, name) in [
        ("rc_nak_rkey_write", 2, 0x62, "remote access error"),
        ("rc_nak_rkey_read", 2, 0x62, "remote access error"),
        ("rc_nak_short_recv", 2, 0x63, "remote operational error"),
        (
            "rc_nak_short_recv_multi",
            4,
            0x63,
            "remote operational error",
        ),
    ] {
        let (text, data) = told(&look(&bytes_of(case)));
        let needed =
            format!(": packet {nak} refuses it for good, NAK {name} (syndrome {code:#04x})");
        assert!(text.ends_with(&needed), "{case}: {text}");
        let fatal = data.fatal.expect("a NAK");
        assert_eq!((fatal.packet, fatal.syndrome), (nak, code), "{case}");
    }
    let invalid = Forge::of("rc_nak_rkey_write").syndrome(2, 0x61).inspect();
    assert_eq!(
        told(&invalid).0,
        "RC RDMA Write Only with PSN 256, seen once (packet 1): packet 2 refuses it for good, NAK invalid \
         request (syndrome 0x61)"
    );
    let mut json = Vec::new();
    let bytes = bytes_of("rc_nak_rkey_write");
    write_json(&bytes[..], "nak", &Options::default(), &mut json).expect("a capture");
    let json = String::from_utf8(json).expect("text");
    let parts = [
        r#""rule":"given-up""#,
        r#""given_up":{"opcode":"RC RDMA Write Only","psn":256"#,
        r#""fatal":{"packet":2,"syndrome":98,"meaning":"remote access error"}"#,
    ];
    for part in parts {
        assert!(json.contains(part), "{part} in {json}");
    }
}

/// Our own cards: the timer is 4.096 us x 2^4 = 65.536 us, and there are two retries.
#[test]
fn the_timer_is_what_the_tries_are_apart() {
    let inspection = inspect_scenario(
        r#"
        [topology]
        kind = "star"
        hosts = 2
        [card]
        timeout = 4
        retry-count = 2
        [[traffic]]
        name = "b"
        from = "h0"
        to = "h1"
        operation = "write"
        size = "1000B"
        [[capture]]
        link = "h0-s0"
        [[fault]]
        link = "s0->h1"
        kind = "exact"
        "#,
    );
    let (text, data) = told(&inspection);
    assert!(
        text.contains(", seen 3 times (packets 1, 2, 3; 65.536 us, 65.536 us apart): no answer"),
        "{text}"
    );
    assert!(data.tries[1..].iter().all(|t| t.why == "timeout"));
}

#[test]
fn every_rnr_nak_of_a_request_is_counted() {
    let inspection = inspect_scenario(
        r#"
        [topology]
        kind = "back-to-back"
        [card]
        rnr-retry = 2
        min-rnr-timer = 1
        [[traffic]]
        name = "b"
        from = "h0"
        to = "h1"
        operation = "send"
        size = "1000B"
        recv-depth = 0
        [[capture]]
        link = "h0-h1"
        "#,
    );
    let (text, data) = told(&inspection);
    assert!(
        text.contains("): 3 RNR NAKs, the last (packet 6) asks for 10 us; not seen again after it"),
        "{text}"
    );
    assert_eq!((data.rnr_naks, data.tries.len()), (3, 3));
}

/// A message of 30 packets loses its 11th: a responder of go-back-0 asks for the first.
#[test]
fn a_responder_that_goes_back_to_the_beginning_breaks_no_rule() {
    for (fault, tap) in [("s0->h1", "h0-s0"), ("h0->s0", "h1-s0")] {
        for (operation, losses) in [("write", "1"), ("send", "1"), ("write", "2")] {
            let inspection = inspect_scenario(&format!(
                r#"
                [topology]
                kind = "star"
                hosts = 2
                [card]
                recovery = "go-back-0"
                ack-every = 4
                [[traffic]]
                name = "b"
                from = "h0"
                to = "h1"
                operation = "{operation}"
                size = "30KB"
                [[capture]]
                link = "{tap}"
                [[fault]]
                link = "{fault}"
                kind = "exact"
                traffic = "b"
                psn-offset = 10
                copy = 1
                [[fault]]
                link = "{fault}"
                kind = "exact"
                traffic = "b"
                psn-offset = 5
                copy = {losses}
                "#
            ));
            let what = format!("{operation} {losses} seen at {tap}");
            let found = &inspection.findings;
            assert_eq!(violations(&inspection), [], "{what}: {found:#?}");
            assert_eq!(inspection.of(Rule::LateNak).count(), 0, "{what}");
            assert_eq!(inspection.of(Rule::GivenUp).count(), 0, "{what}");
            let naks: Vec<_> = inspection.of(Rule::SequenceNak).collect();
            assert!(!naks.is_empty(), "{what}");
            for nak in naks {
                assert!(nak.text.contains("(go-back-0)"), "{what}: {}", nak.text);
            }
        }
    }
}
