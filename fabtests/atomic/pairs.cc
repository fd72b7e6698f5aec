// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queries, every operation and datatype in every form, and scatter lists.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "../../tests/prov/atomic/oracle.h"
#include "atomic_checks.h"

namespace fabtests {
namespace {

constexpr int last_type = FI_UINT128;

/// Values that are finite and small where the type has NaNs, any bits where it has not.
void fill(unsigned char* bytes, fi_datatype type, std::size_t count, std::mt19937& random)
{
    const unsigned size = atomic_oracle::size_of(type);
    for (std::size_t i = 0; i < count * size; ++i)
        bytes[i] = static_cast<unsigned char>(random() % 3 ? random() : 0);
    const auto number = [&] { return (static_cast<int>(random() % 9) - 4) * 0.5; };
    const auto put = [&](auto zero) {
        for (std::size_t i = 0; i + sizeof zero <= count * size; i += sizeof zero) {
            decltype(zero) x = static_cast<decltype(zero)>(number());
            std::memcpy(bytes + i, &x, sizeof x);
        }
    };
    if (type == FI_FLOAT || type == FI_FLOAT_COMPLEX)
        put(0.0f);
    else if (type == FI_DOUBLE || type == FI_DOUBLE_COMPLEX)
        put(0.0);
    else if (type == FI_LONG_DOUBLE || type == FI_LONG_DOUBLE_COMPLEX)
        put(0.0L);
}

bool same(fi_datatype type, std::size_t count, const unsigned char* a, const unsigned char* b)
{
    const unsigned size = atomic_oracle::size_of(type);
    for (std::size_t i = 0; i < count; ++i)
        if (!atomic_oracle::same_value(type, a + i * size, b + i * size))
            return false;
    return true;
}

/// Everyone acts on a part of its own of the next rank's region and sees it through the region's owner.
void check_pair(World& w, fi_op op, fi_datatype type, Form form, bool fetch, std::mt19937& random)
{
    const unsigned size = atomic_oracle::size_of(type);
    const std::size_t counts[] = {1, 3, 17};
    const std::size_t count = form == Form::inject ? 1 : counts[random() % 3];
    const unsigned target = (w.rank() + 1) % w.ranks();
    const std::size_t offset = 4096 + size * (random() % 5);
    unsigned char* const operand = w.local(0);
    unsigned char* const compare = w.local(4096);
    unsigned char* const result = w.local(8192);
    std::vector<unsigned char> before(count * size), after, operand_copy(count * size);
    fill(before.data(), type, count, random);
    fill(operand, type, count, random);
    fill(compare, type, count, random);
    if (random() % 2)
        std::memcpy(compare, before.data(), count * size);
    std::memcpy(operand_copy.data(), operand, count * size);
    std::memset(result, 0x77, count * size);
    after = before;
    for (std::size_t i = 0; i < count; ++i)
        atomic_oracle::apply(op, type, &after[i * size], operand + i * size, compare + i * size);

    // The owner of the part puts the start values in place: the rank before acts on it next.
    std::memcpy(&w.local(16384)[0], before.data(), count * size);
    w.shared().word[w.rank()] = offset;
    Operation put{FI_ATOMIC_WRITE, FI_UINT8, count * size, target, offset, w.local(16384), nullptr, nullptr};
    const int put_rc = perform(w, put, Form::plain);
    CHECK(w, put_rc == 0);
    const Operation o{op, type, count, target, offset, operand, compare, fetch ? result : nullptr};
    const int rc = perform(w, o, form);
    if (!CHECK(w, rc == 0))
        std::fprintf(stderr, "  op %d type %d form %d: %d\n", op, type, static_cast<int>(form), rc);
    if (fetch && !CHECK(w, std::memcmp(result, before.data(), count * size) == 0))
        std::fprintf(stderr, "  op %d type %d form %d count %zu\n", op, type, static_cast<int>(form), count);
    CHECK(w, std::memcmp(operand, operand_copy.data(), count * size) == 0);
    const Operation get{FI_ATOMIC_READ, FI_UINT8, count * size, target, offset, nullptr, nullptr, result};
    CHECK(w, perform(w, get, Form::plain) == 0);
    if (!CHECK(w, same(type, count, result, after.data())))
        std::fprintf(stderr, "  op %d type %d form %d count %zu fetch %d\n", op, type, static_cast<int>(form), count,
                     fetch);
}

} // namespace

void check_queries(World& w)
{
    for (int op = FI_MIN; op < FI_ATOMIC_OP_LAST; ++op)
        for (int type = 0; type <= last_type; ++type) {
            const auto o = static_cast<fi_op>(op);
            const auto t = static_cast<fi_datatype>(type);
            for (std::uint64_t flags :
                 {std::uint64_t{0}, std::uint64_t{FI_FETCH_ATOMIC}, std::uint64_t{FI_COMPARE_ATOMIC}}) {
                std::size_t count = 0;
                const int valid = flags == 0                 ? fi_atomicvalid(w.ep(), t, o, &count)
                                  : flags == FI_FETCH_ATOMIC ? fi_fetch_atomicvalid(w.ep(), t, o, &count)
                                                             : fi_compare_atomicvalid(w.ep(), t, o, &count);
                fi_atomic_attr attr{};
                const int query = fi_query_atomic(w.domain(), t, o, &attr, flags);
                // "similar to fi_atomicvalid for endpoints"
                CHECK(w, (valid == 0) == (query == 0));
                if (valid == 0) {
                    CHECK(w, count > 0 && attr.count > 0);
                    // "the size in bytes of the atomic datatype"
                    CHECK(w, attr.size == atomic_oracle::size_of(t));
                    // "operations usable with ..."
                    CHECK(w, flags == FI_COMPARE_ATOMIC ? op >= FI_CSWAP : op < FI_CSWAP);
                } else {
                    CHECK(w, valid == -FI_EOPNOTSUPP);
                }
            }
        }
    fi_atomic_attr attr{};
    // "bits may not both be set"
    CHECK(w, fi_query_atomic(w.domain(), FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) < 0);
    w.barrier();
}

void check_every_pair(World& w)
{
    std::mt19937 random(w.seed() * 1000 + w.rank());
    for (int op = FI_MIN; op < FI_ATOMIC_OP_LAST; ++op)
        for (int type = 0; type <= last_type; ++type) {
            const auto o = static_cast<fi_op>(op);
            const auto t = static_cast<fi_datatype>(type);
            const bool fetch = supported(w, o, t, true);
            const bool base = op < FI_CSWAP && op != FI_ATOMIC_READ && supported(w, o, t, false);
            for (Form form : {Form::plain, Form::v, Form::msg}) {
                if (fetch)
                    check_pair(w, o, t, form, true, random);
                if (base)
                    check_pair(w, o, t, form, false, random);
            }
            if (base && atomic_oracle::size_of(t) <= w.info().tx_attr->inject_size)
                check_pair(w, o, t, Form::inject, false, random);
        }
    w.barrier();
}

/// Lists of operands, compare values, results and remote elements, each cut into pieces of its own.
class Lists {
  public:
    explicit Lists(World& w)
        : w_(w), random_(w.seed() * 77 + w.rank()),
          limit_(std::min(w.info().tx_attr->iov_limit, w.info().tx_attr->rma_iov_limit)),
          target_((w.rank() + 1) % w.ranks())
    {
        std::fill(std::begin(desc_), std::end(desc_), w.desc());
    }
    void check(fi_datatype type, fi_op op)
    {
        const unsigned size = atomic_oracle::size_of(type);
        cut_all(size);
        fill(w_.local(0), type, total, random_);
        fill(w_.local(1024), type, total, random_);
        std::vector<unsigned char> before(total * size), after;
        fill(before.data(), type, total, random_);
        after = before;
        for (std::size_t i = 0; i < total; ++i)
            atomic_oracle::apply(op, type, &after[i * size], w_.local(i * size), w_.local(1024 + i * size));
        each_piece(size, [&](const fi_rma_ioc& piece, std::size_t offset, std::size_t at) {
            std::memcpy(w_.local(4096), &before[at], piece.count * size);
            const Operation put{FI_ATOMIC_WRITE, type, piece.count, target_, offset, w_.local(4096), nullptr, nullptr};
            CHECK(w_, perform(w_, put, Form::plain) == 0);
        });
        post_and_wait(type, op);
        CHECK(w_, std::memcmp(w_.local(2048), before.data(), before.size()) == 0);
        each_piece(size, [&](const fi_rma_ioc& piece, std::size_t offset, std::size_t at) {
            const Operation get{FI_ATOMIC_READ, type, piece.count, target_, offset, nullptr, nullptr, w_.local(4096)};
            CHECK(w_, perform(w_, get, Form::plain) == 0);
            CHECK(w_, same(type, piece.count, w_.local(4096), &after[at]));
        });
    }

  private:
    static constexpr std::size_t total = 40; ///< elements of each list

    /// Cuts `total` elements into up to `limit_` pieces: set(number, first element, count).
    template <class Set>
    std::size_t cut(Set&& set)
    {
        std::size_t left = total, n = 0;
        while (left != 0 && n < limit_) {
            const std::size_t take = n + 1 == limit_ ? left : 1 + random_() % left;
            set(n++, total - left, take);
            left -= take;
        }
        return n;
    }
    void cut_all(unsigned size)
    {
        const auto cut_local = [&](fi_ioc* list, std::size_t begin) {
            return cut([&](std::size_t i, std::size_t at, std::size_t n) {
                list[i] = {w_.local(begin + at * size), n};
            });
        };
        operands_ = cut_local(operand_, 0);
        compares_ = cut_local(compare_, 1024);
        results_ = cut_local(result_, 2048);
        remotes_ = cut([&](std::size_t i, std::size_t, std::size_t n) {
            offset_[i] = 8192 + 1024 * i + size * (random_() % 8);
            remote_[i] = {w_.address(target_, offset_[i]), n, w_.key(target_)};
        });
    }
    /// Calls visit(piece, its offset in the region, its first byte in the list) for each remote piece.
    template <class Visit>
    void each_piece(unsigned size, Visit&& visit)
    {
        std::size_t at = 0;
        for (std::size_t i = 0; i < remotes_; ++i) {
            visit(remote_[i], offset_[i], at);
            at += remote_[i].count * size;
        }
    }
    void post_and_wait(fi_datatype type, fi_op op)
    {
        fi_msg_atomic msg{};
        // "the source buffer operand is ignored and may be NULL"
        msg.msg_iov = op == FI_ATOMIC_READ ? nullptr : operand_;
        msg.desc = desc_;
        msg.iov_count = op == FI_ATOMIC_READ ? 0 : operands_;
        msg.addr = w_.peer(target_);
        msg.rma_iov = remote_;
        msg.rma_iov_count = remotes_;
        msg.datatype = type;
        msg.op = op;
        msg.context = &msg;
        const ssize_t rc = w_.post([&] {
            return op >= FI_CSWAP ? fi_compare_atomicmsg(w_.ep(), &msg, compare_, desc_, compares_, result_, desc_,
                                                         results_, FI_COMPLETION)
                                  : fi_fetch_atomicmsg(w_.ep(), &msg, result_, desc_, results_, FI_COMPLETION);
        });
        CHECK(w_, rc == 0);
        void* context = nullptr;
        if (rc == 0)
            CHECK(w_, w_.wait(&context) == 0);
        CHECK(w_, context == &msg);
    }

    World& w_;
    std::mt19937 random_;
    const std::size_t limit_;
    const unsigned target_;
    void* desc_[8];
    fi_ioc operand_[8], compare_[8], result_[8];
    fi_rma_ioc remote_[8];
    std::size_t offset_[8];
    std::size_t operands_ = 0, compares_ = 0, results_ = 0, remotes_ = 0; ///< pieces
};

void check_lists(World& w)
{
    Lists lists(w);
    for (auto type : {FI_UINT8, FI_INT16, FI_UINT32, FI_DOUBLE})
        for (auto op : {FI_SUM, FI_MIN, FI_CSWAP_LT, FI_ATOMIC_READ, FI_ATOMIC_WRITE})
            for (unsigned round = 0; round < 4; ++round)
                if (supported(w, op, type, true))
                    lists.check(type, op);
    w.barrier();
}

} // namespace fabtests
