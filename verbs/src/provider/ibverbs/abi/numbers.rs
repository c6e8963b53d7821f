//! Numbers and flags of libibverbs.

use std::ffi::{c_int, c_uint};

pub(in super::super) const IBV_QP_STATE: c_int = 1 << 0;
pub(in super::super) const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub(in super::super) const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub(in super::super) const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(in super::super) const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
pub(in super::super) const IBV_QP_PORT: c_int = 1 << 5;
pub(in super::super) const IBV_QP_QKEY: c_int = 1 << 6;
pub(in super::super) const IBV_QP_AV: c_int = 1 << 7;
pub(in super::super) const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub(in super::super) const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub(in super::super) const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub(in super::super) const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub(in super::super) const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub(in super::super) const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(in super::super) const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(in super::super) const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub(in super::super) const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(in super::super) const IBV_QP_DEST_QPN: c_int = 1 << 20;

pub(in super::super) const IBV_QPT_RC: c_int = 2;
pub(in super::super) const IBV_QPT_UC: c_int = 3;
pub(in super::super) const IBV_QPT_UD: c_int = 4;

pub(in super::super) const IBV_WR_RDMA_WRITE: c_int = 0;
pub(in super::super) const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(in super::super) const IBV_WR_SEND: c_int = 2;
pub(in super::super) const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub(in super::super) const IBV_WR_RDMA_READ: c_int = 4;
pub(in super::super) const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub(in super::super) const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub(in super::super) const IBV_WR_LOCAL_INV: c_int = 7;
pub(in super::super) const IBV_WR_BIND_MW: c_int = 8;
pub(in super::super) const IBV_WR_SEND_WITH_INV: c_int = 9;
pub(in super::super) const IBV_WR_ATOMIC_WRITE: c_int = 15;

pub(in super::super) const IBV_SEND_FENCE: c_uint = 1 << 0;
pub(in super::super) const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub(in super::super) const IBV_SEND_SOLICITED: c_uint = 1 << 2;
pub(in super::super) const IBV_SEND_INLINE: c_uint = 1 << 3;

pub(in super::super) const IBV_WC_GRH: c_uint = 1 << 0;
pub(in super::super) const IBV_WC_WITH_IMM: c_uint = 1 << 1;
pub(in super::super) const IBV_WC_IP_CSUM_OK: c_uint = 1 << 2;
pub(in super::super) const IBV_WC_WITH_INV: c_uint = 1 << 3;

pub(in super::super) const IBV_ACCESS_ZERO_BASED: c_uint = 1 << 5;
pub(in super::super) const IBV_SRQ_LIMIT: c_int = 1 << 1;
