/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tofu_sim.h: what the simulated libtofucom.so offers beyond uTofu. All of it is optional: look the
 * symbols up with dlsym() and do without where they are missing, as in the real library.
 *
 * From version 1.0 on, and throughout version 1: what is declared here keeps its name, its parameters, its layout and
 * its meaning, and stays. What is added has a name of its own; no structure grows. So a program that was compiled
 * with this header runs with each later library of version 1, and with an earlier one as far as that has the symbols.
 */
#ifndef TOFU_SIM_H_
#define TOFU_SIM_H_

#include <utofu.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the simulator, a constant string. Any thread. */
const char* tofu_sim_version(void);

/**
 * Name of the job that this process belongs to (TOFU_SIM_JOB, see tofu_sim(7)); joins it if this has not happened.
 * NULL where that fails, which is told on stderr. A string of the simulator's, valid as long as the process lives.
 *
 * Any thread. Processes reach each other's memory only within one job.
 */
const char* tofu_sim_job(void);

/**
 * Sleeps until something may have arrived for this process: a notice in one of the VCQs, or a put,
 * get or ARMW of another process.
 *
 * Level-triggered, in two steps, so that nothing is missed without costing the senders anything: a
 * call that finds the calling thread not yet announced announces it and returns 1 at once; the
 * caller looks around (poll_tcq, poll_mrq, memory it polls) and, having found nothing, calls again;
 * that call sleeps. So a loop of "look around; if nothing, tofu_sim_wait()" is right. It may also
 * return 1 for no reason; it does so each millisecond while a barrier or reduction is under way, whose end wakes nobody.
 *
 * @param vcqs        VCQs whose own notices (local MRQ, TCQ) end the wait at once; may be NULL if n is 0
 * @param n           number of them
 * @param timeout_ms  longest sleep in milliseconds; 0: only look; negative: no limit
 * @return 1: look around; 0: the time is over; UTOFU_ERR_INVALID_VCQ_HDL, UTOFU_ERR_INVALID_POINTER
 *
 * Any thread, several at once. Makes system calls; not for a path where polling succeeds.
 */
int tofu_sim_wait(utofu_vcq_hdl_t* vcqs, size_t n, int timeout_ms);

/**
 * Ends the sleep of every thread of this process in tofu_sim_wait(), as an arrival would. A thread that has
 * announced itself and looks around meanwhile does not go to sleep. UTOFU_SUCCESS.
 *
 * Any thread; one load where nobody sleeps.
 */
int tofu_sim_wake(void);

/**
 * Says that the polls of the calling thread have found nothing for a while. Where the job has more processes than
 * processors they may run on, the thread yields. After many calls in a row, if it has done nothing else between them, it
 * naps as by tofu_sim_wait(), some 100 microseconds at most. There is no nap while a barrier or reduction is under way, and
 * after naps that no arrival has ended they become rare: the thread waits for something else. Elsewhere nothing happens.
 *
 * @param times  which call in a row it is, since something was found last
 * @return 1: gave way; 0: each process can have a processor of its own
 *
 * Any thread. Two loads where nothing happens. Polls of a receive queue that find nothing do it by themselves.
 */
int tofu_sim_give_way(unsigned times);

/** What this process has posted on one TNI since it started. */
struct tofu_sim_tni_statistics {
    uint64_t operations; /**< instructions carried out, errors included */
    uint64_t bytes;      /**< payload of puts and gets */
};

/**
 * Fills in the counters of a TNI: UTOFU_SUCCESS, UTOFU_ERR_INVALID_TNI_ID, UTOFU_ERR_INVALID_POINTER.
 *
 * Any thread; other threads' posts may be under way, so that the two counters need not belong to the same instant.
 */
int tofu_sim_query_statistics(utofu_tni_id_t tni_id, struct tofu_sim_tni_statistics* statistics);

/**
 * Says to the virtual clock (TOFU_SIM_CLOCK, see tofu_sim(7)) that the program has just found these bytes of its memory
 * written by a put, get or ARMW for which it waits without a notice: the clock moves to when they arrived, where that is
 * known. From the first call on, memory counts as seen by these calls alone; without them, all that has arrived counts as
 * seen at the next call of uTofu.
 *
 * Returns 1; 0 where there is no clock, and calling it is of no use.
 *
 * Any thread, one that has called uTofu before.
 */
int tofu_sim_seen(const void* address, size_t length);

/** What time it is by the virtual clock of this process, in picoseconds; 0 where there is none. Any thread. */
uint64_t tofu_sim_time(void);

/**
 * Are all pages of [address, address + length) memory that this library has moved (docs/memory-model.md)? The kernel
 * shows these as a shared mapping of a file; they are private memory of the program all the same: nobody but the
 * program changes which pages these are, as long as it leaves the mapping alone. 1: all of them are; 0.
 *
 * Any thread. Makes system calls.
 */
int tofu_sim_moved(const void* address, size_t length);

#ifdef __cplusplus
}
#endif

#endif
