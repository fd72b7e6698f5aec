// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Communications, what they return, and the queues that report them. See checks.h.
#include <algorithm>
#include <cstring>
#include <random>

#include "checks.h"

namespace tofu::check {
namespace {

Finding every_length(Side& side)
{
    Link link(side, page);
    std::memset(link.memory.at(), 0, page);
    link.together();
    if (side.rank() == 0) {
        constexpr std::size_t n = 4096; // copies: what is put at 0, what comes back at 8192; the model beside
        std::vector<std::uint8_t> model(n);
        std::mt19937 dice(1);
        for (int round = 0; round < 300; round++) {
            const std::size_t length = round % 3 == 0 ? 1 + dice() % 32 : 1 + dice() % 700;
            const std::size_t to = dice() % (n - length);
            const std::size_t from = dice() % (n - length);
            for (std::size_t i = 0; i < length; i++)
                model[to + i] = *link.memory.at(from + i) = static_cast<std::uint8_t>(dice());
            if (round % 3 == 0 && length <= side.caps.max_piggyback_size)
                link.vcq.post([&] {
                    return side.u.put_piggyback(link.vcq.handle(), link.peer, link.memory.at(from),
                                                link.peer_stadd + to, length, 1, local_mrq, nullptr);
                });
            else
                link.put(from, to, length, local_mrq, 1);
            link.vcq.must_mrq();
            link.get(8192, 0, n, local_mrq, 1);
            link.vcq.must_mrq();
            const auto at = std::mismatch(model.begin(), model.end(), link.memory.at(8192)).first - model.begin();
            if (at != static_cast<std::ptrdiff_t>(n))
                return fails("a Put of %zu bytes to offset %zu: byte %td is wrong", length, to, at);
        }
    }
    link.together();
    return side.rank() == 0 ? holds("300 Puts of 1 to 700 bytes at any offset, read back with the neighbouring bytes")
                            : Finding{};
}

Finding piggyback(Side& side)
{
    Link link(side, page);
    if (side.rank() == 0) {
        std::uint64_t words[4];
        for (std::uint64_t i = 0; i < 500; i++) {
            std::fill(std::begin(words), std::end(words), i + 1);
            link.vcq.post([&] {
                return side.u.put_piggyback(link.vcq.handle(), link.peer, words, link.peer_stadd + i * 32, 32, 1,
                                            strong, nullptr);
            });
            std::fill(std::begin(words), std::end(words), ~std::uint64_t{0});
        }
        link.together();
        return {};
    }
    link.await(499 * 32 + 24, 500, "the last of 500 Puts from descriptors");
    link.together();
    for (std::uint64_t i = 0; i < 500 * 4; i++)
        if (link.memory.load(i * 8) != i / 4 + 1)
            return fails("Put %lu has bytes that were written after the call: %#lx", i / 4, link.memory.load(i * 8));
    return holds("500 Puts whose source was overwritten immediately");
}

Finding largest(Side& side)
{
    const std::size_t size = std::min(side.caps.max_putget_size, std::size_t{16} << 20);
    Link link(side, 2 * size);
    if (side.rank() == 0)
        for (std::size_t i = 0; i < size; i += 4096)
            *link.memory.at(i) = static_cast<std::uint8_t>(i / 4096 * 7 + 1);
    link.together();
    Finding finding;
    if (side.rank() == 0) {
        link.put(0, 0, size, local_mrq, 1);
        link.vcq.must_mrq();
        link.get(size, 0, size, local_mrq, 1);
        link.vcq.must_mrq();
        finding = holds("a Put and a Get of %zu bytes", size);
        for (std::size_t i = 0; i < size; i += 4096)
            if (*link.memory.at(size + i) != *link.memory.at(i))
                finding = fails("byte %zu of a transfer of %zu is wrong", i, size);
    }
    link.together();
    return finding;
}

Finding edata(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        bool seen[256] = {};
        for (unsigned i = 1; i < 255; i++)
            link.put_word(i, 8 * i, local_mrq, i);
        for (unsigned i = 1; i < 255; i++) {
            const utofu_mrq_notice notice = link.vcq.must_mrq();
            if (notice.edata == 0 || notice.edata > 254 || seen[notice.edata] ||
                notice.notice_type != UTOFU_MRQ_TYPE_LCL_PUT)
                return fails("notice %u has type %u and EDATA %#lx", i, notice.notice_type, notice.edata);
            seen[notice.edata] = true;
        }
        return holds("254 at a time, each reported once by its own notice");
    });
}

Finding fields(Side& side)
{
    Link link(side, page);
    link.memory.store(64, 5);
    link.together();
    std::string wrong;
    const auto expect = [&](const char* what, std::uint64_t wanted, std::uint64_t seen) {
        if (wanted != seen)
            wrong += text("%s%s is %#lx, not %#lx", wrong.empty() ? "" : "; ", what, seen, wanted);
    };
    if (side.rank() == 0) {
        link.put_word(1, 0, remote_mrq | local_mrq, 0xa1);
        const auto put = link.vcq.must_mrq();
        link.armw(UTOFU_ARMW_OP_ADD, 3, 64, remote_mrq | local_mrq, 0xa2);
        const auto armw = link.vcq.must_mrq();
        link.get(128, 256, 16, remote_mrq | local_mrq, 0xa3);
        const auto get = link.vcq.must_mrq();
        expect("type of a Put's", UTOFU_MRQ_TYPE_LCL_PUT, put.notice_type);
        expect("type of an ARMW's", UTOFU_MRQ_TYPE_LCL_ARMW, armw.notice_type);
        expect("type of a Get's", UTOFU_MRQ_TYPE_LCL_GET, get.notice_type);
        expect("an ARMW's old value", 5, armw.rmt_value);
        expect("EDATA", 0xa1a2a3, put.edata << 16 | armw.edata << 8 | get.edata);
    } else {
        const auto put = link.vcq.must_mrq();
        const auto armw = link.vcq.must_mrq();
        const auto get = link.vcq.must_mrq();
        expect("type of a Put's", UTOFU_MRQ_TYPE_RMT_PUT, put.notice_type);
        expect("type of an ARMW's", UTOFU_MRQ_TYPE_RMT_ARMW, armw.notice_type);
        expect("type of a Get's", UTOFU_MRQ_TYPE_RMT_GET, get.notice_type);
        expect("a Put's STADD, its end,", link.stadd + 8, put.rmt_stadd);
        expect("an ARMW's STADD, its start,", link.stadd + 64, armw.rmt_stadd);
        expect("a Get's STADD, its end,", link.stadd + 256 + 16, get.rmt_stadd);
        expect("EDATA", 0xa1a2a3, put.edata << 16 | armw.edata << 8 | get.edata);
        expect("the VCQ ID in a notice", link.peer, put.vcq_id);
    }
    link.together();
    if (!wrong.empty())
        return fails("%s", wrong.c_str());
    return side.rank() == 1 ? holds("types, STADDs, EDATA, VCQ ID and old value") : Finding{};
}

Finding tcq_order(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        static char marks[1000];
        for (unsigned i = 0; i < 1000; i++)
            link.vcq.post([&] {
                return side.u.put(link.vcq.handle(), link.peer, link.stadd, link.peer_stadd, i % 3 == 0 ? 4096 : 8, 0,
                                  tcq, &marks[i]);
            });
        for (char& mark : marks) {
            const Sent sent = link.vcq.next_tcq();
            if (sent.code != UTOFU_SUCCESS || sent.cbdata != &mark)
                return fails("entry %td: %s, of post %td", &mark - marks, code_name(sent.code).c_str(),
                             static_cast<char*>(sent.cbdata) - marks);
        }
        return holds("1000 entries in the order of posting");
    });
}

Finding toq_full(Side& side)
{
    return by_first(side, [&](Link& link) -> Finding {
        // Nothing is read until it is full. Each post adds one to a word: a refused one must not have.
        unsigned posted = 0;
        int code = UTOFU_SUCCESS;
        while (posted < 20000 && code == UTOFU_SUCCESS) {
            code = side.u.armw8(link.vcq.handle(), link.peer, UTOFU_ARMW_OP_ADD, 1, link.peer_stadd, 0, tcq, nullptr);
            posted += code == UTOFU_SUCCESS ? 1 : 0;
        }
        if (code != UTOFU_SUCCESS && code != UTOFU_ERR_BUSY)
            return fails("post %u fails with %s", posted, code_name(code).c_str());
        for (unsigned i = 0; i < posted; i++)
            (void)link.vcq.next_tcq();
        link.armw(UTOFU_ARMW_OP_ADD, 1, 0, strong | local_mrq, 1);
        const std::uint64_t before = link.vcq.must_mrq().rmt_value;
        if (before != posted)
            return fails("%u posts were accepted, %lu took effect", posted, before);
        return code == UTOFU_SUCCESS
                   ? holds("20000 posts without filling it")
                   : holds("%u posts, then ERR_BUSY without effect; polling the TCQ frees entries", posted);
    });
}

/// A prepared ADD. Its size, or 0.
std::size_t prepare_add(Link& link, std::uint64_t operand, std::size_t word, unsigned char* to)
{
    std::size_t size = 0;
    const int code = link.u.prepare_armw8(link.vcq.handle(), link.peer, UTOFU_ARMW_OP_ADD, operand,
                                          link.peer_stadd + word * 8, 1, 0, to, &size);
    return code == UTOFU_SUCCESS ? size : 0;
}

/// Where two descriptors of one size differ, and the first has `value`. `size`: nowhere.
std::size_t field_of(const unsigned char* a, const unsigned char* b, std::size_t size, std::uint64_t value)
{
    const std::size_t first = static_cast<std::size_t>(std::mismatch(a, a + size, b).first - a);
    for (std::size_t at = first < 8 ? 0 : first - 7; at <= first && at + 8 <= size; at++)
        if (std::memcmp(a + at, &value, 8) == 0 && std::equal(a + at + 8, a + size, b + at + 8))
            return at;
    return size;
}

Finding prepared(Side& side)
{
    constexpr unsigned row = 64;
    return by_first(side, [&](Link& link) -> Finding {
        alignas(8) unsigned char descriptors[row * 64], other[64];
        const std::size_t size = prepare_add(link, 1, 0, descriptors);
        if (size == 0 || size > 64)
            return fails("utofu_prepare_armw8 gives no descriptor of at most 64 bytes");
        for (std::size_t i = 1; i < row; i++)
            if (prepare_add(link, 1, i, descriptors + i * size) != size)
                return fails("descriptors of one kind have several sizes");
        unsigned rows = 0;
        int code = UTOFU_SUCCESS;
        while (rows < 400 && code == UTOFU_SUCCESS) {
            code = link.u.post_toq(link.vcq.handle(), descriptors, row * size, nullptr);
            rows += code == UTOFU_SUCCESS ? 1 : 0;
        }
        if (rows == 0 || (code != UTOFU_SUCCESS && code != UTOFU_ERR_BUSY))
            return fails("row %u of %u descriptors fails with %s", rows, row, code_name(code).c_str());
        for (const std::size_t word : {std::size_t{0}, std::size_t{row - 1}}) {
            link.armw(UTOFU_ARMW_OP_ADD, 0, word * 8, strong | local_mrq, 1);
            if (const std::uint64_t sum = link.vcq.must_mrq().rmt_value; sum != rows)
                return fails("%u rows were accepted, word %zu was added to %lu times", rows, word, sum);
        }
        const bool same = prepare_add(link, ~std::uint64_t{1}, 0, other) == size;
        const std::size_t operand = field_of(descriptors, other, size, 1);
        const std::size_t stadd = field_of(descriptors, descriptors + size, size, link.peer_stadd);
        return holds("%u rows of %u descriptors, each all or nothing; %zu bytes each, %s", rows, row, size,
                     same && operand != size && stadd != size ? "written by copying one"
                                                              : "not to be copied: a call for each word");
    });
}

Finding armw_ops(Side& side)
{
    Link link(side, page);
    std::string wrong;
    if (side.rank() == 1) {
        link.memory.store(0, 0xf0f0f0f0f0f0f0f0);
        link.memory.store(64, 0xf0f0f0f0f0f0f0f0);
    }
    link.together();
    if (side.rank() == 0) {
        const auto expect = [&](const char* what, std::uint64_t wanted) {
            const std::uint64_t seen = link.vcq.must_mrq().rmt_value;
            if (seen != wanted && wrong.empty())
                wrong = text("%s found %#lx instead of %#lx", what, seen, wanted);
        };
        const auto armw4 = [&](utofu_armw_op op, std::uint32_t operand) {
            link.vcq.post([&] {
                return side.u.armw4(link.vcq.handle(), link.peer, op, operand, link.peer_stadd + 64, 1,
                                    strong | local_mrq, nullptr);
            });
        };
        const auto cswap = [&](std::uint64_t compare, std::uint64_t swap) {
            link.vcq.post([&] {
                return side.u.cswap8(link.vcq.handle(), link.peer, compare, swap, link.peer_stadd, 1,
                                     strong | local_mrq, nullptr);
            });
        };
        constexpr unsigned long flags = strong | local_mrq;
        link.armw(UTOFU_ARMW_OP_OR, 0x0f, 0, flags, 1);
        expect("OR", 0xf0f0f0f0f0f0f0f0);
        link.armw(UTOFU_ARMW_OP_AND, ~std::uint64_t{0xf0}, 0, flags, 1);
        expect("AND", 0xf0f0f0f0f0f0f0ff);
        link.armw(UTOFU_ARMW_OP_XOR, 0xff, 0, flags, 1);
        expect("XOR", 0xf0f0f0f0f0f0f00f);
        link.armw(UTOFU_ARMW_OP_ADD, ~std::uint64_t{0}, 0, flags, 1);
        expect("ADD", 0xf0f0f0f0f0f0f0f0);
        link.armw(UTOFU_ARMW_OP_SWAP, 77, 0, flags, 1);
        expect("SWAP", 0xf0f0f0f0f0f0f0ef);
        cswap(76, 1);
        expect("CSWAP with another compare value", 77);
        cswap(77, 78);
        expect("CSWAP with this compare value", 77);
        link.armw(UTOFU_ARMW_OP_OR, 0, 0, flags, 1);
        expect("the last OR", 78);
        armw4(UTOFU_ARMW_OP_ADD, 0x20000000);
        expect("ADD of 4 bytes", 0xf0f0f0f0);
        link.vcq.post([&] {
            return side.u.cswap4(link.vcq.handle(), link.peer, 0x10f0f0f0, 9, link.peer_stadd + 64, 1,
                                 strong | local_mrq, nullptr);
        });
        expect("CSWAP of 4 bytes", 0x10f0f0f0);
    }
    link.together();
    if (side.rank() == 0)
        return wrong.empty() ? holds("SWAP, ADD, XOR, AND, OR, CSWAP of 8 and 4 bytes, and the old value of each")
                             : fails("%s", wrong.c_str());
    if (link.memory.load(64) != 0xf0f0f0f000000009)
        return fails("4 bytes were changed and 8 became %#lx", link.memory.load(64));
    return {};
}

/// Process 0 by one TNI, process 1 by another, and process 1's CPU count in one word: each number is given once.
Finding armw_atomic(Side& side)
{
    constexpr unsigned each = 3000;
    Link link(side, page);
    Vcq second(side, side.tni(1));
    const utofu_stadd_t other_way = second.reg(link.memory.at(), page);
    link.together();
    std::vector<std::uint64_t> had;
    const auto add_by = [&](Vcq& vcq, utofu_vcq_id_t target, utofu_stadd_t stadd) {
        vcq.post(
            [&] { return side.u.armw8(vcq.handle(), target, UTOFU_ARMW_OP_ADD, 1, stadd, 1, local_mrq, nullptr); });
    };
    for (unsigned i = 0; i < each; i++)
        if (side.rank() == 0) {
            add_by(link.vcq, link.peer, link.peer_stadd);
            had.push_back(link.vcq.must_mrq().rmt_value);
        } else {
            add_by(second, second.id(), other_way);
            had.push_back(std::atomic_ref<std::uint64_t>(link.memory.word()).fetch_add(1));
            had.push_back(second.must_mrq().rmt_value);
        }
    const auto theirs = side.meeting.swap(had);
    if (side.rank() != 0)
        return {};
    had.insert(had.end(), theirs.begin(), theirs.end());
    std::sort(had.begin(), had.end());
    for (std::uint64_t i = 0; i < had.size(); i++)
        if (had[i] != i)
            return fails("one of %zu additions by two TNIs and a CPU found %lu instead of %lu", had.size(), had[i], i);
    return holds("%zu additions by two TNIs and a CPU, each old value once", had.size());
}

Finding loopback(Side& side)
{
    Vcq vcq(side, side.tni());
    Vcq other(side, side.tni(1));
    const Memory memory(page);
    const utofu_stadd_t stadd = other.reg(memory.at(), page);
    std::uint64_t value = 99;
    vcq.post([&] {
        return side.u.put_piggyback(vcq.handle(), other.id(), &value, stadd, 8, 1, strong | local_mrq, nullptr);
    });
    vcq.must_mrq();
    return memory.load() == 99 ? holds("a Put to a VCQ of the same process")
                               : fails("the notice has arrived without its bytes: %#lx", memory.load());
}

Finding many_notices(Side& side)
{
    constexpr unsigned n = 65536; // half of the default queue: what a domain's event pool counts on
    Link link(side, page);
    if (side.rank() == 0) {
        for (unsigned i = 0; i < n; i++)
            link.put_word(i, 0, remote_mrq | (i % 256 == 255 ? strong | local_mrq : 0), 1);
        for (unsigned i = 0; i < n / 256; i++)
            link.vcq.must_mrq();
        link.together();
        link.together();
        return {};
    }
    link.together();
    for (unsigned i = 0; i < n; i++)
        if (link.vcq.must_mrq().notice_type != UTOFU_MRQ_TYPE_RMT_PUT)
            return fails("notice %u of %u is of another type", i, n);
    link.together();
    return holds("%u notices are kept in an MRQ that is not polled", n);
}

constexpr Check list[] = {
    {"put-any-length", "a Put writes exactly its bytes", "rma, ring", 2, every_length},
    {"piggyback", "data in a descriptor is copied before the call returns", "msg/sender, rma/rma", 2, piggyback},
    {"largest", "the largest Put and Get of the caps complete", "rma, msg/rendezvous", 2, largest},
    {"edata", "254 concurrent communications are identified by one byte", "utofu/vcq (window)", 2, edata},
    {"notice-fields", "notices have type, STADD, VCQ and old value as in the guide", "utofu/vcq, mem/mr", 2, fields},
    {"tcq-order", "TCQ entries come in the order of posting, with their cbdata", "utofu/vcq", 2, tcq_order},
    {"toq-full", "a post to a full TOQ fails without effect", "utofu/vcq", 2, toq_full},
    {"prepared", "utofu_post_toq posts all of its descriptors or none", "utofu/word_batch", 2, prepared},
    {"armw-ops", "all ARMWs of 4 and 8 bytes store the right word and return the old value", "atomic, msg/tx_ring", 2,
     armw_ops},
    {"armw-atomic", "ARMWs of several TNIs and atomics of the CPU exclude each other", "mem/mr, tx/event_credits", 2,
     armw_atomic},
    {"loopback", "a process can communicate with itself", "info (FI_LOCAL_COMM)", 1, loopback},
    {"many-notices", "an MRQ has room for 65,536 notices of peers", "mem/mr_directory", 2, many_notices},
};

} // namespace

std::span<const Check> post_checks()
{
    return list;
}

} // namespace tofu::check
