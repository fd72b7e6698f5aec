// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * utofu.h: the C interface of uTofu, the user level API of the Tofu interconnect.
 * For C99 and C++. It includes standard headers only.
 *
 * Clauses in square brackets are those of the "uTofu User's Guide" (Fujitsu, J2UL-2567). Values and
 * layouts are those of the libtofucom.so of real systems: a program compiled with this header runs
 * unchanged there, and a program compiled there runs unchanged on our simulator.
 *
 * Common to all functions:
 *  - They return UTOFU_SUCCESS (0) or a negative enum utofu_return_code, unless they return void.
 *    Each function may return UTOFU_ERR_INVALID_* (a wrong argument), UTOFU_ERR_OUT_OF_* and
 *    UTOFU_ERR_FATAL. Its other errors are listed with it, without the prefix UTOFU_ERR_.
 *    Outputs are written on success only, unless stated otherwise.
 *  - Lengths, strides and sizes are in bytes.
 *  - Coordinates are uint8_t[6], in the order X, Y, Z, A, B, C; path coordinates are uint8_t[3],
 *    in the order A, B, C.
 *  - Thread safety [2.5]: any function may be called by any threads at the same time, except that
 *    STADD management [3.6] and one-sided functions [3.7] for VCQs that share a CQ need
 *    UTOFU_VCQ_FLAG_THREAD_SAFE (or, for different VCQs, UTOFU_VCQ_FLAG_EXCLUSIVE), and barrier
 *    functions [3.8] for one VBG need UTOFU_VBG_FLAG_THREAD_SAFE.
 */
#ifndef UTOFU_H_
#define UTOFU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 3.9.3 version of this header -------------------------------------------------------- */

/** Version of the API in this header. utofu_query_utofu_version() returns that of the library. */
#define UTOFU_VERSION_MAJOR 1
#define UTOFU_VERSION_MINOR 0

/* ---- 3.1.1 types ------------------------------------------------------------------------- */

typedef uint16_t utofu_tni_id_t;   /**< TNI of a node: 0 .. number of TNIs - 1 */
typedef uint16_t utofu_cq_id_t;    /**< control queue of a TNI: 0 .. number of CQs - 1 */
typedef uint16_t utofu_bg_id_t;    /**< barrier gate of a TNI: 0 .. number of BGs - 1 */
typedef uint16_t utofu_cmp_id_t;   /**< component: distinguishes the VCQs that share a CQ */
typedef uintptr_t utofu_vcq_hdl_t; /**< handle of an own VCQ; valid in the process that created it */
typedef uint64_t utofu_vcq_id_t;   /**< ID of a VCQ in the whole network, with a default path */
typedef uint64_t utofu_vbg_id_t;   /**< ID of a barrier gate in the whole network */
typedef uint8_t utofu_path_id_t;   /**< path to one remote VCQ; valid with that VCQ ID only */
typedef uint64_t utofu_stadd_t;    /**< steering address: registered memory; offsets may be added */

/* ---- 3.1.2 return values ----------------------------------------------------------------- */

/** Return values [3.1.2.1]. Some nonzero values are no failures, such as NOT_FOUND of a poll. */
enum utofu_return_code {
    UTOFU_SUCCESS = 0,

    UTOFU_ERR_NOT_FOUND = -1,     /**< no new entry in the queue */
    UTOFU_ERR_NOT_COMPLETED = -2, /**< still under way */
    UTOFU_ERR_NOT_PROCESSED = -3, /**< not executed */
    UTOFU_ERR_BUSY = -4,          /**< retry later; the call had no effect */
    UTOFU_ERR_USED = -5,          /**< in use: choose another one */
    UTOFU_ERR_FULL = -6,          /**< none left */
    UTOFU_ERR_NOT_AVAILABLE = -7, /**< none of this kind is available */
    UTOFU_ERR_NOT_SUPPORTED = -8, /**< not supported by this system */

    /* reported by utofu_poll_tcq(): the descriptor could not be sent */
    UTOFU_ERR_TCQ_OTHER = -128,
    UTOFU_ERR_TCQ_DESC = -129,   /**< malformed descriptor */
    UTOFU_ERR_TCQ_MEMORY = -130, /**< the memory behind the STADD could not be accessed */
    UTOFU_ERR_TCQ_STADD = -131,  /**< the STADD lies outside every registered region */
    UTOFU_ERR_TCQ_LENGTH = -132, /**< STADD + length lies outside the registered region */

    /* reported by utofu_poll_mrq(): the communication failed on the way or at the target */
    UTOFU_ERR_MRQ_OTHER = -192,
    UTOFU_ERR_MRQ_PEER = -193,       /**< the peer process is in error or gone */
    UTOFU_ERR_MRQ_LCL_MEMORY = -194, /**< origin's memory could not be accessed */
    UTOFU_ERR_MRQ_RMT_MEMORY = -195, /**< target's memory could not be accessed */
    UTOFU_ERR_MRQ_LCL_STADD = -196,  /**< origin's STADD lies outside every region */
    UTOFU_ERR_MRQ_RMT_STADD = -197,  /**< target's STADD lies outside every region */
    UTOFU_ERR_MRQ_LCL_LENGTH = -198, /**< origin's STADD + length leaves the region */
    UTOFU_ERR_MRQ_RMT_LENGTH = -199, /**< target's STADD + length leaves the region */

    /* reported by utofu_poll_barrier() and utofu_poll_reduce_*() */
    UTOFU_ERR_BARRIER_OTHER = -256,
    UTOFU_ERR_BARRIER_MISMATCH = -257, /**< the participants started different operations */

    /* an argument is invalid; the call had no effect */
    UTOFU_ERR_INVALID_ARG = -512,
    UTOFU_ERR_INVALID_POINTER = -513,
    UTOFU_ERR_INVALID_FLAGS = -514,
    UTOFU_ERR_INVALID_COORDS = -515,
    UTOFU_ERR_INVALID_PATH = -516,
    UTOFU_ERR_INVALID_TNI_ID = -517,
    UTOFU_ERR_INVALID_CQ_ID = -518,
    UTOFU_ERR_INVALID_BG_ID = -519,
    UTOFU_ERR_INVALID_CMP_ID = -520,
    UTOFU_ERR_INVALID_VCQ_HDL = -521,
    UTOFU_ERR_INVALID_VCQ_ID = -522,
    UTOFU_ERR_INVALID_VBG_ID = -523,
    UTOFU_ERR_INVALID_PATH_ID = -524,
    UTOFU_ERR_INVALID_STADD = -525,
    UTOFU_ERR_INVALID_ADDRESS = -526,
    UTOFU_ERR_INVALID_SIZE = -527,
    UTOFU_ERR_INVALID_STAG = -528,
    UTOFU_ERR_INVALID_EDATA = -529,
    UTOFU_ERR_INVALID_NUMBER = -530,
    UTOFU_ERR_INVALID_OP = -531,
    UTOFU_ERR_INVALID_DESC = -532,
    UTOFU_ERR_INVALID_DATA = -533,

    UTOFU_ERR_OUT_OF_RESOURCE = -640, /**< a resource other than memory is exhausted */
    UTOFU_ERR_OUT_OF_MEMORY = -641,

    UTOFU_ERR_FATAL = -768
};

/* ---- 3.2 TNI query ----------------------------------------------------------------------- */

/** utofu_onesided_caps::flags [3.2.3.1] */
#define UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE (1UL << 0) /**< VCQs of session mode can be created */
#define UTOFU_ONESIDED_CAP_FLAG_ARMW (1UL << 1)         /**< atomic read-modify-write is supported */

/* utofu_barrier_caps::flags [3.2.3.2]: none defined */

/** utofu_onesided_caps::armw_ops [3.2.3.3] */
#define UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP (1UL << 0)
#define UTOFU_ONESIDED_CAP_ARMW_OP_SWAP (1UL << 1)
#define UTOFU_ONESIDED_CAP_ARMW_OP_ADD (1UL << 2)
#define UTOFU_ONESIDED_CAP_ARMW_OP_XOR (1UL << 3)
#define UTOFU_ONESIDED_CAP_ARMW_OP_AND (1UL << 4)
#define UTOFU_ONESIDED_CAP_ARMW_OP_OR (1UL << 5)

/** utofu_barrier_caps::reduce_ops [3.2.3.4]; see enum utofu_reduce_op */
#define UTOFU_BARRIER_CAP_REDUCE_OP_BARRIER (1UL << 1)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BAND (1UL << 2)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BOR (1UL << 3)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BXOR (1UL << 4)
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAX (1UL << 5)
#define UTOFU_BARRIER_CAP_REDUCE_OP_MAXLOC (1UL << 6)
#define UTOFU_BARRIER_CAP_REDUCE_OP_SUM (1UL << 7)
#define UTOFU_BARRIER_CAP_REDUCE_OP_BFPSUM (1UL << 8)

/** Capabilities and limits of a TNI in one-sided communication [3.2.2.1]. */
struct utofu_onesided_caps {
    unsigned long int flags;         /**< UTOFU_ONESIDED_CAP_FLAG_* */
    unsigned long int armw_ops;      /**< UTOFU_ONESIDED_CAP_ARMW_OP_* */
    unsigned int num_cmp_ids;        /**< component IDs are 0 .. num_cmp_ids - 1 */
    unsigned int num_reserved_stags; /**< STags for the user, per VCQ: 0 .. this - 1 */
    size_t cache_line_size;          /**< of the last level cache, bytes */
    size_t stag_address_alignment;   /**< of address and size in utofu_reg_mem_with_stag() */
    size_t max_toq_desc_size;        /**< largest descriptor, bytes */
    size_t max_putget_size;          /**< largest put or get, bytes */
    size_t max_piggyback_size;       /**< largest put out of the descriptor, bytes */
    size_t max_edata_size;           /**< width of EDATA, bytes */
    size_t max_mtu;                  /**< largest MTU, bytes */
    size_t max_gap;                  /**< largest gap between packets; rate is 8 / (gap + 8) */
};

/** Capabilities and limits of a TNI in barrier communication [3.2.2.2]. */
struct utofu_barrier_caps {
    unsigned long int flags;      /**< none defined */
    unsigned long int reduce_ops; /**< UTOFU_BARRIER_CAP_REDUCE_OP_* */
    size_t max_uint64_reduction;  /**< uint64_t values in one reduction */
    size_t max_double_reduction;  /**< double values in one reduction */
};

/**
 * Returns the TNIs that this process may use for one-sided communication [3.2.1.1].
 * @param tni_ids   out: array made with malloc(); the caller frees it. NULL if there is none.
 * @param num_tnis  out: its length, at most the number of TNIs of the node
 */
int utofu_get_onesided_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis);

/** The same for barrier communication [3.2.1.2]. */
int utofu_get_barrier_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis);

/**
 * Returns the capabilities of a TNI of utofu_get_onesided_tnis() [3.2.1.3].
 * @param tni_caps  out: owned by the library and always valid; the caller neither writes nor frees it
 */
int utofu_query_onesided_caps(utofu_tni_id_t tni_id, struct utofu_onesided_caps** tni_caps);

/** The same for a TNI of utofu_get_barrier_tnis() [3.2.1.4]. */
int utofu_query_barrier_caps(utofu_tni_id_t tni_id, struct utofu_barrier_caps** tni_caps);

/* ---- 3.3 VCQs ---------------------------------------------------------------------------- */

/** Flags of utofu_create_vcq() [3.3.4.1] */
#define UTOFU_VCQ_FLAG_THREAD_SAFE (1UL << 0)  /**< several threads may use the VCQ at a time */
#define UTOFU_VCQ_FLAG_EXCLUSIVE (1UL << 1)    /**< the VCQ has a CQ of its own; not with SESSION_MODE */
#define UTOFU_VCQ_FLAG_SESSION_MODE (1UL << 2) /**< descriptors wait for incoming puts [2.2.8] */

/**
 * Creates a VCQ on a TNI [3.3.1.1]. May make a system call.
 * @param flags    UTOFU_VCQ_FLAG_*
 * @param vcq_hdl  out: owned by the caller, released by utofu_free_vcq()
 * @return FULL: the TNI has none left; NOT_AVAILABLE, NOT_SUPPORTED: none with these flags.
 */
int utofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t* vcq_hdl);

/**
 * Creates a VCQ with a component ID of the caller's choice, so that peers can compute its ID by
 * utofu_construct_vcq_id() [3.3.1.2]. The flags EXCLUSIVE and SESSION_MODE are not permitted.
 * @param cmp_id  below utofu_onesided_caps::num_cmp_ids
 * @return as utofu_create_vcq(), or USED: another component has this ID.
 */
int utofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                 utofu_vcq_hdl_t* vcq_hdl);

/** Frees a VCQ [3.3.1.3]. The handle is invalid afterwards. May make a system call. */
int utofu_free_vcq(utofu_vcq_hdl_t vcq_hdl);

/** Returns the ID of an own VCQ. Its default path is A, B, C of its node [3.3.2.1]. */
int utofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t* vcq_id);

/**
 * Computes the ID of a VCQ of utofu_create_vcq_with_cmp_id(), an own or a remote one [3.3.2.2].
 * Does not check whether the VCQ exists.
 * @param coords  6 elements
 */
int utofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                           utofu_vcq_id_t* vcq_id);

/**
 * Replaces the default path in the caller's copy of a VCQ ID [3.3.2.3].
 * @param vcq_id       in, out
 * @param path_coords  A, B, C; NULL: the library chooses a path from this node to that VCQ
 */
int utofu_set_vcq_id_path(utofu_vcq_id_t* vcq_id, uint8_t path_coords[]);

/**
 * Returns the parts of a VCQ ID, of an own or of a remote VCQ [3.3.3.1].
 * @param coords     out: 6 elements
 * @param extra_val  out: internal to the library
 */
int utofu_query_vcq_info(utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_cq_id_t* cq_id,
                         uint16_t* extra_val);

/* ---- 3.4 VBGs ---------------------------------------------------------------------------- */

/** Flag of utofu_alloc_vbg() [3.4.5.1] */
#define UTOFU_VBG_FLAG_THREAD_SAFE (1UL << 0)

/** In a setting: no such source or destination [3.4.6.1]. */
#define UTOFU_VBG_ID_NULL ((utofu_vbg_id_t)-1)

/** The connections of one gate [3.4.4.1]. Signals stay on the TNI, packets may go to any node. */
struct utofu_vbg_setting {
    utofu_vbg_id_t vbg_id;         /**< the gate, an own one */
    utofu_vbg_id_t src_lcl_vbg_id; /**< source of its input signal, or UTOFU_VBG_ID_NULL */
    utofu_vbg_id_t src_rmt_vbg_id; /**< source of its input packet, or UTOFU_VBG_ID_NULL */
    utofu_vbg_id_t dst_lcl_vbg_id; /**< target of its output signal, or UTOFU_VBG_ID_NULL */
    utofu_vbg_id_t dst_rmt_vbg_id; /**< target of its output packet, or UTOFU_VBG_ID_NULL */
    uint8_t dst_path_coords[3];    /**< path of the output packet; UTOFU_PATH_COORD_NULL in A: any */
};

/**
 * Allocates gates on a TNI. The first one is a start/end gate, the others are relay gates [3.4.1.1].
 * May make a system call.
 * @param num_vbgs  above 0
 * @param flags     UTOFU_VBG_FLAG_*
 * @param vbg_ids   out: num_vbgs elements, the caller's array. (The guide prints another level of
 *                  indirection, which its own sample and the text contradict.)
 * @return FULL: fewer are left; NOT_AVAILABLE, NOT_SUPPORTED: none with these flags.
 */
int utofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t vbg_ids[]);

/** Frees all gates of one utofu_alloc_vbg() together [3.4.1.2]. May make a system call. */
int utofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs);

/**
 * Connects gates of one utofu_alloc_vbg() to a barrier circuit [3.4.2.1]. All participants call it
 * before the first barrier. The first setting is that of the start/end gate. A later call for the
 * same gates replaces the settings. May make a system call.
 */
int utofu_set_vbg(struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings);

/** Returns the parts of a VBG ID [3.4.3.1]. coords has 6 elements; extra_val is internal. */
int utofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_bg_id_t* bg_id,
                         uint16_t* extra_val);

/* ---- 3.5 paths --------------------------------------------------------------------------- */

/** In utofu_vbg_setting::dst_path_coords[0]: the library chooses the path [3.5.2.1]. */
#define UTOFU_PATH_COORD_NULL ((uint8_t)-1)

/**
 * Returns the path ID of path coordinates to one remote VCQ, for UTOFU_ONESIDED_FLAG_PATH()
 * [3.5.1.1].
 * @param path_coords  A, B, C; NULL: the library chooses
 */
int utofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t* path_id);

/** Returns the path coordinates of a path ID with its VCQ ID [3.5.1.2]; path_coords: 3 elements. */
int utofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[]);

/* ---- 3.6 STADDs -------------------------------------------------------------------------- */

/** Flag of utofu_reg_mem*() [3.6.2.1]: no communication writes this memory. */
#define UTOFU_REG_MEM_FLAG_READ_ONLY (1UL << 0)

/* flags of utofu_dereg_mem() [3.6.2.2]: none defined */

/**
 * Registers memory with a VCQ [3.6.1.1]. Regions may overlap, and the same region may be registered
 * again; each registration is ended by a call of utofu_dereg_mem(). The memory must be accessible,
 * and writable without READ_ONLY. It must exist until then. May make a system call.
 * @param size   above 0
 * @param flags  UTOFU_REG_MEM_FLAG_*
 * @param stadd  out: of the first byte; add an offset for other bytes of the region
 * @return FULL: this VCQ has no STADD left; NOT_AVAILABLE, NOT_SUPPORTED: none of this kind.
 */
int utofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned long int flags, utofu_stadd_t* stadd);

/**
 * The same with an STag of the caller's choice. Peers compute the STADD by utofu_query_stadd()
 * [3.6.1.2].
 * @param addr, size  multiples of utofu_onesided_caps::stag_address_alignment
 * @param stag        below utofu_onesided_caps::num_reserved_stags
 * @return USED: this STag of the VCQ is in use; NOT_AVAILABLE, NOT_SUPPORTED: none of this kind.
 */
int utofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned int stag,
                            unsigned long int flags, utofu_stadd_t* stadd);

/**
 * Computes the STADD of utofu_reg_mem_with_stag() for this STag and VCQ, an own or a remote one
 * [3.6.1.3]. Does not check whether it is registered.
 */
int utofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t* stadd);

/**
 * Ends one registration [3.6.1.4]. All communication that uses it must have completed. May make a
 * system call.
 * @param stadd  the result of utofu_reg_mem() or utofu_reg_mem_with_stag()
 * @param flags  none defined: 0
 */
int utofu_dereg_mem(utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long int flags);

/* ---- 3.7 one-sided communication --------------------------------------------------------- */

/** Operation of utofu_armw4() and utofu_armw8() [3.7.7.1]; ADD wraps, values are unsigned. */
enum utofu_armw_op {
    UTOFU_ARMW_OP_SWAP = 1,
    UTOFU_ARMW_OP_ADD = 2,
    UTOFU_ARMW_OP_XOR = 3,
    UTOFU_ARMW_OP_AND = 4,
    UTOFU_ARMW_OP_OR = 5
};

/** utofu_mrq_notice::notice_type [3.7.8.1]. LCL: for the origin; RMT: for the target. */
enum utofu_mrq_notice_type {
    UTOFU_MRQ_TYPE_LCL_PUT = 0,
    UTOFU_MRQ_TYPE_RMT_PUT = 1,
    UTOFU_MRQ_TYPE_LCL_GET = 2,
    UTOFU_MRQ_TYPE_RMT_GET = 3,
    UTOFU_MRQ_TYPE_LCL_ARMW = 4,
    UTOFU_MRQ_TYPE_RMT_ARMW = 5
};

/** Flags of all start and prepare functions [3.7.9.1]. */
/** Memory is accessed after earlier posts of this VCQ to that VCQ on that path. */
#define UTOFU_ONESIDED_FLAG_STRONG_ORDER (1UL << 0)
/* bit 1 is used inside real implementations */
/** utofu_poll_mrq() of the target reports the completion. */
#define UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE (1UL << 2)
/** Piggyback only: the rest of the target's cache line may be overwritten by any values. */
#define UTOFU_ONESIDED_FLAG_PADDING (1UL << 3)
/** Data are also written into the last level cache of the target. */
#define UTOFU_ONESIDED_FLAG_CACHE_INJECTION (1UL << 5)
/** May wait for the next post without this flag, or utofu_post_toq(). */
#define UTOFU_ONESIDED_FLAG_DELAY_START (1UL << 8)
/** utofu_poll_tcq() reports that all data were sent (the source of a put can be reused). */
#define UTOFU_ONESIDED_FLAG_TCQ_NOTICE (1UL << 14)
/** utofu_poll_mrq() of the origin reports the completion at both sides. */
#define UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE (1UL << 15)

/** Session progress step, for a remote VCQ of session mode [3.7.9.3]. */
#define UTOFU_ONESIDED_FLAG_SPS(sps) ((unsigned long int)(sps) << 24)
/** Path by its ID; replaces the path in the VCQ ID [3.7.9.2]. */
#define UTOFU_ONESIDED_FLAG_PATH(path_id) ((unsigned long int)(path_id) << 28)

/* flags of the poll functions [3.7.10.1]: none defined */

/** A notice of utofu_poll_mrq() [3.7.6.1]. */
struct utofu_mrq_notice {
    uint8_t notice_type;     /**< enum utofu_mrq_notice_type */
    uint8_t padding1[7];     /**< not to be used */
    utofu_vcq_id_t vcq_id;   /**< the peer, with its node's own A, B, C as path */
    uint64_t edata;          /**< edata of the start function */
    uint64_t rmt_value;      /**< LCL_ARMW: the old value; 4 bytes are zero extended */
    utofu_stadd_t lcl_stadd; /**< LCL_GET, RMT_GET: end of the data at the origin */
    utofu_stadd_t rmt_stadd; /**< PUT, RMT_GET: end of the data at the target; ARMW: its start */
    uint64_t reserved[2];    /**< not to be used */
};

/*
 * 3.7.1 Start functions. Each posts one descriptor (those with "stride": num_blocks) to the TOQ of
 * the VCQ and returns. The TNI then executes the transfer.
 *   vcq_hdl     own VCQ
 *   rmt_vcq_id  the peer's VCQ, with the path to take
 *   lcl_stadd   own memory, registered with vcq_hdl
 *   rmt_stadd   the peer's memory, registered with its VCQ
 *   length      up to utofu_onesided_caps::max_putget_size
 *   edata       up to utofu_onesided_caps::max_edata_size bytes, returned by utofu_poll_mrq()
 *   flags       UTOFU_ONESIDED_FLAG_*
 *   cbdata      returned by utofu_poll_tcq()
 * The program must not change or free the memory of a transfer before its notice. The functions
 * return BUSY without an effect while the TOQ (or its TCQ) is full: call utofu_poll_tcq() and retry.
 * utofu_poll_tcq() and utofu_poll_mrq() report later errors, also without a notice flag.
 */

/** Writes length bytes from own memory into the peer's [3.7.1.1]. */
int utofu_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
              size_t length, uint64_t edata, unsigned long int flags, void* cbdata);

/** utofu_put() with the packets' MTU and the gap between them given [3.7.1.2]. */
int utofu_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                  size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata);

/**
 * num_blocks puts of length bytes, each stride bytes further on both sides [3.7.1.3]. Notices come
 * once per block.
 */
int utofu_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                     utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                     unsigned long int flags, void* cbdata);

/** utofu_put_stride() with MTU and gap [3.7.1.4]. */
int utofu_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                         utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                         unsigned long int flags, size_t mtu, size_t gap, void* cbdata);

/**
 * A put whose data travel in the descriptor [3.7.1.5]: lcl_data needs no registration and can be
 * reused at once; length up to utofu_onesided_caps::max_piggyback_size.
 */
int utofu_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data, utofu_stadd_t rmt_stadd,
                        size_t length, uint64_t edata, unsigned long int flags, void* cbdata);

/** The same with up to 8 bytes by value, the least significant ones first [3.7.1.6]. */
int utofu_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data, utofu_stadd_t rmt_stadd,
                         size_t length, uint64_t edata, unsigned long int flags, void* cbdata);

/** Reads length bytes of the peer's memory into own memory [3.7.1.7]. */
int utofu_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
              size_t length, uint64_t edata, unsigned long int flags, void* cbdata);

/** utofu_get() with MTU and gap [3.7.1.8]. */
int utofu_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                  size_t length, uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* cbdata);

/** num_blocks gets, each stride bytes further on both sides [3.7.1.9]. */
int utofu_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                     utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                     unsigned long int flags, void* cbdata);

/** utofu_get_stride() with MTU and gap [3.7.1.10]. */
int utofu_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                         utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                         unsigned long int flags, size_t mtu, size_t gap, void* cbdata);

/** Atomic operation on 4 bytes of the peer's memory, aligned to 4 [3.7.1.11]. */
int utofu_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint32_t op_value,
                utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);

/** Atomic operation on 8 bytes of the peer's memory, aligned to 8 [3.7.1.12]. */
int utofu_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op, uint64_t op_value,
                utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);

/** Compare and swap of 4 bytes: new_value is written if the value is old_value [3.7.1.13]. */
int utofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);

/** Compare and swap of 8 bytes [3.7.1.14]. */
int utofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);

/** A descriptor without communication; it is processed in the order of the queue [3.7.1.15]. */
int utofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* cbdata);

/*
 * 3.7.2 Prepare functions. Like the start functions, but the descriptor is written to memory of the
 * caller. utofu_post_toq() posts it, any number of times. DELAY_START has no effect.
 *   desc       out: aligned to 8; room for utofu_onesided_caps::max_toq_desc_size bytes (those with
 *              "stride": times num_blocks)
 *   desc_size  out: bytes written. Contiguous descriptors can be posted together.
 */

/** Prepares utofu_put() [3.7.2.1]. */
int utofu_prepare_put(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                      size_t* desc_size);

/** Prepares utofu_put_gap() [3.7.2.2]. */
int utofu_prepare_put_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                          size_t gap, void* desc, size_t* desc_size);

/** Prepares utofu_put_stride() [3.7.2.3]. */
int utofu_prepare_put_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                             utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                             unsigned long int flags, void* desc, size_t* desc_size);

/** Prepares utofu_put_stride_gap() [3.7.2.4]. */
int utofu_prepare_put_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                 utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                 uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                 size_t* desc_size);

/** Prepares utofu_put_piggyback(); the data are copied into the descriptor now [3.7.2.5]. */
int utofu_prepare_put_piggyback(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void* lcl_data,
                                utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                void* desc, size_t* desc_size);

/** Prepares utofu_put_piggyback8() [3.7.2.6]. */
int utofu_prepare_put_piggyback8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t lcl_data,
                                 utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags,
                                 void* desc, size_t* desc_size);

/** Prepares utofu_get() [3.7.2.7]. */
int utofu_prepare_get(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                      utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, void* desc,
                      size_t* desc_size);

/** Prepares utofu_get_gap() [3.7.2.8]. */
int utofu_prepare_get_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                          utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned long int flags, size_t mtu,
                          size_t gap, void* desc, size_t* desc_size);

/** Prepares utofu_get_stride() [3.7.2.9]. */
int utofu_prepare_get_stride(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                             utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks, uint64_t edata,
                             unsigned long int flags, void* desc, size_t* desc_size);

/** Prepares utofu_get_stride_gap() [3.7.2.10]. */
int utofu_prepare_get_stride_gap(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t lcl_stadd,
                                 utofu_stadd_t rmt_stadd, size_t length, size_t stride, size_t num_blocks,
                                 uint64_t edata, unsigned long int flags, size_t mtu, size_t gap, void* desc,
                                 size_t* desc_size);

/** Prepares utofu_armw4() [3.7.2.11]. */
int utofu_prepare_armw4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                        uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                        size_t* desc_size);

/** Prepares utofu_armw8() [3.7.2.12]. */
int utofu_prepare_armw8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum utofu_armw_op armw_op,
                        uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                        size_t* desc_size);

/** Prepares utofu_cswap4() [3.7.2.13]. */
int utofu_prepare_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                         utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                         size_t* desc_size);

/** Prepares utofu_cswap8() [3.7.2.14]. */
int utofu_prepare_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                         utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* desc,
                         size_t* desc_size);

/** Prepares utofu_nop() [3.7.2.15]. */
int utofu_prepare_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* desc, size_t* desc_size);

/**
 * Posts prepared descriptors, and starts all operations that DELAY_START has delayed on this VCQ
 * [3.7.3.1].
 * @param desc       contiguous descriptors, prepared with this same vcq_hdl
 * @param desc_size  their total size; 0: only start delayed operations
 * @param cbdata     the same for all of them, returned by utofu_poll_tcq()
 * @return BUSY: no room in the TOQ for all of them; none was posted.
 */
int utofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t desc_size, void* cbdata);

/**
 * Removes and returns the next entry of the VCQ's TCQ [3.7.4.1]. Never blocks. Entries come in the
 * order of the posts. Programs without TCQ notices also have to call it, to free entries.
 * @param flags   none defined: 0
 * @param cbdata  out, unless NOT_FOUND is returned: cbdata of the start function
 * @return NOT_FOUND: no entry; TCQ_*: the communication with this cbdata has failed.
 */
int utofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void** cbdata);

/**
 * Removes and returns the next notice, local or remote, of the VCQ's MRQ [3.7.4.2]. Never blocks.
 * An MRQ that is not polled overflows, which is a fatal error.
 * @param flags   none defined: 0
 * @param notice  out, unless NOT_FOUND is returned; owned by the caller
 * @return NOT_FOUND: no notice; MRQ_*: the communication of this notice has failed.
 */
int utofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice* notice);

/**
 * Returns the number of posted descriptors whose TCQ entry has not been read yet [3.7.5.1], an
 * estimate of the remaining work of the TNI. Counted for the whole CQ, not for the VCQ.
 */
int utofu_query_num_unread_tcq(utofu_vcq_hdl_t vcq_hdl, size_t* count);

/** The same for notices in the MRQ. Not in the guide; libraries of real systems have it. */
int utofu_query_num_unread_mrq(utofu_vcq_hdl_t vcq_hdl, size_t* count);

/* ---- 3.8 barrier communication ----------------------------------------------------------- */

/** Reduction operations [3.8.3.1]; BFPSUM is for double, the others for uint64_t. */
enum utofu_reduce_op {
    UTOFU_REDUCE_OP_BARRIER = 1, /**< no reduction */
    UTOFU_REDUCE_OP_BAND = 2,
    UTOFU_REDUCE_OP_BOR = 3,
    UTOFU_REDUCE_OP_BXOR = 4,
    UTOFU_REDUCE_OP_MAX = 5,
    UTOFU_REDUCE_OP_MAXLOC = 6, /**< value and location pairs */
    UTOFU_REDUCE_OP_SUM = 7,
    UTOFU_REDUCE_OP_BFPSUM = 8 /**< sum that is independent of the order */
};

/* flags of the barrier functions [3.8.4.1]: none defined */

/*
 * All participants of a circuit start the same operation with the same flags and number of data.
 * vbg_id is the start/end gate of the caller. A circuit has one operation at a time: BUSY is
 * returned until a poll has reported the end of the one before.
 */

/** Starts a barrier [3.8.1.1]. Never blocks. */
int utofu_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);

/**
 * Starts a reduction of uint64_t values [3.8.1.2]. Never blocks.
 * @param data      num_data values, read before the function returns
 * @param num_data  1 .. utofu_barrier_caps::max_uint64_reduction
 */
int utofu_reduce_uint64(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
                        unsigned long int flags);

/** The same for double values, up to utofu_barrier_caps::max_double_reduction [3.8.1.3]. */
int utofu_reduce_double(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
                        unsigned long int flags);

/**
 * Polls a barrier [3.8.2.1]. Never blocks.
 * @return SUCCESS: completed; NOT_COMPLETED: not yet; BUSY: none was started; BARRIER_*: failed.
 */
int utofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);

/**
 * The same for utofu_reduce_uint64() [3.8.2.2].
 * @param data  out, on success: as many values as the reduction has; the caller's array
 */
int utofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[]);

/** The same for utofu_reduce_double() [3.8.2.3]. */
int utofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags, double data[]);

/* ---- 3.9 supplemental -------------------------------------------------------------------- */

/** Returns the version of the interconnect; Tofu-D is 3.0 [3.9.1.1]. */
void utofu_query_tofu_version(int* major_ver, int* minor_ver);

/** Returns the version of the API that the library implements [3.9.1.2]. */
void utofu_query_utofu_version(int* major_ver, int* minor_ver);

/** Returns the coordinates of this node: 6 elements [3.9.2.1]. */
int utofu_query_my_coords(uint8_t coords[]);

/**
 * Writes the text of the calling thread's last error, with a NUL. Not in the guide. The buffer of
 * the caller has 1024 bytes. It is written although the type is const: existing programs declare the
 * function with this type.
 */
void utofu_get_last_error(const char* text);

/* ---- layout ------------------------------------------------------------------------------ */

#if defined(__cplusplus) && __cplusplus >= 201103L
#define UTOFU_STATIC_ASSERT_(what) static_assert(what, #what)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define UTOFU_STATIC_ASSERT_(what) _Static_assert(what, #what)
#else
#define UTOFU_STATIC_ASSERT_(what) extern char utofu_c99_has_no_static_assert_[1]
#endif

UTOFU_STATIC_ASSERT_(sizeof(unsigned long int) == 8);
UTOFU_STATIC_ASSERT_(sizeof(struct utofu_onesided_caps) == 88);
UTOFU_STATIC_ASSERT_(sizeof(struct utofu_barrier_caps) == 32);
UTOFU_STATIC_ASSERT_(sizeof(struct utofu_vbg_setting) == 48);
UTOFU_STATIC_ASSERT_(sizeof(struct utofu_mrq_notice) == 64);

#undef UTOFU_STATIC_ASSERT_

#ifdef __cplusplus
}
#endif

#endif
