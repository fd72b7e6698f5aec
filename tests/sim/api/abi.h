// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * Every number of the uTofu binary interface, spelled out as real libraries have it.
 * Included by abi_test.cc (C++) and abi_c.c (C11); nothing else.
 * May call: nothing. A wrong value in utofu.h is a compile error here.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <utofu.h>

#ifdef __cplusplus
#define TOFU_LOCK(what) static_assert(what, #what)
#else
#define TOFU_LOCK(what) _Static_assert(what, #what)
#endif

/* enum utofu_return_code */
TOFU_LOCK(UTOFU_SUCCESS == 0);
TOFU_LOCK(UTOFU_ERR_NOT_FOUND == -1);
TOFU_LOCK(UTOFU_ERR_NOT_COMPLETED == -2);
TOFU_LOCK(UTOFU_ERR_NOT_PROCESSED == -3);
TOFU_LOCK(UTOFU_ERR_BUSY == -4);
TOFU_LOCK(UTOFU_ERR_USED == -5);
TOFU_LOCK(UTOFU_ERR_FULL == -6);
TOFU_LOCK(UTOFU_ERR_NOT_AVAILABLE == -7);
TOFU_LOCK(UTOFU_ERR_NOT_SUPPORTED == -8);
TOFU_LOCK(UTOFU_ERR_TCQ_OTHER == -128);
TOFU_LOCK(UTOFU_ERR_TCQ_DESC == -129);
TOFU_LOCK(UTOFU_ERR_TCQ_MEMORY == -130);
TOFU_LOCK(UTOFU_ERR_TCQ_STADD == -131);
TOFU_LOCK(UTOFU_ERR_TCQ_LENGTH == -132);
TOFU_LOCK(UTOFU_ERR_MRQ_OTHER == -192);
TOFU_LOCK(UTOFU_ERR_MRQ_PEER == -193);
TOFU_LOCK(UTOFU_ERR_MRQ_LCL_MEMORY == -194);
TOFU_LOCK(UTOFU_ERR_MRQ_RMT_MEMORY == -195);
TOFU_LOCK(UTOFU_ERR_MRQ_LCL_STADD == -196);
TOFU_LOCK(UTOFU_ERR_MRQ_RMT_STADD == -197);
TOFU_LOCK(UTOFU_ERR_MRQ_LCL_LENGTH == -198);
TOFU_LOCK(UTOFU_ERR_MRQ_RMT_LENGTH == -199);
TOFU_LOCK(UTOFU_ERR_BARRIER_OTHER == -256);
TOFU_LOCK(UTOFU_ERR_BARRIER_MISMATCH == -257);
TOFU_LOCK(UTOFU_ERR_INVALID_ARG == -512);
TOFU_LOCK(UTOFU_ERR_INVALID_POINTER == -513);
TOFU_LOCK(UTOFU_ERR_INVALID_FLAGS == -514);
TOFU_LOCK(UTOFU_ERR_INVALID_COORDS == -515);
TOFU_LOCK(UTOFU_ERR_INVALID_PATH == -516);
TOFU_LOCK(UTOFU_ERR_INVALID_TNI_ID == -517);
TOFU_LOCK(UTOFU_ERR_INVALID_CQ_ID == -518);
TOFU_LOCK(UTOFU_ERR_INVALID_BG_ID == -519);
TOFU_LOCK(UTOFU_ERR_INVALID_CMP_ID == -520);
TOFU_LOCK(UTOFU_ERR_INVALID_VCQ_HDL == -521);
TOFU_LOCK(UTOFU_ERR_INVALID_VCQ_ID == -522);
TOFU_LOCK(UTOFU_ERR_INVALID_VBG_ID == -523);
TOFU_LOCK(UTOFU_ERR_INVALID_PATH_ID == -524);
TOFU_LOCK(UTOFU_ERR_INVALID_STADD == -525);
TOFU_LOCK(UTOFU_ERR_INVALID_ADDRESS == -526);
TOFU_LOCK(UTOFU_ERR_INVALID_SIZE == -527);
TOFU_LOCK(UTOFU_ERR_INVALID_STAG == -528);
TOFU_LOCK(UTOFU_ERR_INVALID_EDATA == -529);
TOFU_LOCK(UTOFU_ERR_INVALID_NUMBER == -530);
TOFU_LOCK(UTOFU_ERR_INVALID_OP == -531);
TOFU_LOCK(UTOFU_ERR_INVALID_DESC == -532);
TOFU_LOCK(UTOFU_ERR_INVALID_DATA == -533);
TOFU_LOCK(UTOFU_ERR_OUT_OF_RESOURCE == -640);
TOFU_LOCK(UTOFU_ERR_OUT_OF_MEMORY == -641);
TOFU_LOCK(UTOFU_ERR_FATAL == -768);

/* versions and special values */
TOFU_LOCK(UTOFU_VERSION_MAJOR == 1);
TOFU_LOCK(UTOFU_VBG_ID_NULL == 0xffffffffffffffffu);
TOFU_LOCK(sizeof(UTOFU_VBG_ID_NULL) == 8);
TOFU_LOCK(UTOFU_PATH_COORD_NULL == 0xff);
TOFU_LOCK(sizeof(UTOFU_PATH_COORD_NULL) == 1);

/* flags and masks */
TOFU_LOCK(UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE == 0x1);
TOFU_LOCK(UTOFU_ONESIDED_CAP_FLAG_ARMW == 0x2);
TOFU_LOCK(UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP == 0x1);
TOFU_LOCK(UTOFU_ONESIDED_CAP_ARMW_OP_SWAP == 0x2);
TOFU_LOCK(UTOFU_ONESIDED_CAP_ARMW_OP_ADD == 0x4);
TOFU_LOCK(UTOFU_ONESIDED_CAP_ARMW_OP_XOR == 0x8);
TOFU_LOCK(UTOFU_ONESIDED_CAP_ARMW_OP_AND == 0x10);
TOFU_LOCK(UTOFU_ONESIDED_CAP_ARMW_OP_OR == 0x20);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER == 0x2);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_BAND == 0x4);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_BOR == 0x8);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_BXOR == 0x10);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_MAX == 0x20);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC == 0x40);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_SUM == 0x80);
TOFU_LOCK(UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM == 0x100);
TOFU_LOCK(UTOFU_VCQ_FLAG_THREAD_SAFE == 0x1);
TOFU_LOCK(UTOFU_VCQ_FLAG_EXCLUSIVE == 0x2);
TOFU_LOCK(UTOFU_VCQ_FLAG_SESSION_MODE == 0x4);
TOFU_LOCK(UTOFU_VBG_FLAG_THREAD_SAFE == 0x1);
TOFU_LOCK(UTOFU_REG_MEM_FLAG_READ_ONLY == 0x1);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_STRONG_ORDER == 0x1);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE == 0x4);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_PADDING == 0x8);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_CACHE_INJECTION == 0x20);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_DELAY_START == 0x100);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_TCQ_NOTICE == 0x4000);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE == 0x8000);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_SPS(0) == 0);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_SPS(15) == 0xf000000);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_PATH(1) == 0x10000000);
TOFU_LOCK(UTOFU_ONESIDED_FLAG_PATH((uint8_t)0xff) == 0xff0000000);
TOFU_LOCK(sizeof(UTOFU_ONESIDED_FLAG_PATH(1)) == 8);
TOFU_LOCK(sizeof(UTOFU_ONESIDED_FLAG_SPS(1)) == 8);

/* enumerations */
TOFU_LOCK(UTOFU_ARMW_OP_SWAP == 1);
TOFU_LOCK(UTOFU_ARMW_OP_ADD == 2);
TOFU_LOCK(UTOFU_ARMW_OP_XOR == 3);
TOFU_LOCK(UTOFU_ARMW_OP_AND == 4);
TOFU_LOCK(UTOFU_ARMW_OP_OR == 5);
TOFU_LOCK(UTOFU_REDUCE_OP_BARRIER == 1);
TOFU_LOCK(UTOFU_REDUCE_OP_BAND == 2);
TOFU_LOCK(UTOFU_REDUCE_OP_BOR == 3);
TOFU_LOCK(UTOFU_REDUCE_OP_BXOR == 4);
TOFU_LOCK(UTOFU_REDUCE_OP_MAX == 5);
TOFU_LOCK(UTOFU_REDUCE_OP_MAXLOC == 6);
TOFU_LOCK(UTOFU_REDUCE_OP_SUM == 7);
TOFU_LOCK(UTOFU_REDUCE_OP_BFPSUM == 8);
TOFU_LOCK(UTOFU_MRQ_TYPE_LCL_PUT == 0);
TOFU_LOCK(UTOFU_MRQ_TYPE_RMT_PUT == 1);
TOFU_LOCK(UTOFU_MRQ_TYPE_LCL_GET == 2);
TOFU_LOCK(UTOFU_MRQ_TYPE_RMT_GET == 3);
TOFU_LOCK(UTOFU_MRQ_TYPE_LCL_ARMW == 4);
TOFU_LOCK(UTOFU_MRQ_TYPE_RMT_ARMW == 5);
TOFU_LOCK(sizeof(enum utofu_return_code) == 4);
TOFU_LOCK(sizeof(enum utofu_armw_op) == 4);
TOFU_LOCK(sizeof(enum utofu_mrq_notice_type) == 4);
TOFU_LOCK(sizeof(enum utofu_reduce_op) == 4);

/* types */
TOFU_LOCK(sizeof(utofu_tni_id_t) == 2);
TOFU_LOCK((utofu_tni_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_cq_id_t) == 2);
TOFU_LOCK((utofu_cq_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_bg_id_t) == 2);
TOFU_LOCK((utofu_bg_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_cmp_id_t) == 2);
TOFU_LOCK((utofu_cmp_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_vcq_hdl_t) == 8);
TOFU_LOCK((utofu_vcq_hdl_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_vcq_id_t) == 8);
TOFU_LOCK((utofu_vcq_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_vbg_id_t) == 8);
TOFU_LOCK((utofu_vbg_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_path_id_t) == 1);
TOFU_LOCK((utofu_path_id_t)-1 > 0);
TOFU_LOCK(sizeof(utofu_stadd_t) == 8);
TOFU_LOCK((utofu_stadd_t)-1 > 0);

/* struct utofu_onesided_caps */
TOFU_LOCK(sizeof(struct utofu_onesided_caps) == 88);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, flags) == 0);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, armw_ops) == 8);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, num_cmp_ids) == 16);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, num_reserved_stags) == 20);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, cache_line_size) == 24);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, stag_address_alignment) == 32);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, max_toq_desc_size) == 40);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, max_putget_size) == 48);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, max_piggyback_size) == 56);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, max_edata_size) == 64);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, max_mtu) == 72);
TOFU_LOCK(offsetof(struct utofu_onesided_caps, max_gap) == 80);

/* struct utofu_barrier_caps */
TOFU_LOCK(sizeof(struct utofu_barrier_caps) == 32);
TOFU_LOCK(offsetof(struct utofu_barrier_caps, flags) == 0);
TOFU_LOCK(offsetof(struct utofu_barrier_caps, reduce_ops) == 8);
TOFU_LOCK(offsetof(struct utofu_barrier_caps, max_uint64_reduction) == 16);
TOFU_LOCK(offsetof(struct utofu_barrier_caps, max_double_reduction) == 24);

/* struct utofu_vbg_setting */
TOFU_LOCK(sizeof(struct utofu_vbg_setting) == 48);
TOFU_LOCK(offsetof(struct utofu_vbg_setting, vbg_id) == 0);
TOFU_LOCK(offsetof(struct utofu_vbg_setting, src_lcl_vbg_id) == 8);
TOFU_LOCK(offsetof(struct utofu_vbg_setting, src_rmt_vbg_id) == 16);
TOFU_LOCK(offsetof(struct utofu_vbg_setting, dst_lcl_vbg_id) == 24);
TOFU_LOCK(offsetof(struct utofu_vbg_setting, dst_rmt_vbg_id) == 32);
TOFU_LOCK(offsetof(struct utofu_vbg_setting, dst_path_coords) == 40);

/* struct utofu_mrq_notice */
TOFU_LOCK(sizeof(struct utofu_mrq_notice) == 64);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, notice_type) == 0);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, padding1) == 1);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, vcq_id) == 8);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, edata) == 16);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, rmt_value) == 24);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, lcl_stadd) == 32);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, rmt_stadd) == 40);
TOFU_LOCK(offsetof(struct utofu_mrq_notice, reserved) == 48);
