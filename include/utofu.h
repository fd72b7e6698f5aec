// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * utofu.h: the C interface of uTofu, the user level API of the Tofu interconnect.
 * Used by: uTofu programs, prov/tofu (through dlopen), tofu_sim (which implements it). C99 or C++.
 * May call: nothing; it includes standard headers only.
 *
 * Clauses in square brackets are those of the "uTofu User's Guide" (Fujitsu, J2UL-2567). Values and
 * layouts are those of the libtofucom.so of real systems: a program compiled with this header runs
 * unchanged there, and a program compiled there runs unchanged on our simulator.
 *
 * Common to all functions:
 *  - They return UTOFU_SUCCESS (0) or a negative enum utofu_return_code, unless they return void.
 *    What each may return beyond "the argument is wrong" (UTOFU_ERR_INVALID_*), UTOFU_ERR_OUT_OF_*
 *    and UTOFU_ERR_FATAL stands beside it. Outputs are written on success only, unless said
 *    otherwise.
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

/** Version of the API that the header describes; utofu_query_utofu_version() tells the library's.
 */
#define UTOFU_VERSION_MAJOR 1
#define UTOFU_VERSION_MINOR 0

/* ---- 3.1.1 types ------------------------------------------------------------------------- */

typedef uint16_t utofu_tni_id_t;   /**< TNI of a node: 0 .. number of TNIs - 1 */
typedef uint16_t utofu_cq_id_t;    /**< control queue of a TNI: 0 .. number of CQs - 1 */
typedef uint16_t utofu_bg_id_t;    /**< barrier gate of a TNI: 0 .. number of BGs - 1 */
typedef uint16_t utofu_cmp_id_t;   /**< component: tells apart the VCQs that share a CQ */
typedef uintptr_t utofu_vcq_hdl_t; /**< VCQ as its own process names it; means nothing elsewhere */
typedef uint64_t utofu_vcq_id_t;   /**< VCQ as the whole network names it, with a default path */
typedef uint64_t utofu_vbg_id_t;   /**< VBG as the whole network names it */
typedef uint8_t utofu_path_id_t;   /**< path to one remote VCQ, valid with that VCQ ID only */
typedef uint64_t utofu_stadd_t;    /**< steering address: memory as a TNI names it; can be offset */

/* ---- 3.1.2 return values ----------------------------------------------------------------- */

/** What functions return [3.1.2.1]. Not every nonzero value is a failure: NOT_FOUND of a poll is
 * not. */
enum utofu_return_code {
    UTOFU_SUCCESS = 0,

    UTOFU_ERR_NOT_FOUND = -1,     /**< no new entry in the queue */
    UTOFU_ERR_NOT_COMPLETED = -2, /**< still going on */
    UTOFU_ERR_NOT_PROCESSED = -3, /**< was not carried out */
    UTOFU_ERR_BUSY = -4,          /**< try again later, nothing was done */
    UTOFU_ERR_USED = -5,          /**< in use: try another one */
    UTOFU_ERR_FULL = -6,          /**< none left */
    UTOFU_ERR_NOT_AVAILABLE = -7, /**< none of this kind can be had */
    UTOFU_ERR_NOT_SUPPORTED = -8, /**< this system does not do that */

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
    UTOFU_ERR_BARRIER_MISMATCH = -257, /**< the participants asked for different operations */

    /* an argument was wrong; nothing was done */
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

    UTOFU_ERR_OUT_OF_RESOURCE = -640, /**< something other than memory is exhausted */
    UTOFU_ERR_OUT_OF_MEMORY = -641,

    UTOFU_ERR_FATAL = -768
};

/* ---- 3.2 TNI query ----------------------------------------------------------------------- */

/** utofu_onesided_caps::flags [3.2.3.1] */
#define UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE (1UL << 0) /**< session mode VCQs can be made */
#define UTOFU_ONESIDED_CAP_FLAG_ARMW (1UL << 1)         /**< atomic read-modify-write works */

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

/** What a TNI can do in one-sided communication, and its limits [3.2.2.1]. */
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

/** What a TNI can do in barrier communication, and its limits [3.2.2.2]. */
struct utofu_barrier_caps {
    unsigned long int flags;      /**< none defined */
    unsigned long int reduce_ops; /**< UTOFU_BARRIER_CAP_REDUCE_OP_* */
    size_t max_uint64_reduction;  /**< uint64_t values in one reduction */
    size_t max_double_reduction;  /**< double values in one reduction */
};

/**
 * The TNIs this process may use for one-sided communication [3.2.1.1].
 * @param tni_ids   out: array made with malloc(); the caller frees it. NULL if there is none.
 * @param num_tnis  out: its length. May be less than the node has.
 */
int utofu_get_onesided_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis);

/** The same for barrier communication [3.2.1.2]. */
int utofu_get_barrier_tnis(utofu_tni_id_t** tni_ids, size_t* num_tnis);

/**
 * Capabilities of a TNI that utofu_get_onesided_tnis() named [3.2.1.3].
 * @param tni_caps  out: points to the library's own data: neither write nor free it. Stays valid.
 */
int utofu_query_onesided_caps(utofu_tni_id_t tni_id, struct utofu_onesided_caps** tni_caps);

/** The same for a TNI that utofu_get_barrier_tnis() named [3.2.1.4]. */
int utofu_query_barrier_caps(utofu_tni_id_t tni_id, struct utofu_barrier_caps** tni_caps);

/* ---- 3.3 VCQs ---------------------------------------------------------------------------- */

/** Flags of utofu_create_vcq() [3.3.4.1] */
#define UTOFU_VCQ_FLAG_THREAD_SAFE (1UL << 0)  /**< one VCQ, many threads */
#define UTOFU_VCQ_FLAG_EXCLUSIVE (1UL << 1)    /**< a CQ of its own; not with SESSION_MODE */
#define UTOFU_VCQ_FLAG_SESSION_MODE (1UL << 2) /**< descriptors wait for incoming puts [2.2.8] */

/**
 * Makes a VCQ on a TNI [3.3.1.1]. May make a system call.
 * @param flags    UTOFU_VCQ_FLAG_*
 * @param vcq_hdl  out: owned by the caller, given back by utofu_free_vcq()
 * @return FULL: the TNI has none left; NOT_AVAILABLE, NOT_SUPPORTED: none of the kind asked for.
 */
int utofu_create_vcq(utofu_tni_id_t tni_id, unsigned long int flags, utofu_vcq_hdl_t* vcq_hdl);

/**
 * Makes a VCQ whose component ID the caller chooses, so that peers can compute its ID by
 * utofu_construct_vcq_id() [3.3.1.2]. Neither EXCLUSIVE nor SESSION_MODE may be asked for.
 * @param cmp_id  below utofu_onesided_caps::num_cmp_ids
 * @return as utofu_create_vcq(), or USED: another component has this ID.
 */
int utofu_create_vcq_with_cmp_id(utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id, unsigned long int flags,
                                 utofu_vcq_hdl_t* vcq_hdl);

/** Frees a VCQ, once [3.3.1.3]. May make a system call. */
int utofu_free_vcq(utofu_vcq_hdl_t vcq_hdl);

/** The network-wide ID of an own VCQ; its node's A, B, C are the default path [3.3.2.1]. */
int utofu_query_vcq_id(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t* vcq_id);

/**
 * Computes the ID of a VCQ made by utofu_create_vcq_with_cmp_id(), here or elsewhere [3.3.2.2].
 * Does not tell whether the VCQ exists.
 */
int utofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id,
                           utofu_vcq_id_t* vcq_id);

/**
 * Replaces the default path in the caller's copy of a VCQ ID [3.3.2.3].
 * @param vcq_id       in, out
 * @param path_coords  A, B, C; NULL lets the library choose for the way from here to that VCQ
 */
int utofu_set_vcq_id_path(utofu_vcq_id_t* vcq_id, uint8_t path_coords[]);

/**
 * Takes a VCQ ID apart, of an own or of a remote VCQ [3.3.3.1].
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

/** How one gate is wired [3.4.4.1]. Signals stay on the TNI, packets may go to any node. */
struct utofu_vbg_setting {
    utofu_vbg_id_t vbg_id;         /**< the gate, an own one */
    utofu_vbg_id_t src_lcl_vbg_id; /**< where its input signal comes from, or NULL */
    utofu_vbg_id_t src_rmt_vbg_id; /**< where its input packet comes from, or NULL */
    utofu_vbg_id_t dst_lcl_vbg_id; /**< where its output signal goes, or NULL */
    utofu_vbg_id_t dst_rmt_vbg_id; /**< where its output packet goes, or NULL */
    uint8_t dst_path_coords[3];    /**< A, B, C of that way; UTOFU_PATH_COORD_NULL in A: choose */
};

/**
 * Allocates gates on a TNI: the first one a start/end gate, the others relays [3.4.1.1].
 * May make a system call.
 * @param num_vbgs  above 0
 * @param flags     UTOFU_VBG_FLAG_*
 * @param vbg_ids   out: num_vbgs elements, the caller's array. (The guide prints one level of
 *                  indirection more, but its own sample and the text say what is meant.)
 * @return FULL: not that many left; NOT_AVAILABLE, NOT_SUPPORTED: none of the kind asked for.
 */
int utofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags, utofu_vbg_id_t vbg_ids[]);

/** Frees, once, exactly what one utofu_alloc_vbg() gave [3.4.1.2]. May make a system call. */
int utofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs);

/**
 * Wires gates of one utofu_alloc_vbg() into a barrier circuit [3.4.2.1]. All participants do their
 * part before the first barrier. The first setting is that of the start/end gate. The last call
 * for a set of gates wins. May make a system call.
 */
int utofu_set_vbg(struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings);

/** Takes a VBG ID apart [3.4.3.1]; coords has 6 elements, extra_val is internal. */
int utofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t* tni_id, utofu_bg_id_t* bg_id,
                         uint16_t* extra_val);

/* ---- 3.5 paths --------------------------------------------------------------------------- */

/** In utofu_vbg_setting::dst_path_coords[0]: let the library choose the path [3.5.2.1]. */
#define UTOFU_PATH_COORD_NULL ((uint8_t)-1)

/**
 * Path ID for path coordinates towards one remote VCQ, for UTOFU_ONESIDED_FLAG_PATH() [3.5.1.1].
 * @param path_coords  A, B, C; NULL lets the library choose
 */
int utofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t* path_id);

/** The reverse, with the same VCQ ID [3.5.1.2]; path_coords has 3 elements. */
int utofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[]);

/* ---- 3.6 STADDs -------------------------------------------------------------------------- */

/** Flag of utofu_reg_mem*() [3.6.2.1]: communication only reads this memory. */
#define UTOFU_REG_MEM_FLAG_READ_ONLY (1UL << 0)

/* flags of utofu_dereg_mem() [3.6.2.2]: none defined */

/**
 * Registers memory with a VCQ [3.6.1.1]. Regions may overlap, the same region may be registered
 * again; each registration wants its deregistration. The memory must be accessible, and writable
 * unless READ_ONLY is given, and must stay until it is deregistered. May make a system call.
 * @param size   above 0
 * @param flags  UTOFU_REG_MEM_FLAG_*
 * @param stadd  out: names the first byte; STADDs inside the region follow by addition
 * @return FULL: this VCQ has no STADD left; NOT_AVAILABLE, NOT_SUPPORTED: none of this kind.
 */
int utofu_reg_mem(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned long int flags, utofu_stadd_t* stadd);

/**
 * The same with an STag of the caller's choice, whose STADD peers can compute [3.6.1.2].
 * @param addr, size  multiples of utofu_onesided_caps::stag_address_alignment
 * @param stag        below utofu_onesided_caps::num_reserved_stags
 * @return USED: the VCQ has this STag registered; NOT_AVAILABLE, NOT_SUPPORTED: none of this kind.
 */
int utofu_reg_mem_with_stag(utofu_vcq_hdl_t vcq_hdl, void* addr, size_t size, unsigned int stag,
                            unsigned long int flags, utofu_stadd_t* stadd);

/**
 * The STADD that utofu_reg_mem_with_stag() gives for this STag with that VCQ, an own or a remote
 * one [3.6.1.3]. Does not tell whether it is registered.
 */
int utofu_query_stadd(utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t* stadd);

/**
 * Ends one registration [3.6.1.4]. Communication that uses it must be complete. May make a system
 * call.
 * @param stadd  as utofu_reg_mem() or utofu_reg_mem_with_stag() returned it
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
/** Memory is accessed after what was posted before by this VCQ to that VCQ on that path. */
#define UTOFU_ONESIDED_FLAG_STRONG_ORDER (1UL << 0)
/* bit 1 is used inside real implementations */
/** The target's utofu_poll_mrq() reports the end. */
#define UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE (1UL << 2)
/** Piggyback only: the rest of the target's cache line may be overwritten, with anything. */
#define UTOFU_ONESIDED_FLAG_PADDING (1UL << 3)
/** Data go into the last level cache besides memory. */
#define UTOFU_ONESIDED_FLAG_CACHE_INJECTION (1UL << 5)
/** May wait for the next post without this flag, or utofu_post_toq(). */
#define UTOFU_ONESIDED_FLAG_DELAY_START (1UL << 8)
/** utofu_poll_tcq() reports that everything was sent (a put's source can be reused). */
#define UTOFU_ONESIDED_FLAG_TCQ_NOTICE (1UL << 14)
/** The origin's utofu_poll_mrq() reports the end on both sides. */
#define UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE (1UL << 15)

/** Session progress step, for a remote VCQ of session mode [3.7.9.3]. */
#define UTOFU_ONESIDED_FLAG_SPS(sps) ((unsigned long int)(sps) << 24)
/** Path by its ID; wins over the path in the VCQ ID [3.7.9.2]. */
#define UTOFU_ONESIDED_FLAG_PATH(path_id) ((unsigned long int)(path_id) << 28)

/* flags of the poll functions [3.7.10.1]: none defined */

/** What utofu_poll_mrq() reports [3.7.6.1]. */
struct utofu_mrq_notice {
    uint8_t notice_type;     /**< enum utofu_mrq_notice_type */
    uint8_t padding1[7];     /**< not to be used */
    utofu_vcq_id_t vcq_id;   /**< the peer, with its node's own A, B, C as path */
    uint64_t edata;          /**< as given to the start function */
    uint64_t rmt_value;      /**< LCL_ARMW: the old value, zero extended if of 4 bytes */
    utofu_stadd_t lcl_stadd; /**< LCL_GET, RMT_GET: end of the data at the origin */
    utofu_stadd_t rmt_stadd; /**< PUT, RMT_GET: end of the data at the target; ARMW: its start */
    uint64_t reserved[2];    /**< not to be used */
};

/*
 * 3.7.1 Start functions. Each posts one descriptor (those with "stride": num_blocks) to the VCQ's
 * TOQ and returns; the transfer goes on by itself.
 *   vcq_hdl     own VCQ
 *   rmt_vcq_id  the peer's VCQ, with the path to take
 *   lcl_stadd   own memory, registered with vcq_hdl
 *   rmt_stadd   the peer's memory, registered with its VCQ
 *   length      up to utofu_onesided_caps::max_putget_size
 *   edata       up to utofu_onesided_caps::max_edata_size bytes, handed to utofu_poll_mrq()
 *   flags       UTOFU_ONESIDED_FLAG_*
 *   cbdata      handed to utofu_poll_tcq()
 * Memory belongs to the transfer until its notice. They return BUSY, without having posted
 * anything, while the TOQ (or the TCQ behind it) is full: call utofu_poll_tcq() and try again.
 * Errors found later are reported by utofu_poll_tcq() and utofu_poll_mrq(), even where no notice
 * was asked for.
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

/** Compare and swap of 4 bytes: new_value is written where old_value is found [3.7.1.13]. */
int utofu_cswap4(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);

/** Compare and swap of 8 bytes [3.7.1.14]. */
int utofu_cswap8(utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
                 utofu_stadd_t rmt_stadd, uint64_t edata, unsigned long int flags, void* cbdata);

/** A descriptor that does nothing; it takes its turn in the queue [3.7.1.15]. */
int utofu_nop(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void* cbdata);

/*
 * 3.7.2 Prepare functions. As the start functions, but the descriptor is written to memory of the
 * caller, to be posted by utofu_post_toq(), any number of times; DELAY_START has no effect.
 *   desc       out: aligned to 8; room for utofu_onesided_caps::max_toq_desc_size bytes (those with
 *              "stride": times num_blocks)
 *   desc_size  out: bytes written. Descriptors one behind the other can be posted together.
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
 * Posts prepared descriptors, and starts whatever DELAY_START held back on this VCQ [3.7.3.1].
 * @param desc       descriptors one behind the other, prepared with this same vcq_hdl
 * @param desc_size  their bytes together; 0: only start what was held back
 * @param cbdata     the same for all of them, handed to utofu_poll_tcq()
 * @return BUSY: no room in the TOQ for all of them; none was posted.
 */
int utofu_post_toq(utofu_vcq_hdl_t vcq_hdl, void* desc, size_t desc_size, void* cbdata);

/**
 * Takes the next entry from the VCQ's TCQ [3.7.4.1]. Never blocks. Entries come in the order of
 * posting. To be called even where no notice is wanted: it makes room in the queue.
 * @param flags   none defined: 0
 * @param cbdata  out, unless NOT_FOUND is returned: as given to the start function
 * @return NOT_FOUND: nothing new; TCQ_*: the communication that cbdata names failed.
 */
int utofu_poll_tcq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void** cbdata);

/**
 * Takes the next notice, local or remote, from the VCQ's MRQ [3.7.4.2]. Never blocks. An MRQ that
 * is not polled overflows, which is a fatal error.
 * @param flags   none defined: 0
 * @param notice  out, unless NOT_FOUND is returned; the caller's
 * @return NOT_FOUND: nothing new; MRQ_*: the communication that notice describes failed.
 */
int utofu_poll_mrq(utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct utofu_mrq_notice* notice);

/**
 * How many posted descriptors have a TCQ entry that was not read yet [3.7.5.1]: about how much the
 * TNI still has to do. Counted for the whole CQ, not for the VCQ.
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
    UTOFU_REDUCE_OP_BFPSUM = 8 /**< sum that does not depend on the order */
};

/* flags of the barrier functions [3.8.4.1]: none defined */

/*
 * All participants of a circuit start the same operation with the same flags and number of data.
 * vbg_id is the caller's first gate of the circuit, the start/end gate. One operation per circuit
 * at a time: BUSY is returned until the one before was polled to its end.
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
 * Has the barrier come to its end [3.8.2.1]? Never blocks.
 * @return SUCCESS: yes; NOT_COMPLETED: not yet; BUSY: none was started; BARRIER_*: it failed.
 */
int utofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags);

/**
 * The same for utofu_reduce_uint64() [3.8.2.2].
 * @param data  out, on success: as many values as were put in; the caller's array
 */
int utofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[]);

/** The same for utofu_reduce_double() [3.8.2.3]. */
int utofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags, double data[]);

/* ---- 3.9 supplemental -------------------------------------------------------------------- */

/** Version of the interconnect as uTofu counts it; Tofu-D is 3.0 [3.9.1.1]. */
void utofu_query_tofu_version(int* major_ver, int* minor_ver);

/** Version of the API that the library implements [3.9.1.2]. */
void utofu_query_utofu_version(int* major_ver, int* minor_ver);

/** Coordinates of this node: 6 elements [3.9.2.1]. */
int utofu_query_my_coords(uint8_t coords[]);

/**
 * Text of the calling thread's last error, with a NUL. Not in the guide. Callers pass a buffer of
 * 1024 bytes; at most so many are written. The parameter is what programs that declare it
 * themselves call it, although it is written to.
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
