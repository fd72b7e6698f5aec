// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Fuzz target: a peer's directory, its second table, its overflow VCQs and their proofs say anything, also with right
// check sums, and may change while they are read; a lookup ends after a bounded number of Gets, and what it permits is
// what an entry said.
#include "fuzz.h"

#include "av/peer_table.h"
#include "mem/mr_directory.h"
#include "prov/lib/gets.h"
#include "tx/remote_memory.h"

#include <rdma/fi_errno.h>
#include <vector>

namespace tofu::sim::fuzz {
namespace {

using directory::Bucket;
using directory::Entry;

constexpr std::uint64_t nonce = 0xfeedface;

struct Liar {
    Input* input = nullptr;
    unsigned gets = 0;
    tofu::test::EndedGets done;
    std::vector<Entry> said; ///< entries with right sums

    void bucket(void* to)
    {
        Bucket b{};
        const std::uint8_t lies = input->take<std::uint8_t>();
        b.next_stadd = input->number(1 << 20);
        b.next_log2 = (lies & 1) != 0 ? input->take<std::uint32_t>() : input->below(directory::max_log2 + 2);
        b.next_check =
            (lies & 2) != 0 ? input->take<std::uint32_t>() : directory::check_of(b.next_stadd, b.next_log2, nonce);
        for (Entry& e : b.entry) {
            if (input->below(2) == 0)
                continue;
            input->fill(&e, sizeof e);
            e.key = input->below(4) != 0 ? input->below(8) : e.key;
            if (input->below(4) != 0) { // a region with a plausible key
                e.begin = input->below(1 << 10);
                e.length = input->number(1 << 12);
                e.rights = std::uint16_t(input->below(4));
            }
            e.vcq_number = input->below(2) == 0 ? 0 : std::uint16_t(input->below(directory::max_overflow_vcqs + 3));
            if ((lies & 4) == 0) {
                e.check = directory::check_of(e, nonce);
                said.push_back(e);
            }
        }
        std::memcpy(to, &b, sizeof b);
    }
    void get(void* to, std::size_t length)
    {
        gets++;
        if (length == sizeof(Bucket)) {
            bucket(to);
        } else if (input->below(2) == 0) {
            directory::OverflowEntry line{input->take<std::uint64_t>(), 0};
            line.check = directory::check_of_overflow(line.vcq, input->below(directory::max_overflow_vcqs + 1), nonce);
            std::memcpy(to, &line, std::min(length, sizeof line));
        } else {
            const directory::DomainHeader contacts{input->below(2) == 0 ? nonce : input->take<std::uint64_t>(), 0};
            std::memcpy(to, &contacts, std::min(length, sizeof contacts));
        }
    }
};
Liar* liar;

vcq::Functions functions()
{
    vcq::Functions f = tofu::test::functions_of_gets();
    f.query_stadd = [](utofu_vcq_id_t vcq, unsigned, utofu_stadd_t* s) -> int {
        return *s = 0x100000, vcq % 7 == 3 ? UTOFU_ERR_INVALID_VCQ_ID : UTOFU_SUCCESS;
    };
    f.get = [](utofu_vcq_hdl_t, utofu_vcq_id_t, utofu_stadd_t local, utofu_stadd_t, std::size_t length,
               std::uint64_t edata, unsigned long, void*) -> int {
        liar->get(reinterpret_cast<void*>(local), length);
        liar->done.push_back({liar->input->below(16) == 0 ? UTOFU_ERR_MRQ_RMT_STADD : UTOFU_SUCCESS, edata});
        return UTOFU_SUCCESS;
    };
    f.cswap8 = [](utofu_vcq_hdl_t, utofu_vcq_id_t, std::uint64_t, std::uint64_t, utofu_stadd_t, std::uint64_t edata,
                  unsigned long, void*) -> int {
        liar->gets++;
        const std::uint64_t before = liar->input->below(2) == 0 ? 0 : liar->input->take<std::uint64_t>();
        liar->done.push_back({liar->input->below(16) == 0 ? UTOFU_ERR_MRQ_RMT_STADD : UTOFU_SUCCESS, edata, before,
                              std::uint8_t{UTOFU_MRQ_TYPE_LCL_ARMW}});
        return UTOFU_SUCCESS;
    };
    return f;
}

} // namespace

void keys(Input input)
{
    Liar own;
    own.input = &input;
    liar = &own;
    tofu::test::ended_gets = &own.done;
    static vcq::Backend backend{functions(), utofu_onesided_caps{}, 1};
    static vcq::Vcq vcq;
    static const bool open = vcq.open(backend, 0, false, {}) == 0;
    require(open, "a VCQ");
    alignas(8) static std::byte area[directory::area_bytes];
    RemoteKeys remote(vcq, false, {17, area});
    const Peer peer{42, nonce, 0, 0, false, 0};
    for (unsigned i = 0; i < 16 && !input.empty(); i++) {
        const std::uint64_t key = input.below(8), address = input.number(1 << 10), length = input.number(1 << 6);
        tofu::Target target{};
        int ret = -FI_EAGAIN;
        own.gets = 0;
        for (unsigned polls = 0; ret == -FI_EAGAIN; polls++) {
            require(polls < 20'000 && own.gets < 2000, "a lookup that ends");
            ret = remote.resolve(peer, key, address, length, FI_REMOTE_WRITE, target);
            vcq.poll();
        }
        if (ret != 0)
            continue;
        bool covered = false;
        for (const Entry& e : own.said)
            covered |= e.key == key && (e.rights & directory::right_write) != 0 && address - e.begin <= e.length &&
                       length <= e.length - (address - e.begin) && target.stadd == e.stadd_offset + address;
        require(covered, "a target that an entry named");
        if (input.below(2) == 0)
            remote.suspect(peer.target_vcq);
        else if (input.below(2) == 0)
            ++*reinterpret_cast<std::uint64_t*>(area + directory::epoch_offset(peer.target_vcq));
    }
}

} // namespace tofu::sim::fuzz
