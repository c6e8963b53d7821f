//! Messages of the communication manager as tshark reads them. It knows neither MRA, LAP, APR nor the SIDR messages
//! beyond their headers, and takes the flow label, the reserved bits behind it and the packet rate for 12, 14 and 6 bits
//! from the wrong places; these are not asked for.

use softroce_sim::wire::capture::Reader;
use softroce_sim::wire::cm::{IpHeader, Mad, Message};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

/// A field's name in tshark, and our value of it.
type Fields = Vec<(&'static str, u64)>;

/// All names that [`ours`] gives.
const NAMES: [&str; 48] = [
    "mad.baseversion",
    "mad.mgmtclass",
    "mad.classversion",
    "mad.method",
    "mad.status",
    "mad.transactionid",
    "mad.attributeid",
    "cm.req",
    "cm.req.serviceid",
    "cm.req.localcaguid",
    "cm.req.localqkey",
    "cm.req.localqpn",
    "cm.req.responderres",
    "cm.req.initdepth",
    "cm.req.remoteresptout",
    "cm.req.transpsvctype",
    "cm.req.e2eflowctrl",
    "cm.req.startpsn",
    "cm.req.localresptout",
    "cm.req.retrcount",
    "cm.req.pkey",
    "cm.req.pppmtu",
    "cm.req.rnrretrcount",
    "cm.req.maxcmretr",
    "cm.req.srq",
    "cm.req.prim_tfcclass",
    "cm.req.prim_hoplim",
    "cm.req.prim_sl",
    "cm.req.prim_localacktout",
    "cm.req.ip_cm.sport",
    "cm.rep",
    "cm.rep.remotecommid",
    "cm.rep.localqpn",
    "cm.rep.startpsn",
    "cm.rep.respres",
    "cm.rep.initdepth",
    "cm.rep.tgtackdelay",
    "cm.rep.rnrretrcount",
    "cm.rep.localcaguid",
    "cm.rtu.localcommid",
    "cm.rtu.remotecommid",
    "cm.rej.localcommid",
    "cm.rej.remotecommid",
    "cm.rej.msgrej",
    "cm.rej.reason",
    "cm.dreq.localcommid",
    "cm.req.remoteqpneecn",
    "cm.drsp.remotecommid",
];

fn ours(mad: &Mad) -> Fields {
    let h = &mad.header;
    let mut fields: Fields = vec![
        ("mad.baseversion", h.base_version.into()),
        ("mad.mgmtclass", h.class.into()),
        ("mad.classversion", h.class_version.into()),
        ("mad.method", h.method.into()),
        ("mad.status", h.status.into()),
        ("mad.transactionid", h.tid),
        ("mad.attributeid", h.attribute.into()),
    ];
    match &mad.message {
        Message::Req(m) => {
            fields.extend([
                ("cm.req", u64::from(m.local_id.0)),
                ("cm.req.serviceid", m.service_id.0),
                ("cm.req.localcaguid", m.ca_guid),
                ("cm.req.localqkey", m.qkey.into()),
                ("cm.req.localqpn", m.qp.get().into()),
                ("cm.req.responderres", m.responder_resources.into()),
                ("cm.req.initdepth", m.initiator_depth.into()),
                ("cm.req.remoteresptout", m.remote_response_timeout.into()),
                ("cm.req.transpsvctype", m.transport as u64),
                ("cm.req.e2eflowctrl", m.flow_control.into()),
                ("cm.req.startpsn", m.starting_psn.get().into()),
                ("cm.req.localresptout", m.local_response_timeout.into()),
                ("cm.req.retrcount", m.retry_count.into()),
                ("cm.req.pkey", m.pkey.into()),
                ("cm.req.pppmtu", m.path_mtu.into()),
                ("cm.req.rnrretrcount", m.rnr_retry_count.into()),
                ("cm.req.maxcmretr", m.max_cm_retries.into()),
                ("cm.req.srq", m.srq.into()),
                ("cm.req.prim_tfcclass", m.primary_traffic_class.into()),
                ("cm.req.prim_hoplim", m.primary_hop_limit.into()),
                ("cm.req.prim_sl", m.primary_sl.into()),
                ("cm.req.prim_localacktout", m.primary_ack_timeout.into()),
            ]);
            if let (Some(_), Some(ip)) = (m.service_id.port(), IpHeader::decode(&m.private_data.0))
            {
                fields.push(("cm.req.ip_cm.sport", ip.src_port.into()));
            }
        }
        Message::Rep(m) => fields.extend([
            ("cm.rep", u64::from(m.local_id.0)),
            ("cm.rep.remotecommid", m.remote_id.0.into()),
            ("cm.rep.localqpn", m.qp.get().into()),
            ("cm.rep.startpsn", m.starting_psn.get().into()),
            ("cm.rep.respres", m.responder_resources.into()),
            ("cm.rep.initdepth", m.initiator_depth.into()),
            ("cm.rep.tgtackdelay", m.target_ack_delay.into()),
            ("cm.rep.rnrretrcount", m.rnr_retry_count.into()),
            ("cm.rep.localcaguid", m.ca_guid),
        ]),
        Message::Rtu(m) => fields.extend([
            ("cm.rtu.localcommid", u64::from(m.local_id.0)),
            ("cm.rtu.remotecommid", m.remote_id.0.into()),
        ]),
        Message::Rej(m) => fields.extend([
            ("cm.rej.localcommid", u64::from(m.local_id.0)),
            ("cm.rej.remotecommid", m.remote_id.0.into()),
            ("cm.rej.msgrej", m.about as u64),
            ("cm.rej.reason", m.reason.0.into()),
        ]),
        Message::Dreq(m) => fields.extend([
            ("cm.dreq.localcommid", u64::from(m.local_id.0)),
            ("cm.req.remoteqpneecn", m.remote_qp.get().into()),
        ]),
        Message::Drep(m) => {
            fields.push(("cm.drsp.remotecommid", m.remote_id.0.into()));
        }
        _ => {}
    }
    fields
}

/// Compares both readings of every message in a capture and gives the names of the messages.
///
/// # Panics
///
/// If they differ.
pub fn check_messages(tshark: &Path, capture: &Path) -> Vec<&'static str> {
    let mut command = Command::new(tshark);
    command.arg("-n").arg("-r").arg(capture);
    command.args(["-Y", "infiniband.mad", "-T", "fields", "-E", "separator=|"]);
    for name in NAMES {
        command.args(["-e", &format!("infiniband.{name}")]);
    }
    let output = command.output().expect("tshark starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let text = String::from_utf8(output.stdout).expect("tshark prints UTF-8");

    let file = BufReader::new(File::open(capture).expect("the capture opens"));
    let frames = Reader::new(file).expect("the capture is one");
    let mads: Vec<Mad> = frames
        .filter_map(|record| record.expect("a whole packet").frame().ok())
        .filter_map(|frame| Mad::decode(&frame.payload).ok())
        .collect();
    assert_eq!(text.lines().count(), mads.len(), "{}", capture.display());
    for (line, mad) in text.lines().zip(&mads) {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).expect("a number"),
            None => text.parse().expect("a number"),
        };
        let theirs: BTreeMap<&str, u64> = NAMES
            .into_iter()
            .zip(line.split('|'))
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, number(value)))
            .collect();
        let ours: BTreeMap<&str, u64> = ours(mad).into_iter().collect();
        assert_eq!(ours, theirs, "{} in {}", mad.message, capture.display());
    }
    mads.iter().map(|mad| mad.message.name()).collect()
}
