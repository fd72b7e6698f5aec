// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_mr(3), statement by statement, between processes; any provider (-p). Run by make check and by hand.
#include <cstring>
#include <vector>

#include "../common/rma_message.h"
#include "../common/world.h"

namespace fabtests {
namespace {

constexpr std::uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE;

bool own_keys(World& w)
{
    return (w.info().domain_attr->mr_mode & FI_MR_PROV_KEY) == 0;
}
std::uint64_t remote_address(World& w, void* p)
{
    return (w.info().domain_attr->mr_mode & FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(p) : 0;
}

/// Sends the location of this rank's region to all ranks, and synchronises.
void publish(World& w, fid_mr* mr, void* memory)
{
    w.barrier();
    w.shared().key[w.rank()] = mr ? fi_mr_key(mr) : 0;
    w.shared().base[w.rank()] = remote_address(w, memory);
    w.barrier();
}

int write8(World& w, unsigned target, std::size_t offset, std::uint64_t value)
{
    std::memcpy(w.local(), &value, 8);
    RmaMessage m(w, w.local(), 8, target, offset);
    const ssize_t rc = w.post([&] { return fi_writemsg(w.ep(), &m.msg, FI_COMPLETION | FI_DELIVERY_COMPLETE); });
    return rc != 0 ? static_cast<int>(-rc) : w.wait();
}

/// "fi_mr_reg ... fi_mr_regv ... fi_mr_regattr": three forms of one call.
void check_forms(World& w)
{
    std::vector<std::uint64_t> memory(512);
    const iovec iov{memory.data(), memory.size() * 8};
    fid_mr* mr = nullptr;
    int context = 0;
    for (unsigned form = 0; form < 3; ++form) {
        const std::uint64_t key = 0x400 + form + 16 * w.rank();
        if (form == 0) {
            CHECK(w, fi_mr_reg(w.domain(), memory.data(), memory.size() * 8, both, 0, key, 0, &mr, &context) == 0);
        } else if (form == 1) {
            CHECK(w, fi_mr_regv(w.domain(), &iov, 1, both, 0, key, 0, &mr, &context) == 0);
        } else {
            fi_mr_attr attr{};
            attr.mr_iov = &iov;
            attr.iov_count = 1;
            attr.access = both;
            attr.requested_key = key;
            attr.context = &context;
            CHECK(w, fi_mr_regattr(w.domain(), &attr, 0, &mr) == 0);
        }
        CHECK(w, mr->fid.fclass == FI_CLASS_MR);
        CHECK(w, mr->fid.context == &context);
        // "requested_key: ... if the provider does not select keys, this is the key"
        if (own_keys(w))
            CHECK(w, fi_mr_key(mr) == key);
        publish(w, mr, memory.data());
        CHECK(w, write8(w, (w.rank() + 1) % w.ranks(), 8 * form, form + 1) == 0);
        w.barrier();
        CHECK(w, memory[form] == form + 1);
        CHECK(w, fi_close(&mr->fid) == 0);
    }
    w.barrier();
}

/// "FI_ENOKEY: The requested_key is already in use"; a closed region's key is free again.
void check_keys(World& w)
{
    if (!own_keys(w))
        return;
    std::uint64_t a[8] = {}, b[8] = {};
    fid_mr *first = nullptr, *second = nullptr;
    CHECK(w, fi_mr_reg(w.domain(), a, sizeof a, both, 0, 0x777, 0, &first, nullptr) == 0);
    CHECK(w, fi_mr_reg(w.domain(), b, sizeof b, both, 0, 0x777, 0, &second, nullptr) == -FI_ENOKEY);
    publish(w, first, a);
    const unsigned next = (w.rank() + 1) % w.ranks();
    CHECK(w, write8(w, next, 8, 11) == 0);
    w.barrier();
    CHECK(w, a[1] == 11);
    CHECK(w, fi_close(&first->fid) == 0);
    CHECK(w, fi_mr_reg(w.domain(), b, sizeof b, both, 0, 0x777, 0, &second, nullptr) == 0);
    publish(w, second, b);
    CHECK(w, write8(w, next, 8, 12) == 0); // the same key, another memory
    w.barrier();
    CHECK(w, a[1] == 11);
    CHECK(w, b[1] == 12);
    CHECK(w, fi_close(&second->fid) == 0);
    w.barrier();
}

/// "access": a region may be reached as it was registered, and within its bounds; what is refused harms nothing.
void check_rights(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    std::vector<std::uint64_t> memory(1024, 5);
    fid_mr* mr = nullptr;
    CHECK(w, fi_mr_reg(w.domain(), memory.data(), 8192, FI_REMOTE_READ, 0, 0x500 + w.rank(), 0, &mr, nullptr) == 0);
    publish(w, mr, memory.data());
    CHECK(w, write8(w, next, 0, 6) != 0);
    w.barrier();
    CHECK(w, memory[0] == 5);
    CHECK(w, fi_close(&mr->fid) == 0);
    // "a closed region can no longer be reached"
    w.barrier();
    CHECK(w, write8(w, next, 0, 7) != 0);
    w.barrier();
    CHECK(w, memory[0] == 5);
    if (own_keys(w)) { // keys of the provider need not know where the region ends within a page
        CHECK(w, fi_mr_reg(w.domain(), memory.data(), 4096, both, 0, 0x600 + w.rank(), 0, &mr, nullptr) == 0);
        publish(w, mr, memory.data());
        CHECK(w, write8(w, next, 4096 - 4, 8) != 0);
        CHECK(w, write8(w, next, 1 << 20, 8) != 0);
        w.barrier();
        for (std::uint64_t word : memory)
            CHECK(w, word == 5);
        CHECK(w, fi_close(&mr->fid) == 0);
    }
    w.barrier();
}

/// Regions may overlap, come and go, and lie in memory that is freed and allocated again.
void check_lives(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    for (unsigned round = 0; round < 50; ++round) {
        auto* memory = new std::uint64_t[4096]();
        fid_mr *whole = nullptr, *part = nullptr;
        const std::uint64_t key = 0x800 + round * 64 + w.rank() * 2;
        CHECK(w, fi_mr_reg(w.domain(), memory, 32768, both, 0, key, 0, &whole, nullptr) == 0);
        CHECK(w, fi_mr_reg(w.domain(), memory + 100, 800, both, 0, key + 1, 0, &part, nullptr) == 0);
        publish(w, whole, memory);
        CHECK(w, write8(w, next, 8, round) == 0);
        publish(w, part, memory + 100);
        CHECK(w, write8(w, next, 16, round + 1) == 0);
        w.barrier();
        CHECK(w, memory[1] == round);
        CHECK(w, memory[102] == round + 1);
        CHECK(w, fi_close(&whole->fid) == 0);
        w.barrier();
        CHECK(w, write8(w, next, 24, round + 2) == 0); // the other one lives on
        w.barrier();
        CHECK(w, memory[103] == round + 2);
        CHECK(w, fi_close(&part->fid) == 0);
        delete[] memory;
    }
    w.barrier();
}

/// "The raw key support functions are usable with all registered memory regions, even if FI_MR_RAW has not been set."
void check_raw_keys(World& w)
{
    const unsigned next = (w.rank() + 1) % w.ranks();
    std::vector<std::uint64_t> memory(512);
    fid_mr* mr = nullptr;
    CHECK(w, fi_mr_reg(w.domain(), memory.data(), 4096, both, 0, 0xa00 + w.rank(), 0, &mr, nullptr) == 0);
    std::uint64_t raw = 0, base = 0, key = 0;
    auto* const bytes = reinterpret_cast<std::uint8_t*>(&raw);
    std::size_t size = 0;
    CHECK(w, fi_mr_raw_attr(mr, &base, bytes, &size, 0) == -FI_ETOOSMALL); // "key_size is set to the size ... needed"
    CHECK(w, size != 0 && size <= sizeof raw);
    CHECK(w, fi_mr_raw_attr(mr, &base, bytes, &size, 0) == 0);
    CHECK(w, base == reinterpret_cast<std::uintptr_t>(memory.data()));
    publish(w, mr, memory.data());
    w.barrier();
    w.shared().key[w.rank()] = raw;
    w.barrier();
    raw = w.shared().key[next];
    w.barrier();
    // "may be called on any valid key"; "the mapping is done by the peer that initiates"
    CHECK(w, fi_mr_map_raw(w.domain(), base, bytes, size, &key, 0) == 0);
    w.shared().key[next] = key;
    w.barrier();
    CHECK(w, write8(w, next, 8, 21) == 0);
    w.barrier();
    CHECK(w, memory[1] == 21);
    CHECK(w, fi_mr_unmap_key(w.domain(), key) == 0);
    if (w.ours())
        CHECK(w, fi_mr_map_raw(w.domain(), base, bytes, size - 1, &key, 0) == -FI_EINVAL);
    CHECK(w, fi_close(&mr->fid) == 0);
    w.barrier();
}

/// "fi_close ... FI_EBUSY": the domain has regions.
void check_busy(World& w)
{
    CHECK(w, fi_close(&w.domain()->fid) == -FI_EBUSY);
    w.barrier();
}

} // namespace
} // namespace fabtests

namespace {

constexpr fabtests::Case cases[] = {
    {"busy", fabtests::check_busy},     {"forms", fabtests::check_forms}, {"keys", fabtests::check_keys},
    {"rights", fabtests::check_rights}, {"lives", fabtests::check_lives}, {"raw_keys", fabtests::check_raw_keys},
};

} // namespace

const fabtests::Program fabtests::program{{.caps = FI_RMA}, cases};
