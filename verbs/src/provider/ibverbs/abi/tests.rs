//! The layout against the installed header.

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
