//! libibverbs' structures, as far as they are needed, in the layout that its ABI has kept since version 1.1.
//! A test compiles the same sizes and offsets against the installed header.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Only passed on.
#[repr(C)]
pub(super) struct ibv_device {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct ibv_pd {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct ibv_ah {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct ibv_cq {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct ibv_srq {
    _opaque: [u8; 0],
}

/// The beginning of it.
#[repr(C)]
pub(super) struct ibv_qp {
    pub(super) context: *mut ibv_context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut ibv_pd,
    pub(super) send_cq: *mut ibv_cq,
    pub(super) recv_cq: *mut ibv_cq,
    pub(super) srq: *mut ibv_srq,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

#[repr(C)]
pub(super) struct ibv_mr {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

#[repr(C)]
pub(super) struct ibv_mw {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) rkey: u32,
    pub(super) handle: u32,
    pub(super) kind: c_int,
}

#[repr(C)]
pub(super) struct ibv_comp_channel {
    pub(super) context: *mut ibv_context,
    pub(super) fd: c_int,
    pub(super) refcnt: c_int,
}

/// A function that is not called through this table.
type Unused = *const c_void;

#[repr(C)]
pub(super) struct ibv_context_ops {
    pub(super) before_alloc_mw: [Unused; 7],
    pub(super) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    pub(super) bind_mw:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub(super) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub(super) create_cq: Unused,
    pub(super) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(super) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub(super) before_post_srq_recv: [Unused; 7],
    pub(super) post_srq_recv: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
    pub(super) before_post_send: [Unused; 4],
    pub(super) post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(super) post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(super) after_post_recv: [Unused; 5],
}

/// The part of it that comes before the mutex.
#[repr(C)]
pub(super) struct ibv_context {
    pub(super) device: *mut ibv_device,
    pub(super) ops: ibv_context_ops,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
    pub(super) num_comp_vectors: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_device_attr {
    pub(super) fw_ver: [c_char; 64],
    pub(super) node_guid: u64,
    pub(super) sys_image_guid: u64,
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    pub(super) max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    pub(super) max_ee_rd_atom: c_int,
    pub(super) max_res_rd_atom: c_int,
    pub(super) max_qp_init_rd_atom: c_int,
    pub(super) max_ee_init_rd_atom: c_int,
    pub(super) atomic_cap: c_int,
    pub(super) max_ee: c_int,
    pub(super) max_rdd: c_int,
    pub(super) max_mw: c_int,
    pub(super) max_raw_ipv6_qp: c_int,
    pub(super) max_raw_ethy_qp: c_int,
    pub(super) max_mcast_grp: c_int,
    pub(super) max_mcast_qp_attach: c_int,
    pub(super) max_total_mcast_qp_attach: c_int,
    pub(super) max_ah: c_int,
    pub(super) max_fmr: c_int,
    pub(super) max_map_per_fmr: c_int,
    pub(super) max_srq: c_int,
    pub(super) max_srq_wr: c_int,
    pub(super) max_srq_sge: c_int,
    pub(super) max_pkeys: u16,
    pub(super) local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_port_attr {
    pub(super) state: c_int,
    pub(super) max_mtu: c_int,
    pub(super) active_mtu: c_int,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) lmc: u8,
    pub(super) max_vl_num: u8,
    pub(super) sm_sl: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) port_cap_flags2: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_gid_entry {
    pub(super) gid: [u64; 2],
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    pub(super) gid_type: u32,
    pub(super) ndev_ifindex: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_ah_attr {
    /// 16 bytes in network order; `ibv_gid` is aligned as a u64.
    pub(super) dgid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_srq_attr {
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srq_limit: u32,
}

#[repr(C)]
pub(super) struct ibv_srq_init_attr {
    pub(super) srq_context: *mut c_void,
    pub(super) attr: ibv_srq_attr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_qp_cap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

#[repr(C)]
pub(super) struct ibv_qp_init_attr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut ibv_cq,
    pub(super) recv_cq: *mut ibv_cq,
    pub(super) srq: *mut ibv_srq,
    pub(super) cap: ibv_qp_cap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_qp_attr {
    pub(super) qp_state: c_int,
    pub(super) cur_qp_state: c_int,
    pub(super) path_mtu: c_int,
    pub(super) path_mig_state: c_int,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: ibv_qp_cap,
    pub(super) ah_attr: ibv_ah_attr,
    pub(super) alt_ah_attr: ibv_ah_attr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_mw_bind_info {
    pub(super) mr: *mut ibv_mr,
    pub(super) addr: u64,
    pub(super) length: u64,
    pub(super) mw_access_flags: c_uint,
}

#[repr(C)]
pub(super) struct ibv_mw_bind {
    pub(super) wr_id: u64,
    pub(super) send_flags: c_uint,
    pub(super) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct rdma {
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct atomic {
    pub(super) remote_addr: u64,
    pub(super) compare_add: u64,
    pub(super) swap: u64,
    pub(super) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ud {
    pub(super) ah: *mut ibv_ah,
    pub(super) remote_qpn: u32,
    pub(super) remote_qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union wr {
    pub(super) rdma: rdma,
    pub(super) atomic: atomic,
    pub(super) ud: ud,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct bind_mw {
    pub(super) mw: *mut ibv_mw,
    pub(super) rkey: u32,
    pub(super) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
pub(super) struct ibv_send_wr {
    pub(super) wr_id: u64,
    pub(super) next: *mut ibv_send_wr,
    pub(super) sg_list: *mut ibv_sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: c_uint,
    /// Immediate data in network order, or the key to invalidate.
    pub(super) imm_data: u32,
    pub(super) wr: wr,
    pub(super) remote_srqn: u32,
    pub(super) bind_mw: bind_mw,
}

#[repr(C)]
pub(super) struct ibv_recv_wr {
    pub(super) wr_id: u64,
    pub(super) next: *mut ibv_recv_wr,
    pub(super) sg_list: *mut ibv_sge,
    pub(super) num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ibv_wc {
    pub(super) wr_id: u64,
    pub(super) status: c_int,
    pub(super) opcode: c_int,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    /// Immediate data in network order, or the key that was invalidated.
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

#[repr(C)]
pub(super) struct ibv_async_event {
    /// A pointer to the object, or the number of a port.
    pub(super) element: *mut c_void,
    pub(super) event_type: c_int,
}

pub(super) const IBV_QP_STATE: c_int = 1 << 0;
pub(super) const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub(super) const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub(super) const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const IBV_QP_PORT: c_int = 1 << 5;
pub(super) const IBV_QP_QKEY: c_int = 1 << 6;
pub(super) const IBV_QP_AV: c_int = 1 << 7;
pub(super) const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub(super) const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub(super) const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub(super) const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub(super) const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub(super) const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(super) const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(super) const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub(super) const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(super) const IBV_QP_DEST_QPN: c_int = 1 << 20;

pub(super) const IBV_QPT_RC: c_int = 2;
pub(super) const IBV_QPT_UC: c_int = 3;
pub(super) const IBV_QPT_UD: c_int = 4;

pub(super) const IBV_WR_RDMA_WRITE: c_int = 0;
pub(super) const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(super) const IBV_WR_SEND: c_int = 2;
pub(super) const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub(super) const IBV_WR_RDMA_READ: c_int = 4;
pub(super) const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub(super) const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub(super) const IBV_WR_LOCAL_INV: c_int = 7;
pub(super) const IBV_WR_BIND_MW: c_int = 8;
pub(super) const IBV_WR_SEND_WITH_INV: c_int = 9;
pub(super) const IBV_WR_ATOMIC_WRITE: c_int = 15;

pub(super) const IBV_SEND_FENCE: c_uint = 1 << 0;
pub(super) const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub(super) const IBV_SEND_SOLICITED: c_uint = 1 << 2;
pub(super) const IBV_SEND_INLINE: c_uint = 1 << 3;

pub(super) const IBV_WC_GRH: c_uint = 1 << 0;
pub(super) const IBV_WC_WITH_IMM: c_uint = 1 << 1;
pub(super) const IBV_WC_IP_CSUM_OK: c_uint = 1 << 2;
pub(super) const IBV_WC_WITH_INV: c_uint = 1 << 3;

pub(super) const IBV_ACCESS_ZERO_BASED: c_uint = 1 << 5;
pub(super) const IBV_SRQ_LIMIT: c_int = 1 << 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    macro_rules! layout {
        ($($kind:ident { $($field:ident $(= $theirs:literal)?),* })*) => {
            [$($((stringify!($kind), field!($field $($theirs)?), offset_of!($kind, $field)),)*)*]
        };
    }
    macro_rules! field {
        ($field:ident) => {
            stringify!($field)
        };
        ($field:ident $theirs:literal) => {
            $theirs
        };
    }

    /// Fields, by the names that the header has for them, and where they are.
    fn offsets() -> Vec<(&'static str, &'static str, usize)> {
        layout! {
            ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num }
            ibv_mr { context, pd, addr, length, handle, lkey, rkey }
            ibv_mw { context, pd, rkey, handle, kind = "type" }
            ibv_comp_channel { context, fd, refcnt }
            ibv_context { device, cmd_fd, async_fd, num_comp_vectors }
            ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv,
                post_send, post_recv }
            ibv_device_attr { fw_ver, node_guid, max_mr_size, vendor_id, vendor_part_id, max_qp,
                max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
                max_qp_init_rd_atom, max_mw, max_mcast_grp, max_ah, max_srq, max_srq_wr,
                max_srq_sge, max_pkeys, phys_port_cnt }
            ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, max_msg_sz, pkey_tbl_len,
                link_layer, flags, port_cap_flags2 }
            ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
            ibv_ah_attr { dgid = "grh.dgid", flow_label = "grh.flow_label",
                sgid_index = "grh.sgid_index", hop_limit = "grh.hop_limit",
                traffic_class = "grh.traffic_class", dlid, sl, src_path_bits, static_rate,
                is_global, port_num }
            ibv_srq_init_attr { srq_context, attr }
            ibv_srq_attr { max_wr, max_sge, srq_limit }
            ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
            ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
            ibv_qp_attr { qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn,
                dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index,
                alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
                max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
                alt_port_num, alt_timeout, rate_limit }
            ibv_sge { addr, length, lkey }
            ibv_mw_bind_info { mr, addr, length, mw_access_flags }
            ibv_mw_bind { wr_id, send_flags, bind_info }
            ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
                remote_srqn = "qp_type.xrc.remote_srqn", bind_mw }
            ibv_recv_wr { wr_id, next, sg_list, num_sge }
            ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp,
                wc_flags, pkey_index, slid, sl, dlid_path_bits }
            ibv_async_event { element, event_type }
        }
        .to_vec()
    }

    fn sizes() -> [(&'static str, usize); 17] {
        [
            ("ibv_mr", size_of::<ibv_mr>()),
            ("ibv_mw", size_of::<ibv_mw>()),
            ("ibv_comp_channel", size_of::<ibv_comp_channel>()),
            ("ibv_context_ops", size_of::<ibv_context_ops>()),
            ("ibv_device_attr", size_of::<ibv_device_attr>()),
            ("ibv_port_attr", size_of::<ibv_port_attr>()),
            ("ibv_gid_entry", size_of::<ibv_gid_entry>()),
            ("ibv_ah_attr", size_of::<ibv_ah_attr>()),
            ("ibv_srq_init_attr", size_of::<ibv_srq_init_attr>()),
            ("ibv_qp_init_attr", size_of::<ibv_qp_init_attr>()),
            ("ibv_qp_attr", size_of::<ibv_qp_attr>()),
            ("ibv_sge", size_of::<ibv_sge>()),
            ("ibv_mw_bind", size_of::<ibv_mw_bind>()),
            ("ibv_send_wr", size_of::<ibv_send_wr>()),
            ("ibv_recv_wr", size_of::<ibv_recv_wr>()),
            ("ibv_wc", size_of::<ibv_wc>()),
            ("ibv_async_event", size_of::<ibv_async_event>()),
        ]
    }

    #[test]
    fn sizes_are_those_of_rdma_core_44() {
        let size = |name| sizes().into_iter().find(|s| s.0 == name).map(|s| s.1);
        assert_eq!(size("ibv_send_wr"), Some(128));
        assert_eq!(size("ibv_wc"), Some(48));
    }

    #[test]
    fn layouts_are_those_of_the_installed_header() {
        let header = std::path::Path::new("/usr/include/infiniband/verbs.h");
        if !header.exists() || Command::new("cc").arg("--version").output().is_err() {
            let required = std::env::var_os("SOFTROCE_REQUIRE_PEERS").is_some_and(|v| v == "1");
            assert!(
                !required,
                "no C compiler, or no infiniband/verbs.h (libibverbs-dev)"
            );
            println!("skipped: no C compiler, or no infiniband/verbs.h (libibverbs-dev)");
            return;
        }
        let mut program = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
        for (kind, field, offset) in offsets() {
            program += &format!(
                "_Static_assert(offsetof(struct {kind}, {field}) == {offset}, \"{kind}.{field}\");\n"
            );
        }
        for (kind, size) in sizes() {
            program += &format!("_Static_assert(sizeof(struct {kind}) == {size}, \"{kind}\");\n");
        }
        for (name, value) in [
            ("IBV_QP_DEST_QPN", IBV_QP_DEST_QPN),
            ("IBV_QP_MAX_DEST_RD_ATOMIC", IBV_QP_MAX_DEST_RD_ATOMIC),
            ("IBV_QP_SQ_PSN", IBV_QP_SQ_PSN),
            ("IBV_QP_MIN_RNR_TIMER", IBV_QP_MIN_RNR_TIMER),
            ("IBV_QP_MAX_QP_RD_ATOMIC", IBV_QP_MAX_QP_RD_ATOMIC),
            ("IBV_QP_RQ_PSN", IBV_QP_RQ_PSN),
            ("IBV_QP_RNR_RETRY", IBV_QP_RNR_RETRY),
            ("IBV_QP_RETRY_CNT", IBV_QP_RETRY_CNT),
            ("IBV_QP_TIMEOUT", IBV_QP_TIMEOUT),
            ("IBV_QP_PATH_MTU", IBV_QP_PATH_MTU),
            ("IBV_QP_AV", IBV_QP_AV),
            ("IBV_QP_QKEY", IBV_QP_QKEY),
            ("IBV_QP_PORT", IBV_QP_PORT),
            ("IBV_QP_PKEY_INDEX", IBV_QP_PKEY_INDEX),
            ("IBV_QP_ACCESS_FLAGS", IBV_QP_ACCESS_FLAGS),
            ("IBV_QP_EN_SQD_ASYNC_NOTIFY", IBV_QP_EN_SQD_ASYNC_NOTIFY),
            ("IBV_QP_CUR_STATE", IBV_QP_CUR_STATE),
            ("IBV_QP_STATE", IBV_QP_STATE),
            ("IBV_QPT_RC", IBV_QPT_RC),
            ("IBV_QPT_UC", IBV_QPT_UC),
            ("IBV_QPT_UD", IBV_QPT_UD),
            ("IBV_WR_RDMA_WRITE", IBV_WR_RDMA_WRITE),
            ("IBV_WR_RDMA_WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM),
            ("IBV_WR_SEND", IBV_WR_SEND),
            ("IBV_WR_SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM),
            ("IBV_WR_RDMA_READ", IBV_WR_RDMA_READ),
            ("IBV_WR_ATOMIC_CMP_AND_SWP", IBV_WR_ATOMIC_CMP_AND_SWP),
            ("IBV_WR_ATOMIC_FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD),
            ("IBV_WR_LOCAL_INV", IBV_WR_LOCAL_INV),
            ("IBV_WR_BIND_MW", IBV_WR_BIND_MW),
            ("IBV_WR_SEND_WITH_INV", IBV_WR_SEND_WITH_INV),
            ("IBV_WR_ATOMIC_WRITE", IBV_WR_ATOMIC_WRITE),
            ("IBV_SEND_FENCE", IBV_SEND_FENCE as c_int),
            ("IBV_SEND_SIGNALED", IBV_SEND_SIGNALED as c_int),
            ("IBV_SEND_SOLICITED", IBV_SEND_SOLICITED as c_int),
            ("IBV_SEND_INLINE", IBV_SEND_INLINE as c_int),
            ("IBV_WC_GRH", IBV_WC_GRH as c_int),
            ("IBV_WC_WITH_IMM", IBV_WC_WITH_IMM as c_int),
            ("IBV_WC_IP_CSUM_OK", IBV_WC_IP_CSUM_OK as c_int),
            ("IBV_WC_WITH_INV", IBV_WC_WITH_INV as c_int),
            ("IBV_ACCESS_ZERO_BASED", IBV_ACCESS_ZERO_BASED as c_int),
            ("IBV_SRQ_LIMIT", IBV_SRQ_LIMIT),
        ] {
            program += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
        }
        let dir = std::env::temp_dir().join(format!("softroce-abi-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let source = dir.join("layout.c");
        std::fs::write(&source, program).unwrap();
        let output = Command::new("cc")
            .args(["-std=gnu11", "-fsyntax-only"])
            .arg(&source)
            .output()
            .unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
