/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tofu_sim.h: extensions of the simulated libtofucom.so to uTofu. The real library has none of them. Look the symbols
 * up with dlsym(), and do without them if they are missing.
 *
 * From version 1.0 on, and throughout version 1, each declaration keeps its name, parameters, layout and meaning, and
 * none is removed. Additions have new names, and no structure grows. So a program that was compiled with this header
 * runs with each later library of version 1, and with an earlier one as far as that has the symbols.
 */
#ifndef TOFU_SIM_H_
#define TOFU_SIM_H_

#include <utofu.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the version of the simulator, a constant string. Any thread. */
const char* tofu_sim_version(void);

/**
 * Returns the name of the job of this process (TOFU_SIM_JOB, see tofu_sim(7)). The call joins the job if the process
 * has not joined yet. NULL: that has failed, and a line on stderr says why. The simulator owns the string, which is
 * valid until the process ends.
 *
 * Any thread. Processes reach each other's memory only within one job.
 */
const char* tofu_sim_job(void);

/**
 * Sleeps until something may have arrived for this process: a notice in one of the VCQs, or a put,
 * get or ARMW of another process.
 *
 * The wait is level-triggered and has two steps, so that no arrival is missed and senders have no cost. The first call
 * of a thread announces it and returns 1 at once. The caller then polls (TCQ, MRQ, memory) and calls again if it has
 * found nothing. That call sleeps. So a loop of "poll; if nothing, tofu_sim_wait()" is correct. The function may also
 * return 1 without an arrival. It does so after the first millisecond of a sleep, and each millisecond while a barrier
 * or reduction is under way, since the end of these wakes no thread.
 *
 * @param vcqs        VCQs whose own notices (local MRQ, TCQ) end the wait at once; may be NULL if n is 0
 * @param n           number of them
 * @param timeout_ms  longest sleep in milliseconds; 0: no sleep; negative: no limit
 * @return 1: poll; 0: timeout; UTOFU_ERR_INVALID_VCQ_HDL, UTOFU_ERR_INVALID_POINTER
 *
 * Any thread, several at once. Makes system calls: not for a path where polls succeed.
 */
int tofu_sim_wait(utofu_vcq_hdl_t* vcqs, size_t n, int timeout_ms);

/**
 * Ends the sleep of every thread of this process in tofu_sim_wait(), as an arrival would. A thread that is
 * announced and polls meanwhile does not sleep afterwards. UTOFU_SUCCESS.
 *
 * Any thread; one load if no thread sleeps.
 */
int tofu_sim_wake(void);

/**
 * Reports that the polls of the calling thread have found nothing for a while. If the job has more processes than
 * processors, the thread yields. After many consecutive calls without other work it sleeps as by tofu_sim_wait(), some
 * 100 microseconds at most. It does not sleep while a barrier or reduction is under way. After sleeps that no arrival
 * has ended, sleeps become rare, since the thread waits for another event. Without oversubscription the call has no
 * effect.
 *
 * @param times  number of consecutive calls since the last success
 * @return 1: the thread has yielded; 0: each process can have a processor of its own
 *
 * Any thread. Two loads without oversubscription. Unsuccessful polls of a receive queue call it by themselves.
 */
int tofu_sim_give_way(unsigned times);

/** Counters of this process for one TNI, since its start. */
struct tofu_sim_tni_statistics {
    uint64_t operations; /**< executed instructions, including failed ones */
    uint64_t bytes;      /**< payload of puts and gets */
};

/**
 * Fills in the counters of a TNI.
 *
 * @param statistics  out: owned by the caller
 * @return UTOFU_SUCCESS, UTOFU_ERR_INVALID_TNI_ID, UTOFU_ERR_INVALID_POINTER
 *
 * Any thread. During posts of other threads the two counters may belong to different instants.
 */
int tofu_sim_query_statistics(utofu_tni_id_t tni_id, struct tofu_sim_tni_statistics* statistics);

/**
 * Notifies the virtual clock (TOFU_SIM_CLOCK, see tofu_sim(7)) that the program has just found these bytes of its
 * memory written by a put, get or ARMW without a notice. The clock advances to the time of their arrival, if it is
 * known. From the first call on, only these calls count memory as seen. Without them, all arrived bytes count as seen
 * at the next call of uTofu.
 *
 * @return 1; 0: there is no virtual clock, and further calls are not needed
 *
 * Any thread that has called uTofu before.
 */
int tofu_sim_seen(const void* address, size_t length);

/** Returns the virtual clock of this process in picoseconds; 0 without such a clock. Any thread. */
uint64_t tofu_sim_time(void);

/**
 * Checks whether this library has moved all pages of [address, address + length) (docs/memory-model.md). The kernel
 * shows such memory as a shared mapping of a file, but it is private memory of the program: no other process replaces
 * its pages as long as the program keeps the mapping.
 *
 * @return 1: all pages were moved; 0: not all
 *
 * Any thread. Makes system calls.
 */
int tofu_sim_moved(const void* address, size_t length);

#ifdef __cplusplus
}
#endif

#endif
