// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Each call of an endpoint against queues that are full at bad moments: -FI_EAGAIN leaves no trace, what is taken ends
// once and is counted once, what fails has one error entry. Two processes.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>

#include "prov/lib/session.h"

namespace tofu::test {
namespace {

using sim::test::expect_processes;

constexpr unsigned attempts = 192;
constexpr std::size_t stride = 64; ///< a cell for each attempt, at the target and here
constexpr std::uint64_t untouched = 0xeeeeeeeeeeeeeeee;
constexpr std::uint64_t first_value = 1000;
/// Words of the board.
enum : unsigned { taken_word = 600, turn_word = 610, answer_word, reads_word, writes_word, dead_key_word };

using Cells = std::array<std::uint64_t, attempts * stride / 8>;
std::uint64_t& cell(Cells& cells, unsigned i)
{
    return cells[i * stride / 8];
}

/// What a kind of call does where it is taken.
enum class Effect { changes, reads, reads_and_changes, arrives };

struct Side {
    Session& s;
    Window there;
    std::uint64_t dead_key; ///< of a region that has been closed
    Cells source, compare, result;
    std::array<fi_context, attempts> context;
};

struct Kind {
    const char* name;
    bool silent;
    Effect effect;
    std::uint64_t left; ///< in the cell of the target, by one that was taken
    std::function<ssize_t(Side&, unsigned i, std::uint64_t at, std::uint64_t key)> call;
};

Kind atomic(const char* name, fi_datatype type, fi_op op, std::size_t count, std::uint64_t left)
{
    return {name, false, Effect::changes, left, [=](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
                return fi_atomic(x.s.ep, &cell(x.source, i), count, nullptr, 1, at, key, type, op, &x.context[i]);
            }};
}

Kind inject(const char* name, fi_datatype type, fi_op op, std::uint64_t left)
{
    return {name, true, Effect::changes, left, [=](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
                return fi_inject_atomic(x.s.ep, &cell(x.source, i), 1, 1, at, key, type, op);
            }};
}

Kind fetch(const char* name, fi_op op, std::uint64_t left)
{
    return {name, false, Effect::reads_and_changes, left,
            [=](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
                return fi_fetch_atomic(x.s.ep, &cell(x.source, i), 1, nullptr, &cell(x.result, i), nullptr, 1, at, key,
                                       FI_UINT64, op, &x.context[i]);
            }};
}

Kind compare(const char* name, fi_op op, std::uint64_t left)
{
    return {name, false, Effect::reads_and_changes, left,
            [=](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
                return fi_compare_atomic(x.s.ep, &cell(x.source, i), 1, nullptr, &cell(x.compare, i), nullptr,
                                         &cell(x.result, i), nullptr, 1, at, key, FI_UINT64, op, &x.context[i]);
            }};
}

/// Sources hold 1, comparisons first_value; cells that are read hold first_value, the others 0.
const std::vector<Kind>& remote_kinds()
{
    static const std::vector<Kind> kinds{
        {"write", false, Effect::changes, 1,
         [](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
             return fi_write(x.s.ep, &cell(x.source, i), 8, nullptr, 1, at, key, &x.context[i]);
         }},
        {"inject_write", true, Effect::changes, 1,
         [](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
             return fi_inject_write(x.s.ep, &cell(x.source, i), 8, 1, at, key);
         }},
        {"read", false, Effect::reads, first_value,
         [](Side& x, unsigned i, std::uint64_t at, std::uint64_t key) {
             return fi_read(x.s.ep, &cell(x.result, i), 8, nullptr, 1, at, key, &x.context[i]);
         }},
        atomic("one ARMW", FI_UINT64, FI_SUM, 1, 1),
        atomic("a row", FI_UINT64, FI_SUM, 8, 1),
        atomic("a loop", FI_UINT64, FI_LXOR, 1, 1),
        atomic("loops", FI_UINT16, FI_SUM, 32, 1),
        atomic("locked words", FI_LONG_DOUBLE_COMPLEX, FI_SUM, 1, 1),
        inject("one injected ARMW", FI_UINT64, FI_SUM, 1),
        inject("an injected loop", FI_UINT64, FI_LXOR, 1),
        fetch("fetch by ARMW", FI_SUM, first_value + 1),
        fetch("fetch by a loop", FI_LXOR, 0),
        fetch("atomic read", FI_ATOMIC_READ, first_value),
        compare("compare by ARMW", FI_CSWAP, 1),
        compare("compare by a loop", FI_CSWAP_GE, 1),
    };
    return kinds;
}

/// The number of the attempt is the message, or its data.
const std::vector<Kind>& message_kinds()
{
    using Number = std::uint64_t;
    static const std::vector<Kind> kinds{
        {"send", false, Effect::arrives, 0,
         [](Side& x, unsigned i, Number, Number) {
             return fi_send(x.s.ep, &cell(x.source, i), 8, nullptr, 1, &x.context[i]);
         }},
        {"inject", true, Effect::arrives, 0,
         [](Side& x, unsigned i, Number, Number) { return fi_inject(x.s.ep, &cell(x.source, i), 8, 1); }},
        {"senddata", false, Effect::arrives, 0,
         [](Side& x, unsigned i, Number, Number) {
             return fi_senddata(x.s.ep, &cell(x.source, i), 8, nullptr, i, 1, &x.context[i]);
         }},
        {"tsend", false, Effect::arrives, 0,
         [](Side& x, unsigned i, Number, Number) {
             return fi_tsend(x.s.ep, &cell(x.source, i), 8, nullptr, 1, 7, &x.context[i]);
         }},
        {"tinject", true, Effect::arrives, 0,
         [](Side& x, unsigned i, Number, Number) { return fi_tinject(x.s.ep, &cell(x.source, i), 8, 1, 7); }},
    };
    return kinds;
}

bool is_message(const Kind& kind)
{
    return kind.effect == Effect::arrives;
}

struct Counts {
    std::array<std::uint64_t, 3> done, failed; // read, write, send
    static Counts of(Session& s, fid_cntr* send)
    {
        fid_cntr* const all[] = {s.counter[read_counter], s.counter[write_counter], send};
        Counts c{};
        for (unsigned k = 0; k < 3; k++)
            c.done[k] = fi_cntr_read(all[k]), c.failed[k] = fi_cntr_readerr(all[k]);
        return c;
    }
};

unsigned counter_of(const Kind& kind)
{
    return is_message(kind) ? 2 : kind.effect == Effect::changes ? 1 : 0;
}

/// All attempts of a kind, none of which is repeated; then the ends of those that were taken. Returns how many were
/// refused. `broken`: by a key or an address that nothing stands behind.
unsigned attempt_all(Side& x, fid_cntr* send, const Kind& kind, bool broken,
                     std::array<std::uint64_t, attempts / 64>& taken)
{
    SCOPED_TRACE(kind.name);
    const Counts before = Counts::of(x.s, send);
    taken = {};
    unsigned refused = 0, accepted = 0;
    std::vector<unsigned> ends(attempts);
    for (unsigned i = 0; i < attempts; i++) {
        cell(x.source, i) = is_message(kind) ? i : 1;
        cell(x.compare, i) = first_value;
        cell(x.result, i) = untouched;
        const bool far = broken && i % 2 != 0;
        const ssize_t rc = kind.call(x, i, x.there.base + stride * i + (far ? std::uint64_t{1} << 40 : 0),
                                     broken && !far ? x.dead_key : x.there.key);
        if (rc == -FI_EAGAIN) {
            refused++;
            continue;
        }
        EXPECT_EQ(rc, 0) << fi_strerror(static_cast<int>(-rc));
        accepted++;
        taken[i / 64] |= std::uint64_t{1} << (i % 64);
    }
    const unsigned entries = kind.silent && !broken ? 0 : accepted;
    for (unsigned n = 0; n < entries && !testing::Test::HasFailure(); n++) {
        fi_cq_data_entry entry{};
        fi_cq_err_entry error{};
        if (!x.s.next(entry, broken ? &error : nullptr))
            break;
        const auto* const context = static_cast<const fi_context*>(broken ? error.op_context : entry.op_context);
        if (kind.silent)
            continue;
        const auto i = static_cast<std::size_t>(context - x.context.data());
        EXPECT_LT(i, attempts);
        if (i < attempts)
            ends[i]++;
    }
    const unsigned counter = counter_of(kind);
    EXPECT_TRUE(sim::test::wait_until([&] {
        const Counts now = Counts::of(x.s, send);
        return (broken ? now.failed : now.done)[counter] >= (broken ? before.failed : before.done)[counter] + accepted;
    }));
    x.s.expect_silence();
    const Counts after = Counts::of(x.s, send);
    for (unsigned k = 0; k < 3; k++) {
        EXPECT_EQ(after.done[k], before.done[k] + (k == counter && !broken ? accepted : 0)) << "counter " << k;
        EXPECT_EQ(after.failed[k], before.failed[k] + (k == counter && broken ? accepted : 0)) << "counter " << k;
    }
    const bool reads = kind.effect == Effect::reads || kind.effect == Effect::reads_and_changes;
    for (unsigned i = 0; i < attempts; i++) {
        const bool was_taken = (taken[i / 64] >> (i % 64) & 1) != 0;
        EXPECT_EQ(ends[i], was_taken && !kind.silent ? 1u : 0u) << "attempt " << i;
        if (!broken)
            EXPECT_EQ(cell(x.result, i), was_taken && reads ? first_value : untouched) << "attempt " << i;
    }
    return refused;
}

std::vector<Kind> all_kinds()
{
    std::vector<Kind> all = remote_kinds();
    all.insert(all.end(), message_kinds().begin(), message_kinds().end());
    return all;
}

/// Tells the target what was taken, and waits until it has found that and nothing else.
void hand_over(Side& x, const Rank& rank, unsigned turn, const std::array<std::uint64_t, attempts / 64>& taken)
{
    for (unsigned i = 0; i < taken.size(); i++)
        rank.set(taken_word + i, taken[i]);
    rank.set(turn_word, turn);
    EXPECT_TRUE(sim::test::wait_until([&] {
        fi_cq_read(x.s.cq, nullptr, 0);
        return rank.get(answer_word) == turn;
    }));
}

void initiate(const Rank& rank, Session& s, fid_cntr* send, const Window& there)
{
    static Side x{s, there, rank.get(dead_key_word), {}, {}, {}, {}};
    unsigned refused = 0, turn = 0;
    std::array<std::uint64_t, attempts / 64> taken;
    for (const Kind& kind : all_kinds()) {
        const unsigned n = attempt_all(x, send, kind, false, taken);
        EXPECT_LT(n, attempts) << kind.name;
        refused += n;
        hand_over(x, rank, ++turn, taken);
        if (testing::Test::HasFailure())
            std::exit(1);
    }
    EXPECT_GT(refused, 0u);
    for (const Kind& kind : remote_kinds())
        attempt_all(x, send, kind, true, taken);
    taken = {};
    hand_over(x, rank, ++turn, taken); // nothing of it has reached the region
}

/// The other side: what is in the region, what has arrived, what the counters of remote operations say.
class Target {
  public:
    Target(const Rank& rank, Session& s, Cells& region) : rank_(rank), s_(s), region_(region) {}

    void run()
    {
        for (unsigned i = 0; i < attempts; i++) {
            receive(i, false);
            receive(i, true);
        }
        unsigned turn = 0;
        std::uint64_t reads = 0, writes = 0;
        for (const Kind& kind : all_kinds()) {
            SCOPED_TRACE(kind.name);
            std::vector<std::uint64_t> taken = next_turn(++turn);
            if (is_message(kind)) {
                EXPECT_TRUE(sim::test::wait_until([&] { return poll(), arrived_.size() >= taken.size(); }));
                for (unsigned i = 0; i < 100; i++)
                    poll();
                std::sort(arrived_.begin(), arrived_.end());
                EXPECT_EQ(arrived_, taken);
                arrived_.clear();
            } else {
                (kind.effect == Effect::changes ? writes : reads) += taken.size();
                compare_cells(kind, taken);
            }
            EXPECT_TRUE(sim::test::wait_until([&] {
                poll();
                return fi_cntr_read(s_.counter[remote_read_counter]) >= reads &&
                       fi_cntr_read(s_.counter[remote_write_counter]) >= writes;
            }));
            EXPECT_EQ(fi_cntr_read(s_.counter[remote_read_counter]), reads);
            EXPECT_EQ(fi_cntr_read(s_.counter[remote_write_counter]), writes);
            if (testing::Test::HasFailure())
                std::exit(1);
            prepare(turn);
            rank_.set(answer_word, turn);
        }
        const Cells before = region_;
        next_turn(++turn);
        EXPECT_EQ(region_, before);
        EXPECT_EQ(fi_cntr_read(s_.counter[remote_read_counter]), reads);
        EXPECT_EQ(fi_cntr_read(s_.counter[remote_write_counter]), writes);
        rank_.set(answer_word, turn);
    }

  private:
    /// The region as the kind of this number wants it; the first finds it zero, and is under way already.
    void prepare(unsigned number)
    {
        const std::vector<Kind> kinds = all_kinds();
        region_.fill(0);
        if (number < kinds.size() && kinds[number].effect != Effect::changes)
            for (unsigned i = 0; i < attempts; i++)
                cell(region_, i) = first_value;
    }
    std::vector<std::uint64_t> next_turn(unsigned turn)
    {
        EXPECT_TRUE(sim::test::wait_until([&] { return poll(), rank_.get(turn_word) == turn; }));
        std::vector<std::uint64_t> taken;
        for (unsigned i = 0; i < attempts; i++)
            if (rank_.get(taken_word + i / 64) >> (i % 64) & 1)
                taken.push_back(i);
        return taken;
    }
    void compare_cells(const Kind& kind, const std::vector<std::uint64_t>& taken)
    {
        for (unsigned i = 0; i < attempts; i++) {
            const bool was_taken = std::binary_search(taken.begin(), taken.end(), i);
            const std::uint64_t old = kind.effect == Effect::changes ? 0 : first_value;
            EXPECT_EQ(cell(region_, i), was_taken ? kind.left : old) << "attempt " << i;
        }
    }
    void receive(unsigned i, bool tagged)
    {
        std::uint64_t* const to = &buffers_[2 * i + (tagged ? 1 : 0)];
        ASSERT_EQ(s_.post([&] {
            return tagged ? fi_trecv(s_.ep, to, 8, nullptr, FI_ADDR_UNSPEC, 7, 0, to)
                          : fi_recv(s_.ep, to, 8, nullptr, FI_ADDR_UNSPEC, to);
        }),
                  0);
    }
    void poll()
    {
        fi_cq_data_entry entry{};
        const ssize_t n = fi_cq_read(s_.cq, &entry, 1);
        ASSERT_TRUE(n == 1 || n == -FI_EAGAIN) << n;
        if (n != 1)
            return;
        ASSERT_NE(entry.flags & FI_RECV, 0u);
        const auto at = static_cast<std::uint64_t*>(entry.op_context) - buffers_.data();
        arrived_.push_back(buffers_[static_cast<std::size_t>(at)]);
        receive(static_cast<unsigned>(at) / 2, at % 2 != 0);
    }

    const Rank& rank_;
    Session& s_;
    Cells& region_;
    std::array<std::uint64_t, 2 * attempts> buffers_{};
    std::vector<std::uint64_t> arrived_;
};

void refuse_at_bad_moments(const Rank& rank, int mr_mode, const char* seed)
{
    setenv("TOFU_SIM_CHAOS", seed, 1);
    alignas(65536) static Cells region;
    alignas(65536) static Cells gone;
    Options options;
    options.caps = FI_RMA | FI_ATOMIC | FI_MSG | FI_TAGGED | FI_RMA_EVENT;
    options.counters = true;
    options.enable = false;
    options.mr_mode = mr_mode;
    fid_cntr* send = nullptr;
    {
        Session s(rank, options);
        fi_cntr_attr attr{};
        Session::check(fi_cntr_open(s.domain, &attr, &send, nullptr), "fi_cntr_open");
        Session::check(fi_ep_bind(s.ep, &send->fid, FI_SEND), "bind send");
        Session::check(fi_enable(s.ep), "fi_enable");
        s.exchange_addresses();
        fid_mr* mr = nullptr;
        Session::check(fi_mr_reg(s.domain, gone.data(), sizeof(gone), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77,
                                 FI_RMA_EVENT, &mr, nullptr),
                       "fi_mr_reg");
        if (rank.number == 1)
            rank.set(dead_key_word, fi_mr_key(mr));
        EXPECT_EQ(fi_close(&mr->fid), 0);
        const auto all = s.share(region.data(), sizeof(region), FI_REMOTE_READ | FI_REMOTE_WRITE, 5);
        if (rank.number == 0)
            initiate(rank, s, send, all[1]);
        else
            Target(rank, s, region).run();
        s.barrier();
        EXPECT_EQ(fi_close(&s.ep->fid), 0); // before what is bound to it
        s.ep = nullptr;
        EXPECT_EQ(fi_close(&send->fid), 0);
    }
}

TEST(FullQueues, ARefusalLeavesNoTrace)
{
    expect_processes(2, [](const Rank& rank) { refuse_at_bad_moments(rank, provider_keys, "31"); });
}

TEST(FullQueues, ARefusalLeavesNoTraceWithKeysOfTheUser)
{
    expect_processes(2, [](const Rank& rank) { refuse_at_bad_moments(rank, 0, "32"); });
}

} // namespace
} // namespace tofu::test
