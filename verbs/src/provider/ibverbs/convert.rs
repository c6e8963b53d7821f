//! This crate's types as libibverbs', and back.

use super::super::QpSpec;
use super::abi::*;
use crate::attributes::{AtomicCap, DeviceAttributes, LinkLayer, PortAttributes, PortState};
use crate::{
    Access, AddressVector, Binding, Gid, MacAddr, Mtu, Psn, QpAttributes, QpCap, QpNumber, QpType,
    State,
};
use std::ffi::c_int;

/// What [`queried`] needs.
pub(super) const EVERYTHING: c_int = IBV_QP_STATE
    | IBV_QP_CUR_STATE
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_DEST_QPN;

const STATES: [State; 7] = [
    State::Reset,
    State::Init,
    State::Rtr,
    State::Rts,
    State::Sqd,
    State::Sqe,
    State::Error,
];

fn state_number(state: State) -> c_int {
    STATES.iter().position(|&s| s == state).unwrap_or(0) as c_int
}

pub(super) fn mtu(number: c_int) -> Mtu {
    let place = usize::try_from(number - 1).unwrap_or(0);
    Mtu::ALL.get(place).copied().unwrap_or(Mtu::M4096)
}

pub(super) fn gid(raw: [u64; 2]) -> Gid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&raw[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&raw[1].to_ne_bytes());
    Gid(bytes)
}

pub(super) fn raw_gid(gid: Gid) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = gid.0;
    [
        u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        u64::from_ne_bytes(rest),
    ]
}

pub(super) fn device(attr: &ibv_device_attr) -> DeviceAttributes {
    let text: Vec<u8> = attr
        .fw_ver
        .iter()
        .map(|&c| c as u8)
        .take_while(|&c| c != 0)
        .collect();
    let count = |n: c_int| n.max(0) as u32;
    DeviceAttributes {
        fw_ver: String::from_utf8_lossy(&text).into_owned(),
        node_guid: u64::from_be(attr.node_guid),
        vendor_id: attr.vendor_id,
        vendor_part_id: attr.vendor_part_id,
        max_mr_size: attr.max_mr_size,
        max_qp: count(attr.max_qp),
        max_qp_wr: count(attr.max_qp_wr),
        max_sge: count(attr.max_sge),
        max_cq: count(attr.max_cq),
        max_cqe: count(attr.max_cqe),
        max_mr: count(attr.max_mr),
        max_pd: count(attr.max_pd),
        max_qp_rd_atom: count(attr.max_qp_rd_atom),
        max_qp_init_rd_atom: count(attr.max_qp_init_rd_atom),
        atomic_cap: match attr.atomic_cap {
            1 => AtomicCap::Hca,
            2 => AtomicCap::Glob,
            _ => AtomicCap::None,
        },
        max_mw: count(attr.max_mw),
        max_ah: count(attr.max_ah),
        max_srq: count(attr.max_srq),
        max_srq_wr: count(attr.max_srq_wr),
        max_srq_sge: count(attr.max_srq_sge),
        max_mcast_grp: count(attr.max_mcast_grp),
        max_pkeys: attr.max_pkeys,
        phys_port_cnt: attr.phys_port_cnt,
    }
}

/// Lanes, of the bit that says how many.
fn active_width(bit: u8) -> u8 {
    match bit {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

/// Mb/s of a lane, of the bit of its generation: SDR to NDR.
fn active_speed(bit: u8) -> u32 {
    match bit {
        1 => 2_500,
        2 => 5_000,
        // FDR10 is rounded, as everywhere.
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    }
}

pub(super) fn port(attr: &ibv_port_attr) -> PortAttributes {
    PortAttributes {
        state: match attr.state {
            2 => PortState::Init,
            3 => PortState::Armed,
            4 => PortState::Active,
            _ => PortState::Down,
        },
        max_mtu: mtu(attr.max_mtu),
        active_mtu: mtu(attr.active_mtu),
        gid_tbl_len: attr.gid_tbl_len.max(0) as u32,
        pkey_tbl_len: attr.pkey_tbl_len,
        max_msg_sz: attr.max_msg_sz,
        link_layer: match attr.link_layer {
            1 => LinkLayer::InfiniBand,
            2 => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        },
        active_width: active_width(attr.active_width),
        active_speed: active_speed(attr.active_speed),
    }
}

pub(super) fn cap(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// # Errors
///
/// The field that libibverbs has no place for. The kernel derives the UDP source port from the flow label or from the
/// queue pair numbers, and takes VLAN and Ethernet address from its routes.
pub(super) fn address(address: &AddressVector, gid_index: u8) -> Result<ibv_ah_attr, &'static str> {
    let AddressVector {
        dgid,
        dmac,
        sl,
        traffic_class,
        hop_limit,
        flow_label,
        udp_src,
        vlan,
    } = *address;
    for (field, is_set) in [
        ("dmac", dmac != MacAddr::default()),
        ("udp_src", udp_src.is_some()),
        ("vlan", vlan.is_some()),
    ] {
        if is_set {
            return Err(field);
        }
    }
    Ok(ibv_ah_attr {
        dgid: raw_gid(dgid),
        flow_label,
        sgid_index: gid_index,
        hop_limit,
        traffic_class,
        dlid: 0,
        sl,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    })
}

pub(super) fn binding(binding: &Binding, mr: *mut ibv_mr) -> ibv_mw_bind_info {
    let zero_based = if binding.zero_based {
        IBV_ACCESS_ZERO_BASED
    } else {
        0
    };
    ibv_mw_bind_info {
        mr,
        addr: binding.addr,
        length: binding.len,
        mw_access_flags: u32::from(binding.access.bits()) | zero_based,
    }
}

pub(super) fn qp_init(spec: &QpSpec) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: std::ptr::null_mut(),
        send_cq: spec.send_cq as *mut ibv_cq,
        recv_cq: spec.recv_cq as *mut ibv_cq,
        srq: spec.srq.map_or(std::ptr::null_mut(), |s| s as *mut ibv_srq),
        cap: ibv_qp_cap {
            max_send_wr: spec.max_send_wr,
            max_recv_wr: spec.max_recv_wr,
            max_send_sge: spec.max_send_sge,
            max_recv_sge: spec.max_recv_sge,
            max_inline_data: spec.max_inline,
        },
        qp_type: match spec.qp_type {
            QpType::Rc => IBV_QPT_RC,
            QpType::Uc => IBV_QPT_UC,
            QpType::Ud => IBV_QPT_UD,
        },
        // Each request says for itself.
        sq_sig_all: 0,
    }
}

/// The structure and its mask.
///
/// # Errors
///
/// As [`address`].
pub(super) fn qp_attributes(
    from: &QpAttributes,
    gid_index: u8,
) -> Result<(ibv_qp_attr, c_int), &'static str> {
    let ah_attr = from.address.map(|a| address(&a, gid_index)).transpose()?;
    // SAFETY: every field is a number, and may be zero.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    let mut mask = 0;
    macro_rules! set {
        ($($from:ident => $to:ident as $bit:ident: $value:expr;)*) => {
            $(if let Some(value) = from.$from {
                attr.$to = $value(value);
                mask |= $bit;
            })*
        };
    }
    set! {
        state => qp_state as IBV_QP_STATE: state_number;
        cur_state => cur_qp_state as IBV_QP_CUR_STATE: state_number;
        pkey_index => pkey_index as IBV_QP_PKEY_INDEX: |n| n;
        port => port_num as IBV_QP_PORT: |n| n;
        access => qp_access_flags as IBV_QP_ACCESS_FLAGS: |a: Access| a.bits().into();
        path_mtu => path_mtu as IBV_QP_PATH_MTU: |m: Mtu| m as c_int + 1;
        dest_qp => dest_qp_num as IBV_QP_DEST_QPN: QpNumber::get;
        rq_psn => rq_psn as IBV_QP_RQ_PSN: Psn::get;
        sq_psn => sq_psn as IBV_QP_SQ_PSN: Psn::get;
        max_dest_rd_atomic => max_dest_rd_atomic as IBV_QP_MAX_DEST_RD_ATOMIC: |n| n;
        max_rd_atomic => max_rd_atomic as IBV_QP_MAX_QP_RD_ATOMIC: |n| n;
        min_rnr_timer => min_rnr_timer as IBV_QP_MIN_RNR_TIMER: |n| n;
        timeout => timeout as IBV_QP_TIMEOUT: |n| n;
        retry_cnt => retry_cnt as IBV_QP_RETRY_CNT: |n| n;
        rnr_retry => rnr_retry as IBV_QP_RNR_RETRY: |n| n;
        sqd_event => en_sqd_async_notify as IBV_QP_EN_SQD_ASYNC_NOTIFY: u8::from;
        qkey => qkey as IBV_QP_QKEY: |n| n;
    }
    if let Some(ah_attr) = ah_attr {
        attr.ah_attr = ah_attr;
        mask |= IBV_QP_AV;
    }
    Ok((attr, mask))
}

/// What `ibv_query_qp` gave for a queue pair of this type.
pub(super) fn queried(attr: &ibv_qp_attr, qp_type: c_int) -> QpAttributes {
    let connected = qp_type != IBV_QPT_UD;
    let reliable = qp_type == IBV_QPT_RC;
    let state = |n: c_int| {
        STATES
            .get(usize::try_from(n).unwrap_or(usize::MAX))
            .copied()
    };
    let ah = &attr.ah_attr;
    QpAttributes {
        state: state(attr.qp_state),
        cur_state: state(attr.cur_qp_state),
        pkey_index: Some(attr.pkey_index),
        port: Some(attr.port_num),
        access: connected.then(|| Access::from_bits(attr.qp_access_flags as u16)),
        address: connected.then(|| AddressVector {
            sl: ah.sl,
            traffic_class: ah.traffic_class,
            hop_limit: ah.hop_limit,
            flow_label: ah.flow_label,
            ..AddressVector::new(gid(ah.dgid))
        }),
        path_mtu: connected.then(|| mtu(attr.path_mtu)),
        dest_qp: connected.then(|| QpNumber::new(attr.dest_qp_num)),
        rq_psn: connected.then(|| Psn::new(attr.rq_psn)),
        sq_psn: Some(Psn::new(attr.sq_psn)),
        max_dest_rd_atomic: reliable.then_some(attr.max_dest_rd_atomic),
        max_rd_atomic: reliable.then_some(attr.max_rd_atomic),
        min_rnr_timer: reliable.then_some(attr.min_rnr_timer),
        timeout: reliable.then_some(attr.timeout),
        retry_cnt: reliable.then_some(attr.retry_cnt),
        rnr_retry: reliable.then_some(attr.rnr_retry),
        sqd_event: None,
        qkey: (!connected).then_some(attr.qkey),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Vlan;

    #[test]
    fn attributes_survive_the_way_there_and_back() {
        let all = QpAttributes {
            state: Some(State::Rts),
            cur_state: Some(State::Rtr),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
            address: Some(AddressVector {
                sl: 3,
                traffic_class: 26 << 2,
                flow_label: 0x12345,
                ..AddressVector::new(Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]))
            }),
            path_mtu: Some(Mtu::M2048),
            dest_qp: Some(QpNumber::new(0x1234)),
            rq_psn: Some(Psn::new(5)),
            sq_psn: Some(Psn::new(6)),
            max_dest_rd_atomic: Some(7),
            max_rd_atomic: Some(8),
            min_rnr_timer: Some(9),
            timeout: Some(10),
            retry_cnt: Some(6),
            rnr_retry: Some(5),
            sqd_event: None,
            qkey: None,
        };
        let (attr, mask) = qp_attributes(&all, 2).unwrap();
        assert_eq!(attr.ah_attr.sgid_index, 2);
        assert_eq!(mask, EVERYTHING & !IBV_QP_QKEY);
        assert_eq!(queried(&attr, IBV_QPT_RC), all);
    }

    #[test]
    fn no_field_of_an_address_is_dropped() {
        let plain = AddressVector::new(Gid([7; 16]));
        let change = |change: fn(&mut AddressVector)| {
            let mut changed = plain;
            change(&mut changed);
            changed
        };
        let refused = [
            ("dmac", change(|a| a.dmac = MacAddr([2, 0, 0, 0, 0, 1]))),
            ("udp_src", change(|a| a.udp_src = Some(0xc000))),
            ("vlan", change(|a| a.vlan = Some(Vlan { id: 7 }))),
        ];
        for (field, asked) in refused {
            assert_eq!(address(&asked, 0).err(), Some(field));
            let attributes = QpAttributes {
                address: Some(asked),
                ..QpAttributes::default()
            };
            assert_eq!(qp_attributes(&attributes, 0).err(), Some(field));
        }
        // What is taken comes back.
        let taken = [
            change(|a| a.sl = 5),
            change(|a| a.traffic_class = 0x68),
            change(|a| a.hop_limit = 3),
            change(|a| a.flow_label = 0x12345),
        ];
        for asked in taken {
            let attributes = QpAttributes {
                address: Some(asked),
                ..QpAttributes::default()
            };
            let (attr, mask) = qp_attributes(&attributes, 0).unwrap();
            assert_eq!(mask, IBV_QP_AV);
            assert_eq!(queried(&attr, IBV_QPT_RC).address, Some(asked));
        }
    }

    #[test]
    fn speeds_and_widths_are_those_that_ibv_devinfo_writes() {
        let speeds = [1, 2, 4, 8, 16, 32, 64, 128].map(active_speed);
        let gbps = [2.5, 5.0, 10.0, 10.0, 14.0, 25.0, 50.0, 100.0];
        assert_eq!(speeds, gbps.map(|g: f64| (g * 1000.0) as u32));
        assert_eq!([1, 2, 4, 8, 16].map(active_width), [1, 4, 8, 12, 2]);
        for unknown in [0, 3, 255] {
            assert_eq!((active_speed(unknown), active_width(unknown)), (0, 0));
        }
    }
}
