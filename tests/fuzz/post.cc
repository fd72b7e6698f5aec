// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: descriptors of any content posted to a VCQ of a job, and a session mode VCQ whose shared queue others
// have scribbled on.
#include "fuzz.h"

#include "job/process.h"
#include "tni/control.h"

#include <string>
#include <unistd.h>
#include <utofu.h>

namespace tofu::sim::fuzz {
namespace {

constexpr size_t margin = 4096;
constexpr size_t registered = 32 * 1024;
constexpr uint8_t mark = 0xa5;

struct World {
    alignas(65536) uint8_t memory[margin + registered + margin];
    utofu_vcq_hdl_t vcq = 0;
    utofu_vcq_hdl_t session = 0;
    utofu_vcq_id_t id = 0;
    utofu_vcq_id_t session_id = 0;
    utofu_stadd_t stadd = 0;
    utofu_stadd_t session_stadd = 0;

    World()
    {
        (void)::setenv("TOFU_SIM_JOB", ("fuzz-" + std::to_string(::getpid())).c_str(), 0);
        (void)::unsetenv("TOFU_SIM_CHAOS"); // its thread would make runs differ
        require(utofu_create_vcq(0, 0, &vcq) == UTOFU_SUCCESS && utofu_query_vcq_id(vcq, &id) == UTOFU_SUCCESS &&
                    utofu_reg_mem(vcq, memory + margin, registered, 0, &stadd) == UTOFU_SUCCESS,
                "a VCQ");
    }
    void open_session()
    {
        require(utofu_create_vcq(1, UTOFU_VCQ_FLAG_SESSION_MODE, &session) == UTOFU_SUCCESS &&
                    utofu_query_vcq_id(session, &session_id) == UTOFU_SUCCESS &&
                    utofu_reg_mem(session, memory + margin, registered, 0, &session_stadd) == UTOFU_SUCCESS,
                "a session mode VCQ");
    }
    void drain(utofu_vcq_hdl_t from) const
    {
        void* cbdata = nullptr;
        utofu_mrq_notice notice;
        for (unsigned i = 0; i < 5000 && utofu_poll_tcq(from, 0, &cbdata) != UTOFU_ERR_NOT_FOUND; i++) {
        }
        for (unsigned i = 0; i < 5000 && utofu_poll_mrq(from, 0, &notice) != UTOFU_ERR_NOT_FOUND; i++) {
        }
    }
};

uint64_t some_id(const World& w, Input& input)
{
    switch (input.below(6)) {
    case 0: return w.session_id;
    case 1: return w.id ^ uint64_t { 1 } << input.below(64);
    case 2: return input.take<uint64_t>();
    default: return w.id;
    }
}

uint64_t some_stadd(const World& w, Input& input)
{
    const uint64_t base = input.below(3) == 0 ? w.session_stadd : w.stadd;
    return input.below(8) == 0 ? input.take<uint64_t>() : base + input.number(registered) % (2 * registered);
}

void post_some(const World& w, Input& input)
{
    uint64_t words[16];
    input.fill(words, sizeof words);
    if (input.below(8) != 0) {
        words[0] = (words[0] & ~uint64_t{0xff} & ~(uint64_t{0x1e} << 56)) | (1 + input.below(8));
        words[0] &= ~(uint64_t{0xff8000} << 24); // lengths around the size of the registration
        const uint64_t id = some_id(w, input);
        words[1] = input.below(4) != 0 ? id : id | (words[1] & 0x7ffff0);
        words[2] = some_stadd(w, input);
        words[3] = some_stadd(w, input);
    }
    const size_t size = input.below(16) != 0 ? (input.below(2) != 0 ? 64 : 32) : input.below(sizeof words + 1);
    const int rc = utofu_post_toq(input.below(4) == 0 ? w.session : w.vcq, words, size, nullptr);
    require(rc == UTOFU_SUCCESS || rc == UTOFU_ERR_BUSY || rc == UTOFU_ERR_INVALID_DESC ||
                rc == UTOFU_ERR_INVALID_VCQ_ID || rc == UTOFU_ERR_NOT_SUPPORTED,
            "an answer that utofu_post_toq can give");
}

void scribble(Input& input)
{
    Process& self = Process::self();
    for (unsigned index = 0; index < vcqs_per_node; index++) {
        // The only session mode VCQ there is.
        if ((self.segment().header().vcq_alive[index].owner.load_acquire() & 0x80000000u) == 0)
            continue;
        std::byte* const region = self.segment().vcq_region(index);
        SessionControl& control = vcq_control(region).session;
        SharedWord<uint64_t>* const words[] = {&control.posted, &control.arrived, &control.done, &control.progress};
        SharedWord<uint64_t>& word = *words[input.below(4)];
        switch (input.below(4)) {
        case 0: word.store_seq(input.take<uint64_t>()); break;
        case 1: word.store_seq(word.load_acquire() + input.take<int8_t>()); break;
        case 2: control.runner.store_seq(input.take<uint32_t>()); break;
        default: input.fill(session_slots(region)[input.below(toq_entries)].descriptor, 64); break;
        }
    }
}

} // namespace

void post(Input input)
{
    static World w;
    std::memset(w.memory, mark, sizeof w.memory);
    w.open_session();
    for (unsigned step = 0; step < 48 && !input.empty(); step++) {
        switch (input.below(5)) {
        case 0: scribble(input); break;
        case 1:
            (void)utofu_put(w.vcq, w.session_id, w.stadd, w.session_stadd, input.below(300), 0,
                            UTOFU_ONESIDED_FLAG_SPS(input.below(16)), nullptr);
            break;
        case 2: w.drain(w.session); break;
        default: post_some(w, input); break;
        }
    }
    w.drain(w.vcq);
    w.drain(w.session);
    require(utofu_free_vcq(w.session) == UTOFU_SUCCESS, "a VCQ can be freed");
    for (size_t i = 0; i < margin; i++)
        require(w.memory[i] == mark && w.memory[margin + registered + i] == mark, "nothing outside is written");
}

} // namespace tofu::sim::fuzz
